//! The HTTP client of all stores, with bounds on what a server may answer.
//!
//! Requests for ranges stream: their reader knows how many bytes it expects. Everything else that a store asks for is small: manifests, lists,
//! tokens, and the texts of errors. Without bounds, a server could fill the memory with one of these.

use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};

/// Maximum size of an answer that is not a range: a manifest of a million parts, or a file of a server without ranges.
pub(crate) const LARGEST: u64 = 256 << 20;
/// Maximum size of the text of an error; the rest is dropped.
const LARGEST_ERROR: usize = 16 << 10;

static REQUESTS: AtomicU64 = AtomicU64::new(0);

/// Returns how many requests this process has sent, repeated ones included.
pub fn requests() -> u64 {
    REQUESTS.load(Ordering::Relaxed)
}

/// Makes clients with bounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limited;

impl HttpConnector for Limited {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Service(client)))
    }
}

#[derive(Debug)]
struct Service(HttpClient);

#[derive(Debug)]
struct TooLarge;

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server sends more than {} MiB", LARGEST >> 20)
    }
}

impl Error for TooLarge {}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_range = request.headers().contains_key("range");
        log::debug!(
            "{} {}{}",
            request.method(),
            request.uri().path(),
            match request.headers().get("range") {
                Some(range) => format!(" {}", range.to_str().unwrap_or_default()),
                None => String::new(),
            }
        );
        REQUESTS.fetch_add(1, Ordering::Relaxed);
        let response = self.0.execute(request).await?;
        let is_success = response.status().is_success();
        if is_range && is_success {
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        let bytes = match is_success {
            true => all(body).await?,
            false => first(body).await,
        };
        Ok(HttpResponse::from_parts(
            parts,
            HttpResponseBody::from(bytes),
        ))
    }
}

async fn all(body: HttpResponseBody) -> Result<Bytes, HttpError> {
    let mut stream = body.bytes_stream();
    let mut bytes = BytesMut::new();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk?;
        if (bytes.len() + chunk.len()) as u64 > LARGEST {
            return Err(HttpError::new(HttpErrorKind::Decode, TooLarge));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}

/// The begin of the text of an error, as far as it arrives. Other encodings than UTF-8 would hide the status.
async fn first(body: HttpResponseBody) -> Bytes {
    let mut stream = body.bytes_stream();
    let mut bytes = Vec::new();
    while let Some(Ok(chunk)) = stream.next().await {
        let rest = LARGEST_ERROR - bytes.len();
        bytes.extend_from_slice(&chunk[..chunk.len().min(rest)]);
        if bytes.len() == LARGEST_ERROR {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned().into()
}
