//! An object store of this process: S3's requests over a directory, counted, with faults.
//!
//! ```text
//! GET /bucket/a.pqt/manifest.json             a file, or a range of it
//! GET /bucket?list-type=2&prefix=a/&delimiter=/   pages of three names
//! PUT /bucket/a If-None-Match: *              fails if it exists; If-Match: fails if it is another
//! POST /bucket/a?uploads                      a file in pieces
//! ```
//! The same files are behind HTTP, as `http://127.0.0.1:PORT/bucket/a.pqt`. Signatures are not checked; moto checks the dialect otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

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
    /// No answer.
    Silence,
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
    /// Requests that match a fault between two times that it happens; 0: it happens each time.
    between_faults: usize,
    /// Pieces of files, by upload and number.
    pieces: BTreeMap<(String, usize), Vec<u8>>,
    /// When files were written, in lists.
    modified: Option<&'static str>,
}

/// A server of the files in a directory, until the process ends.
pub(crate) struct Server {
    pub(crate) port: u16,
    state: Arc<Mutex<State>>,
}

impl Server {
    /// `root` is the bucket `bucket`.
    pub(crate) fn start(root: &Path) -> Server {
        Server::start_at(root, 0)
    }

    /// [`Self::start`] at a port that was free before.
    pub(crate) fn start_at(root: &Path, port: u16) -> Server {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
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
        state.between_faults = 0;
    }

    /// From now on, each `every`-th request fails.
    pub(crate) fn fail_every(&self, every: usize, fault: Fault) {
        self.fail("", every - 1, fault);
        self.state.lock().unwrap().between_faults = every - 1;
    }

    /// When files were written, in lists from now on.
    pub(crate) fn set_modified(&self, time: &'static str) {
        self.state.lock().unwrap().modified = Some(time);
    }

    pub(crate) fn recover(&self) {
        self.state.lock().unwrap().fault = None;
    }

    /// The requests since the last call.
    pub(crate) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }

    /// Number of requests since the last call of [`Self::take_requests`] whose line contains a text.
    pub(crate) fn requests_with(&self, text: &str) -> usize {
        let state = self.state.lock().unwrap();
        state
            .requests
            .iter()
            .filter(|line| line.contains(text))
            .count()
    }

    /// A program with the settings of a user of this server.
    pub(crate) fn command(&self, program: &Path) -> Command {
        with_settings(Command::new(program), self.port)
    }
}

/// A command with the settings of a user of the server at a port.
pub(crate) fn with_settings(mut command: Command, port: u16) -> Command {
    command
        .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}"))
        .env("AWS_ACCESS_KEY_ID", "x")
        .env("AWS_SECRET_ACCESS_KEY", "x")
        .env("AWS_REGION", "us-east-1");
    command
}

struct Request {
    method: String,
    /// Decoded, without the bucket.
    key: String,
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
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
        let mut request = Request {
            method,
            key,
            query: query.collect(),
            headers,
            body: Vec::new(),
        };
        let bytes = request
            .header("content-length")
            .map_or(0, |text| text.parse().unwrap());
        request.body = vec![0; bytes];
        reader.read_exact(&mut request.body).ok()?;
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
                Some((_, fault)) => {
                    state.before_fault = state.between_faults;
                    Some(fault)
                }
                None => None,
            }
        };
        if answer(stream, root, &request, fault, state).is_none() {
            return;
        }
    }
}

/// `None` if the connection ends.
fn answer(
    mut out: &TcpStream,
    root: &Path,
    request: &Request,
    fault: Option<Fault>,
    state: &Mutex<State>,
) -> Option<()> {
    let file = root.join(&request.key);
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
        Some(Fault::Silence) => {
            std::thread::sleep(Duration::from_secs(600));
            return None;
        }
        _ => {}
    }
    match request.method.as_str() {
        "GET" if request.parameter("list-type").is_some() => {
            let modified = state.lock().unwrap().modified;
            send(
                &mut out,
                "200 OK",
                "",
                list(root, request, modified).as_bytes(),
            )
        }
        "GET" | "HEAD" if !file.is_file() => error(out, "404 Not Found", "NoSuchKey"),
        "GET" | "HEAD" => content(out, request, &std::fs::read(&file).unwrap(), fault.as_ref()),
        "PUT" | "POST" | "DELETE" => written(out, root, request, state),
        _ => error(out, "405 Method Not Allowed", "MethodNotAllowed"),
    }
}

fn error(mut out: &TcpStream, status: &str, code: &str) -> Option<()> {
    let body = format!(
        "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{code} of a test</Message></Error>"
    );
    send(&mut out, status, "", body.as_bytes())
}

/// Answers a request that changes files: one after the other, so that conditions hold.
fn written(
    mut out: &TcpStream,
    root: &Path,
    request: &Request,
    state: &Mutex<State>,
) -> Option<()> {
    let mut state = state.lock().unwrap();
    let file = root.join(&request.key);
    let write = |content: &[u8]| {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        // A reader sees the old file or the new one.
        let new = tempfile::NamedTempFile::new_in(root.parent().unwrap()).unwrap();
        std::fs::write(new.path(), content).unwrap();
        new.persist(&file).unwrap();
        format!("ETag: {}\r\n", tag(content))
    };
    let pieces = request.parameter("uploadId").map(str::to_owned);
    match (request.method.as_str(), pieces) {
        ("PUT", Some(upload)) => {
            let number = request.parameter("partNumber").unwrap().parse().unwrap();
            let content = request.body.clone();
            let headers = format!("ETag: {}\r\n", tag(&content));
            state.pieces.insert((upload, number), content);
            send(&mut out, "200 OK", &headers, b"")
        }
        ("PUT", None) => {
            let found = std::fs::read(&file).ok().map(|bytes| tag(&bytes));
            let is_refused = request.header("if-none-match").is_some() && found.is_some()
                || request
                    .header("if-match")
                    .is_some_and(|tag| Some(tag) != found.as_deref());
            if is_refused {
                return error(out, "412 Precondition Failed", "PreconditionFailed");
            }
            let headers = write(&request.body);
            send(&mut out, "200 OK", &headers, b"")
        }
        ("POST", None) if request.parameter("delete").is_some() => {
            let text = String::from_utf8_lossy(&request.body);
            let mut body = String::from("<DeleteResult>");
            for key in text.split("<Key>").skip(1) {
                let key = key.split('<').next().unwrap();
                let _ = std::fs::remove_file(root.join(key));
                body += &format!("<Deleted><Key>{key}</Key></Deleted>");
            }
            body += "</DeleteResult>";
            send(&mut out, "200 OK", "", body.as_bytes())
        }
        ("POST", None) if request.parameter("uploads").is_some() => {
            let upload = format!("u{}", state.requests.len());
            let body = format!(
                "<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            );
            send(&mut out, "200 OK", "", body.as_bytes())
        }
        ("POST", Some(upload)) => {
            let own = |((of, _), _): &(&(String, usize), &Vec<u8>)| *of == upload;
            let content: Vec<u8> = state
                .pieces
                .iter()
                .filter(own)
                .flat_map(|(_, piece)| piece.clone())
                .collect();
            write(&content);
            let body = format!(
                "<CompleteMultipartUploadResult><ETag>{}</ETag></CompleteMultipartUploadResult>",
                tag(&content)
            );
            send(&mut out, "200 OK", "", body.as_bytes())
        }
        ("DELETE", None) => {
            let _ = std::fs::remove_file(&file);
            send(&mut out, "204 No Content", "", b"")
        }
        ("DELETE", Some(_)) => send(&mut out, "204 No Content", "", b""),
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
fn list(root: &Path, request: &Request, modified: Option<&str>) -> String {
    let modified = modified.unwrap_or("2026-11-22T10:00:00.000Z");
    let prefix = request.parameter("prefix").unwrap_or_default();
    let mut files = Vec::new();
    files_below(root, root, &mut files);
    let mut entries = BTreeSet::new();
    for file in files {
        let Some(rest) = file.strip_prefix(prefix) else {
            continue;
        };
        match rest
            .split_once('/')
            .filter(|_| request.parameter("delimiter").is_some())
        {
            Some((folder, _)) => entries.insert(format!(
                "<CommonPrefixes><Prefix>{prefix}{folder}/</Prefix></CommonPrefixes>"
            )),
            None => {
                let content = std::fs::read(root.join(&file)).unwrap_or_default();
                let (tag, size) = (tag(&content), content.len());
                entries.insert(format!(
                    "<Contents><Key>{file}</Key><LastModified>{modified}</LastModified><ETag>{tag}</ETag><Size>{size}</Size></Contents>"
                ))
            }
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
pub(crate) fn files_below(root: &Path, folder: &Path, files: &mut Vec<String>) {
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
