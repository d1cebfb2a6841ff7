//! HTTP/1.1 for a browser on the same host: requests with a length, answers with a length, connections kept open.
//!
//! ```text
//! GET /api/meta HTTP/1.1          HTTP/1.1 200 OK
//! Host: 127.0.0.1:40123           Content-Type: application/json
//!                                 Content-Length: 812
//! ```
//! Whatever is unusual (chunked bodies, upgrades, two `Host` headers) is an error, and closes the connection.
//! Specification: RFC 9112.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

/// Bytes of a request's head.
const MOST_HEAD: usize = 16 << 10;
/// Bytes of a request's body.
const MOST_BODY: usize = 1 << 20;
const MOST_HEADERS: usize = 64;
/// Time until the next request of a connection.
const IDLE: Duration = Duration::from_secs(60);
/// Time for the whole of a request, once it has begun.
const PATIENCE: Duration = Duration::from_secs(10);
/// Shorter answers are not compressed.
const LEAST_COMPRESSED: usize = 1024;

/// A request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    /// Up to the question mark, as it was sent.
    pub(super) path: String,
    /// After the question mark.
    pub(super) query: String,
    /// Names in lower case.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Request {
    /// Value of a header; the first one if there are several.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(other, _)| other == name);
        found.next().map(|(_, value)| value.as_str())
    }

    fn count(&self, name: &str) -> usize {
        let found = self.headers.iter().filter(|(other, _)| other == name);
        found.count()
    }

    /// Decoded value of a parameter of the query.
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        let mut pairs = self
            .query
            .split('&')
            .filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.find(|(other, _)| *other == name)?;
        decoded(value)
    }

    /// Decoded values of a parameter that may be there several times, without empty ones.
    pub(super) fn parameters(&self, name: &str) -> Vec<String> {
        let pairs = self
            .query
            .split('&')
            .filter_map(|pair| pair.split_once('='));
        let values = pairs.filter(|(other, _)| *other == name);
        let values = values.filter_map(|(_, value)| decoded(value));
        values.filter(|value| !value.is_empty()).collect()
    }
}

/// `a%20b+c` as `a b c`; `None` if it is no UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let (byte, after) = match (first, after) {
            (b'+', _) => (b' ', after),
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                (u8::try_from(digit(high)? * 16 + digit(low)?).ok()?, after)
            }
            (b'%', _) => return None,
            _ => (first, after),
        };
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) kind: &'static str,
    pub(super) body: Vec<u8>,
    /// Whether the body is compressed by gzip.
    pub(super) is_compressed: bool,
    pub(super) headers: Vec<(&'static str, String)>,
}

impl Answer {
    pub(super) fn new(status: u16, kind: &'static str, body: impl Into<Vec<u8>>) -> Answer {
        Answer {
            status,
            kind,
            body: body.into(),
            is_compressed: false,
            headers: Vec::new(),
        }
    }

    pub(super) fn text(status: u16, text: &str) -> Answer {
        Answer::new(status, "text/plain; charset=utf-8", text)
    }

    pub(super) fn json(value: &serde_json::Value) -> Answer {
        Answer::new(200, "application/json", value.to_string())
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Answer {
        self.headers.push((name, value.into()));
        self
    }

    /// The same compressed, unless it is short.
    pub(super) fn compressed(mut self) -> Answer {
        if self.body.len() >= LEAST_COMPRESSED && !self.is_compressed {
            // The fast level leaves half as much again: 322 kB for a picture of 189 kB.
            let mut packed = GzEncoder::new(Vec::new(), Compression::default());
            if packed.write_all(&self.body).is_ok()
                && let Ok(packed) = packed.finish()
            {
                self.body = packed;
                self.is_compressed = true;
            }
        }
        self
    }

    /// The same without compression.
    fn plain(mut self) -> Answer {
        let mut body = Vec::new();
        if self.is_compressed
            && GzDecoder::new(self.body.as_slice())
                .read_to_end(&mut body)
                .is_ok()
        {
            self.body = body;
            self.is_compressed = false;
        }
        self
    }
}

/// The browser at the other end of a connection.
pub(super) struct Peer<'a>(Option<&'a Connection<'a>>);

/// A connection whose request is being answered, maybe by several threads.
struct Connection<'a> {
    stream: &'a TcpStream,
    /// Held while a thread looks at the stream without waiting: whether reads wait is a state of the stream, not of a thread.
    looking: Mutex<()>,
}

impl<'a> Connection<'a> {
    fn new(stream: &'a TcpStream) -> Connection<'a> {
        Connection {
            stream,
            looking: Mutex::new(()),
        }
    }
}

impl Peer<'_> {
    /// Work that no connection waits for.
    pub(super) const NONE: Peer<'static> = Peer(None);

    /// Whether the connection was closed, as browsers do to cancel a request. While another thread finds that out, it is not known.
    pub(super) fn is_gone(&self) -> bool {
        let Some(Connection { stream, looking }) = self.0 else {
            return false;
        };
        let Ok(_looking) = looking.try_lock() else {
            return false;
        };
        if stream.set_nonblocking(true).is_err() {
            return true;
        }
        let is_gone = match stream.peek(&mut [0]) {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        stream.set_nonblocking(false).is_err() || is_gone
    }
}

/// Answers the requests of a connection until it is closed.
pub(super) fn serve(stream: &TcpStream, answer: impl Fn(&Request, &Peer<'_>) -> Answer) {
    // Answers are written whole; waiting for more to send would only delay them.
    let _ = stream.set_nodelay(true);
    let _ = stream.set_write_timeout(Some(PATIENCE));
    let (mut buffer, connection) = (Vec::new(), Connection::new(stream));
    loop {
        match read(stream, &mut buffer) {
            Ok(Some(request)) => {
                let accepts = request.header("accept-encoding").unwrap_or_default();
                let may_compress = accepts.split(',').any(|name| name.trim() == "gzip");
                let mut answer = answer(&request, &Peer(Some(&connection)));
                answer = match may_compress {
                    true => answer.compressed(),
                    false => answer.plain(),
                };
                let closes = request.header("connection") == Some("close");
                if write(stream, &answer, closes).is_err() || closes {
                    return;
                }
            }
            Ok(None) => return,
            Err(status) => {
                let _ = write(stream, &Answer::text(status, reason(status)), true);
                return;
            }
        }
    }
}

/// Reads a request; `None` at the end of the connection. An error is a status.
fn read(stream: &TcpStream, buffer: &mut Vec<u8>) -> Result<Option<Request>, u16> {
    let mut end = Instant::now() + IDLE;
    let mut has_begun = !buffer.is_empty();
    let (mut request, length) = loop {
        if let Some((request, length)) = head(buffer)? {
            buffer.drain(..length);
            break (request.0, request.1);
        }
        if buffer.len() > MOST_HEAD {
            return Err(431);
        }
        if !fill(stream, buffer, end)? {
            return if buffer.is_empty() {
                Ok(None)
            } else {
                Err(400)
            };
        }
        if !has_begun {
            has_begun = true;
            end = Instant::now() + PATIENCE;
        }
    };
    let end = Instant::now() + PATIENCE;
    while buffer.len() < length {
        if !fill(stream, buffer, end)? {
            return Err(400);
        }
    }
    request.body = buffer.drain(..length).collect();
    Ok(Some(request))
}

/// Reads more bytes; `false` if there are none.
fn fill(mut stream: &TcpStream, buffer: &mut Vec<u8>, end: Instant) -> Result<bool, u16> {
    let rest = end.saturating_duration_since(Instant::now());
    if rest.is_zero() || stream.set_read_timeout(Some(rest)).is_err() {
        return if buffer.is_empty() {
            Ok(false)
        } else {
            Err(408)
        };
    }
    let mut bytes = [0; 8192];
    match stream.read(&mut bytes) {
        Ok(0) => Ok(false),
        Ok(count) => {
            buffer.extend_from_slice(&bytes[..count]);
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
        Err(_) if buffer.is_empty() => Ok(false),
        Err(_) => Err(408),
    }
}

type Head = ((Request, usize), usize);

/// The head that `bytes` begin with, the length of its body, and its own; `None` if it is incomplete.
fn head(bytes: &[u8]) -> Result<Option<Head>, u16> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let length = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(431),
        Err(_) => return Err(400),
    };
    if length > MOST_HEAD {
        return Err(431);
    }
    let target = parsed.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut request = Request {
        method: parsed.method.unwrap_or_default().to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        ..Request::default()
    };
    for header in parsed.headers.iter() {
        let value = std::str::from_utf8(header.value).map_err(|_| 400_u16)?;
        let name = header.name.to_ascii_lowercase();
        request.headers.push((name, value.trim().to_owned()));
    }
    if parsed.version != Some(1) {
        return Err(505);
    }
    if request.header("transfer-encoding").is_some() {
        return Err(501);
    }
    if request.header("host").is_none()
        || ["host", "content-length", "origin"]
            .iter()
            .any(|name| request.count(name) > 1)
    {
        return Err(400);
    }
    let body = match request.header("content-length") {
        None => 0,
        // `parse` would accept a sign.
        Some(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            text.parse().map_err(|_| 413_u16)?
        }
        Some(_) => return Err(400),
    };
    if body > MOST_BODY {
        return Err(413);
    }
    Ok(Some(((request, body), length)))
}

fn write(mut stream: &TcpStream, answer: &Answer, closes: bool) -> std::io::Result<()> {
    let mut head = format!(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nX-Content-Type-Options: nosniff\r\n\
         Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\
         Cross-Origin-Opener-Policy: same-origin\r\nCache-Control: no-store\r\n",
        answer.status,
        reason(answer.status),
        answer.kind,
        answer.body.len()
    );
    let mut add = |name: &str, value: &str| head.push_str(&format!("{name}: {value}\r\n"));
    if answer.is_compressed {
        add("Content-Encoding", "gzip");
    }
    if closes {
        add("Connection", "close");
    }
    for (name, value) in &answer.headers {
        add(name, value);
    }
    head.push_str("\r\n");
    let bytes = [head.as_bytes(), &answer.body].concat();
    stream.write_all(&bytes)
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        303 => "See Other",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Content",
        431 => "Request Header Fields Too Large",
        499 => "Client Closed Request",
        501 => "Not Implemented",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Internal Server Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(text: &str) -> Option<u16> {
        head(text.as_bytes()).err()
    }

    #[test]
    fn heads() {
        let text = "GET /api/x?a=1%2C2&b=c+d HTTP/1.1\r\nHost: h:1\r\nCookie: a=b \r\n\r\nrest";
        let ((request, body), length) = head(text.as_bytes()).unwrap().unwrap();
        assert_eq!((request.method.as_str(), body), ("GET", 0));
        assert_eq!(&text[length..], "rest");
        assert_eq!(request.path, "/api/x");
        assert_eq!(request.parameter("a").as_deref(), Some("1,2"));
        assert_eq!(request.parameter("b").as_deref(), Some("c d"));
        assert_eq!(request.parameter("c"), None);
        assert_eq!(request.header("cookie"), Some("a=b"));
        assert_eq!(head(&text.as_bytes()[..20]), Ok(None));
    }

    #[test]
    fn unusual_heads_are_errors() {
        let with = |lines: &str| status(&format!("POST / HTTP/1.1\r\nHost: h\r\n{lines}\r\n\r\n"));
        assert_eq!(with("Content-Length: 5"), None);
        assert_eq!(with("Content-Length: +5"), Some(400));
        assert_eq!(with("Content-Length: 5\r\nContent-Length: 6"), Some(400));
        assert_eq!(with("Content-Length: 99999999"), Some(413));
        assert_eq!(with("Content-Length: 99999999999999999999"), Some(413));
        assert_eq!(with("Transfer-Encoding: chunked"), Some(501));
        assert_eq!(with("Host: other"), Some(400));
        assert_eq!(with(&"A: b\r\n".repeat(70)), Some(431));
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), Some(400));
        assert_eq!(status("GET / HTTP/1.0\r\nHost: h\r\n\r\n"), Some(505));
        assert_eq!(status("\u{0}\r\n\r\n"), Some(400));
    }

    /// Each of them once took the stream out of the state in which the others look at it: they waited for the next request.
    #[test]
    fn threads_that_look_for_the_browser_do_not_wait_for_its_requests() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let browser = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        // A thread that waits finds an error after this time.
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let connection = Connection::new(&stream);
        let looked = || {
            let begin = Instant::now();
            (0..5_000).for_each(|_| assert!(!Peer(Some(&connection)).is_gone()));
            begin.elapsed()
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(looked)).collect();
            for thread in threads {
                assert!(thread.join().unwrap() < PATIENCE);
            }
        });
        drop(browser);
        assert!(Peer(Some(&connection)).is_gone());
    }

    #[test]
    fn parameters_that_are_no_text_are_missing() {
        assert_eq!(decoded("%41%zz"), None);
        assert_eq!(decoded("%4"), None);
        assert_eq!(decoded("%ff"), None);
        assert_eq!(decoded("%e2%82%ac").as_deref(), Some("€"));
    }
}
