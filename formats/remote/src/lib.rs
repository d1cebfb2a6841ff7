//! Traces and lakes in object stores and behind HTTP: files are read in ranges, and lakes are written to object stores.
//!
//! ```text
//! s3://bucket/runs/a.pqt     AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL, …
//! gs://bucket/runs/a.pqt     GOOGLE_APPLICATION_CREDENTIALS, …
//! az://container/runs/a.pqt  AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY, …
//! https://host/runs/a.pqt    user:password@ and ?query are sent, and not shown
//! ```
//! [`install`] makes these URLs known to [`perfquet_trace`], which has no HTTP client of its own. Whatever a server answers is bounded: in
//! time, in bytes, and in the text of an error.

mod address;
mod blocks;
mod client;
mod failure;
mod file;
mod place;
mod reading;
mod running;
mod writing;

pub use client::requests;
pub use place::Place;
pub use writing::{Content, Listed, Upload, Version};

use std::sync::Arc;

use perfquet_trace::remote::{Client, RemotePlace};

/// Lets this process open URLs as traces and lakes.
pub fn install() {
    perfquet_trace::remote::install(Client {
        open: |url| Ok(Arc::new(Place::open(url)?) as Arc<dyn RemotePlace>),
    });
}
