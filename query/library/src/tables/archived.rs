//! Parts inside of an archive (`a.pqtz`) or behind a URL, as files of an object store.
//!
//! ```text
//! a.pqtz/samples/00000.parquet                  its bytes are a range of a.pqtz
//! s3://bucket/a.pqt/samples/00000.parquet       its bytes are those of an object
//! ```

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::object_store::path::Path as ObjectPath;
use datafusion::object_store::{
    Attributes, CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use parquet::file::reader::Length as _;
use perfquet_trace::store::{Archive, PartFile};

use crate::tables::location;

/// The file that a part of an archive seems to be.
pub(super) fn meta(archive: &Archive, path: &Path, part: &PartFile) -> std::io::Result<ObjectMeta> {
    let Some(modified) = archive.modified() else {
        return Ok(remote_meta(
            path,
            part,
            archive.version().unwrap_or_default(),
        ));
    };
    let inner = path.strip_prefix(archive.path()).unwrap_or(path);
    let mut location = location::of(archive.path())?;
    for step in inner.components() {
        location = location.join(step.as_os_str().to_string_lossy().as_ref());
    }
    Ok(ObjectMeta {
        location,
        last_modified: modified.into(),
        size: part.len(),
        e_tag: None,
        version: None,
    })
}

/// The file that a part behind a URL seems to be. `opened` tells apart what was opened at different times: caches of metadata
/// compare the time of a file, which is not known before it is read.
pub(super) fn remote_meta(path: &Path, part: &PartFile, opened: &str) -> ObjectMeta {
    let mut hasher = DefaultHasher::new();
    opened.hash(&mut hasher);
    let since = Duration::from_millis(hasher.finish() >> 24);
    ObjectMeta {
        location: ObjectPath::from_iter(path.to_string_lossy().split('/')),
        last_modified: (SystemTime::UNIX_EPOCH + since).into(),
        size: part.len(),
        e_tag: None,
        version: None,
    }
}

/// A store whose only file is one part.
#[derive(Debug)]
pub(super) struct OnePart(pub(super) ObjectMeta, pub(super) PartFile);

impl fmt::Display for OnePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.location)
    }
}

fn refused<T>() -> Result<T> {
    Err(Error::NotSupported {
        source: "parts are only read".into(),
    })
}

#[async_trait]
impl ObjectStore for OnePart {
    async fn get_opts(&self, location: &ObjectPath, options: GetOptions) -> Result<GetResult> {
        options.check_preconditions(&self.0)?;
        let failed = |error: std::io::Error| Error::Generic {
            store: "archive",
            source: format!("/{location}: {error}").into(),
        };
        let range = match options.range {
            Some(range) => range
                .as_range(self.0.size)
                .map_err(|error| Error::Generic {
                    store: "archive",
                    source: error.to_string().into(),
                })?,
            None => 0..self.0.size,
        };
        let bytes = match options.head {
            true => Bytes::new(),
            false => {
                let read = self.1.ranges(std::slice::from_ref(&range)).await;
                read.map_err(failed)?.pop().unwrap_or_default()
            }
        };
        Ok(GetResult {
            payload: GetResultPayload::Stream(stream::once(async { Ok(bytes) }).boxed()),
            meta: self.0.clone(),
            range,
            attributes: Attributes::new(),
        })
    }

    async fn get_ranges(&self, location: &ObjectPath, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let read = self.1.ranges(ranges).await;
        read.map_err(|error| Error::Generic {
            store: "archive",
            source: format!("/{location}: {error}").into(),
        })
    }

    fn list(&self, _: Option<&ObjectPath>) -> BoxStream<'static, Result<ObjectMeta>> {
        stream::once(async { refused() }).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&ObjectPath>) -> Result<ListResult> {
        refused()
    }

    fn delete_stream(
        &self,
        _: BoxStream<'static, Result<ObjectPath>>,
    ) -> BoxStream<'static, Result<ObjectPath>> {
        stream::once(async { refused() }).boxed()
    }

    async fn put_opts(&self, _: &ObjectPath, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        refused()
    }

    async fn put_multipart_opts(
        &self,
        _: &ObjectPath,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        refused()
    }

    async fn copy_opts(&self, _: &ObjectPath, _: &ObjectPath, _: CopyOptions) -> Result<()> {
        refused()
    }
}
