//! `--to ddl=ENGINE`: statements that create the tables of a lake, or of a trace directory, in another engine, over its Parquet files.
//!
//! ```text
//! lake, trace ─► Catalog: tables, folders, columns ─► duckdb, spark, clickhouse, datafusion, trino, polars, delta
//! ```
//! Names are those of perfquet-query. An event has its own name if that is unique, otherwise `SYSTEM_EVENT`; DuckDB also has `SYSTEM.EVENT`.
//! Views that an engine cannot have are listed in comments, with the command that writes their rows.

pub(super) mod clickhouse;
pub(super) mod datafusion;
pub(super) mod delta;
pub(super) mod duckdb;
mod duckdb_shared;
mod lake_of_duckdb;
pub(super) mod polars;
pub(super) mod spark;
mod summaries;
pub(super) mod trino;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use arrow_schema::{DataType, Field};
use perfquet_trace::lake::{Address, HEAD, Head, read};
use perfquet_trace::remote::is_url;
use perfquet_trace::store::Directory;
use perfquet_trace::tables;
use perfquet_views::VIEWS;

use super::lake::{DATE, TRACES, administration, published};
use super::source::Source;
use super::{Tally, printable};
use crate::misuse::misuse;

/// The tables that statements create.
pub(crate) struct Catalog {
    /// Absolute path of the lake or trace, or the URL of a lake in an object store.
    root: String,
    /// What perfquet-query opens.
    source: String,
    /// `None` for a trace.
    lake: Option<LakeKeys>,
    tables: Vec<CatalogTable>,
    /// Recorded events, if known, for the views that need them.
    present: Option<BTreeSet<String>>,
}

/// Keys in the paths of a lake, outermost first.
struct LakeKeys(Vec<String>);

struct CatalogTable {
    /// Its name in the engine.
    name: String,
    /// System and name of an event.
    event: Option<(String, String)>,
    /// Below the root.
    folder: String,
    /// Columns of the files of a lake; empty for a trace, whose files are asked.
    columns: Vec<CatalogColumn>,
}

struct CatalogColumn {
    name: String,
    /// `None` if it differs by file.
    kind: Option<DataType>,
}

/// Tables by folder, before they have names.
#[derive(Default)]
struct Folders(BTreeMap<String, (String, Vec<CatalogColumn>)>);

impl Folders {
    fn add(&mut self, folder: String, table: &str, fields: &[&Field]) {
        let (_, columns) = self
            .0
            .entry(folder)
            .or_insert_with(|| (table.to_owned(), Vec::new()));
        for field in fields {
            match columns.iter_mut().find(|known| known.name == *field.name()) {
                Some(known) if known.kind.as_ref() == Some(field.data_type()) => {}
                Some(known) => known.kind = None,
                None => columns.push(CatalogColumn {
                    name: field.name().clone(),
                    kind: Some(field.data_type().clone()),
                }),
            }
        }
    }

    fn named(self) -> Vec<CatalogTable> {
        let event_of = |table: &str| {
            let (system, event) = table.strip_prefix("events/")?.split_once('/')?;
            Some((system.to_owned(), event.to_owned()))
        };
        let mut names: BTreeMap<String, u64> = BTreeMap::new();
        let fixed = tables::declared();
        let reserved = fixed.iter().map(|schema| schema.name.as_str());
        let views = VIEWS.iter().map(|view| view.name.as_str());
        for name in reserved.chain(views).chain([TRACES]) {
            names.insert(name.to_lowercase(), 1);
        }
        for (table, _) in self.0.values() {
            if let Some((_, event)) = event_of(table) {
                *names.entry(event.to_lowercase()).or_default() += 1;
            }
        }
        let mut taken = BTreeSet::new();
        let tables = self.0.into_iter().map(|(folder, (table, columns))| {
            let event = event_of(&table);
            let mut name = match &event {
                None => table,
                Some((_, event)) if names.get(&event.to_lowercase()) == Some(&1) => event.clone(),
                Some((system, event)) => format!("{system}_{event}"),
            };
            // Engines ignore case.
            while !taken.insert(name.to_lowercase())
                || (event.is_some() && names.get(&name.to_lowercase()).is_some_and(|n| *n > 1))
            {
                name.push('_');
            }
            CatalogTable {
                name,
                event,
                folder,
                columns,
            }
        });
        tables.collect()
    }
}

impl Catalog {
    /// The tables of all traces of a lake. Also returns notes about traces that are left out.
    pub(crate) fn of_lake(address: &Address) -> Result<(Catalog, Vec<String>)> {
        let url = address.root().to_str().filter(|root| is_url(root));
        let Some(url) = url.map(|url| url.trim_end_matches('/')) else {
            // Fails if there is no lake.
            address.lake()?;
            return Catalog::read(address, absolute(address.root())?);
        };
        let passing = administration(url)?;
        let copy = format!("lake:{}", absolute(&passing.lake())?);
        let copy = Address::parse(Path::new(&copy), |_, _| true).context("an address")??;
        let (catalog, notes) = Catalog::read(&copy, absolute(copy.root())?)?;
        let notes = notes.iter().map(|note| note.replace(&catalog.root, url));
        let catalog = Catalog {
            source: format!("lake:{url}"),
            root: url.to_owned(),
            ..catalog
        };
        Ok((catalog, notes.collect()))
    }

    /// The tables by the records and manifests in a directory.
    fn read(address: &Address, root: String) -> Result<(Catalog, Vec<String>)> {
        let mut folders = Folders::default();
        let head: Option<Head> = read(Path::new(&root), HEAD)?;
        let keys = head.map(|head| head.partition).unwrap_or_default();
        let mut failed = Ok(());
        let notes = address.open(|record, trace| {
            let mut add = || -> Result<()> {
                for (table, folder, schema) in published(&record, &trace, &keys)? {
                    let fields: Vec<&Field> = schema.fields().iter().map(AsRef::as_ref).collect();
                    folders.add(folder, &table, &fields);
                }
                Ok(())
            };
            if failed.is_ok() {
                failed = add().with_context(|| format!("{root}: {}", record.trace));
            }
        })?;
        failed?;
        let catalog = Catalog {
            source: format!("lake:{root}"),
            root,
            lake: Some(LakeKeys(keys)),
            tables: folders.named(),
            present: None,
        };
        Ok((catalog, notes))
    }

    /// The tables with rows of a trace directory.
    fn of_trace(source: &Source<'_>) -> Result<Catalog> {
        let trace = source.trace;
        let root = absolute(trace.path())?;
        let mut folders = Folders::default();
        let mut present = BTreeSet::new();
        for (table, entry) in trace.tables().filter(|(_, entry)| entry.rows() > 0) {
            let parts = entry.parts.iter().map(|part| part.file.as_str());
            folders.add(folder_of(trace, parts.collect())?, table, &[]);
            present.insert(table.to_owned());
        }
        for event in source.event_types() {
            present.insert(format!("{}:{}", event.system, event.name));
        }
        Ok(Catalog {
            source: root.clone(),
            root,
            lake: None,
            tables: folders.named(),
            present: Some(present),
        })
    }

    /// A trace has unsigned integers, which this engine lacks.
    fn lake_only(&self, engine: &str) -> Result<&LakeKeys> {
        let refused = || {
            misuse(
                format!(
                    "{}: --to ddl={engine}: expected a lake: files of a trace have unsigned integers, which this engine lacks",
                    self.source
                ),
                "publish it first with: perfquet-convert TRACE --to lake -o DIR, then use lake:DIR",
            )
        };
        self.lake.as_ref().ok_or_else(refused)
    }

    fn is_lake(&self) -> bool {
        self.lake.is_some()
    }

    /// The keys in the paths; none for a trace.
    fn keys(&self) -> &[String] {
        self.lake.as_ref().map_or(&[], |keys| &keys.0)
    }

    /// The directory of a table.
    fn folder(&self, table: &CatalogTable) -> String {
        format!("{}/{}", self.root, table.folder)
    }

    /// Whether the lake is in an object store.
    fn is_remote(&self) -> bool {
        is_url(&self.root)
    }

    /// The URL of the directory of a table.
    fn url(&self, table: &CatalogTable) -> String {
        match self.is_remote() {
            true => format!("{}/{}", self.root, encoded(&table.folder)),
            false => format!("file://{}", encoded(&self.folder(table))),
        }
    }

    /// `The lake /srv/lake`, for a comment.
    fn subject(&self) -> String {
        let kind = if self.is_lake() { "lake" } else { "trace" };
        format!("The {kind} {}", printable(&self.root))
    }

    /// Columns of a table of a lake with their types in an engine, then its keys.
    fn columns<'c>(
        &'c self,
        table: &'c CatalogTable,
        type_name: fn(&DataType) -> &'static str,
    ) -> impl Iterator<Item = (&'c str, &'static str)> {
        let columns = table.columns.iter().map(move |column| {
            let kind = column.kind.as_ref().unwrap_or(&DataType::Utf8);
            (column.name.as_str(), type_name(kind))
        });
        let keys = self.keys().iter();
        columns.chain(keys.map(move |key| (key.as_str(), type_name(&key_type(key)))))
    }

    /// Counts the tables and functions that were written, and adds the comments at the end. `open` is the statement that opens a file with
    /// the rows of a view.
    fn finish(
        &self,
        out: &mut dyn Write,
        comment: &str,
        functions: u64,
        tally: &mut Tally,
        open: fn(&str) -> String,
    ) -> Result<()> {
        tally.wrote("table", self.tables.len() as u64);
        if functions > 0 {
            tally.wrote("function", functions);
        }
        self.mixed(out, comment, tally)?;
        summaries::write(self, out, comment)?;
        self.views(out, comment, tally, open)
    }

    /// Comments about columns that this engine cannot read in all files.
    fn mixed(&self, out: &mut dyn Write, comment: &str, tally: &mut Tally) -> Result<()> {
        for table in &self.tables {
            for column in table.columns.iter().filter(|column| column.kind.is_none()) {
                let sentence = format!(
                    "{}.{}: its type differs by file, and reading it may fail",
                    printable(&table.name),
                    printable(&column.name)
                );
                writeln!(out, "{comment} {sentence}")?;
                tally.note(sentence);
            }
        }
        Ok(())
    }

    /// Comments with the commands that write the rows of perfquet-query's views.
    fn views(
        &self,
        out: &mut dyn Write,
        comment: &str,
        tally: &mut Tally,
        open: fn(&str) -> String,
    ) -> Result<()> {
        writeln!(
            out,
            "{comment} Views of perfquet-query are not created. These commands write their rows, if their events were recorded:"
        )?;
        let present = self.present.as_ref();
        let present: Option<Vec<&str>> =
            present.map(|present| present.iter().map(String::as_str).collect());
        let mut listed = 0;
        for view in VIEWS.iter() {
            let missing = present
                .as_ref()
                .and_then(|present| view.missing_events(present));
            if let Some(missing) = missing {
                let usage = view.usage();
                writeln!(out, "{comment}   {usage}: not recorded: {missing}")?;
                continue;
            }
            listed += 1;
            let name = &view.name;
            writeln!(
                out,
                "{comment}   perfquet-query sql {} 'SELECT * FROM {}' --format parquet > {name}.parquet",
                printable(&shell_word(&self.source)),
                view.usage(),
            )?;
            let statement = open(name);
            if !statement.is_empty() {
                writeln!(out, "{comment}     {statement}")?;
            }
        }
        tally.note(format!(
            "{listed} views of perfquet-query are not created: comments have the commands that write their rows"
        ));
        Ok(())
    }
}

/// The type of a key of a lake.
fn key_type(key: &str) -> DataType {
    match key == DATE {
        true => DataType::Date32,
        false => DataType::Utf8,
    }
}

fn absolute(path: &Path) -> Result<String> {
    let absolute = path
        .canonicalize()
        .with_context(|| format!("cannot open {}", path.display()))?;
    let text = absolute.to_str().map(str::to_owned);
    text.with_context(|| format!("{}: expected a path in UTF-8", path.display()))
}

/// The folder of a table of a trace, all of whose Parquet files are parts of the table.
fn folder_of(trace: &Directory, parts: BTreeSet<&str>) -> Result<String> {
    let folder = parts.iter().next().and_then(|part| part.rsplit_once('/'));
    let (folder, _) = folder.context("a part in a folder")?;
    let path = trace.path().join(folder);
    let failed = || format!("cannot open {}", path.display());
    let mut count = 0;
    for entry in std::fs::read_dir(&path).with_context(failed)? {
        let name = entry.with_context(failed)?.file_name();
        let name = name.to_string_lossy();
        if !name.ends_with(".parquet") || name.starts_with(['.', '_']) {
            continue;
        }
        count += 1;
        if !parts.contains(format!("{folder}/{name}").as_str()) {
            bail!(
                "{}/{name}: not a part of the trace, but in the directory of a table\nhint: --to ddl=duckdb names each file",
                path.display()
            );
        }
    }
    if count != parts.len() {
        bail!(
            "{}: expected {} parts, found {count}",
            path.display(),
            parts.len()
        );
    }
    Ok(folder.to_owned())
}

/// Text in `quote`s, with a backslash before these and backslashes.
fn escaped(text: &str, quote: char) -> String {
    let mut quoted = String::from(quote);
    for letter in text.chars() {
        if letter == quote || letter == '\\' {
            quoted.push('\\');
        }
        quoted.push(letter);
    }
    quoted.push(quote);
    quoted
}

/// Text in `quote`s, which are doubled inside.
fn doubled(text: &str, quote: char) -> String {
    let twice: String = [quote, quote].iter().collect();
    format!("{quote}{}{quote}", text.replace(quote, &twice))
}

/// `/srv/lake%20of%20x`
fn encoded(path: &str) -> String {
    let mut url = String::new();
    for byte in path.bytes() {
        match byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            true => url.push(char::from(byte)),
            false => url.push_str(&format!("%{byte:02X}")),
        }
    }
    url
}

/// Text in the quotes of Python.
fn python(text: &str) -> Result<String> {
    // JSON escapes what Python escapes, in the same way.
    Ok(serde_json::to_string(text)?)
}

/// A path for the shell, quoted if necessary.
fn shell_word(path: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+:@,=".contains(letter);
    match path.chars().all(is_plain) {
        true => path.to_owned(),
        false => format!("'{}'", path.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_events_are_unique_in_any_case() {
        let mut folders = Folders::default();
        for table in [
            "samples",
            "events/a/open",
            "events/b/Open",
            "events/c/samples",
            "events/d/off_cpu",
            "events/e/once",
            "events/f/a_open",
        ] {
            folders.add(table.to_owned(), table, &[]);
        }
        let tables = folders.named();
        let names: Vec<&str> = tables.iter().map(|table| table.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "a_open",
                "b_Open",
                "c_samples",
                "d_off_cpu",
                "once",
                "a_open_",
                "samples"
            ]
        );
    }

    #[test]
    fn types_that_differ_by_file_are_known() {
        let mut folders = Folders::default();
        let field = |kind| Field::new("x", kind, true);
        folders.add("t".to_owned(), "t", &[&field(DataType::Int64)]);
        folders.add("t".to_owned(), "t", &[&field(DataType::Int64)]);
        assert!(folders.0["t"].1[0].kind.is_some());
        folders.add("t".to_owned(), "t", &[&field(DataType::Utf8)]);
        assert_eq!(folders.0["t"].1[0].kind, None);
    }

    #[test]
    fn hostile_text_stays_inside_of_its_quotes() {
        assert_eq!(escaped("a'b\\c", '\''), r"'a\'b\\c'");
        assert_eq!(escaped("a`b", '`'), r"`a\`b`");
        assert_eq!(doubled("a\"b", '"'), "\"a\"\"b\"");
        assert_eq!(encoded("/a b/[é]?#'"), "/a%20b/%5B%C3%A9%5D%3F%23%27");
        assert_eq!(python("a\"\\\nb").unwrap(), r#""a\"\\\nb""#);
        assert_eq!(shell_word("/tmp/a.pqt"), "/tmp/a.pqt");
        assert_eq!(shell_word("/tmp/it's"), "'/tmp/it'\\''s'");
    }
}
