//! A session over opened traces: DataFusion with perfquet's tables, views and functions, and its runtime.
//!
//! Opening reads only the manifests; a query opens the parts that it needs. Memory is limited: sorts, groups and joins
//! spill to files in the temporary directory beyond the limit.

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use anyhow::{Context, Result, bail};
use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::config::ConfigNonZeroUsize;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use perfquet_views::View;
use tokio::runtime::{Handle, Runtime};

use crate::engine;
use crate::explain;
use crate::failure::{Interrupted, Misuse};
use crate::interrupt;
use crate::options::Options;
use crate::passes;
use crate::progress::Progress;
use crate::register::{self, Registered};
use crate::running::{self, Running};
use crate::sql::literals::with_nanoseconds;
use crate::sql::names::{literal, plain_name, quoted};
use crate::sql::scoping::Restriction;
use crate::sql::times::MARK;
use crate::sql::{planning, result_units, summarize};
use crate::stacks::Forest;
use crate::tables::catalog::{CATALOG, MAIN, PARTS};
use crate::trace::{Trace, Traces};
use crate::unit::{DURATION, SHARE, UNIT, is_hexadecimal};
use crate::views::definitions;

/// A physical plan, the stream of its rows, and the units of its columns.
type Planned = (
    Arc<dyn ExecutionPlan>,
    SendableRecordBatchStream,
    Vec<Option<String>>,
);

/// Opened traces, and a DataFusion context of their own to query them.
///
/// Its methods block; they may not be called on a thread of an async runtime.
pub struct Session {
    context: SessionContext,
    registered: Registered,
    options: Options,
    /// SQL fragments from the command line in a report's queries.
    pieces: Mutex<Vec<String>>,
    /// Conditions on the tables of all queries.
    scope: Mutex<Restriction>,
    /// `None` only while the session ends.
    runtime: Mutex<Option<Runtime>>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("traces", &self.registered.traces)
            .finish_non_exhaustive()
    }
}

/// Formats the error of a query.
type Explain = fn(DataFusionError, &str, Option<&dyn explain::Known>) -> anyhow::Error;

impl Session {
    /// Opens every trace that matches `patterns`: directories, or patterns such as `runs/*.pqt`. Only manifests are read.
    ///
    /// # Errors
    ///
    /// A path is no trace, a manifest is damaged, or a definition of the options is wrong.
    pub fn open(patterns: &[PathBuf], options: &Options) -> Result<Session> {
        let traces = Traces::open(patterns)?;
        for note in traces.notes() {
            log::warn!("{note}");
        }
        Session::of(traces, options)
    }

    fn of(traces: Traces, options: &Options) -> Result<Session> {
        let runtime = Mutex::new(Some(runtime(options)?));
        let context = context(options)?;
        let registered = register::with_definitions(&context, &traces, &options.definitions)?;
        Ok(Session {
            context,
            registered,
            options: options.clone(),
            pieces: Mutex::default(),
            scope: Mutex::default(),
            runtime,
        })
    }

    /// The context, for everything that DataFusion offers.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// The opened traces.
    pub fn traces(&self) -> &[Trace] {
        &self.registered.traces
    }

    /// Whether any trace has rows in a table, named as in the manifest: "samples", "events/sched/sched_switch".
    pub fn has_rows(&self, table: &str) -> bool {
        let mut tables = self.traces().iter().filter_map(|trace| trace.table(table));
        tables.any(|table| table.rows() > 0)
    }

    /// All views, also those whose events were not recorded.
    pub fn views(&self) -> &[Arc<View>] {
        &self.registered.views
    }

    /// The stacks of all traces, read on first use.
    #[doc(hidden)]
    pub fn forest(&self) -> &Arc<Forest> {
        &self.registered.forest
    }

    /// Name with parameters, and meaning, of each macro that is defined.
    #[doc(hidden)]
    pub fn macros(&self) -> Vec<(String, String)> {
        let macros = self.registered.macros.all();
        let described = macros.iter().map(|each| (each.usage(), each.about()));
        described.collect()
    }

    /// Opens one of the traces alone.
    pub fn alone(&self, trace: &Trace) -> Result<Session> {
        Session::open(std::slice::from_ref(&trace.path), &self.options)
    }

    /// Opens one of the traces alone; `aligned(time)` is still a time on the timeline of all.
    #[doc(hidden)]
    pub fn alone_on_timeline(&self, trace: &Trace) -> Result<Session> {
        let traces = Traces::open(std::slice::from_ref(&trace.path))?;
        Session::of(traces.placed(trace.placement), &self.options)
    }

    /// Restricts the tables and views of all following queries.
    pub fn restrict(&self, restriction: Restriction) {
        let mut scope = self.scope.lock().unwrap_or_else(PoisonError::into_inner);
        *scope = restriction;
    }

    /// Whether no trace is still being written.
    pub fn is_complete(&self) -> bool {
        self.registered.traces.iter().all(Trace::is_complete)
    }

    /// Plans and starts a query.
    pub fn query(&self, sql: &str) -> Result<Answer<'_>> {
        self.query_by(sql, explain::error)
    }

    /// Plans and starts a query, whose errors `explain` formats until it has started.
    fn query_by(&self, sql: &str, explain: Explain) -> Result<Answer<'_>> {
        if let Some(rows) = summarize::rows(sql) {
            let columns = self.query_by(&format!("SELECT * FROM {rows} LIMIT 0"), explain)?;
            let summary = summarize::query(&columns.schema(), &rows, quoted, literal);
            return self.query_by(&summary, explain);
        }
        let planned = self.planned(sql)?;
        let handle = self.handle();
        let on_planner =
            |done: Done<_>| planning::on_large_stack(move || done.with(handle.block_on(planned)));
        let (plan, stream, units) = self
            .interruptible(on_planner)?
            .map_err(|error| explain(error, sql, Some(self)))?;
        Ok(Answer {
            session: self,
            sql: sql.to_owned(),
            schema: for_people(&stream.schema(), &units),
            stream: Some(stream),
            waiting: None,
            progress: self.options.progress.then(|| Progress::of(&plan)).flatten(),
        })
    }

    /// Plans a query and starts it in the background; several may run at once.
    ///
    /// # Errors
    ///
    /// No thread can be started. Errors of the query are those of [`Running::next`].
    pub fn start(&self, sql: &str) -> Result<Running<'_>> {
        if let Some(rows) = summarize::rows(sql) {
            let columns = self.query(&format!("SELECT * FROM {rows} LIMIT 0"))?;
            let summary = summarize::query(&columns.schema(), &rows, quoted, literal);
            return self.start(&summary);
        }
        let planned = self.planned(sql)?;
        let planned = async move {
            let (_, stream, units) = planned.await?;
            Ok(running::Planned {
                columns: for_people(&stream.schema(), &units),
                units,
                stream,
            })
        };
        let (work, running) = running::start(self, sql, self.handle(), planned);
        planning::on_large_stack(work)?;
        Ok(running)
    }

    /// Plans a query and creates the stream of its rows.
    fn planned(&self, sql: &str) -> Result<impl Future<Output = PlanResult<Planned>> + use<>> {
        let text = with_nanoseconds(sql).map_err(anyhow::Error::msg)?;
        let context = self.context.clone();
        let queries_only = self.options.queries_only;
        let scope = self.scope.lock().unwrap_or_else(PoisonError::into_inner);
        let scope = scope.clone();
        Ok(async move {
            let plan = planning::plan_within(&context.state(), &text, &scope).await?;
            if queries_only {
                planning::check_query(&plan)?;
            }
            let units = result_units::of(&plan);
            let frame = context.execute_logical_plan(plan).await?;
            let task = Arc::new(frame.task_ctx());
            let plan = frame.create_physical_plan().await?;
            let stream = execute_stream(Arc::clone(&plan), task)?;
            Ok((plan, stream, units))
        })
    }

    /// Runs a query and returns its whole result.
    pub fn collect(&self, sql: &str) -> Result<Vec<RecordBatch>> {
        let mut answer = self.query(sql)?;
        let mut batches = Vec::new();
        while let Some(batch) = answer.next_batch()? {
            batches.push(batch);
        }
        Ok(batches)
    }

    /// Returns the trace of a report that relates times to each other.
    ///
    /// # Errors
    ///
    /// There are several: their clocks differ.
    pub fn only_trace(&self) -> Result<&Trace> {
        match self.registered.traces.as_slice() {
            [trace] => Ok(trace),
            traces => bail!(Misuse(format!(
                "expected one trace, found {}: the clocks of traces differ",
                traces.len()
            ))),
        }
    }

    /// Registers the expression of an option. Rejects an invalid one here: inside a query, its error would
    /// quote generated SQL, and it might close brackets that it did not open.
    pub fn piece(&self, option: &str, text: &str) -> Result<()> {
        let (state, written) = (self.context.state(), text.to_owned());
        let checked = self.interruptible(|done: Done<_>| {
            planning::on_large_stack(move || done.with(planning::check(&state, &written)))
        })?;
        checked.map_err(|error| explain::piece(error, option, text))?;
        self.add_piece(text);
        Ok(())
    }

    /// Errors of a report's queries show this part of them.
    fn add_piece(&self, text: &str) {
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        pieces.push(text.to_owned());
    }

    /// Registers the query of an option, and returns it without a final semicolon. Anything but one complete query is
    /// an error: embedded in another query, it might close brackets that it did not open.
    pub fn whole_query<'q>(&self, text: &'q str) -> Result<&'q str> {
        let text = text.trim().trim_end_matches(';').trim_end();
        self.query_by(text, explain::whole)?;
        self.add_piece(text);
        Ok(text)
    }

    /// Returns the name that a statement gives to a view or a macro; `None` if it defines neither.
    pub fn defined_name(&self, sql: &str) -> Option<String> {
        let statement = engine::statement(&self.context.state(), sql).ok()?;
        definitions::defined_name(&statement)
    }

    /// Returns a table or view by its SQL name.
    pub fn table(&self, name: &str) -> Result<Arc<dyn TableProvider>> {
        self.handle()
            .block_on(self.context.table_provider(name))
            .map_err(|error| explain::error(error, "", Some(self)))
    }

    /// Whether the events that a view needs were recorded.
    pub fn has_events_of(&self, view: &View) -> Result<bool> {
        let answer = self
            .handle()
            .block_on(self.registered.planner.can_plan(view));
        answer.map_err(|error| explain::error(error, "", Some(self)))
    }

    /// Whether the events that the view of this name needs were recorded; false if there is no such view.
    pub fn is_recorded(&self, view: &str) -> Result<bool> {
        match self.views().iter().find(|known| known.name == view) {
            Some(view) => self.has_events_of(view),
            None => Ok(false),
        }
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
                let busy = runtime_now.replace(runtime(&self.options)?);
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
        self.options.is_report.then(|| pieces.clone())
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
                    PARTS => {}
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
        names.extend(
            self.registered
                .macros
                .all()
                .iter()
                .map(|each| each.name().to_owned()),
        );
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

fn runtime(options: &Options) -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(options.threads())
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
pub struct Answer<'a> {
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
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Replaces the columns by the same ones with other metadata.
    pub fn with_schema(self, schema: SchemaRef) -> Self {
        Answer { schema, ..self }
    }

    /// Whether there are no more rows. The rows that it reads are kept for [`Answer::next`].
    pub fn is_empty(&mut self) -> Result<bool> {
        while self.waiting.is_none() {
            match self.next_batch()? {
                Some(batch) if batch.num_rows() > 0 => self.waiting = Some(batch),
                Some(_) => {}
                None => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Returns the next rows; `None` after the last ones.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
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
    let mut names = HashSet::new();
    let fields = schema.fields().iter().zip(units).map(|(field, unit)| {
        let mut metadata = field.metadata().clone();
        match unit {
            Some(DURATION | SHARE) if field.data_type().is_numeric() => {
                metadata.insert(UNIT.to_owned(), unit.unwrap_or_default().to_owned());
            }
            // Times are numbers. An address keeps its unit as long as it is one.
            _ => metadata.retain(|key, unit| key != UNIT || is_hexadecimal(unit)),
        }
        // `7 / 2` and `7.0 / 2` differ in what people do not see.
        let name = plain_name(field.name());
        let numbered = (1..).map(|number| format!("{name}_{number}"));
        let name = std::iter::once(name.clone())
            .chain(numbered)
            .find(|name| !names.contains(name))
            .unwrap_or(name);
        names.insert(name.clone());
        field
            .as_ref()
            .clone()
            .with_name(name)
            .with_metadata(metadata)
    });
    let fields: Vec<Field> = fields.collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// A context with the configuration that suits traces.
fn context(options: &Options) -> Result<SessionContext> {
    let mut config = SessionConfig::new()
        .with_target_partitions(options.threads())
        .with_default_catalog_and_schema(CATALOG, MAIN)
        .with_information_schema(true);
    let wanted = config.options_mut();
    // Each scan decides whether it filters rows (tables/parts.rs).
    wanted.execution.parquet.pushdown_filters = false;
    wanted.execution.parquet.reorder_filters = true;
    // Columns of conditions are decoded again for the rows that pass. Keeping them from the condition on takes longer: the
    // highest of 5 M return values took 57 ms of CPU with it, 37 ms without.
    wanted.execution.parquet.max_predicate_cache_size = Some(0);
    // The filter that a join builds from its small side keeps most rows of a trace, and costs more than it saves: 10 M
    // rows joined with 2 000 took 1.5 s of CPU with it, 0.9 s without.
    wanted.optimizer.enable_join_dynamic_filter_pushdown = false;
    // Of two of min() and max(), the filter of one is not in it if all times of a part are NULL: rows of the other are missing, now and then.
    wanted.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    wanted.sql_parser.collect_spans = true;
    wanted.sql_parser.recursion_limit =
        ConfigNonZeroUsize::try_new(planning::MOST_NESTED).expect("it is not 0");
    // The sort order of the parts. It makes `ORDER BY duration DESC` begin with the longest call, not with unknown
    // durations.
    wanted.sql_parser.default_null_ordering = "nulls_min".to_owned();
    let pool = FairSpillPool::new(options.pool_bytes());
    let consumers = std::num::NonZeroUsize::new(3).expect("3 is not 0");
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(TrackConsumersPool::new(pool, consumers)))
        .build_arc()
        .map_err(|error| explain::error(error, "", None))?;
    let disk = Arc::clone(&runtime.disk_manager);
    interrupt::remove_at_end(move || disk.temp_dir_paths());
    Ok(SessionContext::new_with_config_rt(config, runtime))
}
