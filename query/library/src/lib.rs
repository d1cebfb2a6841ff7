//! Traces as tables, views and functions of DataFusion.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use datafusion::prelude::SessionContext;
//!
//! let context = SessionContext::new();
//! perfquet::Traces::open(&["a.pqt"])?.register(&context)?;
//! let slow = "SELECT name, duration FROM syscalls ORDER BY duration DESC LIMIT 10";
//! context.sql(slow).await?.show().await?;
//! // Durations with a unit, ASOF JOIN and macros are not part of DataFusion's own SQL.
//! perfquet::plan(&context, "SELECT count(*) FROM calls WHERE duration > 5ms").await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Traces`] registers in any context; [`Session`] is a context with the configuration, the limits and the error
//! messages of perfquet-query. DataFusion is part of the interface: its version is that of this crate's dependency.
//!
//! ```text
//! Traces ─► register ─► tables (Parquet of the manifests), functions, passes, views, engine ─► SessionContext
//!                                                     sql, explain ─► plan, Session ─► Answer
//! ```

pub mod align;
mod engine;
#[doc(hidden)]
pub mod explain;
pub mod failure;
#[doc(hidden)]
pub mod functions;
#[doc(hidden)]
pub mod interrupt;
mod linux;
mod options;
mod pages;
mod passes;
mod progress;
mod published;
mod register;
mod remote;
mod running;
mod session;
#[doc(hidden)]
pub mod sql;
#[doc(hidden)]
pub mod stacks;
#[doc(hidden)]
pub mod tables;
mod trace;
#[doc(hidden)]
pub mod unit;
#[doc(hidden)]
pub mod views;

pub use perfquet_views::{VIEWS, View, ViewColumn};

pub use options::Options;
pub use register::plan;
pub use running::{Running, Step};
pub use session::{Answer, Session};
pub use trace::{Trace, TracePart, TraceTable, Traces, matching};
pub use views::definitions::Definitions;
