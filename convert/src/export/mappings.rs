//! Mappings of modules into processes, which convert file offsets to addresses.
//!
//! ```text
//! pid 212 at 42.788 s: /w/workload + 0x11b7   →   0x4011b7
//! ```

use std::collections::HashMap;

use anyhow::Result;
use perfquet_trace::store::Directory;
use perfquet_trace::tables;

use super::batch::BatchRow;

/// Maximum number of ancestors whose mappings may have been inherited by fork.
const MAX_ANCESTORS: usize = 16;

/// The mappings of all processes.
#[derive(Default)]
pub(super) struct Mappings {
    processes: HashMap<i32, Vec<Mapping>>,
    parents: HashMap<i32, i32>,
}

struct Mapping {
    time: Option<i64>,
    start: u64,
    end: u64,
    file_offset: u64,
    path: String,
}

impl Mappings {
    /// Reads `mappings` and `threads`.
    pub(super) fn read(trace: &Directory) -> Result<Mappings> {
        let mut mappings = Mappings::default();
        for batch in trace.read(tables::mappings::NAME)? {
            let batch = batch?;
            for row in BatchRow::all(&batch) {
                let (Some(pid), Some(path)) = (row.i32("pid"), row.text("path")) else {
                    continue;
                };
                let process = mappings.processes.entry(pid).or_default();
                process.push(Mapping {
                    time: row.i64("time"),
                    start: row.u64("start_address").unwrap_or(0),
                    end: row.u64("end_address").unwrap_or(0),
                    file_offset: row.u64("file_offset").unwrap_or(0),
                    path: path.to_owned(),
                });
            }
        }
        for batch in trace.read(tables::threads::NAME)? {
            let batch = batch?;
            for row in BatchRow::all(&batch) {
                if let (Some(pid), Some(parent)) = (row.i32("pid"), row.i32("parent"))
                    && pid != parent
                {
                    mappings.parents.entry(pid).or_insert(parent);
                }
            }
        }
        Ok(mappings)
    }

    /// Returns the address of an offset in a module, by its latest mapping before `time`.
    pub(super) fn address(
        &self,
        pid: i32,
        time: Option<i64>,
        module: &str,
        offset: u64,
    ) -> Option<u64> {
        let mut pid = pid;
        for _ in 0..MAX_ANCESTORS {
            if let Some(address) = self.in_process(pid, time, module, offset) {
                return Some(address);
            }
            pid = *self.parents.get(&pid)?;
        }
        None
    }

    fn in_process(&self, pid: i32, time: Option<i64>, module: &str, offset: u64) -> Option<u64> {
        let process = self.processes.get(&pid)?;
        process.iter().rev().find_map(|mapping| {
            let address = offset
                .checked_sub(mapping.file_offset)?
                .checked_add(mapping.start)?;
            let fits = mapping.path == module
                && address < mapping.end
                && (mapping.time <= time || time.is_none());
            fits.then_some(address)
        })
    }
}
