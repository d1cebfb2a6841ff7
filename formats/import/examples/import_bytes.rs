//! Reads a trace of any format into memory, and prints its tables as Arrow sees them.
//!
//! ```text
//! cargo run -p perfquet-import --example import_bytes FILE
//! ```

use std::io::Write as _;

use perfquet_import::Importer;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("expected a file")?;
    let bytes = std::fs::read(&path)?;
    let imported = Importer::default().import_bytes(&path.to_string_lossy(), &bytes)?;
    let mut out = std::io::stdout().lock();
    for table in imported.tables() {
        let mut rows = 0;
        let mut columns = Vec::new();
        for batch in imported.read(&table.name)? {
            let batch = batch?;
            rows += batch.num_rows();
            columns = batch.schema().fields().iter().cloned().collect();
        }
        writeln!(out, "{}: {rows} rows", table.name)?;
        for field in columns {
            writeln!(out, "  {} {}", field.name(), field.data_type())?;
        }
    }
    Ok(())
}
