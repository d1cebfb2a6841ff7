//! A schema whose views are planned when a query names them.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arrow::array::AsArray;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::common::metadata::FieldMetadata;
use datafusion::datasource::ViewTable;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableType};
use datafusion::physical_plan::collect;
use datafusion::prelude::SessionContext;

use crate::explain;
use crate::sql::literals::with_nanoseconds;
use crate::sql::planning;
use crate::sql::times::Starts;
use crate::tables::catalog::MAIN;
use crate::unit::UNIT;
use perfquet_views::View;

/// Views of a session, planned on demand.
pub(crate) struct Planner {
    state: Box<dyn Fn() -> Option<SessionState> + Send + Sync>,
    /// Whether several traces are opened.
    several: bool,
    /// The events that have a table, as `system:event`, and the fixed tables that have rows.
    events: Vec<String>,
    /// Events that have none, but are samples; read when a view needs them.
    samples: OnceLock<Vec<String>>,
    /// Views that are being planned, which must not refer to themselves.
    pending: Mutex<BTreeSet<String>>,
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Planner")
    }
}

impl Planner {
    /// `catalog` has the tables of the traces, with a schema per system of events.
    pub(crate) fn new(
        context: &SessionContext,
        catalog: &dyn CatalogProvider,
        several: bool,
    ) -> Planner {
        // Weak, since the session owns the schemas.
        let state = context.state_weak_ref();
        let mut events = Vec::new();
        for system in catalog.schema_names() {
            let tables = catalog.schema(&system).map(|schema| schema.table_names());
            let tables = tables.unwrap_or_default().into_iter();
            events.extend(tables.map(|table| format!("{system}:{table}")));
        }
        if let Some(main) = catalog.schema(MAIN) {
            for name in main.table_names() {
                // Opening a table waits for nothing.
                let table = futures::executor::block_on(main.table(&name));
                let table = table.ok().flatten();
                let count = table.and_then(|table| table.statistics());
                let count = count.and_then(|known| known.num_rows.get_value().copied());
                if count != Some(0) {
                    events.push(name);
                }
            }
        }
        Planner {
            state: Box::new(move || state.upgrade().map(|state| state.read().clone())),
            several,
            events,
            samples: OnceLock::new(),
            pending: Mutex::default(),
        }
    }

    /// The starts of the traces.
    pub(super) fn starts(&self) -> Arc<Starts> {
        let state = (self.state)();
        let starts = state.and_then(|state| state.config().get_extension::<Starts>());
        starts.unwrap_or_default()
    }

    /// Lists the missing events of a view, as far as is known without reading.
    fn missing(&self, view: &View) -> Option<String> {
        let samples = self.samples.get().into_iter().flatten();
        let events: Vec<&str> = (self.events.iter().chain(samples))
            .map(String::as_str)
            .collect();
        view.missing(&events)
    }

    /// Whether the events that a view needs were recorded.
    pub(crate) async fn can_plan(&self, view: &View) -> Result<bool> {
        if self.missing(view).is_some() {
            self.read_samples().await?;
        }
        Ok(self.missing(view).is_none())
    }

    /// Reads which events are samples, which have no separate tables.
    async fn read_samples(&self) -> Result<()> {
        let state = (self.state)();
        let Some(state) = state.filter(|_| self.samples.get().is_none()) else {
            return Ok(());
        };
        let sql =
            "SELECT DISTINCT system || ':' || event FROM event_types WHERE table_name = 'samples'";
        let plan = planning::plan(&state, sql).await?;
        let plan = state.create_physical_plan(&plan).await?;
        let mut names = Vec::new();
        for batch in collect(plan, state.task_ctx()).await? {
            let texts = cast(batch.column(0), &DataType::Utf8View)?;
            names.extend(texts.as_string_view().iter().flatten().map(str::to_owned));
        }
        let _ = self.samples.set(names);
        Ok(())
    }

    /// Plans a view; `sql` is its SQL with the values of its arguments.
    pub(super) async fn plan(
        &self,
        view: &View,
        sql: impl FnOnce(String) -> Result<String>,
    ) -> Result<Arc<dyn TableProvider>> {
        if !self.can_plan(view).await?
            && let Some(missing) = self.missing(view)
        {
            return Err(DataFusionError::Plan(missing));
        }
        let name = &view.name;
        let wrong = |text: &str| DataFusionError::Plan(format!("view {name}: {text}"));
        let state = (self.state)().ok_or_else(|| wrong("the session has ended"))?;
        if !lock(&self.pending).insert(name.clone()) {
            return Err(wrong("it refers to itself"));
        }
        let planned = async {
            let sql = sql(view.sql(self.several))?;
            let sql = with_nanoseconds(&sql).map_err(DataFusionError::Plan)?;
            let plan = planning::plan(&state, &sql).await;
            let plan = plan.map_err(|error| located(error, view, &sql))?;
            let plan = with_units(plan, view)?;
            Ok(Arc::new(ViewTable::new(plan, Some(sql))) as Arc<dyn TableProvider>)
        };
        let planned = planned.await;
        lock(&self.pending).remove(name);
        planned
    }
}

/// The error of a user's view with its file and line.
fn located(error: DataFusionError, view: &View, sql: &str) -> DataFusionError {
    let Some(source) = view.source() else {
        return error;
    };
    let place = source.at(explain::line(&error).unwrap_or(1));
    let name = &view.name;
    let text = explain::error(error, sql, None);
    DataFusionError::Plan(format!("view {name}: {place}: {text}"))
}

/// The plan of a view, with the units of its columns in their metadata.
fn with_units(plan: LogicalPlan, view: &View) -> Result<LogicalPlan> {
    let columns = plan.schema().columns();
    let columns = columns.into_iter().map(|column| {
        let described = view
            .columns()
            .iter()
            .find(|known| known.name == column.name);
        let unit = described.map(|known| known.unit.clone());
        let name = column.name.clone();
        match unit.filter(|unit| !unit.is_empty()) {
            Some(unit) => {
                let unit = FieldMetadata::from(BTreeMap::from([(UNIT.to_owned(), unit)]));
                Expr::Column(column).alias_with_metadata(name, Some(unit))
            }
            None => Expr::Column(column),
        }
    });
    let columns: Vec<Expr> = columns.collect();
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}

/// A schema with its own tables, those of traces, and views.
#[derive(Debug)]
pub(crate) struct SchemaWithViews {
    /// The tables of the context, also those created later.
    own: Arc<dyn SchemaProvider>,
    /// The tables of the traces.
    tables: Arc<dyn SchemaProvider>,
    views: Vec<Arc<View>>,
    planner: Arc<Planner>,
    planned: Mutex<BTreeMap<String, Arc<dyn TableProvider>>>,
}

impl SchemaWithViews {
    /// `own` are the tables of a schema that takes precedence; those of other traces are left out. `views` have no
    /// arguments.
    pub(crate) fn new(
        own: Arc<dyn SchemaProvider>,
        tables: Arc<dyn SchemaProvider>,
        views: Vec<Arc<View>>,
        planner: Arc<Planner>,
    ) -> SchemaWithViews {
        let before = (own.as_ref() as &dyn Any).downcast_ref::<SchemaWithViews>();
        let own = before.map_or(Arc::clone(&own), |before| Arc::clone(&before.own));
        SchemaWithViews {
            own,
            tables,
            views,
            planner,
            planned: Mutex::default(),
        }
    }

    fn view(&self, name: &str) -> Option<&Arc<View>> {
        let is = |view: &&Arc<View>| view.name.eq_ignore_ascii_case(name);
        self.views.iter().find(is)
    }
}

#[async_trait]
impl SchemaProvider for SchemaWithViews {
    /// Includes only views whose events were recorded.
    fn table_names(&self) -> Vec<String> {
        let mut names = self.own.table_names();
        names.extend(self.tables.table_names());
        let views = self.views.iter();
        let views = views.filter(|view| self.planner.missing(view).is_none());
        names.extend(views.map(|view| view.name.clone()));
        names.sort();
        names.dedup();
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        for tables in [&self.own, &self.tables] {
            if let Some(table) = tables.table(name).await? {
                return Ok(Some(table));
            }
        }
        let Some(view) = self.view(name) else {
            return Ok(None);
        };
        if let Some(planned) = lock(&self.planned).get(&view.name) {
            return Ok(Some(Arc::clone(planned)));
        }
        let planned = self.planner.plan(view, Ok).await?;
        lock(&self.planned).insert(view.name.clone(), Arc::clone(&planned));
        Ok(Some(planned))
    }

    /// Without planning a view.
    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        for tables in [&self.own, &self.tables] {
            if let Some(kind) = tables.table_type(name).await? {
                return Ok(Some(kind));
            }
        }
        Ok(self.view(name).map(|_| TableType::View))
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        self.own.register_table(name, table)
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        self.own.deregister_table(name)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.own.table_exist(name) || self.tables.table_exist(name) || self.view(name).is_some()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds a lock panics halfway.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
