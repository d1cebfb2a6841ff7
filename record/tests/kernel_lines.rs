//! Lines and variables of the kernel, from a file with the running kernel's build ID; slow probe locations in programs.
//!
//! Test hosts lack the debug package of their kernel, so a test program gets the kernel's build ID instead. The test
//! checks the lines and variables that are read from it, but does not use them for probes.

mod room;

use std::fmt::Write;

use room::{Room, may_record, needs};

/// Finds the build ID in the kernel's notes, after "GNU" and a NUL.
fn kernel_build_id() -> Option<String> {
    let notes = std::fs::read("/sys/kernel/notes").ok()?;
    let head = [4u32, 20, 3].map(u32::to_ne_bytes).concat();
    let head = [&head[..], b"GNU\0"].concat();
    let at = notes.windows(16).position(|window| window == head)?;
    let mut text = String::new();
    for byte in notes.get(at + 16..at + 36)? {
        let _ = write!(text, "{byte:02x}");
    }
    Some(text)
}

#[test]
fn lines_and_variables() {
    if !needs::met(&["a kernel with a build id"]) {
        return;
    }
    let build_id = kernel_build_id().expect("the kernel's notes hold it");
    let room = Room::new();
    let own = format!("-Wl,--build-id=0x{build_id}");
    let options = ["-g", "-O0", "-no-pie", own.as_str()];
    let Some(program) = room.compile("probed.c", &options) else {
        return;
    };
    let vmlinux = room.path("vmlinux");
    std::fs::rename(program, &vmlinux).expect("it is renamed");
    let shown = |arguments: &[&str]| {
        let output = room.recorder().args(arguments).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (
            output.status.code(),
            text,
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let given = ["--vmlinux", "./vmlinux"];
    let (status, text, stderr) = shown(&[&given[..], &["--lines", "work"]].concat());
    assert_eq!(status, Some(0), "{stderr}");
    assert!(text.contains("     4  \t\ttotal += item->id;\n"), "{text}");
    let (status, text, stderr) = shown(&[&given[..], &["--vars", "work:4"]].concat());
    assert_eq!(status, Some(0), "{stderr}");
    assert!(text.contains("total  s32"), "{text}");
    assert!(
        text.contains("(%bp)") || text.contains("(%x29)") || text.contains("(%sp)"),
        "{text}"
    );
    // Another build, a file without debug info, no file.
    let probe = ["--kprobe", "work:4 total", "--", "true"];
    std::fs::remove_file(&vmlinux).expect("it goes");
    room.compile("probed.c", &["-g", "-Wl,--build-id=sha1"])
        .expect("as before");
    let (status, _, stderr) = shown(&[&["--vmlinux", "./probed"], &probe[..]].concat());
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stderr.contains("it belongs to another kernel"), "{stderr}");
    room.compile("probed.c", &[own.as_str()])
        .expect("as before");
    let (status, _, stderr) = shown(&[&["--vmlinux", "./probed"], &probe[..]].concat());
    assert_eq!(status, Some(1), "{stderr}");
    assert!(
        stderr.contains("it has no debugging information"),
        "{stderr}"
    );
    let (status, _, stderr) = shown(&["--lines", "vfs_read"]);
    if status != Some(0) {
        assert!(stderr.contains("require debug info"), "{stderr}");
        assert!(
            stderr.contains("hint: install the kernel's debug package"),
            "{stderr}"
        );
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn slow_probe_is_reported_with_a_fast_neighbor() {
    if !may_record() || !needs::met(&["uprobes"]) {
        return;
    }
    let room = Room::new();
    let options = ["-O2", "-fcf-protection=full", "-fno-omit-frame-pointer"];
    if room.compile("probed.c", &options).is_none() {
        return;
    }
    let stderr = room.record(&["--uprobe", "./probed:main", "--", "./probed"]);
    assert!(
        stderr.contains("./probed:main: slow (single-stepped)"),
        "{stderr}"
    );
    let Some((before, _)) = stderr.split_once(" is emulated and runs as often") else {
        panic!("no neighbor: {stderr}");
    };
    let neighbor = before.rsplit(' ').next().expect("a word").to_owned();
    let place = format!("./probed:{neighbor}");
    let stderr = room.record(&["--uprobe", &place, "--", "./probed"]);
    assert!(!stderr.contains("single-stepped"), "{stderr}");
    assert_eq!(room.rows("events/probe_probed/main", &["comm"]), ["probed"]);
}
