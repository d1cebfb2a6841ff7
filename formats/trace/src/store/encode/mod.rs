//! Our own page encoder: batches of columns become Parquet pages.
//!
//! ```text
//! values ──► keys (dictionary) ─► hybrid ─┐
//!        ├─► delta ───────────────────────┼─► levels in front ─► zstd ─► page ─► chunk
//!        └─► plain ───────────────────────┘
//! ```
//! Why not ArrowWriter: it hashes each value of each row again, though the rows come with keys. This is 2 to 3
//! times faster and a little smaller (`cargo xtask bench encode`). Only what is public in `parquet` is used.

mod bounds;
mod chunk;
mod delta;
mod dictionary;
mod hybrid;
mod levels;
mod plain;

pub(super) use bounds::Bounds;
pub(super) use chunk::{Chunk, Workshop};
