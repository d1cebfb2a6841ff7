//! Files that both sides of a comparison have: the same code, by its build ID.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use anyhow::Result;

use perfquet::Session;
use perfquet::stacks::strings;

use super::measured::Key;
use super::naming;
use super::sides::Side;

/// The modules that are the same file on both sides.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) enum SameFiles {
    /// Both sides are parts of one recording.
    All,
    /// Modules by name, and whether the kernel is among them.
    Some {
        modules: HashSet<String>,
        has_kernel: bool,
    },
    #[default]
    None,
}

impl SameFiles {
    pub(super) fn have(&self, key: &Key) -> bool {
        match self {
            SameFiles::All => true,
            SameFiles::Some {
                modules,
                has_kernel,
            } => {
                let module = key.module.as_ref();
                module.is_some_and(|module| modules.contains(module))
                    || *has_kernel && key.is_kernel
            }
            SameFiles::None => false,
        }
    }
}

/// Returns the modules that are the same file on both sides, by their build IDs.
pub(super) fn of(session: &Session, sides: &[Side; 2]) -> Result<SameFiles> {
    let [before, after] = sides;
    if before.traces == after.traces {
        return Ok(SameFiles::All);
    }
    let mut of_trace: HashMap<&str, [bool; 2]> = HashMap::new();
    for (number, side) in sides.iter().enumerate() {
        for &index in &side.traces {
            of_trace.entry(&session.traces()[index].name).or_default()[number] = true;
        }
    }
    let files = |table: &str, name: &str, id: &str, condition: &str| {
        let sql = format!("SELECT DISTINCT trace, {name}, {id} FROM {table} WHERE {condition}");
        let mut found: [BTreeMap<String, BTreeSet<String>>; 2] = Default::default();
        for batch in session.collect(&sql)? {
            let columns: Result<Vec<_>> = batch.columns().iter().map(strings).collect();
            let columns = columns?;
            for row in 0..batch.num_rows() {
                let [trace, name, id] = [0, 1, 2].map(|column: usize| columns[column].value(row));
                let of_sides = of_trace.get(trace).copied().unwrap_or_default();
                for (files, is_of_side) in found.iter_mut().zip(of_sides) {
                    if is_of_side {
                        let ids = files.entry(naming::module(name).to_owned()).or_default();
                        ids.insert(id.to_owned());
                    }
                }
            }
        }
        let [before, after] = found;
        let same = before
            .into_iter()
            .filter(|(name, ids)| after.get(name) == Some(ids));
        anyhow::Ok(same.map(|(name, _)| name).collect())
    };
    let modules: HashSet<String> = match session.has_rows("frames") {
        true => files(
            "frames",
            "module",
            "build_id",
            "module IS NOT NULL AND build_id IS NOT NULL",
        )?,
        false => HashSet::new(),
    };
    let kernels = files("trace_info", "name", "value", "name = 'kernel_build_id'")?;
    Ok(SameFiles::Some {
        modules,
        has_kernel: !kernels.is_empty(),
    })
}
