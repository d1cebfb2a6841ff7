//! Views and functions of ClickHouse, over the files of a lake or trace.
//!
//! ```text
//! CREATE OR REPLACE VIEW `samples` AS SELECT * FROM file('/srv/lake/samples/**/*.parquet', Parquet, '`time` Nullable(Int64), …')
//! ```
//! Types are given: from values such as `host=001`, ClickHouse would take `host` for a number, and reject `host=h002`.

use std::io::Write;

use anyhow::Result;
use arrow_schema::DataType;

use super::super::lake::{DATE, HOST};
use super::super::{Exporter, Output, Tally};
use super::{Catalog, escaped};
use crate::misuse::misuse;

/// `--to ddl=clickhouse`
pub(in super::super) const EXPORTER: Exporter = Exporter {
    name: "ddl=clickhouse",
    about: "statements that create the tables of a lake or trace in ClickHouse",
    output: Output::Reference {
        write: |source, out, tally| write(&Catalog::of_trace(source)?, out, tally),
        write_lake: write,
    },
};

fn write(catalog: &Catalog, out: &mut dyn Write, tally: &mut Tally) -> Result<()> {
    if catalog.root.contains(['*', '?', '{', '}']) {
        return Err(misuse(
            format!(
                "{}: --to ddl=clickhouse: expected a path without *, ?, {{ and }}, which ClickHouse cannot quote",
                catalog.root
            ),
            "use a symbolic link in another directory",
        ));
    }
    writeln!(
        out,
        "-- {} for ClickHouse: clickhouse local --queries-file FILE, or chDB. A server reads only files below its user_files_path.\n\
         -- Addresses are the bits of a signed integer: address(x) formats them, ORDER BY unsigned_order(x) sorts them.",
        catalog.subject()
    )?;
    for table in &catalog.tables {
        let files = match catalog.is_lake() {
            true => "**/*.parquet",
            false => "*.parquet",
        };
        let (function, format) = match catalog.is_remote() {
            true => ("s3", "'Parquet'"),
            false => ("file", "Parquet"),
        };
        let path = literal(&format!("{}/{files}", place(&catalog.folder(table))?));
        let name = identifier(&table.name);
        if !catalog.is_lake() {
            writeln!(
                out,
                "CREATE OR REPLACE VIEW {name} AS SELECT * FROM file({path}, Parquet) SETTINGS schema_inference_mode = 'union', use_hive_partitioning = 0;"
            )?;
            continue;
        }
        let columns = catalog.columns(table, type_name);
        let columns = columns.map(|(name, kind)| {
            // Values of paths are never NULL.
            let kind = match (catalog.keys().iter().any(|key| key == name), name) {
                (true, DATE) => "Date",
                (true, _) => "String",
                (false, _) => kind,
            };
            format!("{} {kind}", identifier(name))
        });
        let columns: Vec<String> = columns.collect();
        let columns = literal(&columns.join(", "));
        let rows = match catalog.keys().iter().any(|key| key == HOST) {
            true => format!("* REPLACE (decodeURLComponent({HOST}) AS {HOST})"),
            false => "*".to_owned(),
        };
        let settings = match catalog.keys().is_empty() {
            true => "0",
            false => "1",
        };
        writeln!(
            out,
            "CREATE OR REPLACE VIEW {name} AS SELECT {rows} FROM {function}({path}, {format}, {columns}) SETTINGS use_hive_partitioning = {settings};"
        )?;
    }
    writeln!(
        out,
        "CREATE OR REPLACE FUNCTION address AS (x) -> concat('0x', replaceRegexpOne(lower(hex(x)), '^0(.)', '\\\\1'));\n\
         CREATE OR REPLACE FUNCTION unsigned_order AS (x) -> reinterpretAsUInt64(x);"
    )?;
    catalog.finish(out, "--", 2, tally, |name| {
        format!("CREATE OR REPLACE VIEW {name} AS SELECT * FROM file('{name}.parquet', Parquet);")
    })
}

/// A path, or what ClickHouse takes for the URL of a store. It knows Amazon's and Google's addresses; another one is that of the environment.
fn place(folder: &str) -> Result<String> {
    let Some((scheme, rest)) = folder.split_once("://") else {
        return Ok(folder.to_owned());
    };
    let endpoint = std::env::var("AWS_ENDPOINT_URL").ok();
    match (scheme, endpoint.filter(|endpoint| !endpoint.is_empty())) {
        ("s3" | "s3a", Some(endpoint)) => Ok(format!("{}/{rest}", endpoint.trim_end_matches('/'))),
        ("s3" | "s3a", None) => Ok(format!("s3://{rest}")),
        ("gs", _) => Ok(folder.to_owned()),
        _ => Err(misuse(
            format!("{folder}: --to ddl=clickhouse: expected s3:// or gs://"),
            "use azureBlobStorage(…) in statements of your own",
        )),
    }
}

fn type_name(kind: &DataType) -> &'static str {
    match kind {
        DataType::Boolean => "Nullable(Bool)",
        DataType::Int32 => "Nullable(Int32)",
        DataType::Int64 => "Nullable(Int64)",
        DataType::Float64 => "Nullable(Float64)",
        DataType::Date32 => "Nullable(Date)",
        DataType::Timestamp(..) => "Nullable(DateTime64(6, 'UTC'))",
        DataType::List(item) if *item.data_type() == DataType::Int64 => "Array(Nullable(Int64))",
        DataType::List(_) => "Array(Nullable(String))",
        _ => "Nullable(String)",
    }
}

fn identifier(name: &str) -> String {
    escaped(name, '`')
}

fn literal(text: &str) -> String {
    escaped(text, '\'')
}
