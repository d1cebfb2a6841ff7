//! The part of a join that is on disk when its open ranges do not fit into memory.
//!
//! ```text
//! memory is full     all open ranges go to disk, as a generation; memory is empty
//! later rows         are swept as before among themselves, and are written to disk, too
//! at the end         each generation is read back and compared with the later rows
//! ```
//! Pairs of rows that were in memory together are found immediately. Pairs of a generation's row with a later row are found
//! at the end, exactly once, because each row is in at most one generation. IDs record which rows have matched.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, UInt32Array, UInt64Array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, UInt32Type, UInt64Type};
use arrow::ipc::writer::StreamWriter;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::spill_file::{SpillFile, SpillWriter};
use datafusion::physical_plan::SpillManager;
use datafusion::physical_plan::metrics::SpillMetrics;

use super::spec::{Rows, SIDES, Spec};

/// Rows on disk, and the comparisons that remain.
pub(super) struct Overflow {
    files: [RowFile; 2],
    /// The next ID of each side.
    pub(super) next_id: [u64; 2],
    pub(super) generations: Vec<Generation>,
    pub(super) managers: [SpillManager; 2],
    pub(super) metrics: SpillMetrics,
}

impl fmt::Debug for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Overflow of {} generations", self.generations.len())
    }
}

/// Open ranges of both sides that were moved to disk together.
pub(super) struct Generation {
    pub(super) files: [Stored; 2],
    /// ID of the first row of each side that has not met them.
    pub(super) from: [u64; 2],
}

/// A complete file; `None` if it has no rows.
pub(super) type Stored = Option<Arc<dyn SpillFile>>;

impl Overflow {
    pub(super) fn new(
        spec: &Spec,
        env: &Arc<RuntimeEnv>,
        metrics: &SpillMetrics,
    ) -> Result<Overflow> {
        let managers = SIDES.map(|side| {
            let schema = stored_schema(&spec.sides[side].schema);
            SpillManager::new(Arc::clone(env), metrics.clone(), schema)
        });
        Ok(Overflow {
            files: [
                RowFile::create(&managers[0], env, metrics)?,
                RowFile::create(&managers[1], env, metrics)?,
            ],
            metrics: metrics.clone(),
            next_id: [0; 2],
            generations: Vec::new(),
            managers,
        })
    }

    /// Writes later rows. Returns the ID of the first.
    pub(super) fn record(&mut self, side: usize, rows: &Rows) -> Result<u64> {
        let first = self.next_id[side];
        let count = rows.starts.len() as u64;
        self.next_id[side] += count;
        let ids = UInt64Array::from_iter_values(first..first + count);
        self.files[side].write(&stored(self.managers[side].schema(), rows, ids)?)?;
        Ok(first)
    }

    pub(super) fn read(
        &self,
        side: usize,
        file: &Stored,
    ) -> Result<Option<SendableRecordBatchStream>> {
        let read = |file: &Arc<dyn SpillFile>| {
            self.managers[side].read_spill_as_stream_unbuffered(Arc::clone(file), None)
        };
        file.as_ref().map(read).transpose()
    }

    /// Completes the files of later rows.
    pub(super) fn finish(&mut self) -> Result<(Vec<Generation>, [Stored; 2])> {
        let [left, right] = &mut self.files;
        Ok((
            std::mem::take(&mut self.generations),
            [left.finish()?, right.finish()?],
        ))
    }
}

/// A file of rows that is being written.
pub(super) struct RowFile {
    file: Arc<dyn SpillFile>,
    writer: Option<StreamWriter<Box<dyn SpillWriter>>>,
    schema: SchemaRef,
    metrics: SpillMetrics,
}

impl RowFile {
    pub(super) fn create(
        manager: &SpillManager,
        env: &Arc<RuntimeEnv>,
        metrics: &SpillMetrics,
    ) -> Result<RowFile> {
        Ok(RowFile {
            metrics: metrics.clone(),
            file: env.disk_manager.create_tmp_file("RangeJoin")?,
            writer: None,
            schema: Arc::clone(manager.schema()),
        })
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let writer = StreamWriter::try_new(self.file.open_writer()?, &self.schema)?;
                self.metrics.spill_file_count.add(1);
                self.writer.insert(writer)
            }
        };
        self.metrics.spilled_rows.add(batch.num_rows());
        Ok(writer.write(batch)?)
    }

    pub(super) fn finish(&mut self) -> Result<Stored> {
        let Some(mut writer) = self.writer.take() else {
            return Ok(None);
        };
        writer.finish()?;
        writer.into_inner()?.finish()?;
        let bytes = self.file.size().unwrap_or(0);
        self.metrics.spilled_bytes.add(bytes as usize);
        Ok(Some(Arc::clone(&self.file)))
    }
}

/// The columns of a side as they are on disk.
fn stored_schema(schema: &Schema) -> SchemaRef {
    let mut fields = schema.fields().to_vec();
    for (name, kind) in [
        ("start", DataType::Int64),
        ("end", DataType::Int64),
        ("key", DataType::UInt32),
        ("id", DataType::UInt64),
    ] {
        fields.push(Arc::new(Field::new(name, kind, true)));
    }
    Arc::new(Schema::new(fields))
}

pub(super) fn stored(schema: &SchemaRef, rows: &Rows, ids: UInt64Array) -> Result<RecordBatch> {
    let mut columns: Vec<ArrayRef> = rows.columns.iter().map(without_unused_texts).collect();
    let starts = Int64Array::new(rows.starts.clone(), rows.valid.clone());
    let ends = Int64Array::new(rows.ends.clone(), rows.valid.clone());
    columns.push(Arc::new(starts));
    columns.push(Arc::new(ends));
    columns.push(Arc::new(UInt32Array::from(rows.keys.clone())));
    columns.push(Arc::new(ids));
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// String views keep the buffer of a whole page alive; copy only the strings in use.
fn without_unused_texts(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        _ => Arc::clone(column),
    }
}

/// Rows from disk, and their IDs.
pub(super) fn restored(batch: &RecordBatch) -> Result<(Rows, Vec<u64>)> {
    let [columns @ .., starts, ends, keys, ids] = batch.columns() else {
        let message = "rows on disk have too few columns".to_owned();
        return Err(DataFusionError::Internal(message));
    };
    let (starts, ends) = (
        starts.as_primitive::<Int64Type>(),
        ends.as_primitive::<Int64Type>(),
    );
    let rows = Rows {
        columns: columns.to_vec(),
        valid: NullBuffer::union(starts.nulls(), ends.nulls()),
        starts: starts.values().clone(),
        ends: ends.values().clone(),
        keys: keys.as_primitive::<UInt32Type>().values().to_vec(),
    };
    Ok((rows, ids.as_primitive::<UInt64Type>().values().to_vec()))
}
