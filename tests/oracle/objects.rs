//! An object store of this process: S3's requests over a directory, counted, with faults.
//!
//! ```text
//! GET /bucket/a.pqt/manifest.json             a file, or a range of it
//! GET /bucket?list-type=2&prefix=a/&delimiter=/   pages of three names
//! ```
//! The same files are behind HTTP, as `http://127.0.0.1:PORT/bucket/a.pqt`. Signatures are not checked.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

/// Names in a page of a list.
const PAGE: usize = 3;

/// What goes wrong with requests whose line contains a text.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// A status line, and a body.
    Status(&'static str, String),
    /// The connection ends in the middle of the body.
    Cut,
    /// Bytes without end, in place of the body.
    Endless,
    /// Another place.
    Redirect(String),
    /// Ranges are ignored.
    Whole,
    /// Other bytes of the same size.
    Garbage,
}

#[derive(Debug, Default)]
struct State {
    /// Method, path and range.
    requests: Vec<String>,
    fault: Option<(String, Fault)>,
    /// Requests that match a fault until it happens.
    before_fault: usize,
}

/// A server of the files in a directory, until the process ends.
pub(crate) struct Server {
    pub(crate) port: u16,
    state: Arc<Mutex<State>>,
}

impl Server {
    /// `root` is the bucket `bucket`.
    pub(crate) fn start(root: &Path) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State::default()));
        let (root, shared) = (root.to_owned(), Arc::clone(&state));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (root, state) = (root.clone(), Arc::clone(&shared));
                std::thread::spawn(move || serve(&stream, &root, &state));
            }
        });
        Server { port, state }
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://127.0.0.1:{}/bucket/{name}", self.port)
    }

    /// From now on, requests whose line contains a text fail after the first `before`.
    pub(crate) fn fail(&self, text: &str, before: usize, fault: Fault) {
        let mut state = self.state.lock().unwrap();
        state.fault = Some((text.to_owned(), fault));
        state.before_fault = before;
    }

    pub(crate) fn recover(&self) {
        self.state.lock().unwrap().fault = None;
    }

    /// The requests since the last call.
    pub(crate) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }

    /// A program with the settings of a user of this server.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env(
                "AWS_ENDPOINT_URL",
                format!("http://127.0.0.1:{}", self.port),
            )
            .env("AWS_ACCESS_KEY_ID", "x")
            .env("AWS_SECRET_ACCESS_KEY", "x")
            .env("AWS_REGION", "us-east-1");
        command
    }
}

struct Request {
    method: String,
    /// Decoded, without the bucket.
    key: String,
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
}

impl Request {
    fn read(reader: &mut BufReader<&TcpStream>) -> Option<Request> {
        let mut line = String::new();
        reader
            .read_line(&mut line)
            .ok()
            .filter(|&count| count > 0)?;
        let mut words = line.split_whitespace();
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(':') else {
                break;
            };
            headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(key), decoded(value))
        };
        let query = query.split('&').filter(|pair| !pair.is_empty()).map(pair);
        let key = decoded(path.trim_start_matches("/bucket").trim_start_matches('/'));
        let request = Request {
            method,
            key,
            query: query.collect(),
            headers,
        };
        Some(request)
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        let mut query = self.query.iter();
        query
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    fn line(&self) -> String {
        let query: Vec<String> = (self.query.iter())
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let range = self.header("range").unwrap_or_default();
        format!("{} {}?{} {range}", self.method, self.key, query.join("&"))
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        match (first, after.get(..2)) {
            (b'%', Some(digits)) => {
                let digits = std::str::from_utf8(digits).unwrap();
                bytes.push(u8::from_str_radix(digits, 16).unwrap());
                rest = &after[2..];
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// Answers the requests of a connection.
fn serve(stream: &TcpStream, root: &Path, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream);
    while let Some(request) = Request::read(&mut reader) {
        let line = request.line();
        let fault = {
            let mut state = state.lock().unwrap();
            state.requests.push(line.clone());
            let fault = state.fault.clone().filter(|(text, _)| line.contains(text));
            match fault {
                Some(_) if state.before_fault > 0 => {
                    state.before_fault -= 1;
                    None
                }
                fault => fault.map(|(_, fault)| fault),
            }
        };
        if answer(stream, root, &request, fault).is_none() {
            return;
        }
    }
}

/// `None` if the connection ends.
fn answer(mut out: &TcpStream, root: &Path, request: &Request, fault: Option<Fault>) -> Option<()> {
    let file = root.join(&request.key);
    let error = |mut out: &TcpStream, status: &str, code: &str| {
        let body = format!(
            "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{code} of a test</Message></Error>"
        );
        send(&mut out, status, "", body.as_bytes())
    };
    match &fault {
        Some(Fault::Status(status, body)) => return send(&mut out, status, "", body.as_bytes()),
        Some(Fault::Redirect(place)) => {
            return send(
                &mut out,
                "302 Found",
                &format!("Location: {place}\r\n"),
                b"",
            );
        }
        _ => {}
    }
    match request.method.as_str() {
        "GET" if request.parameter("list-type").is_some() => {
            send(&mut out, "200 OK", "", list(root, request).as_bytes())
        }
        "GET" | "HEAD" if !file.is_file() => error(out, "404 Not Found", "NoSuchKey"),
        "GET" | "HEAD" => content(out, request, &std::fs::read(&file).unwrap(), fault.as_ref()),
        _ => error(out, "405 Method Not Allowed", "MethodNotAllowed"),
    }
}

fn tag(bytes: &[u8]) -> String {
    let sum = bytes.iter().fold(7_u64, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("\"{sum:x}\"")
}

fn send(out: &mut impl Write, status: &str, headers: &str, body: &[u8]) -> Option<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    out.write_all(head.as_bytes()).ok()?;
    out.write_all(body).ok()
}

fn content(
    mut out: &TcpStream,
    request: &Request,
    bytes: &[u8],
    fault: Option<&Fault>,
) -> Option<()> {
    let total = bytes.len();
    let mut headers = format!(
        "ETag: {}\r\nLast-Modified: Sun, 22 Nov 2026 10:00:00 GMT\r\nAccept-Ranges: bytes\r\n",
        tag(bytes)
    );
    let range = request
        .header("range")
        .and_then(|range| range.strip_prefix("bytes="));
    let range = range.filter(|_| !matches!(fault, Some(Fault::Whole)));
    let (status, part) = match range.and_then(|range| range.split_once('-')) {
        Some((start, end)) => {
            let (start, end) = match (start.parse::<usize>(), end.parse::<usize>()) {
                (Ok(start), Ok(end)) => (start, total.min(end + 1)),
                (Ok(start), Err(_)) => (start, total),
                (Err(_), last) => (total.saturating_sub(last.unwrap()), total),
            };
            headers += &format!("Content-Range: bytes {start}-{}/{total}\r\n", end - 1);
            ("206 Partial Content", &bytes[start..end])
        }
        None => ("200 OK", bytes),
    };
    match fault {
        Some(Fault::Garbage) => {
            let other: Vec<u8> = part.iter().map(|byte| byte ^ 0x5a).collect();
            send(&mut out, status, &headers, &other)
        }
        Some(Fault::Cut) => {
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n",
                part.len()
            );
            out.write_all(head.as_bytes()).ok()?;
            out.write_all(&part[..part.len() / 2]).ok()?;
            None
        }
        Some(Fault::Endless) => {
            let head = format!(
                "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n",
                u64::MAX / 2
            );
            out.write_all(head.as_bytes()).ok()?;
            while out.write_all(&[b'x'; 65_536]).is_ok() {}
            None
        }
        _ if request.method == "HEAD" => {
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {total}\r\n{headers}\r\n");
            out.write_all(head.as_bytes()).ok()
        }
        _ => send(&mut out, status, &headers, part),
    }
}

/// A page of names, as XML.
fn list(root: &Path, request: &Request) -> String {
    let prefix = request.parameter("prefix").unwrap_or_default();
    let mut files = Vec::new();
    files_below(root, root, &mut files);
    let mut entries = BTreeSet::new();
    for file in files {
        let Some(rest) = file.strip_prefix(prefix) else {
            continue;
        };
        match rest.split_once('/').filter(|_| request.parameter("delimiter").is_some()) {
            Some((folder, _)) => entries.insert(format!("<CommonPrefixes><Prefix>{prefix}{folder}/</Prefix></CommonPrefixes>")),
            None => entries.insert(format!(
                "<Contents><Key>{file}</Key><LastModified>2026-11-22T10:00:00.000Z</LastModified><ETag>\"1\"</ETag><Size>1</Size></Contents>"
            )),
        };
    }
    let first: usize = request
        .parameter("continuation-token")
        .map_or(0, |token| token.parse().unwrap());
    let count = entries.len();
    let page: String = entries.into_iter().skip(first).take(PAGE).collect();
    let next = first + PAGE;
    let more = match next < count {
        true => format!(
            "<IsTruncated>true</IsTruncated><NextContinuationToken>{next}</NextContinuationToken>"
        ),
        false => "<IsTruncated>false</IsTruncated>".to_owned(),
    };
    format!(
        "<?xml version=\"1.0\"?><ListBucketResult><Name>bucket</Name><Prefix>{prefix}</Prefix>{more}{page}</ListBucketResult>"
    )
}

/// The names of all files below a directory.
fn files_below(root: &Path, folder: &Path, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path: PathBuf = entry.path();
        match path.is_dir() {
            true => files_below(root, &path, files),
            false => files.push(
                path.strip_prefix(root)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned(),
            ),
        }
    }
}
