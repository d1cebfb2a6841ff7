//! Puts traces into a DataFusion context: tables, views, functions, operators and optimizer rules.
//!
//! ```text
//! the context's default catalog      samples, calls, …, views      in its default schema, beside its own tables
//!                                    sched.sched_switch            a schema for each system of events
//! the context                        functions, views with arguments, rules, a planner for ASOF JOIN
//! ```

use std::sync::Arc;

use anyhow::{Result, anyhow};
use datafusion::catalog::CatalogProvider;
use datafusion::dataframe::DataFrame;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::prelude::SessionContext;
use perfquet_views::{VIEWS, View};

use crate::explain;
use crate::sql::literals::with_nanoseconds;
use crate::sql::macros::Macros;
use crate::sql::planning;
use crate::sql::times::{self, Starts};
use crate::stacks::Forest;
use crate::tables::catalog::{self, MAIN};
use crate::trace::{Trace, Traces};
use crate::views::definitions::Definitions;
use crate::views::{self, Planner, SchemaWithViews};
use crate::{engine, functions, passes};

impl Traces {
    /// Registers tables, views, functions, operators and optimizer rules in a context, in its default catalog. The tables
    /// of the context take precedence. Traces registered before are replaced.
    ///
    /// # Errors
    ///
    /// The default catalog is missing or takes no schemas.
    pub fn register(&self, context: &SessionContext) -> Result<()> {
        let none = Definitions {
            without_own: true,
            ..Definitions::default()
        };
        with_definitions(context, self, &none).map(|_| ())
    }
}

/// What a context has of traces.
pub(crate) struct Registered {
    pub(crate) traces: Arc<Vec<Trace>>,
    /// The stacks of all traces, read on first use.
    pub(crate) forest: Arc<Forest>,
    /// All views, also those whose events were not recorded.
    pub(crate) views: Vec<Arc<View>>,
    pub(crate) macros: Arc<Macros>,
    pub(crate) planner: Arc<Planner>,
}

/// Registers traces, and views and macros of the user.
pub(crate) fn with_definitions(
    context: &SessionContext,
    traces: &Traces,
    definitions: &Definitions,
) -> Result<Registered> {
    let traces = traces.shared();
    let plain = |error| explain::error(error, "", None);
    let macros = Arc::new(Macros::default());
    extend(context, &traces, &macros).map_err(plain)?;
    let forest = Arc::new(Forest::new(Arc::clone(&traces)));
    functions::register(context, &forest);
    let names = traces.iter().map(|trace| trace.name.clone());
    passes::register(context, &Arc::new(passes::Traces::new(names)));
    let mut views: Vec<Arc<View>> = VIEWS.clone();
    let own = definitions.read(&context.state(), &macros)?;
    views.extend(own.into_iter().map(Arc::new));
    let is_view = |name: &str| views.iter().any(|view| view.name == name);
    let catalog = catalog::catalog(&traces, is_view).map_err(plain)?;
    let planner = Planner::new(context, catalog.as_ref(), traces.len() > 1);
    let planner = Arc::new(planner);
    views::register(context, &views, &planner);
    add_schemas(context, catalog.as_ref(), &views, &planner).map_err(plain)?;
    Ok(Registered {
        traces,
        forest,
        views,
        macros,
        planner,
    })
}

/// Adds operators and rules, and what planning needs to know.
fn extend(context: &SessionContext, traces: &[Trace], macros: &Arc<Macros>) -> PlanResult<()> {
    engine::extend(context)?;
    times::register(context);
    let state = context.state_ref();
    let mut state = state.write();
    let config = state.config_mut();
    config.set_extension(Arc::clone(macros));
    config.set_extension(Arc::new(Starts::new(traces)));
    Ok(())
}

/// Adds the schemas of the traces to the default catalog of a context; its default schema keeps its own tables.
fn add_schemas(
    context: &SessionContext,
    traces: &dyn CatalogProvider,
    views: &[Arc<View>],
    planner: &Arc<Planner>,
) -> PlanResult<()> {
    let defaults = context.copied_config().options().catalog.clone();
    let missing = |what: &str, name: &str| {
        DataFusionError::Configuration(format!("the context has no {what} {name}"))
    };
    let catalog = context
        .catalog(&defaults.default_catalog)
        .ok_or_else(|| missing("catalog", &defaults.default_catalog))?;
    let schema = catalog
        .schema(&defaults.default_schema)
        .ok_or_else(|| missing("schema", &defaults.default_schema))?;
    for name in traces.schema_names() {
        if name != MAIN
            && name != defaults.default_schema
            && let Some(schema) = traces.schema(&name)
        {
            catalog.register_schema(&name, schema)?;
        }
    }
    let tables = traces.schema(MAIN).ok_or_else(|| missing("schema", MAIN))?;
    let plain = views.iter().filter(|view| view.arguments().is_empty());
    let with_views = SchemaWithViews::new(
        schema,
        tables,
        plain.cloned().collect(),
        Arc::clone(planner),
    );
    catalog.register_schema(&defaults.default_schema, Arc::new(with_views))?;
    Ok(())
}

/// Plans SQL as [`Session`](crate::Session) does: with durations as `5ms`, times such as `3s`, ASOF JOIN and macros,
/// which DataFusion's own parser lacks.
///
/// # Errors
///
/// The text of the error names the place in the query, and similar names.
pub async fn plan(context: &SessionContext, sql: &str) -> Result<DataFrame> {
    let text = with_nanoseconds(sql).map_err(|error| anyhow!(error))?;
    let plan = planning::plan(&context.state(), &text).await;
    let plan = plan.map_err(|error| explain::error(error, sql, None))?;
    let frame = context.execute_logical_plan(plan).await;
    frame.map_err(|error| explain::error(error, sql, None))
}
