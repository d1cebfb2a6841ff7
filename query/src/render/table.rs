//! Aligned columns. The first rows determine the widths (`layout.rs`), so that a long result is streamed. Without a terminal,
//! everything is whole.

use std::borrow::Cow;
use std::io::Write;

use anyhow::Result;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::bars::{is_unicode, rebinned};
use super::cells::{GAP, cells};
use super::layout::{Column, Kind, arrange};
use super::people::SPARE;
use super::{Rows, is_colored, records};
use crate::text::{columns, cut, cut_path, cut_right, harmless, indented_name, wrapped};

/// Number of rows examined before the first is written.
const LOOKED_AT: usize = 2000;
/// SGR sequences for the names of columns (ECMA-48).
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";
pub(super) struct Table<'w> {
    out: &'w mut (dyn Write + Send),
    schema: SchemaRef,
    /// Width of the terminal, if there is one.
    terminal: Option<usize>,
    /// Cells that wait for the layout.
    waiting: Vec<Vec<String>>,
    layout: Option<Layout>,
    kinds: Vec<Kind>,
    /// The user's home directory and a slash, which texts show as `~/`.
    home: Option<String>,
}

/// How the rows are laid out.
enum Layout {
    /// Side by side: the places of the columns, and their widths.
    Columns(Vec<(usize, usize)>),
    /// Below each other, because the terminal is too narrow for the numbers; rows so far.
    Records(u64),
}

impl<'w> Table<'w> {
    pub(super) fn new(
        out: &'w mut (dyn Write + Send),
        schema: SchemaRef,
        terminal: Option<usize>,
    ) -> Table<'w> {
        let kinds = schema.fields().iter().map(Kind::of).collect();
        let home = std::env::var("HOME").ok().filter(|home| home.len() > 1);
        let home = home.map(|home| format!("{}/", home.trim_end_matches('/')));
        Table {
            out,
            schema,
            terminal,
            waiting: Vec::new(),
            layout: None,
            kinds,
            home: home.filter(|_| terminal.is_some()),
        }
    }

    /// Chooses the layout, and writes the waiting cells.
    fn settle(&mut self) -> Result<()> {
        if self.layout.is_some() {
            return Ok(());
        }
        let names: Vec<String> = self
            .schema
            .fields()
            .iter()
            .map(|field| harmless(field.name()).into_owned())
            .collect();
        let headings = self.kinds.iter().zip(&names);
        let mut measured: Vec<Column> = headings
            .map(|(&kind, name)| Column::new(kind, name))
            .collect();
        for row in &self.waiting {
            for (column, cell) in measured.iter_mut().zip(row) {
                column.add(cell);
            }
        }
        let shown = match self.terminal {
            Some(terminal) => arrange(&measured, &self.spares(), terminal),
            None => {
                let widths = measured.iter().map(|column| column.width);
                Some(widths.enumerate().collect())
            }
        };
        self.layout = Some(match shown {
            Some(shown) => {
                let is_shown = |place: usize| shown.iter().any(|&(known, _)| known == place);
                let omitted: Vec<&str> = (0..names.len())
                    .filter(|&place| !is_shown(place))
                    .map(|place| names[place].as_str())
                    .collect();
                if !omitted.is_empty() {
                    let note = format!(
                        "too narrow for {}; for all columns: | less -S",
                        omitted.join(", ")
                    );
                    for line in wrapped(&note, self.terminal.unwrap_or(usize::MAX)) {
                        say!("{line}");
                    }
                }
                let may_cut = self.terminal.is_some();
                let (bold, plain) = match may_cut && is_colored() {
                    true => (BOLD, PLAIN),
                    false => ("", ""),
                };
                write!(self.out, "{bold}")?;
                let heading = |kind: &Kind| match kind {
                    Kind::Number => Kind::Number,
                    Kind::Distribution
                    | Kind::Name
                    | Kind::Timeline
                    | Kind::Wrapped
                    | Kind::Path
                    | Kind::Function
                    | Kind::Text => Kind::Text,
                };
                let headings: Vec<Kind> = self.kinds.iter().map(heading).collect();
                write_row(&mut self.out, &names, &shown, &headings, may_cut)?;
                write!(self.out, "{plain}")?;
                let mut rule = vec![String::new(); names.len()];
                for &(place, width) in &shown {
                    rule[place] = "─".repeat(width);
                }
                write_row(&mut self.out, &rule, &shown, &headings, false)?;
                Layout::Columns(shown)
            }
            None => Layout::Records(0),
        });
        for row in std::mem::take(&mut self.waiting) {
            self.row(&row)?;
        }
        Ok(())
    }

    /// Returns the places of the columns that can be omitted, the first one first.
    fn spares(&self) -> Vec<usize> {
        let fields = self.schema.fields().iter().enumerate();
        let mut spares: Vec<(u32, usize)> = fields
            .filter_map(|(place, field)| {
                let order = field.metadata().get(SPARE)?.parse().ok()?;
                Some((order, place))
            })
            .collect();
        spares.sort_unstable();
        spares.into_iter().map(|(_, place)| place).collect()
    }

    fn row(&mut self, cells: &[String]) -> Result<()> {
        match &mut self.layout {
            Some(Layout::Columns(shown)) => {
                let may_cut = self.terminal.is_some();
                write_row(&mut self.out, cells, shown, &self.kinds, may_cut)
            }
            Some(Layout::Records(count)) => {
                *count += 1;
                records::record(&mut self.out, &self.schema, self.terminal, *count, cells)
            }
            None => Ok(()),
        }
    }
}

impl Rows for Table<'_> {
    fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        for mut row in cells(batch, &self.schema)? {
            if let Some(home) = &self.home {
                for cell in &mut row {
                    if let Some(rest) = cell.strip_prefix(home.as_str()) {
                        *cell = format!("~/{rest}");
                    }
                }
            }
            if self.layout.is_some() {
                self.row(&row)?;
                continue;
            }
            self.waiting.push(row);
            if self.waiting.len() >= LOOKED_AT {
                self.settle()?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        if self.waiting.is_empty() && self.layout.is_none() && self.schema.fields().is_empty() {
            return Ok(());
        }
        self.settle()?;
        self.out.flush()?;
        Ok(())
    }
}

fn write_row(
    out: &mut dyn Write,
    cells: &[String],
    shown: &[(usize, usize)],
    kinds: &[Kind],
    may_cut: bool,
) -> Result<()> {
    // The lines of the columns that have several.
    let mut paragraphs: Vec<Vec<String>> = Vec::new();
    if may_cut {
        let wrap = |&(place, width): &(usize, usize)| match kinds[place] {
            Kind::Wrapped => wrapped(&cells[place], width),
            _ => Vec::new(),
        };
        paragraphs = shown.iter().map(wrap).collect();
    }
    let height = paragraphs.iter().map(Vec::len).max().unwrap_or(0).max(1);
    for number in 0..height {
        let mut line = String::new();
        for (index, &(place, width)) in shown.iter().enumerate() {
            if index > 0 {
                line.push_str(GAP);
            }
            let kind = kinds[place];
            let cell = match kind {
                Kind::Wrapped if may_cut => {
                    let lines = paragraphs.get(index);
                    let text = lines.and_then(|lines| lines.get(number));
                    text.map_or("", String::as_str).into()
                }
                _ if number > 0 => "".into(),
                _ if may_cut => cut_to(&cells[place], kind, width),
                _ => cells[place].as_str().into(),
            };
            let padding = width.saturating_sub(columns(&cell));
            if kind == Kind::Number {
                line.extend(std::iter::repeat_n(' ', padding));
            }
            line.push_str(&cell);
            if kind != Kind::Number && index + 1 < shown.len() {
                line.extend(std::iter::repeat_n(' ', padding));
            }
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        out.write_all(line.as_bytes())?;
    }
    Ok(())
}

/// Shortens a cell to the width of its column.
fn cut_to(cell: &str, kind: Kind, width: usize) -> Cow<'_, str> {
    match kind {
        Kind::Timeline => rebinned(cell, width, is_unicode()),
        Kind::Function => indented_name(cell, width),
        Kind::Name => cut_right(cell, width),
        Kind::Path | Kind::Text if cell.starts_with(['/', '~']) => cut_path(cell, width),
        Kind::Number | Kind::Distribution | Kind::Wrapped | Kind::Path | Kind::Text => {
            cut(cell, width)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timelines_get_longer_steps() {
        assert_eq!(rebinned("▁▁██  ", 3, true), "▁█ ");
        assert_eq!(rebinned("#.", 2, false), "#.");
    }

    #[test]
    fn descriptions_continue_below_themselves() {
        let cells = ["samples".to_owned(), "One sample of a counter.".to_owned()];
        let mut out = Vec::new();
        let kinds = [Kind::Name, Kind::Wrapped];
        write_row(&mut out, &cells, &[(0, 7), (1, 12)], &kinds, true).unwrap();
        let expected = "samples  One sample\n         of a\n         counter.\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn cells_keep_what_tells_them_apart() {
        assert_eq!(
            cut_to("a::b::execute_query", Kind::Function, 16),
            "…::execute_query"
        );
        assert_eq!(cut_to("  a::b::run", Kind::Function, 8), "  …::run");
        assert_eq!(cut_to("/usr/lib/libc.so.6", Kind::Path, 12), "/…/libc.so.6");
        assert_eq!(
            cut_to("kworker/u8:4-events", Kind::Name, 13),
            "kworker/u8:4…"
        );
    }

    #[test]
    fn a_narrow_terminal_gets_records() {
        use arrow::array::{ArrayRef, Int64Array, StringArray};
        let numbers =
            |value: i64| -> ArrayRef { std::sync::Arc::new(Int64Array::from(vec![value; 2])) };
        let batch = RecordBatch::try_from_iter([
            ("first_number", numbers(1_000_000_000_000)),
            ("second", numbers(-7)),
            (
                "name",
                std::sync::Arc::new(StringArray::from(vec!["a", "a name of some length"])),
            ),
        ])
        .unwrap();
        let written = |terminal: usize| {
            let mut out = Vec::new();
            let mut table = Table::new(&mut out, batch.schema(), Some(terminal));
            table.rows(&batch).unwrap();
            Box::new(table).finish().unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(
            written(60).starts_with(" first_number  second  name\n"),
            "{}",
            written(60)
        );
        let expected = "\
─[ 1 ]──────────────
first_number  1000000000000
second        -7
name          a
─[ 2 ]──────────────
first_number  1000000000000
second        -7
name          a name of some length
";
        assert_eq!(written(20), expected);
    }
}
