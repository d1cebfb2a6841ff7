//! The packages of `cargo xtask dist`, installed into an empty root and run there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use perfquet_tests::{bin, dist, needs, root, skip};

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Packs the programs under test. Returns the directory of the packages.
fn packages(directory: &Path) -> PathBuf {
    let programs = bin("perfquet-query");
    for name in dist::PROGRAMS {
        bin(name);
    }
    let output = directory.join("packages");
    run(Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["dist", "--quick", "--output"])
        .arg(&output)
        .env("PERFQUET_BIN_DIR", programs.parent().unwrap()));
    output
}

fn package(directory: &Path, ending: &str) -> PathBuf {
    let mut entries = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .find(|path| path.to_string_lossy().ends_with(ending))
        .unwrap_or_else(|| panic!("no package {ending} in {}", directory.display()))
}

/// Copies the libraries listed by `ldd`, as a container with a C library has them.
fn add_libraries(root: &Path, program: &Path) {
    let output = run(Command::new("ldd").arg(program));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for word in text.split_whitespace().filter(|word| word.starts_with('/')) {
        let copy = root.join(word.trim_start_matches('/'));
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(word, copy).unwrap();
    }
}

/// Checks the service below `prefix`: the recorder takes its command line, systemd limits it, and it is not enabled.
fn check_service(prefix: &Path, directory: &Path) {
    let text = fs::read_to_string(prefix.join(dist::SERVICE)).unwrap();
    let value = |name: &str| {
        let lines = text.lines().filter_map(|line| line.strip_prefix(name));
        let values: Vec<&str> = lines.filter_map(|rest| rest.strip_prefix('=')).collect();
        assert_eq!(values.len(), 1, "{name} in {text}");
        values[0]
    };
    for name in ["CPUQuota", "MemoryMax", "Restart", "StateDirectory"] {
        assert!(!value(name).is_empty(), "{name}");
    }
    let line = value("ExecStart");
    let (program, options) = line.split_once(' ').unwrap();
    let recorder = prefix.join("bin").join(program);
    // No process has this number, so the options are read, and nothing is recorded.
    let output = Command::new(&recorder)
        .args(options.split(' '))
        .args(["-p", "4194305"])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("process 4194305"), "{stderr}");
    assert!(!prefix.join("etc").exists(), "a package enables nothing");

    if let Some(reason) = needs::missing("systemd-analyze") {
        return skip(&reason);
    }
    let unit = directory.join("perfquet.service");
    let line = format!("ExecStart={}", recorder.display());
    fs::write(&unit, text.replacen("ExecStart=perfquet-record", &line, 1)).unwrap();
    let output = run(Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&unit));
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(!complaints.contains("perfquet"), "{complaints}");
}

#[test]
fn packages_work_in_an_empty_root() {
    let directory = tempfile::tempdir().unwrap();
    let packages = packages(directory.path());

    // Below any prefix.
    let prefix = directory.path().join("opt");
    fs::create_dir(&prefix).unwrap();
    run(Command::new("tar")
        .args([
            "--use-compress-program",
            "zstd",
            "--strip-components=1",
            "--extract",
            "--file",
        ])
        .arg(package(&packages, ".tar.zst"))
        .arg("--directory")
        .arg(&prefix));
    for name in dist::PROGRAMS {
        let output = run(Command::new(prefix.join("bin").join(name)).arg("--version"));
        assert!(String::from_utf8_lossy(&output.stdout).starts_with(name));
        for path in [
            format!("man/man1/{name}.1"),
            format!("bash-completion/completions/{name}"),
            format!("fish/vendor_completions.d/{name}.fish"),
            format!("zsh/site-functions/_{name}"),
        ] {
            let text = fs::read_to_string(prefix.join("share").join(&path)).unwrap();
            assert!(text.contains(name), "{path}");
        }
    }
    let page = fs::read_to_string(prefix.join("share/man/man1/perfquet-query-top.1")).unwrap();
    assert!(page.contains("List the hottest functions"), "{page}");
    // No hidden option is shown.
    assert!(!page.contains("generate"));
    check_service(&prefix, directory.path());

    if !needs::is_root() || Command::new("dpkg").arg("--version").output().is_err() {
        return skip("needs root and dpkg to install a package");
    }
    let system = directory.path().join("root");
    for path in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "tmp"] {
        fs::create_dir_all(system.join(path)).unwrap();
    }
    fs::write(system.join("var/lib/dpkg/status"), "").unwrap();
    run(Command::new("dpkg")
        .arg(format!("--root={}", system.display()))
        // The root has no package of the C library, only its files.
        .args(["--force-depends", "--install"])
        .arg(package(&packages, ".deb")));
    let service = system.join("usr").join(dist::SERVICE);
    assert!(service.is_file(), "{}", service.display());
    assert!(
        !system.join("etc/systemd").exists(),
        "a package enables nothing"
    );
    for name in dist::PROGRAMS {
        add_libraries(&system, &system.join("usr/bin").join(name));
    }
    let golden = root().join("tests/dist.folded");
    fs::write(system.join("tmp/a.folded"), fs::read(golden).unwrap()).unwrap();
    let inside = |program: &str, arguments: &[&str]| -> String {
        let output = run(Command::new("chroot")
            .arg(&system)
            .arg(format!("/usr/bin/{program}"))
            .args(arguments));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    inside("perfquet-convert", &["/tmp/a.folded", "-o", "/tmp/a.pqt"]);
    let top = inside("perfquet-query", &["top", "/tmp/a.pqt", "--format", "csv"]);
    assert!(top.contains("read"), "{top}");
    let help = inside("perfquet-record", &["--help"]);
    assert!(help.contains("--kprobe"), "{help}");
}
