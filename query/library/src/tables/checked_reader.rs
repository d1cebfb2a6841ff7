//! Reads the parts of traces as DataFusion does, after checking their metadata: the parquet crate panics on invalid
//! offsets, which a damaged or malicious file may have.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetFileReaderFactory;
use datafusion::datasource::physical_plan::parquet::CachedParquetFileReaderFactory;
use datafusion::error::Result;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::FutureExt;
use futures::future::BoxFuture;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::ParquetMetaData;
use perfquet_trace::store::{PartFile, check_chunks};

use crate::tables::archived::OnePart;

/// DataFusion's readers with a metadata cache, plus validation of what they read.
#[derive(Debug)]
pub(crate) struct CheckedReaders {
    files: CachedParquetFileReaderFactory,
    environment: Arc<RuntimeEnv>,
}

impl CheckedReaders {
    pub(crate) fn new(
        files: CachedParquetFileReaderFactory,
        environment: Arc<RuntimeEnv>,
    ) -> CheckedReaders {
        CheckedReaders { files, environment }
    }

    /// The reader of a part in an archive.
    fn archived(&self, file: &PartitionedFile, part: &PartFile) -> CachedParquetFileReaderFactory {
        let store = OnePart(file.object_meta.clone(), part.clone());
        let cache = self.environment.cache_manager.get_file_metadata_cache();
        CachedParquetFileReaderFactory::new(Arc::new(store), cache)
    }
}

impl ParquetFileReaderFactory for CheckedReaders {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let bytes = file.object_meta.size;
        let location = file.object_meta.location.to_string();
        let archived = file.extension::<PartFile>();
        let archived = archived.map(|part| self.archived(&file, part));
        let readers = archived.as_ref().unwrap_or(&self.files);
        let reader = readers.create_reader(partition, file, metadata_size_hint, metrics)?;
        Ok(Box::new(CheckedReader {
            reader,
            bytes,
            location,
        }))
    }
}

struct CheckedReader {
    reader: Box<dyn AsyncFileReader + Send>,
    bytes: u64,
    location: String,
}

impl AsyncFileReader for CheckedReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        self.reader.get_bytes(range)
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        self.reader.get_byte_ranges(ranges)
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        async move {
            let metadata = self.reader.get_metadata(options).await?;
            check_chunks(&metadata, self.bytes).map_err(|message| {
                ParquetError::General(format!("/{}: {message}", self.location))
            })?;
            Ok(metadata)
        }
        .boxed()
    }
}
