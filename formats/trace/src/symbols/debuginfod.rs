//! Fetches programs and debug info by build ID (<https://sourceware.org/elfutils/Debuginfod.html>).
//!
//! ```text
//! DEBUGINFOD_URLS=https://debuginfod.debian.net
//! GET https://debuginfod.debian.net/buildid/1a2b…/debuginfo  ─►  ~/.cache/debuginfod_client/1a2b…/debuginfo
//! ```
//! curl transfers the files, with the user's proxies and certificates, into the cache of debuginfod's own client. Servers are asked
//! only for files that name frames of the trace and are not on this host. What a server sends is used only if it has the
//! wanted build ID. A server that cannot be reached is not asked again.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::build_id::{self, hex};
use super::elf::Elf;
use super::limits::{DEBUGINFOD_FILE_BYTES_MAX, DEBUGINFOD_FILES_MAX, DEBUGINFOD_MS_MAX};

/// Time between two looks at a transfer.
const INTERVAL: Duration = Duration::from_millis(20);
/// Time for a connection.
const CONNECT_S: u64 = 10;
/// Bytes that a server must send within DEBUGINFOD_TIMEOUT, as in debuginfod_find_debuginfo(3).
const PACE_BYTES: u64 = 100 << 10;

/// What is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// The program or library.
    Executable,
    /// Its debug info and symbol table.
    DebugInfo,
}

impl Kind {
    /// Its name in URLs and in the cache.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Executable => "executable",
            Kind::DebugInfo => "debuginfo",
        }
    }
}

/// Servers, and what was asked of them, which copies share.
#[derive(Debug, Clone)]
pub struct Debuginfod {
    shared: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    servers: Vec<Server>,
    /// Where files are kept.
    cache: PathBuf,
    /// Answers, with the file.
    asked: HashMap<(Vec<u8>, Kind), Option<PathBuf>>,
    /// Seconds for 100 KiB.
    patience_s: u64,
    file_bytes_max: u64,
    time_left: Duration,
    counts: DebuginfodCounts,
}

#[derive(Debug)]
struct Server {
    url: String,
    /// Why it is not asked again.
    failure: Option<String>,
}

/// What was fetched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DebuginfodCounts {
    /// Files that were fetched.
    pub fetched: u64,
    /// Their size.
    pub bytes: u64,
    /// Files that no server has.
    pub absent: u64,
    /// Files that were not asked for, or whose transfer was ended: a limit was reached, or no server could be reached.
    pub not_asked: u64,
    /// Servers that failed, with the reason.
    pub failures: Vec<String>,
}

/// The end of a transfer.
enum Transfer {
    Done,
    /// The server does not have the file.
    Absent,
    /// The file is larger than the limit.
    TooLarge,
    Failed(String),
}

impl Debuginfod {
    /// The servers and limits of the environment; `None` without servers or a place for files: DEBUGINFOD_URLS or HOME is not set.
    pub fn from_environment() -> Option<Debuginfod> {
        let urls = std::env::var("DEBUGINFOD_URLS").ok()?;
        let number = |name| std::env::var(name).ok()?.trim().parse::<u64>().ok();
        let positive = |name| number(name).filter(|&value| value > 0);
        let debuginfod = Debuginfod::new(&urls, cache()?)?;
        {
            let mut state = debuginfod.state();
            state.patience_s = positive("DEBUGINFOD_TIMEOUT").unwrap_or(state.patience_s);
            if let Some(bytes) = positive("DEBUGINFOD_MAXSIZE") {
                state.file_bytes_max = state.file_bytes_max.min(bytes);
            }
        }
        Some(debuginfod)
    }

    /// Servers, separated by spaces; `None` if there are none.
    pub(super) fn new(urls: &str, cache: PathBuf) -> Option<Debuginfod> {
        let servers: Vec<Server> = urls
            .split_whitespace()
            .filter(|url| !url.starts_with("ima:"))
            .map(|url| Server {
                url: url.trim_end_matches('/').to_owned(),
                failure: None,
            })
            .collect();
        if servers.is_empty() {
            return None;
        }
        let state = State {
            servers,
            cache,
            asked: HashMap::new(),
            patience_s: 90,
            file_bytes_max: DEBUGINFOD_FILE_BYTES_MAX,
            time_left: Duration::from_millis(DEBUGINFOD_MS_MAX),
            counts: DebuginfodCounts::default(),
        };
        Some(Debuginfod {
            shared: Arc::new(Mutex::new(state)),
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was fetched so far.
    pub fn counts(&self) -> DebuginfodCounts {
        let state = self.state();
        let failures = state.servers.iter().filter_map(|server| {
            let failure = server.failure.as_ref()?;
            Some(format!("{}: {failure}", server.url))
        });
        DebuginfodCounts {
            failures: failures.collect(),
            ..state.counts.clone()
        }
    }

    /// Fetches a file into the cache and returns its path.
    pub(super) fn fetch(&self, build_id: &[u8], kind: Kind) -> Option<PathBuf> {
        let mut state = self.state();
        let key = (build_id::unpadded(build_id).to_vec(), kind);
        if let Some(answer) = state.asked.get(&key) {
            return answer.clone();
        }
        let answer = state.ask(build_id, kind);
        state.asked.insert(key, answer.clone());
        answer
    }
}

impl State {
    fn ask(&mut self, build_id: &[u8], kind: Kind) -> Option<PathBuf> {
        let id = hex(build_id);
        let path = self.cache.join(&id).join(kind.name());
        let is_over = self.asked.len() as u64 >= DEBUGINFOD_FILES_MAX;
        let mut was_asked = false;
        let mut was_cut = false;
        for at in 0..self.servers.len() {
            let server = self.servers.get(at)?;
            if is_over || self.time_left.is_zero() {
                break;
            }
            if server.failure.is_some() {
                continue;
            }
            let url = format!("{}/buildid/{id}/{}", server.url, kind.name());
            match self.transfer(&url, &path, build_id, kind) {
                Transfer::Done => {
                    self.counts.fetched += 1;
                    self.counts.bytes += fs::metadata(&path).map_or(0, |file| file.len());
                    log::info!("fetched {url}");
                    return Some(path);
                }
                Transfer::Absent => was_asked = true,
                Transfer::TooLarge => was_cut = true,
                Transfer::Failed(why) => {
                    if let Some(server) = self.servers.get_mut(at) {
                        log::warn!("{}: {why}; it is not asked again", server.url);
                        server.failure = Some(why);
                    }
                }
            }
        }
        match was_asked && !was_cut {
            true => self.counts.absent += 1,
            false => self.counts.not_asked += 1,
        }
        None
    }

    fn transfer(&mut self, url: &str, path: &Path, build_id: &[u8], kind: Kind) -> Transfer {
        let Some(folder) = path.parent() else {
            return Transfer::Absent;
        };
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder);
        let partial = made.and_then(|()| tempfile::NamedTempFile::new_in(folder));
        let partial = match partial {
            Ok(partial) => partial,
            Err(error) => return Transfer::Failed(format!("{}: {error}", folder.display())),
        };
        let begun = Instant::now();
        let transfer = self.curl(url, partial.path());
        self.time_left = self.time_left.saturating_sub(begun.elapsed());
        let is_done = matches!(transfer, Transfer::Done);
        if !is_done {
            drop(partial);
            // Only if this made it.
            let _ = fs::remove_dir(folder);
            return transfer;
        }
        let elf = Elf::open(partial.path());
        let fits = |elf: &Elf| {
            let is_it = |id| build_id::equal(id, build_id);
            let is_kind = match kind {
                Kind::Executable => elf.holds_code(),
                Kind::DebugInfo => elf.has_symbol_table() || elf.section(b".debug_info").is_some(),
            };
            elf.build_id().is_some_and(is_it) && is_kind
        };
        if !elf.as_ref().is_ok_and(fits) {
            return Transfer::Failed(format!("sent another file than {url}"));
        }
        // As debuginfod's client leaves files.
        let kept = fs::set_permissions(partial.path(), fs::Permissions::from_mode(0o400))
            .and_then(|()| partial.persist(path).map_err(|error| error.error));
        match kept {
            Ok(_) => Transfer::Done,
            Err(error) => Transfer::Failed(format!("{}: {error}", path.display())),
        }
    }

    /// Runs curl, which writes to `partial`.
    fn curl(&self, url: &str, partial: &Path) -> Transfer {
        let seconds = self.time_left.as_secs().max(1);
        let words: Vec<OsString> = vec![
            // First: without the user's file of options.
            "--disable".into(),
            "--silent".into(),
            "--show-error".into(),
            "--fail".into(),
            "--location".into(),
            "--max-redirs".into(),
            "5".into(),
            "--proto".into(),
            "=http,https,file".into(),
            "--proto-redir".into(),
            "=http,https".into(),
            "--connect-timeout".into(),
            CONNECT_S.to_string().into(),
            "--max-time".into(),
            seconds.to_string().into(),
            "--speed-time".into(),
            self.patience_s.to_string().into(),
            "--speed-limit".into(),
            (PACE_BYTES / self.patience_s).max(1).to_string().into(),
            "--output".into(),
            partial.into(),
            "--".into(),
            url.into(),
        ];
        let child = Command::new("curl")
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(error) => return Transfer::Failed(format!("cannot run curl: {error}")),
        };
        // curl's own limit does not cover a transfer without a length.
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) => {}
                Err(error) => return Transfer::Failed(format!("cannot run curl: {error}")),
            }
            let bytes = fs::metadata(partial).map_or(0, |file| file.len());
            if bytes > self.file_bytes_max {
                let _ = child.kill();
                let _ = child.wait();
                log::warn!("{url} has more than {} bytes", self.file_bytes_max);
                return Transfer::TooLarge;
            }
            std::thread::sleep(INTERVAL);
        };
        let bytes = fs::metadata(partial).map_or(0, |file| file.len());
        let said = message(&mut child);
        match status.code() {
            Some(0) if bytes <= self.file_bytes_max => Transfer::Done,
            Some(0) => Transfer::TooLarge,
            // HTTP_RETURNED_ERROR with 404, FILE_COULDNT_READ_FILE (curl(1)).
            Some(22) if said.contains("404") => Transfer::Absent,
            Some(37) => Transfer::Absent,
            _ => Transfer::Failed(said),
        }
    }
}

/// The first line of curl's message.
fn message(child: &mut Child) -> String {
    let mut text = Vec::new();
    if let Some(stderr) = &mut child.stderr {
        let _ = stderr.take(4096).read_to_end(&mut text);
    }
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().next().unwrap_or("curl failed");
    line.trim_start_matches("curl: ").to_owned()
}

/// The cache of debuginfod's client (debuginfod_find_debuginfo(3)).
fn cache() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).filter(|path| !path.is_empty());
    match (folder("DEBUGINFOD_CACHE_PATH"), folder("XDG_CACHE_HOME")) {
        (Some(place), _) => Some(PathBuf::from(place)),
        (None, Some(caches)) => Some(Path::new(&caches).join("debuginfod_client")),
        (None, None) => Some(Path::new(&folder("HOME")?).join(".cache/debuginfod_client")),
    }
}

/// The path of a file in the cache.
pub(super) fn cached(build_id: &[u8], kind: Kind) -> Option<PathBuf> {
    Some(cache()?.join(hex(build_id)).join(kind.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    /// What a server sends.
    #[derive(Clone)]
    enum Answer {
        File(Vec<u8>),
        Status(&'static str),
        /// Bytes without a length and without an end.
        Endless,
        /// Another place.
        Moved(String),
    }

    /// A server that answers every request in the same way; its URL, and the requested paths.
    fn server(answer: Answer) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let paths = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&paths);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let first = lines.next().unwrap().unwrap();
                seen.lock()
                    .unwrap()
                    .push(first.split(' ').nth(1).unwrap().to_owned());
                for line in lines {
                    if line.unwrap().is_empty() {
                        break;
                    }
                }
                match &answer {
                    Answer::File(bytes) => {
                        let length = bytes.len();
                        write!(
                            stream,
                            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"
                        )
                        .unwrap();
                        stream.write_all(bytes).unwrap();
                    }
                    Answer::Status(status) => {
                        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").unwrap();
                    }
                    Answer::Moved(to) => {
                        write!(
                            stream,
                            "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"
                        )
                        .unwrap();
                    }
                    Answer::Endless => {
                        write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").unwrap();
                        while stream.write_all(&[0; 1 << 16]).is_ok() {}
                    }
                }
            }
        });
        (url, paths)
    }

    /// This program, which has a symbol table, and its build ID.
    fn own() -> Option<(Vec<u8>, Vec<u8>)> {
        let path = std::env::current_exe().unwrap();
        let elf = Elf::open(&path).unwrap();
        let id = elf.build_id()?.to_vec();
        Some((fs::read(path).unwrap(), id))
    }

    fn is_met() -> bool {
        crate::needs::met(&["curl"])
    }

    #[test]
    fn a_file_is_fetched_once_from_the_first_server_that_has_it() {
        let Some((bytes, id)) = own().filter(|_| is_met()) else {
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let (without, asked) = server(Answer::Status("404 Not Found"));
        let (with, _) = server(Answer::File(bytes.clone()));
        let urls = format!("{without}/ ima:enforcing {with}");
        let servers = Debuginfod::new(&urls, folder.path().join("a/b")).unwrap();
        let path = servers.fetch(&id, Kind::DebugInfo).unwrap();
        assert_eq!(
            servers.clone().fetch(&id, Kind::DebugInfo),
            Some(path.clone())
        );
        assert_eq!(
            path,
            folder.path().join("a/b").join(hex(&id)).join("debuginfo")
        );
        assert!(fs::read(&path).unwrap() == bytes);
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o400
        );
        let requested = format!("/buildid/{}/debuginfo", hex(&id));
        assert_eq!(*asked.lock().unwrap(), [requested]);
        let counts = servers.counts();
        assert_eq!((counts.fetched, counts.bytes), (1, bytes.len() as u64));
        assert_eq!((counts.absent, counts.not_asked), (0, 0));
        assert!(counts.failures.is_empty());
    }

    #[test]
    fn what_no_server_has_is_counted_and_asked_for_once() {
        if !is_met() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (url, asked) = server(Answer::Status("404 Not Found"));
        let servers = Debuginfod::new(&url, folder.path().join("cache")).unwrap();
        for _ in 0..3 {
            assert_eq!(servers.fetch(&[7; 20], Kind::Executable), None);
        }
        assert_eq!(asked.lock().unwrap().len(), 1);
        assert_eq!(servers.counts().absent, 1);
        let left: Vec<_> = fs::read_dir(folder.path().join("cache")).unwrap().collect();
        assert!(left.is_empty());
    }

    /// Another program, a page of a captive portal, an error, a local file behind a redirection, no server at all: none is used,
    /// and none of these servers is asked again.
    #[test]
    fn servers_that_fail_are_not_asked_again() {
        let Some((bytes, id)) = own().filter(|_| is_met()) else {
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let own_path = std::env::current_exe().unwrap();
        let answers = [
            (Answer::File(bytes), [9; 20].as_slice()),
            (Answer::File(b"<html>log in</html>".to_vec()), &id),
            (Answer::Status("500 Internal Server Error"), &id),
            (Answer::Moved(format!("file://{}", own_path.display())), &id),
        ];
        for (answer, wanted) in answers {
            let (url, asked) = server(answer);
            let servers = Debuginfod::new(&url, folder.path().to_owned()).unwrap();
            assert_eq!(servers.fetch(wanted, Kind::DebugInfo), None);
            assert_eq!(servers.fetch(wanted, Kind::Executable), None);
            assert_eq!(asked.lock().unwrap().len(), 1);
            let counts = servers.counts();
            assert_eq!((counts.fetched, counts.absent, counts.not_asked), (0, 0, 2));
            assert_eq!(counts.failures.len(), 1, "{counts:?}");
        }
        let servers = Debuginfod::new("http://127.0.0.1:1", folder.path().to_owned()).unwrap();
        assert_eq!(servers.fetch(&id, Kind::DebugInfo), None);
        assert_eq!(servers.counts().failures.len(), 1);
    }

    #[test]
    fn an_endless_file_is_not_kept() {
        if !is_met() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (url, _) = server(Answer::Endless);
        let servers = Debuginfod::new(&url, folder.path().to_owned()).unwrap();
        servers.state().file_bytes_max = 10 << 20;
        assert_eq!(servers.fetch(&[7; 20], Kind::DebugInfo), None);
        assert_eq!(servers.counts().not_asked, 1);
        assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
    }
}
