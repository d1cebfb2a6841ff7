//! The layout of a table: which columns a terminal shows, and how wide.
//!
//! What is wider than the terminal loses, in this order: steps of timelines, lines of descriptions, directories of paths, the end
//! columns of the last text, modules at the front of function names, the columns that a report can spare, columns of other texts.
//! Numbers, distributions, and names that are typed into other commands are never cut.

use arrow::datatypes::FieldRef;

use super::cells::GAP;
use super::people::TERMINAL;
use crate::text::{columns, is_number, shortest};

/// Minimum width to which a column is cut.
const NARROWEST: usize = 8;
/// Minimum width to which the last text is cut before others are: a file name, the start of a sentence.
const LAST_TEXT: usize = 24;
/// Columns that can be spared are omitted before texts of up to this width are cut.
const TEXT: usize = 40;
/// Columns that can be spared are omitted before the own names of functions of up to this width are cut.
const FUNCTION: usize = 48;
/// Minimum widths of descriptions before and after columns were omitted.
const WRAPPED: [usize; 2] = [32, 12];
/// Columns that can be spared are omitted before the indentation of functions is cut to this width.
const INDENTATION: usize = 12;
/// Minimum width of a function's name if nothing else can be omitted.
const SHORT_FUNCTION: usize = 12;

/// Columns with names of functions.
const FUNCTIONS: [&str; 8] = [
    "function",
    "caller",
    "callee",
    "slowest_child",
    "reason",
    "symbol",
    "leaf",
    "why",
];
/// Columns with paths.
const PATHS: [&str; 3] = ["module", "path", "file"];
/// Columns with what is typed into other commands.
const NAMES: [&str; 28] = [
    "action",
    "address",
    "arch",
    "clock",
    "column",
    "comm",
    "device",
    "error",
    "event",
    "host",
    "kind",
    "lock",
    "name",
    "next_comm",
    "op",
    "owner_comm",
    "prev_comm",
    "process",
    "severity",
    "state",
    "syscall",
    "system",
    "table",
    "thread",
    "type",
    "unit",
    "waker_comm",
    "waker_context",
];

/// How a column may become narrower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Never; right-aligned. A number that lost a digit would be another number.
    Number,
    /// Never; a distribution, whose columns have a scale.
    Distribution,
    /// Never: what is typed into other commands.
    Name,
    /// By longer steps.
    Timeline,
    /// By more lines.
    Wrapped,
    /// By its directories.
    Path,
    /// By the modules in front of it.
    Function,
    /// By an ellipsis.
    Text,
}

impl Kind {
    pub(super) fn of(field: &FieldRef) -> Kind {
        let name = field.name().as_str();
        match field.metadata().get(TERMINAL).map(String::as_str) {
            _ if is_number(field.data_type()) => Kind::Number,
            Some("bars") => Kind::Distribution,
            Some("shares") => Kind::Timeline,
            Some("wrapped") => Kind::Wrapped,
            _ if NAMES.contains(&name) => Kind::Name,
            _ if PATHS.contains(&name) => Kind::Path,
            _ if FUNCTIONS.contains(&name) => Kind::Function,
            _ => Kind::Text,
        }
    }
}

/// A column before the layout.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub(super) kind: Kind,
    /// Width of the widest cell.
    pub(super) width: usize,
    /// Width of the widest cell without what can be missed: modules of functions, directories of paths, work of kernel threads.
    pub(super) essence: usize,
}

impl Column {
    pub(super) fn new(kind: Kind, heading: &str) -> Column {
        let width = columns(heading);
        Column {
            kind,
            width,
            essence: width,
        }
    }

    pub(super) fn add(&mut self, cell: &str) {
        let width = columns(cell);
        self.width = self.width.max(width);
        let essence = match self.kind {
            Kind::Function => {
                let name = cell.trim_start_matches(' ');
                (cell.len() - name.len()).min(INDENTATION) + columns(shortest(name)) + 1
            }
            Kind::Path => cell
                .rfind('/')
                .map_or(width, |slash| columns(&cell[slash..]) + 1),
            Kind::Name => work_of_kernel_thread(cell).map_or(width, |name| columns(name) + 1),
            Kind::Number | Kind::Distribution | Kind::Timeline | Kind::Wrapped | Kind::Text => {
                width
            }
        };
        self.essence = self.essence.max(essence.min(width));
    }

    /// The minimum width, before or after everything else was omitted.
    fn least(&self, is_last_resort: bool) -> usize {
        let least = match (self.kind, is_last_resort) {
            (Kind::Number | Kind::Distribution, _) => self.width,
            (Kind::Name, _) => self.essence,
            (Kind::Timeline, _) => NARROWEST,
            (Kind::Wrapped, false) => WRAPPED[0],
            (Kind::Wrapped, true) => WRAPPED[1],
            (Kind::Path, false) => self.essence.min(LAST_TEXT),
            (Kind::Function, false) => self.essence.min(FUNCTION),
            (Kind::Function, true) => SHORT_FUNCTION,
            (Kind::Text, false) => TEXT,
            (Kind::Path | Kind::Text, true) => NARROWEST,
        };
        least.min(self.width)
    }
}

/// The name of a thread `kworker/u8:4-events_unbound` before its present work.
fn work_of_kernel_thread(name: &str) -> Option<&str> {
    let dash = name.find('-')?;
    name.starts_with("kworker/").then(|| &name[..dash])
}

/// Chooses the columns and their widths; `None` if no row fits into the terminal. `spares` are the places of columns that can
/// be omitted, the first one first.
pub(super) fn arrange(
    columns: &[Column],
    spares: &[usize],
    terminal: usize,
) -> Option<Vec<(usize, usize)>> {
    let attempt = |omitted: &[usize], is_last_resort: bool| {
        let places = (0..columns.len()).filter(|place| !omitted.contains(place));
        let mut shown: Vec<(usize, usize)> =
            places.map(|place| (place, columns[place].width)).collect();
        fit(&mut shown, columns, is_last_resort, terminal).then_some(shown)
    };
    let mut omissions = (0..=spares.len()).map(|count| &spares[..count]);
    omissions
        .find_map(|omitted| attempt(omitted, false))
        .or_else(|| attempt(spares, true))
}

/// Narrows columns until a row fits into the terminal; `false` if it cannot.
fn fit(
    shown: &mut [(usize, usize)],
    columns: &[Column],
    is_last_resort: bool,
    terminal: usize,
) -> bool {
    let gaps = GAP.len() * shown.len().saturating_sub(1);
    let excess = |shown: &[(usize, usize)]| {
        let used: usize = shown.iter().map(|(_, width)| width).sum::<usize>() + gaps;
        used.saturating_sub(terminal)
    };
    let texts = shown
        .iter()
        .filter(|(place, _)| matches!(columns[*place].kind, Kind::Text | Kind::Function));
    let last_text = texts.clone().next_back().map(|(place, _)| *place);
    let has_several = texts.count() > 1;
    for narrow in [Kind::Timeline, Kind::Wrapped, Kind::Path, Kind::Text] {
        let rest = excess(shown);
        let mut of_kind = shown.iter_mut().rev().filter(|(place, _)| {
            columns[*place].kind == narrow
                && (narrow != Kind::Text || has_several && Some(*place) == last_text)
        });
        if let Some((place, width)) = of_kind.next() {
            let least = match columns[*place].least(is_last_resort) {
                least if narrow == Kind::Text => least.min(LAST_TEXT),
                least => least,
            };
            *width -= rest.min(width.saturating_sub(least));
        }
    }
    loop {
        let excess = excess(shown);
        if excess == 0 {
            return true;
        }
        let least = |place: usize| columns[place].least(is_last_resort);
        let narrower = shown
            .iter_mut()
            .filter(|(place, width)| *width > least(*place));
        let Some((place, widest)) = narrower.max_by_key(|(_, width)| *width) else {
            return false;
        };
        // In small steps, so that two wide columns share the loss.
        *widest -= excess.min((*widest - least(*place)).div_ceil(4));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arranged(columns: &[(Kind, usize)], spares: &[usize], terminal: usize) -> String {
        let columns: Vec<Column> = columns
            .iter()
            .map(|&(kind, width)| Column {
                kind,
                width,
                essence: width.min(20),
            })
            .collect();
        let shown = arrange(&columns, spares, terminal);
        let shown = shown.map(|shown| {
            let columns = shown
                .iter()
                .map(|(place, width)| format!("{place}:{width}"));
            columns.collect::<Vec<_>>().join(" ")
        });
        shown.unwrap_or_else(|| "records".to_owned())
    }

    #[test]
    fn the_last_text_is_cut_before_others() {
        use Kind::{Number, Text};
        assert_eq!(
            arranged(&[(Text, 40), (Number, 6), (Text, 90)], &[], 80),
            "0:40 1:6 2:30"
        );
        assert_eq!(
            arranged(&[(Text, 60), (Number, 6), (Text, 60)], &[], 80),
            "0:46 1:6 2:24"
        );
        assert_eq!(arranged(&[(Text, 60), (Number, 6)], &[], 40), "0:32 1:6");
    }

    #[test]
    fn numbers_names_and_distributions_are_never_cut() {
        use Kind::{Distribution, Name, Number, Text};
        assert_eq!(arranged(&[(Text, 20); 40], &[], 80), "records");
        assert_eq!(arranged(&[(Number, 30); 3], &[], 80), "records");
        assert_eq!(arranged(&[(Name, 20); 4], &[], 80), "records");
        assert_eq!(
            arranged(&[(Distribution, 30), (Number, 30), (Text, 30)], &[], 80),
            "0:30 1:30 2:16"
        );
        assert_eq!(
            arranged(&[(Name, 20), (Number, 30), (Text, 60)], &[], 80),
            "0:20 1:30 2:26"
        );
    }

    #[test]
    fn spare_columns_go_before_texts_are_cut() {
        use Kind::{Distribution, Number, Text};
        let columns = [
            (Text, 30),
            (Number, 10),
            (Number, 10),
            (Number, 10),
            (Distribution, 20),
        ];
        assert_eq!(arranged(&columns, &[2, 4], 100), "0:30 1:10 2:10 3:10 4:20");
        assert_eq!(arranged(&columns, &[2, 4], 80), "0:30 1:10 3:10 4:20");
        assert_eq!(arranged(&columns, &[2, 4], 60), "0:30 1:10 3:10");
        assert_eq!(arranged(&columns, &[2, 4], 40), "0:16 1:10 3:10");
        assert_eq!(arranged(&columns, &[2, 4], 20), "records");
    }

    #[test]
    fn functions_lose_modules_and_paths_directories_before_columns_go() {
        use Kind::{Function, Number, Path};
        let columns = [(Number, 12), (Number, 10), (Function, 60), (Path, 40)];
        assert_eq!(arranged(&columns, &[1], 130), "0:12 1:10 2:60 3:40");
        assert_eq!(arranged(&columns, &[1], 110), "0:12 1:10 2:60 3:22");
        assert_eq!(arranged(&columns, &[1], 70), "0:12 1:10 2:22 3:20");
        assert_eq!(arranged(&columns, &[1], 60), "0:12 2:24 3:20");
    }

    #[test]
    fn essence_of_cells() {
        let essence = |kind: Kind, cell: &str| {
            let mut column = Column::new(kind, "x");
            column.add(cell);
            (column.width, column.essence)
        };
        assert_eq!(essence(Kind::Function, "a::bb::execute"), (14, 10));
        assert_eq!(essence(Kind::Function, "vfs_read"), (8, 8));
        assert_eq!(essence(Kind::Function, "find (with hash, other)"), (23, 5));
        let deep = format!("{}vfs_read", " ".repeat(60));
        assert_eq!(essence(Kind::Function, &deep), (68, 21));
        assert_eq!(essence(Kind::Path, "/usr/lib/libc.so.6"), (18, 11));
        assert_eq!(essence(Kind::Path, "[kernel.kallsyms]"), (17, 17));
        assert_eq!(essence(Kind::Name, "kworker/u8:4-events_unbound"), (27, 13));
        assert_eq!(essence(Kind::Name, "web-server"), (10, 10));
    }

    #[test]
    fn descriptions_get_more_lines_before_columns_go() {
        use Kind::{Name, Number, Wrapped};
        let columns = [(Name, 20), (Number, 6), (Number, 8), (Wrapped, 70)];
        assert_eq!(arranged(&columns, &[2, 1], 120), "0:20 1:6 2:8 3:70");
        assert_eq!(arranged(&columns, &[2, 1], 80), "0:20 1:6 2:8 3:40");
        assert_eq!(arranged(&columns, &[2, 1], 66), "0:20 1:6 3:36");
        assert_eq!(arranged(&columns, &[2, 1], 40), "0:20 3:18");
    }
}
