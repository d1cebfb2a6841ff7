//! A program compiled for the test, and its debug info about a function.

use std::process::Command;

use super::Shape;
use crate::symbols::probe_points::Object;

/// A function of which the compiler moves a rarely executed part elsewhere.
const IN_PIECES: &str = "#include <stdlib.h>
struct pair { long first, second; };
volatile long sink;
__attribute__((noinline)) long often(struct pair *pair) {
    if (pair->first > 5) { sink++; abort(); }
    sink = pair->second;
    return sink;
}
int main(int argc, char **argv) { struct pair pair = { argc, argc }; return often(&pair); }
";

#[test]
fn variables_of_a_function_in_pieces_and_members_in_every_version() {
    for version in ["-gdwarf-2", "-gdwarf-3", "-gdwarf-4", "-gdwarf-5"] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("program.c"), IN_PIECES).unwrap();
        let arguments = [
            "-O2",
            "-gstrict-dwarf",
            version,
            "-o",
            "program",
            "program.c",
        ];
        let mut compiler = Command::new("cc");
        if !crate::needs::met(&["cc"]) {
            return;
        }
        let compiled = compiler.args(arguments).current_dir(folder.path()).status();
        let status = compiled.unwrap();
        assert!(status.success(), "{version}");
        let object = Object::open(&folder.path().join("program")).unwrap();
        let functions = object.functions();
        let often = functions.iter().find(|function| function.name == "often");
        let often = often.unwrap();
        let scope = object.variables_at(often, often.offset).unwrap();
        assert!(scope.has_debugging_information(), "{version}");
        let pair = scope.variable("pair").unwrap();
        let Shape::Pointer(structure) = scope.shape(pair.kind) else {
            panic!("{version}: no pointer");
        };
        let members = scope.members(structure);
        let offsets: Vec<(&str, u64)> = members
            .iter()
            .map(|member| (member.name.as_str(), member.offset))
            .collect();
        assert_eq!(offsets, [("first", 0), ("second", 8)], "{version}");
    }
}

#[test]
fn integers_that_functions_return() {
    if !crate::needs::met(&["cc"]) {
        return;
    }
    let source = "typedef int status; typedef unsigned char byte;
status first(void) { return -5; }
unsigned second(void) { return 5; }
byte third(void) { return 5; }
long fourth(void) { return 5; }
char *fifth(void) { return 0; }
void sixth(void) {}
int main(void) { return 0; }
";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("program.c"), source).unwrap();
    let arguments = ["-O0", "-g", "-o", "program", "program.c"];
    let mut compiler = Command::new("cc");
    let compiled = compiler.args(arguments).current_dir(folder.path()).status();
    assert!(compiled.unwrap().success());
    let object = Object::open(&folder.path().join("program")).unwrap();
    let functions = object.functions();
    let returned = |name: &str| {
        let function = functions.iter().find(|function| function.name == name);
        object.returned_integer(function.unwrap())
    };
    assert_eq!(returned("first"), Some((4, true)));
    assert_eq!(returned("second"), Some((4, false)));
    assert_eq!(returned("third"), Some((1, false)));
    assert_eq!(returned("fourth"), Some((8, true)));
    assert_eq!(returned("fifth"), None);
    assert_eq!(returned("sixth"), None);
}
