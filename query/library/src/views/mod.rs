//! Views in a session: planned when a query names them. Their SQL is in perfquet-views.

pub mod definitions;
mod function;
mod schema;

pub(crate) use function::register;
pub(crate) use schema::{Planner, SchemaWithViews};
