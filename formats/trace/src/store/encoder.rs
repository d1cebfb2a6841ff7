//! The encoder thread: turns batches into parts.
//!
//! Each table, and each form of it, has at most one open part: a file `NNNNN.parquet.tmp`. When it is full, or the
//! trace is finished, it is closed, synced and renamed; then the manifest lists it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use parquet::schema::types::SchemaDescPtr;

use perfquet_events::Error;

use super::column::{Batch, MANY, Rows};
use super::encode::Workshop;
use super::files;
use super::fill::Fill;
use super::intern::Entries;
use super::job::{Gauge, Job, LARGEST_BATCH, WriterOptions};
use super::manifest::{self, Facts, Manifest, State, Summary};
use super::part::{Part, Written, settle};
use super::shape;
use super::table::TableSchema;

/// The state of the encoder thread.
pub(super) struct Encoder {
    path: PathBuf,
    manifest: Manifest,
    /// Whether some tables of a complete trace are being replaced: the manifest changes at the end.
    replacing: bool,
    options: WriterOptions,
    gauge: Arc<Gauge>,
    tables: Vec<Table>,
    /// The forms of the tables: each has separate parts, all in the table's directory.
    forms: Vec<Form>,
    /// Name of a table → its index.
    names: HashMap<String, usize>,
    /// Complete parts with temporary names, each with its form.
    written: Vec<(usize, Written)>,
    /// Memory of all open row groups.
    held: usize,
    /// Memory of all rows that are not yet encoded as pages.
    filled: usize,
    /// Returns the vectors of written batches to the writer.
    spare: Sender<(usize, Batch)>,
    shop: Workshop,
}

/// The encoder's state of a table.
struct Table {
    name: String,
    entry: manifest::Table,
    /// Indexes of its forms: one, except for events whose fields changed.
    forms: Vec<usize>,
    /// Its complete parts, each with the index of its form in the table.
    parts: Vec<(usize, manifest::Part)>,
    first_part: u32,
    next_part: u32,
}

/// Rows of a table with the same columns.
struct Form {
    table: usize,
    schema: Arc<TableSchema>,
    shape: SchemaDescPtr,
    /// Distinct strings of each column; none for columns without strings.
    texts: Vec<Entries>,
    part: Option<Part>,
    /// Rows for the next page, if not all come as columns.
    filling: Option<Box<Filling>>,
}

/// The rows of a form's next page.
struct Filling {
    rows: Rows,
    bytes: usize,
    /// Memory of the vectors, filled or not.
    held: usize,
    /// There is room for a page.
    is_roomy: bool,
}

/// Rows after which a table is expected to fill a page.
const ROOMY: usize = 8192;

impl Encoder {
    pub(super) fn new(
        path: PathBuf,
        manifest: Manifest,
        options: WriterOptions,
        gauge: Arc<Gauge>,
        spare: Sender<(usize, Batch)>,
    ) -> Result<Encoder, Error> {
        let shop = Workshop::new().map_err(Error::io(&path))?;
        Ok(Encoder {
            path,
            replacing: manifest.state != State::Recording,
            manifest,
            options,
            gauge,
            tables: Vec::new(),
            forms: Vec::new(),
            names: HashMap::new(),
            written: Vec::new(),
            held: 0,
            filled: 0,
            spare,
            shop,
        })
    }

    /// Runs until the trace is complete, or the writer is dropped: then open parts are discarded.
    pub(super) fn run(mut self, jobs: Receiver<Job>) -> Result<Summary, Error> {
        let result = self.work(&jobs);
        if !matches!(result, Ok(Some(_))) {
            self.give_up();
        }
        result.map(Option::unwrap_or_default)
    }

    fn work(&mut self, jobs: &Receiver<Job>) -> Result<Option<Summary>, Error> {
        while let Ok(job) = jobs.recv() {
            match job {
                Job::Table(schema) => self.add_table(schema)?,
                Job::Batch {
                    table,
                    batch,
                    bytes,
                    is_followed,
                } => {
                    self.take(table, batch, is_followed)?;
                    self.gauge.subtract(bytes);
                }
                Job::Fill { table, rows, bytes } => {
                    self.fill(table, rows)?;
                    self.gauge.subtract(bytes);
                }
                Job::Pages => {
                    (0..self.forms.len()).try_for_each(|index| self.end_page(index, false))?;
                }
                Job::Facts(facts) if !self.replacing => self.manifest.facts = *facts,
                Job::Facts(_) => {}
                Job::Finish(facts) => return self.finish(*facts).map(Some),
            }
        }
        Ok(None)
    }

    /// Adds a table, or another form of an existing one.
    fn add_table(&mut self, schema: TableSchema) -> Result<(), Error> {
        let shape = shape::describe(&schema).map_err(|error| Error::Unsupported {
            input: self.path.display().to_string(),
            message: format!("table {:?}: {error}", schema.name),
        })?;
        let place = self.names.get(&schema.name).copied();
        let table = place.unwrap_or(self.tables.len());
        if place.is_none() {
            let mut entry = manifest::Table::new(&schema);
            let mut next_part = 0;
            // A replaced table continues the part numbers: its old parts are valid until the manifest lists the new
            // ones.
            if let Some(former) = self.manifest.tables.get(&schema.name) {
                entry.folder.clone_from(&former.folder);
                let numbers = former.parts.iter().map(manifest::Part::number);
                next_part = numbers.max().unwrap_or(0);
            }
            self.names.insert(schema.name.clone(), table);
            self.tables.push(Table {
                name: schema.name.clone(),
                entry,
                forms: Vec::new(),
                parts: Vec::new(),
                first_part: next_part,
                next_part,
            });
        }
        if let Some(table) = self.tables.get_mut(table) {
            table.forms.push(self.forms.len());
        }
        self.forms.push(Form {
            table,
            texts: schema.columns.iter().map(|_| Entries::default()).collect(),
            schema: Arc::new(schema),
            shape,
            part: None,
            filling: None,
        });
        Ok(())
    }

    /// Adds rows that arrive as columns.
    fn take(&mut self, index: usize, batch: Batch, is_followed: bool) -> Result<(), Error> {
        let Some(form) = self.forms.get_mut(index) else {
            return Ok(());
        };
        if is_followed {
            form.filling();
        }
        match &mut form.filling {
            Some(filling) => {
                let grown = filling.rows.absorb(&batch);
                self.grow(index, grown)?;
            }
            None => self.append(index, &batch)?,
        }
        if batch.count >= MANY {
            // The writer may have ended.
            let _ = self.spare.send((index, batch));
        }
        Ok(())
    }

    /// Adds rows that are converted to columns here.
    fn fill(&mut self, index: usize, rows: Box<dyn Fill>) -> Result<(), Error> {
        let Some(form) = self.forms.get_mut(index) else {
            return Ok(());
        };
        let filling = form.filling();
        let count = rows.fill(&mut filling.rows);
        let grown = filling.rows.end_rows(count);
        self.grow(index, grown)
    }

    /// Accounts for memory used by rows of the next page, and encodes the page when it is full.
    fn grow(&mut self, index: usize, bytes: usize) -> Result<(), Error> {
        let form = self.forms.get_mut(index);
        let Some(filling) = form.and_then(|form| form.filling.as_mut()) else {
            return Ok(());
        };
        filling.bytes += bytes;
        let more = filling.bytes.saturating_sub(filling.held);
        filling.held += more;
        self.filled += more;
        let count = filling.rows.count();
        if count >= ROOMY && !filling.is_roomy {
            filling.is_roomy = true;
            let rest = self.options.rows_per_page.saturating_sub(count);
            filling.rows.reserve(rest);
        }
        let is_full = count >= self.options.rows_per_page;
        if is_full || filling.bytes >= LARGEST_BATCH {
            self.end_page(index, true)?;
        }
        if self.filled > self.options.memory_bytes / 2 {
            self.relieve_fillings()?;
        }
        self.gauge.set_filled(self.filled);
        Ok(())
    }

    /// Encodes a form's rows as a page. Their vectors are reused if the next page has as many rows.
    fn end_page(&mut self, index: usize, is_full: bool) -> Result<(), Error> {
        let form = self.forms.get_mut(index);
        let Some(filling) = form.and_then(|form| form.filling.as_mut()) else {
            return Ok(());
        };
        // Distinct strings that are larger than the rows are not worth their memory.
        let forget = !is_full && filling.rows.kept_bytes() > filling.bytes / 4;
        let batch = filling
            .rows
            .take(forget)
            .map_err(|column| Error::Unsupported {
                input: self.path.display().to_string(),
                message: format!(
                    "expected one value per column and row, found another number in column {column}"
                ),
            })?;
        filling.bytes = 0;
        if !is_full {
            self.filled -= std::mem::take(&mut filling.held);
            filling.is_roomy = false;
        }
        if batch.count > 0 || forget {
            self.append(index, &batch)?;
        }
        let form = self.forms.get_mut(index);
        if let Some(filling) = form
            .and_then(|form| form.filling.as_mut())
            .filter(|_| is_full)
        {
            filling.rows.reuse(Some(batch), 0);
        }
        Ok(())
    }

    /// Encodes pages of the largest forms' rows until half of the budget is free.
    fn relieve_fillings(&mut self) -> Result<(), Error> {
        let memory = |form: &Form| form.filling.as_ref().map_or(0, |filling| filling.held);
        let mut order: Vec<(usize, usize)> = self.forms.iter().map(memory).zip(0..).collect();
        order.sort_unstable_by(|a, b| b.cmp(a));
        for (_, index) in order {
            if self.filled <= self.options.memory_bytes / 4 {
                break;
            }
            self.end_page(index, false)?;
        }
        Ok(())
    }

    fn append(&mut self, index: usize, batch: &Batch) -> Result<(), Error> {
        let Some(form) = self.forms.get_mut(index) else {
            return Ok(());
        };
        form.learn(batch);
        let mut rows = 0;
        if batch.count > 0 {
            if let Some(table) = self.tables.get_mut(form.table) {
                form.open(table, &self.path)?;
            }
            let Form { part, texts, .. } = form;
            if let Some(part) = part {
                let before = part.memory();
                part.append(batch, texts, &mut self.shop)?;
                self.held = (self.held + part.memory()).saturating_sub(before);
                rows = part.group_rows();
            }
        }
        form.forget(batch);
        if rows >= self.options.rows_per_group {
            self.close_group(index)?;
        }
        if self.held > self.options.memory_bytes / 4 {
            self.relieve()?;
        }
        Ok(())
    }

    /// Writes the largest row groups until half of the budget is free.
    fn relieve(&mut self) -> Result<(), Error> {
        let memory = |form: &Form| form.part.as_ref().map_or(0, Part::memory);
        let mut order: Vec<(usize, usize)> = self.forms.iter().map(memory).zip(0..).collect();
        order.sort_unstable_by(|a, b| b.cmp(a));
        for (_, index) in order {
            if self.held <= self.options.memory_bytes / 8 {
                break;
            }
            self.close_group(index)?;
        }
        Ok(())
    }

    /// Writes a form's row group, and ends its part if it is large enough.
    fn close_group(&mut self, index: usize) -> Result<(), Error> {
        let Some(form) = self.forms.get_mut(index) else {
            return Ok(());
        };
        let Some(part) = &mut form.part else {
            return Ok(());
        };
        self.held = self.held.saturating_sub(part.memory());
        part.close_group(&mut self.shop)?;
        let is_full = part.rows() >= self.options.rows_per_part
            || part.bytes() >= self.options.bytes_per_part
            || part.is_fragmented();
        if !is_full {
            return Ok(());
        }
        if let Some(part) = self.finish_part(index)? {
            self.written.push((index, part));
        }
        if self.replacing {
            return Ok(());
        }
        self.settle()?;
        self.publish(State::Recording)
    }

    /// Completes all parts, then the manifest.
    fn finish(&mut self, mut facts: Facts) -> Result<Summary, Error> {
        let state = if std::mem::take(&mut facts.recovered) {
            State::Recovered
        } else {
            State::Complete
        };
        self.manifest.facts = facts;
        self.end_parts()?;
        let former = self.former_parts();
        self.publish(state)?;
        for part in former {
            let file = self.path.join(part);
            std::fs::remove_file(&file).map_err(Error::io(file))?;
        }
        Ok(self.manifest.summary())
    }

    /// Writes all open parts and renames them to their final names. If the disk becomes full, parts that are already
    /// complete are still renamed.
    fn end_parts(&mut self) -> Result<(), Error> {
        let done = (0..self.forms.len()).try_for_each(|index| self.end_part(index));
        if done.is_err() && self.replacing {
            return done;
        }
        self.settle()?;
        done
    }

    /// Writes the rest of a form's open part. Other programs find the fixed tables by `TABLE/*.parquet`, so each has a
    /// part even without a row. Hundreds of events without hits are only in the manifest.
    fn end_part(&mut self, index: usize) -> Result<(), Error> {
        self.end_page(index, false)?;
        let Some(form) = self.forms.get_mut(index) else {
            return Ok(());
        };
        if let Some(table) = self.tables.get_mut(form.table)
            && table.next_part == table.first_part
            && !table.name.contains('/')
        {
            form.open(table, &self.path)?;
        }
        if let Some(part) = self.finish_part(index)? {
            self.written.push((index, part));
        }
        Ok(())
    }

    /// Writes the remaining rows of a form's open part, if any.
    fn finish_part(&mut self, index: usize) -> Result<Option<Written>, Error> {
        let part = self.forms.get_mut(index).and_then(|form| form.part.take());
        let Some(part) = part else {
            return Ok(None);
        };
        let written = part.finish(&self.path, &self.manifest.facts, &mut self.shop)?;
        Ok(Some(written))
    }

    /// Renames the written parts to their final names.
    fn settle(&mut self) -> Result<(), Error> {
        let settled = settle(&self.written, self.options.sync);
        for (index, written) in self.written.drain(..) {
            let form = self.forms.get(index).map(|form| form.table);
            // If one fails, the others are kept.
            let is_named = written.is_named();
            if let Some(table) = form.and_then(|table| self.tables.get_mut(table))
                && is_named
            {
                let place = table.forms.iter().position(|&form| form == index);
                table
                    .parts
                    .push((place.unwrap_or(0), written.entry.clone()));
            }
        }
        settled
    }

    /// Files of the tables that are being replaced.
    fn former_parts(&self) -> Vec<String> {
        if !self.replacing {
            return Vec::new();
        }
        self.tables
            .iter()
            .filter_map(|table| self.manifest.tables.get(&table.name))
            .flat_map(|table| table.parts.iter().map(|part| part.file.clone()))
            .collect()
    }

    fn publish(&mut self, state: State) -> Result<(), Error> {
        self.manifest.state = state;
        for table in &mut self.tables {
            let forms = table.forms.iter().filter_map(|&form| self.forms.get(form));
            let schemas: Vec<&TableSchema> = forms.map(|form| form.schema.as_ref()).collect();
            table.entry.unite(&schemas, &table.parts);
            self.manifest
                .tables
                .insert(table.name.clone(), table.entry.clone());
        }
        self.manifest.write(&self.path, self.options.sync)
    }

    /// Discards open parts; complete parts are renamed to their final names.
    fn give_up(&mut self) {
        for form in &mut self.forms {
            form.part = None;
        }
        self.written.clear();
        if self.replacing {
            for (_, part) in self.tables.iter().flat_map(|table| &table.parts) {
                // The manifest lists the old parts.
                let _ = std::fs::remove_file(self.path.join(&part.file));
            }
        }
        if !self.replacing
            && self.tables.iter().any(|table| !table.parts.is_empty())
            && let Err(error) = self.publish(State::Recording)
        {
            log::debug!("the manifest is older than the parts: {error}");
        }
    }
}

impl Drop for Encoder {
    /// Wakes up a writer that waits for memory.
    fn drop(&mut self) {
        self.gauge.close();
    }
}

impl Form {
    /// The rows for the next page.
    fn filling(&mut self) -> &mut Filling {
        let Form {
            filling,
            texts,
            schema,
            ..
        } = self;
        filling.get_or_insert_with(|| {
            let mut rows = Rows::new(schema);
            rows.follow(texts.iter_mut().map(std::mem::take).collect());
            Box::new(Filling {
                rows,
                bytes: 0,
                held: 0,
                is_roomy: false,
            })
        })
    }

    /// Adds the distinct strings of a batch.
    fn learn(&mut self, batch: &Batch) {
        for (texts, values) in self.texts.iter_mut().zip(&batch.columns) {
            if let Some(handed) = values.texts() {
                texts.append(&handed.fresh);
            }
        }
    }

    /// Removes strings whose IDs are reassigned in the next batch.
    fn forget(&mut self, batch: &Batch) {
        for (texts, values) in self.texts.iter_mut().zip(&batch.columns) {
            if values.texts().is_some_and(|handed| handed.ends) {
                *texts = Entries::default();
            }
        }
    }

    /// Opens a part if there is none.
    fn open(&mut self, table: &mut Table, path: &Path) -> Result<(), Error> {
        if self.part.is_none() {
            let folder = &table.entry.folder;
            files::create_folders(path, folder).map_err(Error::io(path.join(folder)))?;
            let file = format!("{folder}/{:05}.parquet", table.next_part);
            table.next_part += 1;
            self.part = Some(Part::create(path, file, &self.schema, &self.shape));
        }
        Ok(())
    }
}
