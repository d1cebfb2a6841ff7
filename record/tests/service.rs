//! `--install-service`: the unit that it writes, and what it refuses.

mod room;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::Command;

use room::{NOBODY, Room, ended, needs};

const RING: &[&str] = &["--rotate", "10m", "--keep", "24h"];

/// Installs into the room; returns the status, stdout and stderr.
fn install(room: &Room, options: &[&str]) -> (Option<i32>, String, String) {
    let folder = room.path("");
    let mut recorder = room.recorder();
    let option = format!("--install-service={}", folder.display());
    let output = recorder.arg(option).args(options).output();
    let output = output.expect("the recorder runs");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let (status, stderr) = ended(output);
    (status, stdout, stderr)
}

fn unit(room: &Room) -> String {
    fs::read_to_string(room.path("perfquet.service")).expect("a unit")
}

fn exec_start(room: &Room) -> String {
    let unit = unit(room);
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    line.expect("a command line").to_owned()
}

#[test]
fn the_unit_has_the_given_options() {
    let room = Room::new();
    let (status, stdout, stderr) = install(&room, &[]);
    assert_eq!(status, Some(0), "{stderr}");
    let path = room.path("perfquet.service");
    assert_eq!(
        stdout,
        format!(
            "{}\nnext: systemctl daemon-reload\n      systemctl enable --now perfquet\n",
            path.display()
        )
    );
    let options = "--preset fleet --rotate 10m --keep 168h,20G -o /var/lib/perfquet";
    assert!(exec_start(&room).ends_with(options), "{}", unit(&room));
    let mode = path.metadata().expect("a unit").permissions().mode();
    assert_eq!(mode & 0o777, 0o644);

    // Words that systemd would split, expand, or take for the end of the line.
    let words = [
        "-a",
        "-e",
        "syscalls:sys_enter_write",
        "--filter",
        "count > 100 && comm != \"a $b %h;\"",
        "-o",
        "/srv/my traces",
    ];
    let options = [RING, &words[..]].concat();
    let (status, stdout, stderr) = install(&room, &options);
    assert_eq!(status, Some(0), "{stderr}");
    assert!(
        stdout.ends_with("      systemctl restart perfquet\n"),
        "{stdout}"
    );
    let line = exec_start(&room);
    let expected = "--rotate 10m --keep 24h -a -e syscalls:sys_enter_write --filter \
                    \"count > 100 && comm != \\\"a $$b %%h;\\\"\" -o \"/srv/my traces\"";
    assert!(line.ends_with(expected), "{line}");
    let files = fs::read_dir(room.path("")).expect("the room");
    assert_eq!(files.count(), 1, "nothing else is left");

    if needs::met(&["systemd-analyze"]) {
        let output = Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .arg(&path)
            .output();
        let (status, complaints) = ended(output.expect("it runs"));
        assert!(!complaints.contains("perfquet"), "{complaints}");
        assert_eq!(status, Some(0), "{complaints}");
    }
}

#[test]
fn other_files_are_not_replaced() {
    let room = Room::new();
    let path = room.path("perfquet.service");
    fs::write(&path, "[Service]\nExecStart=/bin/true\n").expect("written");
    let (status, _, stderr) = install(&room, &[]);
    assert_eq!(status, Some(1));
    assert!(
        stderr.contains("perfquet.service exists, and is not from --install-service"),
        "{stderr}"
    );
    assert_eq!(unit(&room), "[Service]\nExecStart=/bin/true\n");
    // A masked unit.
    fs::remove_file(&path).expect("removed");
    symlink("/dev/null", &path).expect("a link");
    assert_eq!(install(&room, &[]).0, Some(1));
    assert!(path.is_symlink());
}

#[test]
fn what_cannot_run_as_a_service_is_refused() {
    let room = Room::new();
    let check = |options: &[&str], expected: &str| {
        let (status, stdout, stderr) = install(&room, options);
        assert_eq!(status, Some(2), "{stderr}");
        assert!(stderr.contains(expected), "{expected:?} in {stderr}");
        assert_eq!(stdout, "");
        assert!(!room.path("perfquet.service").exists());
    };
    let ring = |more: &[&'static str]| [RING, more].concat();
    check(&["-a", "-o", "/srv/x"], "requires --rotate");
    check(&ring(&["-a"]), "requires -o with an absolute path");
    check(
        &ring(&["-a", "-o", "x"]),
        "requires -o with an absolute path",
    );
    check(
        &ring(&["-o", "/srv/x", "--", "true"]),
        "--rotate cannot be combined with a command",
    );
    check(&ring(&["-a", "-o", "/srv/x", "--wrong"]), "--wrong");
}

#[test]
fn a_missing_permission_is_named() {
    if !needs::met(&["root"]) {
        return;
    }
    let room = Room::new();
    let program = room.give_to(NOBODY);
    let folder = tempfile::tempdir().expect("a folder of root");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    let install = |folder: &std::path::Path| {
        let option = format!("--install-service={}", folder.display());
        let output = Command::new(&program).arg(option).uid(NOBODY).output();
        ended(output.expect("the recorder runs"))
    };
    let (status, stderr) = install(folder.path());
    assert_eq!(status, Some(1));
    assert!(stderr.contains("Permission denied"), "{stderr}");
    assert!(stderr.contains("hint: run as root"), "{stderr}");
    let (status, stderr) = install(&folder.path().join("none"));
    assert_eq!(status, Some(1));
    assert!(stderr.contains("No such file"), "{stderr}");
}
