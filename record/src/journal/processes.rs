//! The state at the start: every thread with its name, and every executable mapping.
//!
//! Read after the events are enabled, so that nothing is missed: a thread that starts during the read is recorded
//! twice, and the records made here have no time.

use super::build_ids::{Inode, MappedFiles};
use super::record::{Records, kind, misc};
use crate::sys::procfs::{self, Map};
use crate::target::Target;

/// Returns FORK, COMM and, if there are addresses, MMAP2 records from `/proc`, then FINISHED_INIT. `command` is the waiting
/// command. Mapped files are added to `files`.
pub(crate) fn existing(
    target: &Target,
    command: Option<i32>,
    files: &MappedFiles,
    has_addresses: bool,
) -> Vec<u8> {
    let pids = target.processes(command);
    let mut records = Records::new();
    let mut maps = Vec::new();
    for pid in pids {
        add_process(&mut records, pid);
        if !has_addresses {
            continue;
        }
        procfs::read_maps(pid, &mut maps);
        for map in procfs::parse_maps(&maps) {
            // Symbolization needs only code.
            if map.protection & libc::PROT_EXEC as u32 != 0 {
                let inode = files.add_existing(pid, &map);
                add_mapping(&mut records, pid, &map, inode);
            }
        }
    }
    records.add(kind::FINISHED_INIT, 0, |_| {});
    records.into_bytes()
}

fn add_process(records: &mut Records, pid: i32) {
    let mut tids = procfs::threads(pid);
    // The first thread of a process comes first.
    tids.sort_unstable_by_key(|&tid| (tid != pid, tid));
    for tid in tids {
        let Some(task) = procfs::task(pid, tid) else {
            continue; // the process has ended
        };
        let parent = if tid == pid { task.parent } else { pid };
        records.add(kind::FORK, misc::FORK_EXEC, |body| {
            body.i32(pid);
            body.i32(parent);
            body.i32(tid);
            body.i32(parent);
            body.u64(0);
            body.trailer(pid, tid, 0, 0, 0);
        });
        records.add(kind::COMM, 0, |body| {
            body.i32(pid);
            body.i32(tid);
            body.text(&task.comm);
            body.trailer(pid, tid, 0, 0, 0);
        });
    }
}

/// Adds a mapping as the kernel writes it.
fn add_mapping(records: &mut Records, pid: i32, map: &Map<'_>, inode: Option<Inode>) {
    let path: &[u8] = if map.path.is_empty() {
        b"//anon"
    } else {
        map.path
    };
    records.add(kind::MMAP2, misc::USER, |body| {
        body.i32(pid);
        body.i32(pid);
        body.u64(map.start);
        body.u64(map.end.saturating_sub(map.start));
        body.u64(map.file_offset);
        body.u32(map.device.0);
        body.u32(map.device.1);
        body.u64(map.inode);
        body.u64(inode.map_or(0, |inode| inode.generation));
        body.u32(map.protection);
        body.u32(map.flags);
        body.text(path);
        body.trailer(pid, pid, 0, 0, 0);
    });
}
