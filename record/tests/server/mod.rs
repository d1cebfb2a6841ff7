//! An SSH server on this host, as the other host of a recording: own keys, port, home and temporary directory.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::room::Room;

/// Where sshd is, which no user has in PATH.
const SSHD: &str = "/usr/sbin/sshd";
/// Directory that sshd requires and a service of the distribution creates.
const PRIVILEGE_SEPARATION: &str = "/run/sshd";

/// A running server, with `home` and `tmp` in the directory of the test.
pub(crate) struct Server {
    sshd: Child,
    folder: PathBuf,
}

impl Server {
    /// Starts a server whose sessions find programs in `path`.
    pub(crate) fn start(room: &Room, path: &str) -> Server {
        let folder = room.path("server");
        let file = |name: &str| folder.join(name);
        for name in ["", "home", "tmp"] {
            fs::create_dir(file(name)).expect("a directory");
        }
        for key in ["host_key", "key", "other_key"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(file(key))
                .status();
            assert!(made.is_ok_and(|status| status.success()), "{key}");
        }
        fs::copy(file("key.pub"), file("authorized_keys")).expect("a copy");
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free.expect("a port").port();
        let host_key = fs::read_to_string(file("host_key.pub")).expect("a key");
        fs::write(
            file("known_hosts"),
            format!("[127.0.0.1]:{port} {host_key}"),
        )
        .expect("a file");
        let here = folder.display();
        let of_server = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {here}/host_key\nPidFile none\n\
             AuthorizedKeysFile {here}/authorized_keys\nStrictModes no\nPasswordAuthentication no\n\
             SetEnv HOME={here}/home TMPDIR={here}/tmp PATH={path}\n"
        );
        fs::write(file("sshd_config"), of_server).expect("a file");
        let of_client = format!(
            "Host *\n HostName 127.0.0.1\n Port {port}\n User root\n IdentitiesOnly yes\n LogLevel ERROR\n \
             UserKnownHostsFile {here}/known_hosts\n\
             Host there\n IdentityFile {here}/key\nHost stranger\n IdentityFile {here}/other_key\n"
        );
        fs::write(file("config"), of_client).expect("a file");
        let _ = fs::create_dir(PRIVILEGE_SEPARATION);
        let sshd = Command::new(SSHD)
            .args(["-D", "-e", "-f"])
            .arg(file("sshd_config"))
            .stderr(Stdio::null())
            .spawn();
        let server = Server {
            sshd: sshd.expect("sshd runs"),
            folder,
        };
        wait_until("sshd listens", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        server
    }

    /// A file of the server's directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The recorder with `--ssh HOST`: `there`, or `stranger`, whose key the server does not know.
    pub(crate) fn recorder(&self, room: &Room, host: &str) -> Command {
        let mut recorder = room.recorder();
        let command = format!("ssh -F {}", self.path("config").display());
        recorder.env("PERFQUET_SSH", command).args(["--ssh", host]);
        // A killed recorder leaves the directory of its connection.
        recorder.env("TMPDIR", &self.folder);
        recorder
    }

    /// What recordings left in the temporary directory there.
    pub(crate) fn left(&self) -> Vec<PathBuf> {
        entries(&self.path("tmp"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
    }
}

/// The entries of a directory.
pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Waits for a condition, longer than any step on a slow host.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}
