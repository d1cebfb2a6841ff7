//! Limits of the process: open files, locked memory.

#![expect(unsafe_code, reason = "getrlimit, setrlimit")]

/// A limit, in its own unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    /// RLIMIT_NOFILE
    OpenFiles,
    /// RLIMIT_MEMLOCK, bytes
    LockedMemory,
}

/// Raises the limit to at least `wanted`, up to the hard limit, or above it if permitted; returns the resulting limit.
pub(crate) fn raise(resource: Resource, wanted: u64) -> u64 {
    let Some(mut limit) = get(resource) else {
        return u64::MAX;
    };
    if limit.rlim_cur < wanted {
        let beyond = libc::rlimit {
            rlim_cur: wanted,
            rlim_max: limit.rlim_max.max(wanted),
        };
        // With CAP_SYS_RESOURCE beyond the hard limit, otherwise up to it.
        if !set(resource, beyond) {
            limit.rlim_cur = limit.rlim_max.min(wanted);
            set(resource, limit);
        }
    }
    get(resource).map_or(u64::MAX, |limit| limit.rlim_cur)
}

/// Raises the limit by this number if allowed; returns the new limit.
pub(crate) fn raise_by(resource: Resource, more: u64) -> u64 {
    let now = get(resource).map_or(0, |limit| limit.rlim_cur);
    raise(resource, now.saturating_add(more))
}

fn number(resource: Resource) -> libc::__rlimit_resource_t {
    match resource {
        Resource::OpenFiles => libc::RLIMIT_NOFILE,
        Resource::LockedMemory => libc::RLIMIT_MEMLOCK,
    }
}

fn get(resource: Resource) -> Option<libc::rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes one rlimit.
    (unsafe { libc::getrlimit(number(resource), &mut limit) } == 0).then_some(limit)
}

fn set(resource: Resource, limit: libc::rlimit) -> bool {
    // SAFETY: the kernel reads one rlimit.
    unsafe { libc::setrlimit(number(resource), &limit) == 0 }
}
