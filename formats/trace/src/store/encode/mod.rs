//! The page encoder: batches of columns become Parquet pages.
//!
//! ```text
//! values ──► keys (dictionary) ─► hybrid ─┐
//!        ├─► delta ───────────────────────┼─► levels in front ─► zstd ─► page ─► chunk
//!        └─► plain ───────────────────────┘
//! ```
//! Reason for not using ArrowWriter: it hashes every value again, although the rows have keys. This encoder is 2 to 3
//! times faster and its output is slightly smaller (`cargo xtask bench encode`). It uses only the public API of
//! `parquet`.

mod bounds;
mod chunk;
mod delta;
mod dictionary;
mod hybrid;
mod levels;
mod plain;

pub(super) use bounds::Bounds;
pub(super) use chunk::{Chunk, Workshop};
