//! Temporary views and functions of Spark SQL, over the files of a lake or trace.
//!
//! ```text
//! CREATE OR REPLACE TEMPORARY VIEW `samples` (`time` BIGINT, …, `date` DATE, `host` STRING) USING parquet OPTIONS (path '/srv/lake/samples');
//! ```

use std::io::Write;

use anyhow::Result;
use arrow_schema::DataType;

use super::super::{Exporter, Output, Tally};
use super::{Catalog, escaped};

/// `--to ddl=spark`
pub(in super::super) const EXPORTER: Exporter = Exporter {
    name: "ddl=spark",
    about: "statements that create the tables of a lake or trace in Spark SQL",
    output: Output::Reference {
        write: |source, out, tally| write(&Catalog::of_trace(source)?, out, tally),
        write_lake: write,
    },
};

fn write(catalog: &Catalog, out: &mut dyn Write, tally: &mut Tally) -> Result<()> {
    writeln!(
        out,
        "-- {} for Spark 4: spark-sql -i FILE. Views are temporary; create them again when tables or columns are added.\n\
         -- Addresses are the bits of a signed integer: address(x) formats them, ORDER BY x ^ (-9223372036854775807 - 1) sorts them.\n\
         -- Spark decodes a host that is not ASCII as Latin-1: decode(encode(host, 'ISO-8859-1'), 'UTF-8') is its name.",
        catalog.subject()
    )?;
    if catalog.is_lake() && !catalog.is_remote() {
        // By default, more than 32 directories are listed by a task each: minutes for the partitions of 10,000 hosts, seconds without.
        writeln!(
            out,
            "SET spark.sql.sources.parallelPartitionDiscovery.threshold=1000000;"
        )?;
    }
    if catalog.root.contains("${") {
        writeln!(out, "SET spark.sql.variable.substitute=false;")?;
    }
    for table in &catalog.tables {
        // Hadoop's name of the protocol.
        let folder = catalog.folder(table);
        let folder = match folder.strip_prefix("s3://") {
            Some(rest) => format!("s3a://{rest}"),
            None => folder,
        };
        let path = literal(&without_patterns(&folder));
        let name = identifier(&table.name);
        let (columns, merge) = match catalog.is_lake() {
            true => {
                let columns = catalog.columns(table, type_name);
                let columns = columns.map(|(name, kind)| format!("{} {kind}", identifier(name)));
                let columns: Vec<String> = columns.collect();
                (format!(" ({})", columns.join(", ")), "")
            }
            false => (String::new(), ", mergeSchema 'true'"),
        };
        writeln!(
            out,
            "CREATE OR REPLACE TEMPORARY VIEW {name}{columns} USING parquet OPTIONS (path {path}{merge});"
        )?;
    }
    writeln!(
        out,
        "CREATE OR REPLACE TEMPORARY FUNCTION address(x BIGINT) RETURNS STRING RETURN concat('0x', lower(hex(x)));"
    )?;
    catalog.finish(out, "--", 1, tally, |name| {
        format!(
            "CREATE OR REPLACE TEMPORARY VIEW {name} USING parquet OPTIONS (path '{name}.parquet');"
        )
    })
}

fn type_name(kind: &DataType) -> &'static str {
    match kind {
        DataType::Boolean => "BOOLEAN",
        DataType::Int32 => "INT",
        DataType::Int64 => "BIGINT",
        DataType::Float64 => "DOUBLE",
        DataType::Binary => "BINARY",
        DataType::Date32 => "DATE",
        DataType::Timestamp(..) => "TIMESTAMP",
        DataType::List(item) if *item.data_type() == DataType::Int64 => "ARRAY<BIGINT>",
        DataType::List(_) => "ARRAY<STRING>",
        _ => "STRING",
    }
}

fn identifier(name: &str) -> String {
    super::doubled(name, '`')
}

fn literal(text: &str) -> String {
    escaped(text, '\'')
}

/// A path in which Hadoop expands no pattern.
fn without_patterns(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for letter in path.chars() {
        if "*?[]{}\\".contains(letter) {
            text.push('\\');
        }
        text.push(letter);
    }
    text
}
