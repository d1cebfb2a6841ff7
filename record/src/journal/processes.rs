//! What existed at the start: every thread with its name, every executable mapping, as if just made.
//!
//! Read after the events are enabled, so that nothing falls between: what starts meanwhile is told twice, what
//! is told here has no time.

use super::record::{Records, kind, misc};
use crate::sys::procfs::{self, Map};
use crate::target::Target;

/// What was found.
pub(crate) struct Existing {
    /// FORK, COMM and MMAP2 records, then FINISHED_INIT.
    pub(crate) records: Vec<u8>,
    /// The files mapped, for their build ids.
    pub(crate) files: Files,
}

/// Files by device and inode, with a path each.
pub(crate) type Files = std::collections::BTreeMap<((u32, u32), u64), Vec<u8>>;

/// Reads `/proc`. `command` is the command that waits.
pub(crate) fn existing(target: &Target, command: Option<i32>) -> Existing {
    let pids = match target {
        Target::System => procfs::processes(),
        Target::Command => Vec::from_iter(command),
        Target::Processes(pids) => pids.clone(),
        Target::Threads(tids) => {
            let mut pids: Vec<i32> = tids
                .iter()
                .filter_map(|tid| procfs::process_of(*tid))
                .collect();
            pids.sort_unstable();
            pids.dedup();
            pids
        }
    };
    let mut records = Records::new();
    let mut files = Files::new();
    let mut maps = Vec::new();
    for pid in pids {
        add_process(&mut records, pid);
        procfs::read_maps(pid, &mut maps);
        for map in procfs::parse_maps(&maps) {
            // Only code is needed to name addresses, and perf keeps to it.
            if map.protection & libc::PROT_EXEC as u32 == 0 {
                continue;
            }
            if map.inode != 0 && map.path.starts_with(b"/") {
                files
                    .entry((map.device, map.inode))
                    .or_insert_with(|| map.path.to_vec());
            }
            add_mapping(&mut records, pid, &map);
        }
    }
    records.add(kind::FINISHED_INIT, 0, |_| {});
    Existing {
        records: records.into_bytes(),
        files,
    }
}

fn add_process(records: &mut Records, pid: i32) {
    let mut tids = procfs::threads(pid);
    // The process before its threads.
    tids.sort_unstable_by_key(|&tid| (tid != pid, tid));
    for tid in tids {
        let Some(task) = procfs::task(pid, tid) else {
            continue; // ended meanwhile
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

fn add_mapping(records: &mut Records, pid: i32, map: &Map<'_>) {
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
        body.u64(0); // generation of the inode: not told
        body.u32(map.protection);
        body.u32(map.flags);
        body.text(path);
        body.trailer(pid, pid, 0, 0, 0);
    });
}
