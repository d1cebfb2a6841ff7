//! External tables of DataFusion, and of Ballista, over the files of a lake or trace.
//!
//! ```text
//! CREATE OR REPLACE EXTERNAL TABLE "samples" STORED AS PARQUET PARTITIONED BY (date, host) LOCATION 'file:///srv/lake/samples/';
//! ```
//! DataFusion unites the columns of the files. A URL has no patterns, unlike a path.

use std::io::Write;

use anyhow::Result;

use super::super::{Exporter, Output, Tally};
use super::{Catalog, doubled};

/// `--to ddl=datafusion`
pub(in super::super) const EXPORTER: Exporter = Exporter {
    name: "ddl=datafusion",
    about: "statements that create the tables of a lake or trace in DataFusion",
    output: Output::Reference {
        write: |source, out, tally| write(&Catalog::of_trace(source)?, out, tally),
        write_lake: write,
    },
};

fn write(catalog: &Catalog, out: &mut dyn Write, tally: &mut Tally) -> Result<()> {
    writeln!(
        out,
        "-- {} for DataFusion: datafusion-cli -f FILE. Create tables again when columns are added.\n\
         -- Addresses are the bits of a signed integer. DataFusion's SQL has no functions of users; for an address ip:\n\
         --   '0x' || to_hex(ip)                             formats it\n\
         --   ORDER BY ip ^ (-9223372036854775807 - 1)       sorts by it",
        catalog.subject()
    )?;
    for table in &catalog.tables {
        // Of date and host, which need no quotes; DataFusion would take these for a part of the name.
        let keys = match catalog.keys() {
            [] => String::new(),
            keys => format!(" PARTITIONED BY ({})", keys.join(", ")),
        };
        writeln!(
            out,
            "CREATE OR REPLACE EXTERNAL TABLE {} STORED AS PARQUET{keys} LOCATION '{}/';",
            doubled(&table.name, '"'),
            catalog.url(table),
        )?;
    }
    catalog.finish(out, "--", 0, tally, |name| {
        format!(
            "CREATE OR REPLACE EXTERNAL TABLE {name} STORED AS PARQUET LOCATION '{name}.parquet';"
        )
    })
}
