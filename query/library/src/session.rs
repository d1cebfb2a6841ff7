//! A session over opened traces: DataFusion with perfquet's tables, views and functions, and its runtime.
//!
//! Opening reads only the manifests; a query opens the parts that it needs. Memory is limited: sorts, groups and joins
//! spill to files in the temporary directory beyond the limit.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use anyhow::{Context, Result, bail};
use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::{CatalogProvider, TableProvider};
use datafusion::config::ConfigNonZeroUsize;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use tokio::runtime::{Handle, Runtime};

use crate::catalog::{self, CATALOG, MAIN};
use crate::distinct::CountsBesideDistinct;
use crate::engine;
use crate::explain;
use crate::failure::{Interrupted, Misuse};
use crate::functions;
use crate::interrupt;
use crate::library;
use crate::limits::Limits;
use crate::literals::with_nanoseconds;
use crate::macros::Macros;
use crate::passes;
use crate::planning;
use crate::progress::Progress;
use crate::result_units;
use crate::scoping::Restriction;
use crate::stacks::Forest;
use crate::summarize;
use crate::text::harmless_lines;
use crate::times::{self, MARK, Starts};
use crate::trace::{self, Trace};
use crate::unit::{DURATION, SHARE, UNIT, is_hexadecimal};
use crate::views::{self, Planner, SchemaWithViews, VIEWS, View};

/// Opened traces.
pub(crate) struct Session {
    pub(crate) context: SessionContext,
    pub(crate) traces: Arc<Vec<Trace>>,
    /// The stacks of all traces, read on first use.
    pub(crate) forest: Arc<Forest>,
    /// All views, also those whose events were not recorded.
    pub(crate) views: Vec<Arc<View>>,
    pub(crate) macros: Arc<Macros>,
    planner: Arc<Planner>,
    limits: Limits,
    /// SQL fragments from the command line in a report's query; `None` if the whole
    /// query was written by the user.
    pieces: Mutex<Option<Vec<String>>>,
    /// Conditions on the tables of all queries.
    scope: Mutex<Restriction>,
    /// `None` only while the session ends.
    runtime: Mutex<Option<Runtime>>,
}

impl Session {
    /// Opens every trace that matches `patterns`.
    pub(crate) fn open(patterns: &[PathBuf], limits: &Limits) -> Result<Session> {
        let traces = Arc::new(trace::open_all(patterns)?);
        for trace in traces.iter() {
            if let Some(note) = trace.incompleteness(functions::in_fitting_unit) {
                say!("{}", harmless_lines(&note));
            }
        }
        let runtime = Mutex::new(Some(runtime(limits)?));
        let macros = Arc::new(Macros::default());
        let starts = traces.iter().map(|trace| {
            let start = trace.time_range().map(|(start, _)| start);
            (trace.name.clone(), start)
        });
        let context = context(limits, &macros, Starts(starts.collect()))?;
        let forest = Arc::new(Forest::new(Arc::clone(&traces)));
        let name = |error| explain::error(error, "", None);
        let mut views: Vec<Arc<View>> = VIEWS.clone();
        functions::register(&context, &forest);
        let library = limits.library.read(&context.state(), &macros)?;
        views.extend(library.into_iter().map(Arc::new));
        let is_view = |name: &str| views.iter().any(|view| view.name == name);
        let catalog = catalog::catalog(&traces, is_view).map_err(name)?;
        let names = traces.iter().map(|trace| trace.name.clone());
        passes::register(&context, &Arc::new(passes::Traces::new(names)));
        let planner = Planner::new(&context, catalog.as_ref(), traces.len() > 1);
        let planner = Arc::new(planner);
        add_views(&context, &catalog, &views, &planner).map_err(name)?;
        context.register_catalog(CATALOG, catalog);
        Ok(Session {
            context,
            traces,
            forest,
            views,
            macros,
            planner,
            limits: limits.clone(),
            pieces: Mutex::new(None),
            scope: Mutex::default(),
            runtime,
        })
    }

    /// Opens one of the traces alone.
    pub(crate) fn alone(&self, trace: &Trace) -> Result<Session> {
        Session::open(std::slice::from_ref(&trace.path), &self.limits)
    }

    /// Restricts the tables and views of all following queries.
    pub(crate) fn restrict(&self, restriction: Restriction) {
        let mut scope = self.scope.lock().unwrap_or_else(PoisonError::into_inner);
        *scope = restriction;
    }

    /// Whether no trace is still being written.
    pub(crate) fn is_complete(&self) -> bool {
        self.traces.iter().all(Trace::is_complete)
    }

    /// Plans and starts a query.
    pub(crate) fn query(&self, sql: &str) -> Result<Answer<'_>> {
        if let Some(rows) = summarize::rows(sql) {
            let columns = self.query(&format!("SELECT * FROM {rows} LIMIT 0"))?;
            let summary = summarize::query(&columns.schema(), &rows, quoted, literal);
            return self.query(&summary);
        }
        let text = with_nanoseconds(sql).map_err(anyhow::Error::msg)?;
        let context = self.context.clone();
        let scope = self.scope.lock().unwrap_or_else(PoisonError::into_inner);
        let scope = scope.clone();
        let planned = async move {
            let plan = planning::plan_within(&context.state(), &text, &scope).await?;
            let units = result_units::of(&plan);
            let frame = context.execute_logical_plan(plan).await?;
            let task = Arc::new(frame.task_ctx());
            let plan = frame.create_physical_plan().await?;
            let stream = execute_stream(Arc::clone(&plan), task)?;
            Ok((plan, stream, units))
        };
        let handle = self.handle();
        let on_planner =
            |done: Done<_>| planning::on_large_stack(move || done.with(handle.block_on(planned)));
        let (plan, stream, units) = self
            .interruptible(on_planner)?
            .map_err(|error| explain::error(error, sql, Some(self)))?;
        Ok(Answer {
            session: self,
            sql: sql.to_owned(),
            schema: for_people(&stream.schema(), &units),
            stream: Some(stream),
            waiting: None,
            progress: Progress::of(&plan),
        })
    }

    /// Runs a query and returns its whole result.
    pub(crate) fn collect(&self, sql: &str) -> Result<Vec<RecordBatch>> {
        let mut answer = self.query(sql)?;
        let mut batches = Vec::new();
        while let Some(batch) = answer.next()? {
            batches.push(batch);
        }
        Ok(batches)
    }

    /// Returns the trace of a report that relates times to each other.
    ///
    /// # Errors
    ///
    /// There are several: their clocks differ.
    pub(crate) fn only_trace(&self) -> Result<&Trace> {
        match self.traces.as_slice() {
            [trace] => Ok(trace),
            traces => bail!(Misuse(format!(
                "expected one trace, found {}: the clocks of traces differ",
                traces.len()
            ))),
        }
    }

    /// Marks the following queries as those of a report: errors show only the fragments written by the user.
    pub(crate) fn is_report(&self) {
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        pieces.get_or_insert_default();
    }

    /// Registers the expression of an option. Rejects an invalid one here: inside a query, its error would
    /// quote generated SQL, and it might close brackets that it did not open.
    pub(crate) fn piece(&self, option: &str, text: &str) -> Result<()> {
        self.is_report();
        let (state, written) = (self.context.state(), text.to_owned());
        let checked = self.interruptible(|done: Done<_>| {
            planning::on_large_stack(move || done.with(planning::check(&state, &written)))
        })?;
        checked.map_err(|error| explain::piece(error, option, text))?;
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        pieces.get_or_insert_default().push(text.to_owned());
        Ok(())
    }

    /// Registers the query of an option, and returns it without a final semicolon. Anything but one complete query is
    /// an error: embedded in another query, it might close brackets that it did not open.
    pub(crate) fn whole_query<'q>(&self, text: &'q str) -> Result<&'q str> {
        let text = text.trim().trim_end_matches(';').trim_end();
        self.query(text)?;
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        pieces.get_or_insert_default().push(text.to_owned());
        Ok(text)
    }

    /// Returns the name that a statement gives to a view or a macro; `None` if it defines neither.
    pub(crate) fn defined_name(&self, sql: &str) -> Option<String> {
        let statement = engine::statement(&self.context.state(), sql).ok()?;
        library::defined_name(&statement)
    }

    /// Returns a table or view by its SQL name.
    pub(crate) fn table(&self, name: &str) -> Result<Arc<dyn TableProvider>> {
        self.handle()
            .block_on(self.context.table_provider(name))
            .map_err(|error| explain::error(error, "", Some(self)))
    }

    /// Whether the events that a view needs were recorded.
    pub(crate) fn has_events_of(&self, view: &View) -> Result<bool> {
        let answer = self.handle().block_on(self.planner.can_plan(view));
        answer.map_err(|error| explain::error(error, "", Some(self)))
    }

    /// Where tasks run.
    fn handle(&self) -> Handle {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = runtime.as_ref().expect("only drop takes it");
        runtime.handle().clone()
    }

    /// Waits for the work started by `start` on another thread, or for Ctrl-C: then the engine's threads are abandoned,
    /// as they may run for a long time without checking.
    fn interruptible<T: Send + 'static>(
        &self,
        start: impl FnOnce(Done<T>) -> Result<()>,
    ) -> Result<T> {
        let (sender, receiver) = mpsc::channel();
        let at_interrupt = sender.clone();
        let waiting = interrupt::wake(move || {
            let _ = at_interrupt.send(End::Interrupted);
        });
        start(Done(sender))?;
        let end = receiver.recv();
        drop(waiting);
        match end {
            Ok(End::Done(value)) => Ok(value),
            Ok(End::Interrupted) => {
                let mut runtime_now = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
                let busy = runtime_now.replace(runtime(&self.limits)?);
                busy.into_iter().for_each(abandon);
                Err(Interrupted.into())
            }
            Ok(End::Lost) | Err(_) => Err(explain::panic()),
        }
    }
}

impl explain::Known for Session {
    fn pieces(&self) -> Option<Vec<String>> {
        let pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        pieces.clone()
    }

    fn table_names(&self) -> Vec<String> {
        let Some(catalog) = self.context.catalog(CATALOG) else {
            return Vec::new();
        };
        let mut names = Vec::new();
        for schema in catalog.schema_names() {
            let Some(tables) = catalog.schema(&schema) else {
                continue;
            };
            for table in tables.table_names() {
                match schema.as_str() {
                    MAIN => names.push(quoted(&table)),
                    catalog::PARTS => {}
                    _ => names.push(format!("{}.{}", quoted(&schema), quoted(&table))),
                }
            }
        }
        names.sort();
        names
    }

    fn function_names(&self) -> Vec<String> {
        let state = self.context.state();
        let mut names: Vec<String> = state.scalar_functions().keys().cloned().collect();
        names.extend(state.aggregate_functions().keys().cloned());
        names.extend(state.window_functions().keys().cloned());
        names.extend(self.table_function_names());
        names.extend(self.macros.all().iter().map(|each| each.name().to_owned()));
        names.retain(|name| name != MARK);
        names.sort();
        names.dedup();
        names
    }

    fn table_function_names(&self) -> Vec<String> {
        let state = self.context.state();
        let names = state.table_functions().keys();
        // Passes are parts of views.
        names
            .filter(|name| !name.starts_with(passes::PREFIX))
            .cloned()
            .collect()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        runtime.take().into_iter().for_each(abandon);
        drop(runtime);
        remove_temporary(&self.context);
    }
}

/// Ends a runtime without waiting for its threads. `Runtime::shutdown_background` would detach them while they end, and glibc reads
/// the memory of a thread after detaching it (SIGSEGV in pthread_detach), so another thread joins them, and is never detached.
fn abandon(runtime: Runtime) {
    let joining = std::thread::Builder::new()
        .name("joiner".to_owned())
        .spawn(move || drop(runtime));
    std::mem::forget(joining);
}

/// Adds views to the main schema of `catalog`, and those with arguments to the functions of `context`.
fn add_views(
    context: &SessionContext,
    catalog: &Arc<dyn CatalogProvider>,
    views: &[Arc<View>],
    planner: &Arc<Planner>,
) -> datafusion::error::Result<()> {
    views::register(context, views, planner);
    let Some(main) = catalog.schema(MAIN) else {
        return Ok(());
    };
    let plain = views.iter().filter(|view| view.arguments().is_empty());
    let schema = SchemaWithViews::new(main, plain.cloned().collect(), Arc::clone(planner));
    catalog.register_schema(MAIN, Arc::new(schema))?;
    Ok(())
}

/// Result of waiting for another thread.
enum End<T> {
    Done(T),
    Interrupted,
    /// The other thread panicked.
    Lost,
}

/// Takes the result of another thread.
struct Done<T>(mpsc::Sender<End<T>>);

impl<T> Done<T> {
    fn with(self, value: T) {
        // After Ctrl-C, no thread waits any more.
        let _ = self.0.send(End::Done(value));
    }
}

impl<T> Drop for Done<T> {
    fn drop(&mut self) {
        // After a result, no thread listens.
        let _ = self.0.send(End::Lost);
    }
}

/// Stack size of a thread that evaluates: expressions may have [`planning::DEEPEST`] levels.
const STACK_BYTES: usize = 32 << 20;

fn runtime(limits: &Limits) -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(limits.threads())
        .thread_stack_size(STACK_BYTES)
        .thread_name("query")
        .enable_all()
        .build()
        .context("cannot start the threads of the query engine")
}

/// Removes spill files of sorts, groups and joins, which running tasks would keep.
fn remove_temporary(context: &SessionContext) {
    for directory in context.runtime_env().disk_manager.temp_dir_paths() {
        let _ = std::fs::remove_dir_all(directory);
    }
}

/// The streamed rows of a query.
pub(crate) struct Answer<'a> {
    session: &'a Session,
    sql: String,
    schema: SchemaRef,
    /// `None` after an interrupted query.
    stream: Option<SendableRecordBatchStream>,
    /// Rows that [`Answer::is_empty`] has read.
    waiting: Option<RecordBatch>,
    /// Until the first rows.
    progress: Option<Progress>,
}

impl Answer<'_> {
    /// Returns the columns.
    pub(crate) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Replaces the columns by the same ones with other metadata.
    pub(crate) fn with_schema(self, schema: SchemaRef) -> Self {
        Answer { schema, ..self }
    }

    /// Whether there are no more rows. The rows that it reads are kept for [`Answer::next`].
    pub(crate) fn is_empty(&mut self) -> Result<bool> {
        while self.waiting.is_none() {
            match self.next()? {
                Some(batch) if batch.num_rows() > 0 => self.waiting = Some(batch),
                Some(_) => {}
                None => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Returns the next rows; `None` after the last ones.
    pub(crate) fn next(&mut self) -> Result<Option<RecordBatch>> {
        if let Some(batch) = self.waiting.take() {
            return Ok(Some(batch));
        }
        let Some(mut stream) = self.stream.take() else {
            return Ok(None);
        };
        let handle = self.session.handle();
        let (stream, next) = self.session.interruptible(|done: Done<_>| {
            handle.spawn(async move {
                let next = stream.next().await;
                done.with((stream, next));
            });
            Ok(())
        })?;
        self.stream = Some(stream);
        self.progress = None;
        let next = next
            .transpose()
            .map_err(|error| explain::error(error, &self.sql, Some(self.session)))?;
        let named = |batch: RecordBatch| {
            let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            RecordBatch::try_new_with_options(
                Arc::clone(&self.schema),
                batch.columns().to_vec(),
                &rows,
            )
        };
        Ok(next.map(named).transpose()?)
    }
}

/// Names unnamed columns after their expression, `duration(1000)`, not `duration(Int64(1000))`, and states the units of
/// durations and shares.
fn for_people(schema: &SchemaRef, units: &[Option<String>]) -> SchemaRef {
    let units = units.iter().map(Option::as_deref);
    let units = units.chain(std::iter::repeat(None));
    let fields = schema.fields().iter().zip(units).map(|(field, unit)| {
        let mut metadata = field.metadata().clone();
        match unit {
            Some(DURATION | SHARE) if field.data_type().is_numeric() => {
                metadata.insert(UNIT.to_owned(), unit.unwrap_or_default().to_owned());
            }
            // Times are numbers. An address keeps its unit as long as it is one.
            _ => metadata.retain(|key, unit| key != UNIT || is_hexadecimal(unit)),
        }
        let name = plain_name(field.name());
        field
            .as_ref()
            .clone()
            .with_name(name)
            .with_metadata(metadata)
    });
    let fields: Vec<Field> = fields.collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// Removes the types of literals from DataFusion's name of an expression.
fn plain_name(name: &str) -> String {
    const TYPES: &[&str] = &["Int64(", "UInt64(", "Float64(", "Boolean("];
    if let Some((before, rest)) = name.split_once(&format!("{MARK}("))
        && let Some(end) = closing_bracket(rest)
    {
        return plain_name(&format!("{before}{}{}", &rest[..end], &rest[end + 1..]));
    }
    if let Some((before, rest)) = name.split_once(INTERVAL)
        && let Some((interval, after)) = rest.split_once(" }\")")
    {
        return plain_name(&format!("{before}{}{after}", plain_interval(interval)));
    }
    let mut plain = String::new();
    let mut rest = name;
    while let Some(letter) = rest.chars().next() {
        let in_word = plain.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let number = TYPES
            .iter()
            .filter(|_| !in_word)
            .find_map(|kind| rest.strip_prefix(kind)?.split_once(')'));
        let text = (!in_word)
            .then(|| rest.strip_prefix("Utf8(\"")?.split_once("\")"))
            .flatten();
        if let Some((value, after)) = number {
            plain.push_str(value);
            rest = after;
        } else if let Some((value, after)) = text {
            plain.push_str(&literal(value));
            rest = after;
        } else {
            plain.push(letter);
            rest = &rest[letter.len_utf8()..];
        }
    }
    plain
}

/// How DataFusion begins the name of an interval.
const INTERVAL: &str = "IntervalMonthDayNano(\"IntervalMonthDayNano { ";

/// `months: 0, days: 1, nanoseconds: 5000` as `INTERVAL '1 days 5000 ns'`.
fn plain_interval(text: &str) -> String {
    let units = [
        ("months", "months"),
        ("days", "days"),
        ("nanoseconds", "ns"),
    ];
    let parts = text.split(", ").filter_map(|part| part.split_once(": "));
    let parts = parts.filter(|(_, number)| *number != "0");
    let words = parts.map(|(name, number)| {
        let unit = units.iter().find(|(known, _)| *known == name);
        match (unit, number.parse::<f64>()) {
            (Some((_, "ns")), Ok(ns)) => in_whole_unit(ns),
            (Some((_, unit)), _) => format!("{number} {unit}"),
            (None, _) => number.to_owned(),
        }
    });
    let words: Vec<String> = words.collect();
    let text = if words.is_empty() {
        "0 s".to_owned()
    } else {
        words.join(" ")
    };
    format!("INTERVAL '{text}'")
}

/// Nanoseconds in the largest unit of which they are a whole number.
fn in_whole_unit(ns: f64) -> String {
    let units = [
        (3.6e12, "h"),
        (6e10, "m"),
        (1e9, "s"),
        (1e6, "ms"),
        (1e3, "us"),
    ];
    let fitting = units.iter().find(|(factor, _)| ns % factor == 0.0);
    let (factor, unit) = fitting.copied().unwrap_or((1.0, "ns"));
    format!("{} {unit}", ns / factor)
}

/// The place of the bracket that closes one that is open at the start of `text`.
fn closing_bracket(text: &str) -> Option<usize> {
    let mut depth = 0;
    text.char_indices().find_map(|(place, letter)| {
        depth += match letter {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        (depth < 0).then_some(place)
    })
}

fn context(limits: &Limits, macros: &Arc<Macros>, starts: Starts) -> Result<SessionContext> {
    let mut config = SessionConfig::new()
        .with_target_partitions(limits.threads())
        .with_default_catalog_and_schema(CATALOG, MAIN)
        .with_create_default_catalog_and_schema(false)
        .with_information_schema(true)
        .with_extension(Arc::clone(macros))
        .with_extension(Arc::new(starts));
    let options = config.options_mut();
    options.execution.parquet.pushdown_filters = true;
    options.execution.parquet.reorder_filters = true;
    // Columns of conditions are decoded again for the rows that pass. Keeping them from the condition on takes longer: the
    // highest of 5 M return values took 57 ms of CPU with it, 37 ms without.
    options.execution.parquet.max_predicate_cache_size = Some(0);
    // The filter that a join builds from its small side keeps most rows of a trace, and costs more than it saves: 10 M
    // rows joined with 2 000 took 1.5 s of CPU with it, 0.9 s without.
    options.optimizer.enable_join_dynamic_filter_pushdown = false;
    options.sql_parser.collect_spans = true;
    options.sql_parser.recursion_limit =
        ConfigNonZeroUsize::try_new(planning::MOST_NESTED).expect("it is not 0");
    // The sort order of the parts. It makes `ORDER BY duration DESC` begin with the longest call, not with unknown
    // durations.
    options.sql_parser.default_null_ordering = "nulls_min".to_owned();
    let pool = FairSpillPool::new(limits.pool_bytes());
    let consumers = std::num::NonZeroUsize::new(3).expect("3 is not 0");
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(TrackConsumersPool::new(pool, consumers)))
        .build_arc()
        .map_err(|error| explain::error(error, "", None))?;
    let disk = Arc::clone(&runtime.disk_manager);
    interrupt::remove_at_end(move || disk.temp_dir_paths());
    let context = engine::context(config, runtime);
    context.add_optimizer_rule(Arc::new(CountsBesideDistinct));
    times::register(&context);
    Ok(context)
}

/// Formats a value as an SQL literal.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Formats a name for SQL: quoted unless it is a plain lower-case word.
pub(crate) fn quoted(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !RESERVED.contains(&name);
    if plain {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// SQL keywords that are names of columns or event fields.
const RESERVED: &[&str] = &[
    "all",
    "and",
    "as",
    "by",
    "case",
    "cross",
    "end",
    "except",
    "filter",
    "from",
    "full",
    "group",
    "having",
    "in",
    "inner",
    "interval",
    "into",
    "is",
    "join",
    "left",
    "limit",
    "not",
    "null",
    "offset",
    "on",
    "or",
    "order",
    "outer",
    "over",
    "partition",
    "right",
    "select",
    "set",
    "start",
    "table",
    "then",
    "to",
    "union",
    "when",
    "where",
    "with",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_as_names() {
        assert_eq!(plain_name("count(*)"), "count(*)");
        assert_eq!(
            plain_name("quantile(samples.period,Float64(0.5))"),
            "quantile(samples.period,0.5)"
        );
        assert_eq!(plain_name("Utf8(\"a b\")"), "'a b'");
        let interval =
            |inner: &str| format!("IntervalMonthDayNano(\"IntervalMonthDayNano {{ {inner} }}\")");
        let binned = format!(
            "date_bin({},t)",
            interval("months: 0, days: 0, nanoseconds: 1000000")
        );
        assert_eq!(plain_name(&binned), "date_bin(INTERVAL '1 ms',t)");
        let long = interval("months: 1, days: 2, nanoseconds: 1500000");
        assert_eq!(plain_name(&long), "INTERVAL '1 months 2 days 1500 us'");
        assert_eq!(plain_name("myInt64(3)"), "myInt64(3)");
        assert_eq!(plain_name("Int64("), "Int64(");
        assert_eq!(
            plain_name("count(*) FILTER (WHERE t < duration literal(Int64(5)) AND x)"),
            "count(*) FILTER (WHERE t < 5 AND x)"
        );
    }

    #[test]
    fn names_and_literals() {
        assert_eq!(quoted("prev_comm"), "prev_comm");
        assert_eq!(quoted("end"), "\"end\"");
        assert_eq!(quoted("Setjmp"), "\"Setjmp\"");
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
        assert_eq!(literal("it's"), "'it''s'");
    }
}
