//! The BPF programs: the committed objects match their sources.

use perfquet_tests::bpf::{clang, committed, compile, names, sections};

/// The compiler of the committed objects; another one generates other instructions from the same source.
const CLANG: u32 = 14;

#[test]
fn objects_fit_their_sources() {
    let Some(version) = clang() else {
        perfquet_tests::skip("needs clang");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for name in names().unwrap() {
        let fresh = folder.path().join(&name);
        compile(&name, &fresh).unwrap();
        let read = |path| sections(&std::fs::read(path).unwrap()).unwrap();
        let (kept, fresh) = (read(committed(&name)), read(fresh));
        let programs = |sections: &[perfquet_tests::bpf::Section]| -> Vec<String> {
            let code = sections.iter().filter(|section| section.is_code);
            code.map(|section| section.name.clone()).collect()
        };
        assert_eq!(
            programs(&kept),
            programs(&fresh),
            "{name}: run `cargo xtask bpf`"
        );
        if version != CLANG {
            perfquet_tests::skip(&format!(
                "{name}: needs the compiler of the kept objects (clang {CLANG}, found {version})"
            ));
            continue;
        }
        for (kept, fresh) in kept.iter().zip(&fresh) {
            let has_behavior =
                kept.is_code || [".rodata", ".maps", ".BTF"].contains(&kept.name.as_str());
            assert!(
                !has_behavior || kept == fresh,
                "{name}: section {}: run `cargo xtask bpf`",
                kept.name
            );
        }
    }
}
