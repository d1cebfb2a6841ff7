//! Tables of Trino's Hive connector, and of Athena, over the files of a lake.
//!
//! ```text
//! CREATE TABLE IF NOT EXISTS hive.perfquet."samples" ("time" BIGINT, …, "date" DATE, "host" VARCHAR) WITH (external_location = 'file:///srv/lake/samples', …);
//! CALL hive.system.sync_partition_metadata('perfquet', 'samples', 'FULL');
//! ```
//! These statements are parsed in tests, not run: Trino is a server.

use std::io::Write;

use anyhow::Result;
use arrow_schema::DataType;

use super::super::{Exporter, Output, Tally};
use super::{Catalog, doubled};

/// `--to ddl=trino`
pub(in super::super) const EXPORTER: Exporter = Exporter {
    name: "ddl=trino",
    about: "statements that create the tables of a lake in Trino's Hive connector",
    output: Output::Reference {
        write: |source, out, tally| write(&Catalog::of_trace(source)?, out, tally),
        write_lake: write,
    },
};

fn write(catalog: &Catalog, out: &mut dyn Write, tally: &mut Tally) -> Result<()> {
    let keys = &catalog.lake_only("trino")?.0;
    writeln!(
        out,
        "-- {} for Trino: trino -f FILE. The catalog is called hive; its file system must have the lake, also as s3://….\n\
         -- Run the statements again when traces or columns are added. They were not run with Trino, only parsed.\n\
         -- Addresses are the bits of a signed integer; for an address ip:\n\
         --   to_hex(to_big_endian_64(ip))                                formats it\n\
         --   ORDER BY bitwise_xor(ip, -9223372036854775807 - 1)          sorts by it\n\
         CREATE SCHEMA IF NOT EXISTS hive.perfquet;",
        catalog.subject()
    )?;
    for table in &catalog.tables {
        let name = doubled(&table.name, '"');
        let columns = catalog.columns(table, type_name);
        let columns = columns.map(|(name, kind)| format!("{} {kind}", doubled(name, '"')));
        let columns: Vec<String> = columns.collect();
        let literals: Vec<String> = keys.iter().map(|key| doubled(key, '\'')).collect();
        let partitioned = match keys.is_empty() {
            true => String::new(),
            false => format!(", partitioned_by = ARRAY[{}]", literals.join(", ")),
        };
        writeln!(
            out,
            "DROP TABLE IF EXISTS hive.perfquet.{name};\n\
             CREATE TABLE hive.perfquet.{name} ({}) WITH (format = 'PARQUET', external_location = '{}'{partitioned});",
            columns.join(", "),
            catalog.url(table),
        )?;
        if !keys.is_empty() {
            writeln!(
                out,
                "CALL hive.system.sync_partition_metadata('perfquet', {}, 'FULL');",
                doubled(&table.name.to_lowercase(), '\'')
            )?;
        }
    }
    catalog.finish(out, "--", 0, tally, |_| String::new())
}

fn type_name(kind: &DataType) -> &'static str {
    match kind {
        DataType::Boolean => "BOOLEAN",
        DataType::Int32 => "INTEGER",
        DataType::Int64 => "BIGINT",
        DataType::Float64 => "DOUBLE",
        DataType::Binary => "VARBINARY",
        DataType::Date32 => "DATE",
        DataType::Timestamp(..) => "TIMESTAMP",
        DataType::List(item) if *item.data_type() == DataType::Int64 => "ARRAY(BIGINT)",
        DataType::List(_) => "ARRAY(VARCHAR)",
        _ => "VARCHAR",
    }
}
