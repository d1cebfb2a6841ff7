//! A Python program that gives each table of a lake a Delta log, by the package deltalake.
//!
//! ```text
//! _convert("samples")        writes LAKE/samples/_delta_log
//! ```

use std::io::Write;

use anyhow::Result;

use super::super::lake::DATE;
use super::super::{Exporter, Output, Tally};
use super::{Catalog, python};
use crate::misuse::misuse;

/// `--to ddl=delta`
pub(in super::super) const EXPORTER: Exporter = Exporter {
    name: "ddl=delta",
    about: "a Python program that makes the tables of a lake Delta tables",
    output: Output::Reference {
        write: |source, out, tally| write(&Catalog::of_trace(source)?, out, tally),
        write_lake: write,
    },
};

fn write(catalog: &Catalog, out: &mut dyn Write, tally: &mut Tally) -> Result<()> {
    let keys = catalog.lake_only("delta")?.0.iter();
    if catalog.is_remote() {
        return Err(misuse(
            format!(
                "{}: --to ddl=delta: expected a lake in a directory, where the program replaces the logs",
                catalog.root
            ),
            "write the logs in a directory, and copy that",
        ));
    }
    let keys = keys.map(|key| {
        let kind = if key == DATE { "date" } else { "string" };
        let key = python(key)?;
        Ok(format!("Field({key}, PrimitiveType(\"{kind}\"))"))
    });
    let keys: Vec<String> = keys.collect::<Result<_>>()?;
    let partitioned = match keys.is_empty() {
        true => String::new(),
        false => format!(
            ", partition_by=Schema([{}]), partition_strategy=\"hive\"",
            keys.join(", ")
        ),
    };
    writeln!(
        out,
        "# {} as Delta tables: python3 FILE, with the package deltalake. Nothing is copied: each table gets a _delta_log.\n\
         # A log lists the files of its time. Run this program again after --to lake, --retain or --compact; it replaces the logs.\n\
         # Addresses are the bits of a signed integer: sort them by the expression of the engine.\n\
         import shutil\n\
         \n\
         from deltalake import convert_to_deltalake\n\
         from deltalake.schema import Field, PrimitiveType, Schema\n\
         \n\
         \n\
         def _convert(folder):\n    \
             table = {} + folder\n    \
             shutil.rmtree(table + \"/_delta_log\", ignore_errors=True)\n    \
             convert_to_deltalake(table{partitioned})\n\
         \n",
        catalog.subject(),
        python(&format!("{}/", catalog.root))?,
    )?;
    for table in &catalog.tables {
        writeln!(out, "_convert({})", python(&table.folder)?)?;
    }
    catalog.finish(out, "#", 0, tally, |_| String::new())
}
