//! Rows that are converted to columns on the encoder's thread, so that the reading thread only copies what it has read.

use std::fmt::Debug;

use super::column::Rows;

/// Rows of one table in their original form.
pub trait Fill: Debug + Send {
    /// Appends the rows to the columns, and returns their number. Their memory can be reused.
    fn fill(self: Box<Self>, rows: &mut Rows) -> usize;
}
