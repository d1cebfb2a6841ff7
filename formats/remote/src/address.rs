//! URLs: the store, the key in it, and what may be shown of them.
//!
//! ```text
//! s3://bucket/runs/a.pqt                         store s3 "bucket", key runs/a.pqt
//! https://me:secret@host/a%20b.pqtz?signature=x  store https://me:secret@host/?signature=x, key "a b.pqtz"; shown https://host/a%20b.pqtz
//! ```
//! A password or signature stays in this process: a URL that was opened with one is opened with it again when it is given as it was shown.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};

use crate::client::Limited;

/// A request, with the body of its answer: at most 8 MiB.
const REQUEST: &str = "60s";
const CONNECT: &str = "5s";

/// Full URLs of those that are shown without their secrets.
static SECRETS: Mutex<Option<HashMap<String, String>>> = Mutex::new(None);

/// The parts of a URL.
pub(crate) struct Address {
    /// Without password and query.
    pub(crate) shown: String,
    /// The key of the directory or file.
    pub(crate) key: Path,
    pub(crate) store: Arc<dyn ObjectStore>,
    /// Whether there is a way to list a directory.
    pub(crate) lists: bool,
    /// Texts that no message may have.
    pub(crate) secrets: Vec<String>,
}

fn unfit(message: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, message.into())
}

fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(2),
            base: 2.0,
        },
        max_retries: 3,
        retry_timeout: Duration::from_secs(20),
    }
}

impl Address {
    pub(crate) fn parse(url: &str) -> io::Result<Address> {
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| unfit("expected a URL"))?;
        match scheme {
            "http" | "https" => web(url, scheme, rest),
            _ => bucket(url, scheme, rest),
        }
    }
}

/// A bucket of an object store. Keys are taken literally, without escapes.
fn bucket(url: &str, scheme: &str, rest: &str) -> io::Result<Address> {
    let (name, key) = rest.split_once('/').unwrap_or((rest, ""));
    if name.is_empty() {
        return Err(unfit(format!("expected {scheme}://BUCKET/PATH")));
    }
    let key = Path::parse(key.trim_end_matches('/')).map_err(|error| unfit(error.to_string()))?;
    let set = |variable: &str| std::env::var_os(variable).is_some();
    let failed = |error: object_store::Error| unfit(error.to_string());
    let store: Arc<dyn ObjectStore> = match scheme {
        "s3" | "s3a" => {
            let mut builder = AmazonS3Builder::from_env().with_bucket_name(name);
            let mut client = |variable: &str, key: ClientConfigKey, value: &str| {
                if !set(variable) {
                    let key = AmazonS3ConfigKey::Client(key);
                    builder = std::mem::take(&mut builder).with_config(key, value);
                }
            };
            client("AWS_TIMEOUT", ClientConfigKey::Timeout, REQUEST);
            client(
                "AWS_CONNECT_TIMEOUT",
                ClientConfigKey::ConnectTimeout,
                CONNECT,
            );
            let endpoints = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
            let endpoint = endpoints.iter().find_map(|name| std::env::var(name).ok());
            if endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
                // Whoever gives such an endpoint means it.
                client("AWS_ALLOW_HTTP", ClientConfigKey::AllowHttp, "true");
            }
            let builder = builder.with_retry(retries()).with_http_connector(Limited);
            Arc::new(builder.build().map_err(failed)?)
        }
        "gs" => {
            let client = |key| GoogleConfigKey::Client(key);
            let builder = GoogleCloudStorageBuilder::from_env()
                .with_bucket_name(name)
                .with_config(client(ClientConfigKey::Timeout), REQUEST)
                .with_config(client(ClientConfigKey::ConnectTimeout), CONNECT)
                .with_retry(retries())
                .with_http_connector(Limited);
            Arc::new(builder.build().map_err(failed)?)
        }
        "az" | "azure" | "abfss" => {
            let client = |key| AzureConfigKey::Client(key);
            let builder = match name.split_once('@') {
                // The account is in the URL.
                Some(_) => MicrosoftAzureBuilder::from_env().with_url(url),
                None => MicrosoftAzureBuilder::from_env().with_container_name(name),
            };
            let builder = builder
                .with_config(client(ClientConfigKey::Timeout), REQUEST)
                .with_config(client(ClientConfigKey::ConnectTimeout), CONNECT)
                .with_retry(retries())
                .with_http_connector(Limited);
            Arc::new(builder.build().map_err(failed)?)
        }
        _ => return Err(unfit(format!("unknown scheme {scheme}"))),
    };
    Ok(Address {
        shown: url.trim_end_matches('/').to_owned(),
        key,
        store,
        lists: true,
        secrets: Vec::new(),
    })
}

/// A server that only has files.
fn web(url: &str, scheme: &str, rest: &str) -> io::Result<Address> {
    let is_hidden = rest.contains('?')
        || rest
            .split('/')
            .next()
            .is_some_and(|host| host.contains('@'));
    if !is_hidden && let Some(full) = with_secrets(url) {
        let rest = full.split_once("://").map_or(rest, |(_, rest)| rest);
        return web(&full, scheme, rest);
    }
    let rest = rest.split('#').next().unwrap_or_default();
    let (rest, query) = rest
        .split_once('?')
        .map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, host) = authority
        .rsplit_once('@')
        .map_or((None, authority), |(user, host)| (Some(user), host));
    if host.is_empty() {
        return Err(unfit(format!("expected {scheme}://HOST/PATH")));
    }
    let path = path.trim_end_matches('/');
    let shown = format!("{scheme}://{host}/{path}");
    if is_hidden {
        let mut known = SECRETS.lock().unwrap_or_else(PoisonError::into_inner);
        known
            .get_or_insert_default()
            .insert(shown.clone(), url.to_owned());
    }
    let base = match query {
        Some(query) => format!("{scheme}://{authority}/?{query}"),
        None => format!("{scheme}://{authority}/"),
    };
    let options = [
        (ClientConfigKey::Timeout, REQUEST),
        (ClientConfigKey::ConnectTimeout, CONNECT),
        (
            ClientConfigKey::AllowHttp,
            if scheme == "http" { "true" } else { "false" },
        ),
    ];
    let options = options
        .into_iter()
        .fold(ClientOptions::new(), |options, (key, value)| {
            options.with_config(key, value)
        });
    let store = HttpBuilder::new()
        .with_url(base)
        .with_client_options(options)
        .with_retry(retries())
        .with_http_connector(Limited)
        .build()
        .map_err(|error| unfit(error.to_string()))?;
    let key = Path::from_url_path(path).map_err(|error| unfit(error.to_string()))?;
    let secrets = [query, user].into_iter().flatten();
    Ok(Address {
        shown,
        key,
        store: Arc::new(store),
        lists: false,
        secrets: secrets.map(str::to_owned).collect(),
    })
}

/// The URL by which this one, or a directory above it, was opened.
fn with_secrets(url: &str) -> Option<String> {
    let known = SECRETS.lock().unwrap_or_else(PoisonError::into_inner);
    known.as_ref()?.get(url).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_buckets_have_no_escapes_and_those_of_the_web_do() {
        let check = |url: &str, shown: &str, key: &str| {
            let found = Address::parse(url).unwrap();
            assert_eq!((found.shown.as_str(), found.key.as_ref()), (shown, key));
        };
        check(
            "s3://b/x/a%26b/a b.pqt/",
            "s3://b/x/a%26b/a b.pqt",
            "x/a%26b/a b.pqt",
        );
        check("gs://b/a.pqt", "gs://b/a.pqt", "a.pqt");
        check("https://h:8/a%20b.pqt", "https://h:8/a%20b.pqt", "a b.pqt");
        for url in [
            "s3://",
            "s3:///a",
            "https:///a",
            "s3://b/../a.pqt",
            "s3://b/a//b",
        ] {
            assert!(Address::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn secrets_are_kept_and_not_shown() {
        let found = Address::parse("https://me:pw@h/a.pqtz?X-Signature=5#x").unwrap();
        assert_eq!(found.shown, "https://h/a.pqtz");
        assert_eq!(found.secrets, ["X-Signature=5", "me:pw"]);
        // As it was shown, it still opens.
        let again = Address::parse("https://h/a.pqtz").unwrap();
        assert_eq!(again.secrets, found.secrets);
        assert!(
            Address::parse("https://h/b.pqtz")
                .unwrap()
                .secrets
                .is_empty()
        );
    }
}
