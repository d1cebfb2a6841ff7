//! A Python program that opens the tables of a lake or trace in Polars.
//!
//! ```text
//! context.register("samples", _scan("samples", {"time": polars.Int64, …}))
//! ```
//! A lake's columns are given: otherwise Polars has those of the first file only.

use std::io::Write;

use anyhow::Result;
use arrow_schema::DataType;

use super::super::{Exporter, Output, Tally};
use super::{Catalog, key_type, python};

/// `--to ddl=polars`
pub(in super::super) const EXPORTER: Exporter = Exporter {
    name: "ddl=polars",
    about: "a Python program that opens the tables of a lake or trace in Polars",
    output: Output::Reference {
        write: |source, out, tally| write(&Catalog::of_trace(source)?, out, tally),
        write_lake: write,
    },
};

fn write(catalog: &Catalog, out: &mut dyn Write, tally: &mut Tally) -> Result<()> {
    let keys = catalog.keys().iter();
    let keys = keys.map(|key| Ok(format!("{}: {}", python(key)?, type_name(&key_type(key)))));
    let keys: Vec<String> = keys.collect::<Result<_>>()?;
    let options = match catalog.is_lake() {
        true => format!(
            "schema=columns, missing_columns=\"insert\", extra_columns=\"ignore\", hive_partitioning=True, hive_schema={{{}}}",
            keys.join(", ")
        ),
        false => "hive_partitioning=False".to_owned(),
    };
    writeln!(
        out,
        "# {} for Polars: exec(open(FILE).read()), then context.execute(\"SELECT …\").collect().\n\
         # Addresses are the bits of a signed integer: unsigned_order(\"ip\") is an expression that sorts them.\n\
         import polars\n\
         \n\
         \n\
         def _scan(folder, columns):\n    \
             return polars.scan_parquet({} + folder + \"/\", glob=False, {options})\n\
         \n\
         \n\
         def unsigned_order(column):\n    \
             return polars.col(column).reinterpret(signed=False)\n\
         \n\
         \n\
         context = polars.SQLContext()",
        catalog.subject(),
        python(&format!("{}/", catalog.root))?,
    )?;
    for table in &catalog.tables {
        let columns = table.columns.iter().map(|column| {
            let kind = type_name(column.kind.as_ref().unwrap_or(&DataType::Utf8));
            Ok(format!("{}: {kind}", python(&column.name)?))
        });
        let columns: Vec<String> = columns.collect::<Result<_>>()?;
        writeln!(
            out,
            "context.register({}, _scan({}, {{{}}}))",
            python(&table.name)?,
            python(&table.folder)?,
            columns.join(", ")
        )?;
    }
    catalog.finish(out, "#", 1, tally, |name| {
        format!("context.register(\"{name}\", polars.scan_parquet(\"{name}.parquet\"))")
    })
}

fn type_name(kind: &DataType) -> &'static str {
    match kind {
        DataType::Boolean => "polars.Boolean",
        DataType::Int32 => "polars.Int32",
        DataType::Int64 => "polars.Int64",
        DataType::Float64 => "polars.Float64",
        DataType::Binary => "polars.Binary",
        DataType::Date32 => "polars.Date",
        DataType::Timestamp(..) => "polars.Datetime(\"us\", \"UTC\")",
        DataType::List(item) if *item.data_type() == DataType::Int64 => "polars.List(polars.Int64)",
        DataType::List(_) => "polars.List(polars.String)",
        _ => "polars.String",
    }
}
