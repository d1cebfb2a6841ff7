//! Function entries and returns, as printed by `-F` and by the scripts of the DTrace Toolkit.
//!
//! ```text
//! CPU FUNCTION
//!   0  -> vfs_read                                                 C TIME(us)         FILE             -- FUNC
//!   0    -> rw_verify_area                                         0 3064371810154    site.py          -> main
//!   0    <- rw_verify_area                                         0 3064371830069    os.py              -> open
//! ```
//! `%3d %-41s`, then the traced data. `=>` and `<=` are system calls, `|` any other probe. The indentation is shared by
//! all CPUs and threads, so it gives no depth. Lines have no thread: entries and returns are not paired.

use perfquet_events::event::time_of;

use crate::lines::{unsigned, words};

/// The three kinds of probes in a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edge {
    Enter,
    Leave,
    /// Any other probe: `func:name`.
    Other,
}

/// A line of `-F`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flow<'a> {
    pub(super) cpu: Option<u32>,
    pub(super) edge: Edge,
    pub(super) function: &'a [u8],
    /// The traced data.
    pub(super) data: &'a [u8],
}

/// `CPU FUNCTION`
pub(super) fn is_head(line: &[u8]) -> bool {
    line.starts_with(b"CPU FUNCTION") && words(line).count() == 2
}

/// Parses a line of `-F`; accepts other probes only below the column heads.
pub(super) fn flow(line: &[u8], is_below_head: bool) -> Option<Flow<'_>> {
    line.first()
        .filter(|first| first.is_ascii_digit() || **first == b' ')?;
    let text = line.trim_ascii_start();
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (cpu, after) = text.split_at_checked(digits)?;
    let cpu = match digits {
        0 => None,
        _ => Some(u32::try_from(unsigned(cpu)?).ok()?),
    };
    if cpu.is_some() && !after.starts_with(b" ") {
        return None;
    }
    let after = after.trim_ascii_start();
    let (edge, rest) = arrow(after)?;
    if edge == Edge::Other && !is_below_head {
        return None;
    }
    let (function, data) = name(rest)?;
    // Distributions of other tools: `0 -> 1   : 2104 |####|`.
    if function.first().is_some_and(u8::is_ascii_digit) {
        return None;
    }
    Some(Flow {
        cpu,
        edge,
        function,
        data,
    })
}

fn arrow(text: &[u8]) -> Option<(Edge, &[u8])> {
    const ARROWS: [(&[u8], Edge); 5] = [
        (b"-> ", Edge::Enter),
        (b"=> ", Edge::Enter),
        (b"<- ", Edge::Leave),
        (b"<= ", Edge::Leave),
        (b"| ", Edge::Other),
    ];
    ARROWS
        .iter()
        .find_map(|(arrow, edge)| Some((*edge, text.strip_prefix(*arrow)?)))
}

/// The function, and the rest after it: separated by two spaces, or by one if the name fills its cell.
fn name(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii();
    let is_objective = text.starts_with(b"-[") || text.starts_with(b"+[");
    let start = match is_objective {
        true => text.iter().position(|&byte| byte == b']')?,
        false => 0,
    };
    let blank = text.get(start..)?.iter().position(|&byte| byte == b' ');
    let end = blank.map_or(text.len(), |blank| start + blank);
    let (name, data) = text.split_at_checked(end)?;
    (!name.is_empty()).then_some((name, data.trim_ascii_start()))
}

/// The columns of a script of the Toolkit: `C TIME(us) FILE -- FUNC`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Columns<'a> {
    names: Vec<&'a [u8]>,
}

/// One line below these columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Timed<'a> {
    pub(super) edge: Edge,
    pub(super) function: &'a [u8],
    pub(super) cpu: Option<u32>,
    pub(super) pid: Option<i32>,
    /// Nanoseconds.
    pub(super) time: Option<i64>,
    /// The other columns, as `name=value`.
    pub(super) args: Vec<Vec<u8>>,
}

impl<'a> Columns<'a> {
    /// Parses the line of column heads.
    pub(super) fn of(line: &'a [u8]) -> Option<Columns<'a>> {
        if !line.trim_ascii_start().starts_with(b"C ") {
            return None;
        }
        let mut names: Vec<&[u8]> = words(line).collect();
        let dashes = names.iter().position(|word| *word == b"--")?;
        let is_flow = names.first() == Some(&&b"C"[..]) && names.len() == dashes + 2;
        let has_time = names.iter().any(|name| *name == b"TIME(us)");
        names.truncate(dashes);
        (is_flow && has_time).then_some(Columns { names })
    }

    /// A row below.
    pub(super) fn row(&self, line: &'a [u8]) -> Option<Timed<'a>> {
        let mut rest = line;
        let mut row = Timed {
            edge: Edge::Other,
            function: b"",
            cpu: None,
            pid: None,
            time: None,
            args: Vec::new(),
        };
        for name in &self.names {
            let text = rest.trim_ascii_start();
            let end = text.iter().position(|&byte| byte == b' ')?;
            let (word, after) = text.split_at_checked(end)?;
            rest = after;
            match *name {
                b"C" => row.cpu = Some(u32::try_from(unsigned(word)?).ok()?),
                b"PID" => row.pid = Some(i32::try_from(unsigned(word)?).ok()?),
                b"TIME(us)" => {
                    row.time = Some(time_of(unsigned(word)?.saturating_mul(1000)));
                }
                name => {
                    let name = name.to_ascii_lowercase();
                    row.args.push([name.as_slice(), b"=", word].concat());
                }
            }
        }
        let (edge, function) = arrow(rest.trim_ascii_start())?;
        row.edge = edge;
        row.function = function.trim_ascii();
        (edge != Edge::Other && !row.function.is_empty()).then_some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<(Option<u32>, Edge, &str, &str)>) {
        let text = |bytes| std::str::from_utf8(bytes).unwrap();
        let found = flow(line.as_bytes(), true);
        let found = found.map(|flow| (flow.cpu, flow.edge, text(flow.function), text(flow.data)));
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn lines_of_flows() {
        check(
            "  0  -> vfs_read          ",
            Some((Some(0), Edge::Enter, "vfs_read", "")),
        );
        check(
            " 12    <- vfs_read          7  8",
            Some((Some(12), Edge::Leave, "vfs_read", "7  8")),
        );
        check(
            " => read                  syscall: 40",
            Some((None, Edge::Enter, "read", "syscall: 40")),
        );
        check(
            "  0  | vfs_read:entry  7",
            Some((Some(0), Edge::Other, "vfs_read:entry", "7")),
        );
        check(
            "  0  -> -[NSObject init]  7",
            Some((Some(0), Edge::Enter, "-[NSObject init]", "7")),
        );
        check("  0 3064371810154  x -> f", None);
        check("-> f", None);
        check("  0  ->", None);
        check("       0 -> 1       : 2104     |####|", None);
        assert_eq!(flow(b"  | a:b", false), None);
        assert!(is_head(b"CPU FUNCTION                                 "));
        assert!(!is_head(b"CPU     ID                    FUNCTION:NAME"));
    }

    #[test]
    fn timed() {
        let columns = Columns::of(b"  C TIME(us)         FILE             -- FUNC").unwrap();
        let row = columns
            .row(b"  0 3064371840298    stat.py                -> open")
            .unwrap();
        assert_eq!((row.edge, row.function), (Edge::Enter, &b"open"[..]));
        assert_eq!((row.cpu, row.time), (Some(0), Some(3_064_371_840_298_000)));
        assert_eq!(row.args, [b"file=stat.py"]);
        assert_eq!(columns.row(b"  0 x  stat.py -> open"), None);
        assert_eq!(Columns::of(b"A B -- C"), None);
    }
}
