//! Whom programs record. They see every hit of the machine, so they are told whom to let through.

use perfquet_ebpf::Target as Filter;
use perfquet_ebpf::layout::{Whom as Kind, WhomState};

use super::Whom;
use crate::failure::{Failure, failed, misuse};
use crate::sys::procfs;
use crate::target::Target;

/// The same in the programs' terms.
pub(super) fn filter(whom: &Whom<'_>) -> Result<Filter, Failure> {
    // Programs see the machine's numbers of processes.
    if !procfs::has_the_machines_numbers() && *whom.target != Target::System {
        return Err(failed(
            "in here processes have other numbers than programs in the kernel see",
        )
        .hint("choose the whole system (-a), or let the container see the machine's processes (--pid=host)"));
    }
    let number = |id: &i32| u32::try_from(*id).ok();
    let running = |ids: &[i32]| -> Vec<(u32, WhomState)> {
        let ids = ids.iter().filter_map(number);
        ids.map(|id| (id, WhomState::Running)).collect()
    };
    let (kind, ids) = match whom.target {
        Target::System => (Kind::Everything, Vec::new()),
        // It is let through from its exec on.
        Target::Command => {
            let command = whom.command.iter().filter_map(number);
            let waiting = command.map(|pid| (pid, WhomState::Waiting)).collect();
            (Kind::Processes, waiting)
        }
        Target::Processes(pids) => (Kind::Processes, running(pids)),
        Target::Threads(tids) => (Kind::Threads, running(tids)),
        Target::User(_) => (
            Kind::Processes,
            running(&whom.target.processes(whom.command)),
        ),
        Target::Cgroups(_) => {
            return Err(
                misuse("-G: what is summed up in the kernel cannot be chosen by cgroup")
                    .hint("choose by -p, -t, -u, or a command"),
            );
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
