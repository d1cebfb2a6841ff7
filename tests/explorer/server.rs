//! A server of the explorer, and requests to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use perfquet_tests::bin;
use serde_json::Value;
use tempfile::TempDir;

/// A server that ends with the test.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: String,
    pub(crate) port: u16,
    /// Of a server that shares its cache with no other.
    _cache: Option<TempDir>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    pub(crate) fn of(traces: &[&Path]) -> Server {
        let cache = tempfile::tempdir().unwrap();
        let mut server = Server::with_cache(traces, cache.path());
        server._cache = Some(cache);
        server
    }

    /// A server whose indexes are below this directory.
    pub(crate) fn with_cache(traces: &[&Path], cache: &Path) -> Server {
        Server::started(Command::new(bin("perfquet-query")), traces, cache)
    }

    /// A server that can write no file of more than a kilobyte.
    pub(crate) fn without_space(traces: &[&Path], cache: &Path) -> Server {
        let mut limited = Command::new("prlimit");
        limited.arg("--fsize=1000").arg(bin("perfquet-query"));
        Server::started(limited, traces, cache)
    }

    fn started(mut program: Command, traces: &[&Path], cache: &Path) -> Server {
        program
            .arg("serve")
            .args(traces)
            .arg("--no-browser")
            .env("XDG_CACHE_HOME", cache);
        Server::spawned(&mut program)
    }

    /// The server of any command, which prints its address.
    pub(crate) fn spawned(command: &mut Command) -> Server {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut address).unwrap();
        let address = address.trim().to_owned();
        let port = address.split(['/', ':']).find_map(|part| part.parse().ok());
        Server {
            child,
            port: port.unwrap(),
            address,
            _cache: None,
        }
    }

    pub(crate) fn token(&self) -> &str {
        self.address.rsplit('=').next().unwrap()
    }

    /// Status, head and body of the answer to a request as it is sent.
    pub(crate) fn raw(&self, request: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        // A refused request may be answered before it is sent.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        (status.unwrap_or(0), head.to_owned(), body.to_owned())
    }

    pub(crate) fn request(&self, line: &str, headers: &str, body: &str) -> (u16, String, String) {
        let length = match body.is_empty() {
            true => String::new(),
            false => format!("Content-Length: {}\r\n", body.len()),
        };
        self.raw(&format!(
            "{line} HTTP/1.1\r\n{headers}{length}Connection: close\r\n\r\n{body}"
        ))
    }

    /// Headers of the page itself.
    pub(crate) fn own(&self) -> String {
        let (port, token) = (self.port, self.token());
        format!("Host: 127.0.0.1:{port}\r\nCookie: a=b; perfquet-{port}={token}\r\n")
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let (status, _, body) = self.request(&format!("GET {path}"), &self.own(), "");
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    pub(crate) fn sql(&self, sql: &str) -> (u16, String) {
        self.sql_up_to(sql, 1000)
    }

    fn sql_up_to(&self, sql: &str, rows: u64) -> (u16, String) {
        let headers = format!("{}Content-Type: application/json\r\n", self.own());
        let body = serde_json::json!({ "sql": sql, "rows": rows }).to_string();
        let (status, _, body) = self.request("POST /api/sql", &headers, &body);
        (status, body)
    }

    pub(crate) fn rows(&self, sql: &str) -> Vec<Vec<Value>> {
        self.rows_up_to(sql, 1000)
    }

    pub(crate) fn rows_up_to(&self, sql: &str, rows: u64) -> Vec<Vec<Value>> {
        let (status, body) = self.sql_up_to(sql, rows);
        assert_eq!(status, 200, "{sql}: {body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        serde_json::from_value(answer["rows"].clone()).unwrap()
    }
}

pub(crate) fn converted(directory: &Path, name: &str, content: &str) -> PathBuf {
    let input = directory.join(name);
    std::fs::write(&input, content).unwrap();
    let trace = input.with_extension("pqt");
    let output = Command::new(bin("perfquet-convert"))
        .arg(&input)
        .arg("-o")
        .arg(&trace)
        .args(["--no-symbols", "--force"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    trace
}
