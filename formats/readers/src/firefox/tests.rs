//! Golden files, cases that they lack, and random bytes.

use proptest::prelude::*;

use super::FIREFOX;
use crate::golden::*;

#[test]
fn golden() {
    for path in golden_files("firefox") {
        assert_golden(&path, &read_golden(&FIREFOX, &path));
        if !path.to_string_lossy().contains("garbage") {
            assert_recognized(&FIREFOX, &path);
        }
    }
}

/// Versions differ in where tables are, and in a few columns; the events are the same.
#[test]
fn versions_agree() {
    let of = |name: &str| {
        let path = golden_files("firefox")
            .into_iter()
            .find(|path| path.ends_with(name))
            .unwrap();
        let mut events = read_golden(&FIREFOX, &path);
        // IDs of stacks differ, since their tables do.
        let defined = events.clone();
        let defined = defined.lines().filter_map(|line| {
            let (id, frames) = line.strip_prefix("stack ")?.split_once(" pid=None ")?;
            Some((format!("stack=id {id} "), format!("stack={frames} ")))
        });
        events = events.replace('\n', " \n");
        for (id, frames) in defined {
            events = events.replace(&id, &frames);
        }
        let lines = events.lines().filter(|line| {
            !line.contains("preprocessedProfileVersion") && !line.starts_with("stack ")
        });
        let lines: Vec<String> = lines.map(str::to_owned).collect();
        assert!(
            !lines.iter().any(|line| line.contains("stack=id ")),
            "{lines:?}"
        );
        lines
    };
    let newest = of("version-70.json");
    assert!(newest.len() > 10);
    assert_eq!(of("version-60.json"), newest);
    assert_eq!(of("version-50.json"), newest);
}

#[test]
fn threads_whose_id_is_a_text_have_numbers() {
    let path = golden_files("firefox")
        .into_iter()
        .find(|path| path.ends_with("version-60.json"))
        .unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.replace("\"tid\": \"101\"", "\"tid\": \"main-1\"");
    let events = read_bytes(&FIREFOX, text.as_bytes());
    let comms = events
        .lines()
        .filter(|line| line.contains("tid: 1073741824"));
    let names: Vec<&str> = comms.filter_map(|line| line.split('"').nth(1)).collect();
    assert_eq!(names, ["main-1", "worker"], "{events}");
    let samples = events.lines().filter(|line| line.starts_with("sample"));
    assert_eq!(
        samples
            .filter(|line| line.contains("tid=1073741824 "))
            .count(),
        2,
        "{events}"
    );
}

#[test]
fn raw_profiles_are_refused() {
    let events = read_bytes(
        &FIREFOX,
        b"{\"meta\":{\"interval\":1,\"version\":24,\"stackwalk\":1},\"threads\":[]}",
    );
    assert!(events.contains("a raw profile of Gecko"), "{events}");
}

/// Stacks whose prefix is not before them, missing indices, times and weights: the samples are kept, and each fault is reported.
#[test]
fn faulty_samples() {
    let text = "{\"meta\":{\"preprocessedProfileVersion\":60},\"shared\":{\"stackTable\":{\"frame\":[0,9,0],\"prefix\":[null,0,2]},\
        \"frameTable\":{\"func\":[0]},\"funcTable\":{\"name\":[0]},\"stringArray\":[\"f\"]},\"threads\":[{\"name\":\"t\",\"tid\":7,\
        \"samples\":{\"stack\":[0,1,2,77,\"x\",null],\"time\":[1,2,3,4,5],\"weight\":[1,1,1,-1,1,1]}}]}";
    let events = read_bytes(&FIREFOX, text.as_bytes());
    let lines: Vec<String> = events
        .lines()
        .filter(|line| {
            !line.starts_with("Fact") && !line.starts_with("Comm") && !line.starts_with("type")
        })
        .map(|line| match line.split_once(" × ") {
            Some((_, message)) => message.to_owned(),
            None => line.to_owned(),
        })
        .collect();
    assert_eq!(
        lines,
        [
            // A sample without a time precedes those with one.
            "stack 0x1 pid=None [\"f\"]",
            "sample 0 time=1000000 tid=7 period=1 user_stack=id 0x1",
            "expected the index of a stack, found \"1\"",
            "sample 0 time=2000000 tid=7 period=1",
            "expected the index of a stack, found \"2\"",
            "sample 0 time=3000000 tid=7 period=1 user_stack=[\"f\"]",
            "expected the index of a stack, found \"77\"",
            "expected a weight of at least 0, found \"-1\"",
            "sample 0 time=4000000 tid=7",
            "expected the index of a stack, found \"\\\"x\\\"\"",
            "sample 0 time=5000000 tid=7 period=1",
            "a sample without a time",
            "sample 0 tid=7 period=1",
        ]
    );
}

/// A stack of the kernel and of the user, and one of which the leaf alone is known.
#[test]
fn stacks_are_defined_once() {
    let text = "{\"meta\":{\"preprocessedProfileVersion\":60,\"categories\":[{\"name\":\"User\"},{\"name\":\"Kernel\"}]},\"shared\":{\
        \"stackTable\":{\"frame\":[0,1],\"prefix\":[null,0]},\"frameTable\":{\"func\":[0,1],\"category\":[0,1]},\
        \"funcTable\":{\"name\":[0,1]},\"stringArray\":[\"main\",\"vfs_read\"]},\"threads\":[{\"name\":\"t\",\"tid\":7,\
        \"samples\":{\"stack\":[1,0,1],\"time\":[1,2,3]}}]}";
    let events = read_bytes(&FIREFOX, text.as_bytes());
    let lines: Vec<&str> = events
        .lines()
        .filter(|line| line.starts_with("stack") || line.starts_with("sample"))
        .collect();
    assert_eq!(
        lines,
        [
            "stack 0x2 pid=None [\"vfs_read\" (kernel)]",
            "stack 0x3 pid=None [\"main\" (user)]",
            "sample 0 time=1000000 tid=7 period=1 kernel_stack=id 0x2 user_stack=id 0x3",
            "stack 0x1 pid=None [\"main\" (user)]",
            "sample 0 time=2000000 tid=7 period=1 user_stack=id 0x1",
            "sample 0 time=3000000 tid=7 period=1 kernel_stack=id 0x2 user_stack=id 0x3",
        ]
    );
}

#[test]
fn allocations_have_their_bytes() {
    let text = r#"{"meta":{"preprocessedProfileVersion":60},"shared":{"stackTable":{"frame":[0],"prefix":[null]},
        "frameTable":{"func":[0]},"funcTable":{"name":[0]},"stringArray":["f"]},"threads":[{"name":"t","pid":"7","tid":7,
        "samples":{"stack":[],"time":[]},
        "nativeAllocations":{"time":[13,11],"stack":[null,0],"weight":[-64,64],"weightType":"bytes","memoryAddress":[9,9],"threadId":[8,8]},
        "jsAllocations":{"time":[12,12],"stack":[0,0],"className":["Array",null],"typeName":["x"],"coarseType":["Object"],"weight":[48,"?"],
        "weightType":"bytes","inNursery":[true]}}]}"#;
    let events = read_bytes(&FIREFOX, text.as_bytes());
    let lines: Vec<&str> = events
        .lines()
        .filter(|line| line.starts_with("sample") || line.starts_with("problem"))
        .collect();
    assert_eq!(
        lines,
        [
            "sample 1 time=11000000 pid=7 tid=8 user_stack=id 0x1 fields=[64, 9]",
            "sample 1 time=13000000 pid=7 tid=8 fields=[-64, 9]",
            "sample 2 time=12000000 pid=7 tid=7 user_stack=id 0x1 fields=[48, \"Array\", \"x\", \"Object\", true]",
            "problem offset 0x218: 1 × expected a number of bytes, found \"\\\"?\\\"\"",
            "sample 2 time=12000000 pid=7 tid=7 user_stack=id 0x1 fields=[NULL, NULL, NULL, NULL, NULL]",
        ]
    );
}

proptest! {
    #[test]
    fn any_bytes(text in "[\\[\\]{}\",:a-z0-9.\\\\ ]{0,120}") {
        read_bytes(&FIREFOX, text.as_bytes());
        let profile = format!("{{\"meta\":{{\"preprocessedProfileVersion\":1}},\"threads\":[{{\"samples\":{{\"stack\":[{text}");
        read_bytes(&FIREFOX, profile.as_bytes());
    }
}

/// samply saves the names of functions beside the profile, by the ID of the library and the address in it.
#[test]
fn names_beside_a_profile() {
    let profile = r#"{"meta":{"interval":1,"startTime":0,"preprocessedProfileVersion":60,"product":"samply","categories":[{"name":"User"}]},
        "libs":[{"name":"prog","path":"/w/prog","breakpadId":"9A7C00000000000000000000000000010"}],
        "shared":{"stackTable":{"frame":[0,1,2],"prefix":[null,0,0]},
            "frameTable":{"func":[0,1,2],"address":[4660,22136,1],"category":[0,0,0]},
            "funcTable":{"name":[0,1,2],"resource":[0,0,0]},"resourceTable":{"lib":[0]},"stringArray":["0x1234","0x5678","0x1"]},
        "threads":[{"name":"w","pid":"7","tid":7,"samples":{"length":2,"stack":[1,2],"time":[1,2],"weight":[1,1],"weightType":"samples"}}]}"#;
    let symbols = r#"{"string_table":["UNKNOWN","main","work"],"data":[{"debug_name":"work","debug_id":"9a7c0000-0000-0000-0000-000000000001","code_id":"",
        "symbol_table":[{"rva":4640,"size":90,"symbol":1},{"rva":22000,"symbol":2,"frames":[{"function":0,"file":0,"line":9}]}],
        "known_addresses":[[4660,0],[22136,1],[7,9]]}]}"#;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile.json");
    std::fs::write(&path, profile).unwrap();
    let named = |events: &str| {
        let named = |name: &str| events.contains(&format!("\"{name}"));
        (named("main"), named("work"))
    };
    assert_eq!(named(&read_golden(&FIREFOX, &path)), (false, false));
    for name in ["profile.syms.json", "profile.json.syms.json"] {
        let beside = folder.path().join(name);
        std::fs::write(&beside, symbols).unwrap();
        let events = read_golden(&FIREFOX, &path);
        assert_eq!(named(&events), (true, true), "{events}");
        assert!(events.contains("2 addresses"), "{events}");
        std::fs::remove_file(&beside).unwrap();
    }
    std::fs::write(folder.path().join("profile.syms.json"), "{}").unwrap();
    let events = read_golden(&FIREFOX, &path);
    assert!(events.contains("expected symbols of samply"), "{events}");
}
