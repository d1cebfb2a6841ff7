//! Aligned columns. The first rows determine the widths, so that a long result is streamed.
//!
//! What is wider than the terminal loses, in this order: steps of timelines, the end columns of the last text, the columns
//! that a report can spare, columns of other texts. Numbers and distributions are never cut. Without a terminal, everything
//! is whole.

use std::io::Write;

use anyhow::Result;
use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, SchemaRef};

use super::bars::{is_unicode, rebinned};
use super::cells::{GAP, cells};
use super::people::{SPARE, TERMINAL};
use super::{Rows, is_colored, records};
use crate::text::{columns, cut, cut_path, harmless, is_number};

/// Number of rows examined before the first is written.
const LOOKED_AT: usize = 2000;
/// SGR sequences for the names of columns (ECMA-48).
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";
/// Minimum width to which a column is cut.
const NARROWEST: usize = 8;
/// Minimum width to which the last text is cut before others are: a file name, the start of a sentence.
const LAST_TEXT: usize = 24;
/// Columns that can be spared are omitted before names of up to this width are cut.
const NAME: usize = 40;

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

/// How a column may become narrower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Never; right-aligned. A number that lost a digit would be another number.
    Number,
    /// Never; a distribution, whose columns have a scale.
    Distribution,
    /// By longer steps.
    Timeline,
    /// By an ellipsis.
    Text,
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
        let kind = |field: &FieldRef| match field.metadata().get(TERMINAL).map(String::as_str) {
            _ if is_number(field.data_type()) => Kind::Number,
            Some("bars") => Kind::Distribution,
            Some("shares") => Kind::Timeline,
            _ => Kind::Text,
        };
        let kinds = schema.fields().iter().map(kind).collect();
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
        let mut widths: Vec<usize> = names.iter().map(|name| columns(name)).collect();
        for row in &self.waiting {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(columns(cell));
            }
        }
        let shown = match self.terminal {
            Some(terminal) => arrange(&widths, &self.kinds, &self.spares(), terminal),
            None => Some(widths.iter().copied().enumerate().collect()),
        };
        self.layout = Some(match shown {
            Some(shown) => {
                let is_shown = |place: usize| shown.iter().any(|&(known, _)| known == place);
                let omitted: Vec<&str> = (0..names.len())
                    .filter(|&place| !is_shown(place))
                    .map(|place| names[place].as_str())
                    .collect();
                if !omitted.is_empty() {
                    say!(
                        "too narrow for {}; for all columns: | less -S",
                        omitted.join(", ")
                    );
                }
                let may_cut = self.terminal.is_some();
                let (bold, plain) = match may_cut && is_colored() {
                    true => (BOLD, PLAIN),
                    false => ("", ""),
                };
                write!(self.out, "{bold}")?;
                let heading = |kind: &Kind| match kind {
                    Kind::Number => Kind::Number,
                    Kind::Distribution | Kind::Timeline | Kind::Text => Kind::Text,
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

/// Chooses the columns and their widths; `None` if no row fits into the terminal. `spares` are the places of columns that can
/// be omitted, the first one first.
fn arrange(
    widths: &[usize],
    kinds: &[Kind],
    spares: &[usize],
    terminal: usize,
) -> Option<Vec<(usize, usize)>> {
    let attempt = |omitted: &[usize], least: usize| {
        let places = (0..widths.len()).filter(|place| !omitted.contains(place));
        let mut shown: Vec<(usize, usize)> = places.map(|place| (place, widths[place])).collect();
        fit(&mut shown, kinds, least, terminal).then_some(shown)
    };
    let mut omissions = (0..=spares.len()).map(|count| &spares[..count]);
    omissions
        .find_map(|omitted| attempt(omitted, NAME))
        .or_else(|| attempt(spares, NARROWEST))
}

/// Narrows timelines, then the last text, then the widest texts to at least `least` columns, until a row fits into the terminal;
/// `false` if it cannot.
fn fit(shown: &mut [(usize, usize)], kinds: &[Kind], least: usize, terminal: usize) -> bool {
    let gaps = GAP.len() * shown.len().saturating_sub(1);
    let excess = |shown: &[(usize, usize)]| {
        let used: usize = shown.iter().map(|(_, width)| width).sum::<usize>() + gaps;
        used.saturating_sub(terminal)
    };
    let texts = shown
        .iter()
        .filter(|(place, _)| kinds[*place] == Kind::Text);
    let last_text = texts.clone().next_back().map(|(place, _)| *place);
    let has_several = texts.count() > 1;
    for (narrow, least) in [
        (Kind::Timeline, NARROWEST),
        (Kind::Text, LAST_TEXT.min(least)),
    ] {
        let rest = excess(shown);
        let mut of_kind = shown.iter_mut().rev().filter(|(place, _)| {
            kinds[*place] == narrow
                && (narrow == Kind::Timeline || has_several && Some(*place) == last_text)
        });
        if let Some((_, width)) = of_kind.next() {
            *width -= rest.min(width.saturating_sub(least));
        }
    }
    loop {
        let excess = excess(shown);
        if excess == 0 {
            return true;
        }
        let texts = shown
            .iter_mut()
            .filter(|(place, width)| kinds[*place] == Kind::Text && *width > least);
        let Some((_, widest)) = texts.max_by_key(|(_, width)| *width) else {
            return false;
        };
        // In small steps, so that two wide columns share the loss.
        *widest -= excess.min((*widest - least).div_ceil(4));
    }
}

fn write_row(
    out: &mut dyn Write,
    cells: &[String],
    shown: &[(usize, usize)],
    kinds: &[Kind],
    may_cut: bool,
) -> Result<()> {
    let mut line = String::new();
    for (index, &(place, width)) in shown.iter().enumerate() {
        if index > 0 {
            line.push_str(GAP);
        }
        let cell = cells[place].as_str();
        let right = kinds[place] == Kind::Number;
        let cell = match kinds[place] {
            _ if !may_cut => cell.into(),
            Kind::Timeline => rebinned(cell, width, is_unicode()),
            Kind::Text if cell.starts_with(['/', '~']) => cut_path(cell, width),
            Kind::Number | Kind::Distribution | Kind::Text => cut(cell, width),
        };
        let padding = width.saturating_sub(columns(&cell));
        if right {
            line.extend(std::iter::repeat_n(' ', padding));
        }
        line.push_str(&cell);
        if !right && index + 1 < shown.len() {
            line.extend(std::iter::repeat_n(' ', padding));
        }
    }
    line.truncate(line.trim_end().len());
    line.push('\n');
    out.write_all(line.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arranged(widths: &[usize], kinds: &[Kind], spares: &[usize], terminal: usize) -> String {
        let shown = arrange(widths, kinds, spares, terminal);
        let shown = shown.map(|shown| {
            let columns = shown
                .iter()
                .map(|(place, width)| format!("{place}:{width}"));
            columns.collect::<Vec<_>>().join(" ")
        });
        shown.unwrap_or_else(|| "records".to_owned())
    }

    #[test]
    fn the_last_text_is_cut_before_names() {
        use Kind::{Number, Text};
        assert_eq!(
            arranged(&[40, 6, 90], &[Text, Number, Text], &[], 80),
            "0:40 1:6 2:30"
        );
        assert_eq!(
            arranged(&[60, 6, 60], &[Text, Number, Text], &[], 80),
            "0:46 1:6 2:24"
        );
        assert_eq!(arranged(&[60, 6], &[Text, Number], &[], 40), "0:32 1:6");
    }

    #[test]
    fn numbers_and_distributions_are_never_cut() {
        use Kind::{Distribution, Number, Text};
        assert_eq!(arranged(&[20; 40], &[Text; 40], &[], 80), "records");
        assert_eq!(arranged(&[30; 3], &[Number; 3], &[], 80), "records");
        assert_eq!(
            arranged(&[30; 3], &[Distribution, Number, Text], &[], 80),
            "0:30 1:30 2:16"
        );
    }

    #[test]
    fn spare_columns_go_before_names_are_cut() {
        use Kind::{Distribution, Number, Text};
        let widths = [30, 10, 10, 10, 20];
        let kinds = [Text, Number, Number, Number, Distribution];
        assert_eq!(
            arranged(&widths, &kinds, &[2, 4], 100),
            "0:30 1:10 2:10 3:10 4:20"
        );
        assert_eq!(
            arranged(&widths, &kinds, &[2, 4], 80),
            "0:30 1:10 3:10 4:20"
        );
        assert_eq!(arranged(&widths, &kinds, &[2, 4], 60), "0:30 1:10 3:10");
        assert_eq!(arranged(&widths, &kinds, &[2, 4], 40), "0:16 1:10 3:10");
        assert_eq!(arranged(&widths, &kinds, &[2, 4], 20), "records");
    }

    #[test]
    fn timelines_get_longer_steps() {
        use Kind::{Text, Timeline};
        assert_eq!(
            arranged(&[20, 100], &[Text, Timeline], &[], 80),
            "0:20 1:58"
        );
        assert_eq!(rebinned("▁▁██  ", 3, true), "▁█ ");
        assert_eq!(rebinned("#.", 2, false), "#.");
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
