//! Views: one SQL file each, over the tables of catalog.rs.

/// A view and what it selects.
pub(crate) struct View {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) sql: &'static str,
}

/// Every view, in the order in which they may use each other.
pub(crate) const VIEWS: &[View] = &[View {
    name: "events",
    about: "All events and samples: common columns, event name, wall-clock time.",
    sql: include_str!("events.sql"),
}];
