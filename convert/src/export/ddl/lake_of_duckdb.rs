//! Views and macros of DuckDB, over the files of a lake.
//!
//! ```text
//! CREATE OR REPLACE VIEW "sched"."sched_switch" AS SELECT * FROM read_parquet('/srv/lake/events/sched/sched_switch/*/*/*.parquet', …);
//! CREATE OR REPLACE VIEW "sched_switch" AS …
//! ```

use std::io::Write;

use anyhow::Result;
use perfquet_views::duckdb::{identifier, literal};

use super::super::Tally;
use super::super::lake::DATE;
use super::duckdb_shared::{MAIN, PARTS, UNSIGNED_ORDER, refuse_backslash, without_patterns};
use super::{Catalog, CatalogTable};

/// Writes the statements of a lake.
pub(super) fn write(catalog: &Catalog, out: &mut dyn Write, tally: &mut Tally) -> Result<()> {
    refuse_backslash(&catalog.root)?;
    writeln!(
        out,
        "-- {} for DuckDB: duckdb -init FILE, or .read FILE. Create views again when tables are added.\n\
         -- Addresses are the bits of a signed integer: address(x) formats them, ORDER BY unsigned_order(x) sorts them.",
        catalog.subject()
    )?;
    for table in &catalog.tables {
        let files = files(catalog, table);
        if let Some((system, event)) = &table.event
            && ![MAIN, PARTS].contains(&system.as_str())
        {
            let (system, event) = (identifier(system), identifier(event));
            writeln!(
                out,
                "CREATE SCHEMA IF NOT EXISTS {system};\n\
                 CREATE OR REPLACE VIEW {system}.{event} AS SELECT * FROM {files};"
            )?;
        }
        writeln!(
            out,
            "CREATE OR REPLACE VIEW {} AS SELECT * FROM {files};",
            identifier(&table.name)
        )?;
    }
    writeln!(
        out,
        "CREATE OR REPLACE MACRO address(x) AS '0x' || lower(hex(x));\n{UNSIGNED_ORDER}"
    )?;
    catalog.finish(out, "--", 2, tally, |name| {
        format!("CREATE OR REPLACE VIEW {name} AS FROM '{name}.parquet';")
    })
}

/// `read_parquet` of the files of a table.
fn files(catalog: &Catalog, table: &CatalogTable) -> String {
    let levels = "/*".repeat(catalog.keys().len());
    let folder = without_patterns(&catalog.folder(table));
    let path = literal(&format!("{folder}{levels}/*.parquet"));
    let keys = catalog.keys().iter().map(|key| {
        let kind = if key == DATE { "DATE" } else { "VARCHAR" };
        format!("{}: {kind}", literal(key))
    });
    let keys: Vec<String> = keys.collect();
    let partitioned = match keys.is_empty() {
        true => "hive_partitioning = false".to_owned(),
        false => format!(
            "hive_partitioning = true, hive_types = {{{}}}",
            keys.join(", ")
        ),
    };
    format!("read_parquet({path}, union_by_name = true, {partitioned})")
}
