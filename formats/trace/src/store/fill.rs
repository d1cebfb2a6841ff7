//! Rows that become columns on the encoder's thread, so that the thread that reads an input only copies what it found.

use std::fmt::Debug;

use super::column::Rows;

/// Rows of one table, as they were found.
pub trait Fill: Debug + Send {
    /// Pushes the rows to the columns, and returns how many there are. What the rows took may be used again.
    fn fill(self: Box<Self>, rows: &mut Rows) -> usize;
}
