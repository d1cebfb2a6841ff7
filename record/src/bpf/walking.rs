//! Whether programs can walk user stacks by unwind tables; objects in two variants: one walks the stacks in its keys, the other
//! follows frame pointers.

use perfquet_ebpf::walk_tables::WalkTables;
use perfquet_ebpf::{Error, Object};

use crate::sys::{host, procfs};

/// Required for bpf_loop.
const KERNEL: (u32, u32) = (5, 17);

/// Whether programs can walk stacks on this system; logs the reason if not.
pub(crate) fn is_possible() -> bool {
    let (major, minor) = KERNEL;
    if !cfg!(target_arch = "x86_64") {
        return false;
    }
    if !host::is_linux(major, minor) {
        log::info!("stacks are not walked in the kernel: requires Linux {major}.{minor}");
        return false;
    }
    if !procfs::has_the_machines_numbers() {
        log::info!("stacks are not walked in the kernel: PIDs in this container differ");
        return false;
    }
    true
}

/// Logs why a program that walks stacks could not be loaded.
pub(crate) fn log_refusal(error: &Error) {
    if let Error::Refused { log, .. } = error {
        log::debug!("{log}");
    }
    log::info!("stacks are not walked in the kernel: {error}");
}

/// The two variants of an object.
pub(super) struct Variants {
    pub(super) walking: &'static [u8],
    pub(super) plain: &'static [u8],
}

impl Variants {
    /// Loads the walking variant and its tables if `walks`, and if the kernel accepts it. `prepare` loads the programs that walk,
    /// so that it is known whether the kernel accepts them.
    pub(super) fn load(
        &self,
        walks: bool,
        load: impl Fn(&'static [u8]) -> Result<Object, Error>,
        prepare: impl FnOnce(&mut Object) -> Result<(), Error>,
    ) -> Result<(Object, Option<WalkTables>), Error> {
        if !walks || !is_possible() {
            return Ok((load(self.plain)?, None));
        }
        let loaded = load(self.walking).and_then(|mut object| {
            prepare(&mut object)?;
            let tables = WalkTables::of(&mut object)?;
            Ok((object, Some(tables)))
        });
        loaded.or_else(|error| {
            log_refusal(&error);
            Ok((load(self.plain)?, None))
        })
    }
}
