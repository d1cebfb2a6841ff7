//! The tasks that BPF programs record. Programs see every hit on the host, so they filter by task.

use perfquet_ebpf::Target as Filter;
use perfquet_ebpf::layout::{Whom as Kind, WhomState};

use super::Whom;
use crate::failure::{Failure, failed, misuse};
use crate::sys::procfs;
use crate::target::Target;

/// The threads of the target; `None`: the whole system.
pub(super) fn tids(whom: &Whom<'_>) -> Option<Vec<i32>> {
    match whom.target {
        Target::System | Target::Cgroups(_) => None,
        Target::Threads(tids) => Some(tids.clone()),
        Target::Command | Target::Processes(_) | Target::Family(_) | Target::User(_) => {
            let pids = whom.target.processes(whom.command).into_iter();
            Some(pids.flat_map(procfs::threads).collect())
        }
    }
}

/// Returns the target by thread, for programs that find a TID in a record.
pub(super) fn filter_by_thread(whom: &Whom<'_>) -> Result<Filter, Failure> {
    let mut filter = filter(whom)?;
    if filter.whom == Kind::Processes {
        filter.whom = Kind::Threads;
        let tids = |&(pid, state): &(u32, WhomState)| {
            let tids = procfs::threads(pid as i32).into_iter();
            tids.filter_map(move |tid| Some((u32::try_from(tid).ok()?, state)))
        };
        filter.ids = filter.ids.iter().flat_map(tids).collect();
    }
    Ok(filter)
}

/// Returns the target in the programs' terms.
pub(super) fn filter(whom: &Whom<'_>) -> Result<Filter, Failure> {
    // Programs see PIDs of the initial namespace.
    if !procfs::has_the_machines_numbers() && *whom.target != Target::System {
        return Err(failed(
            "PIDs in this container differ from those BPF programs see",
        )
        .hint("record the whole system (-a), or share the host's PIDs with the container (--pid=host)"));
    }
    let number = |id: &i32| u32::try_from(*id).ok();
    let running = |ids: &[i32]| -> Vec<(u32, WhomState)> {
        let ids = ids.iter().filter_map(number);
        ids.map(|id| (id, WhomState::Running)).collect()
    };
    let (kind, ids) = match whom.target {
        Target::System => (Kind::Everything, Vec::new()),
        // The command is recorded from its exec on.
        Target::Command => {
            let command = whom.command.iter().filter_map(number);
            let waiting = command.map(|pid| (pid, WhomState::Waiting)).collect();
            (Kind::Processes, waiting)
        }
        Target::Processes(pids) => (Kind::Processes, running(pids)),
        Target::Threads(tids) => (Kind::Threads, running(tids)),
        Target::Family(_) | Target::User(_) => (
            Kind::Processes,
            running(&whom.target.processes(whom.command)),
        ),
        Target::Cgroups(_) => {
            return Err(misuse("-G: in-kernel aggregation cannot filter by cgroup")
                .hint("use -p, -t, -u, or a command"));
        }
    };
    Ok(Filter {
        whom: kind,
        ids,
        cpus: match whom.are_cpus_chosen {
            true => whom.cpus.to_vec(),
            false => Vec::new(),
        },
    })
}
