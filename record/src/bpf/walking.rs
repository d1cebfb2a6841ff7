//! Objects in two variants: one walks the user stacks in its keys by unwind tables, the other follows frame pointers.

use perfquet_ebpf::walk_tables::WalkTables;
use perfquet_ebpf::{Error, Object};

use crate::user_stacks;

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
        if !walks || !user_stacks::is_possible() {
            return Ok((load(self.plain)?, None));
        }
        let loaded = load(self.walking).and_then(|mut object| {
            prepare(&mut object)?;
            let tables = WalkTables::of(&mut object)?;
            Ok((object, Some(tables)))
        });
        loaded.or_else(|error| {
            user_stacks::log_refusal(&error);
            Ok((load(self.plain)?, None))
        })
    }
}
