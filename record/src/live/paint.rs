//! The lines of a refresh. Names are shortened to the width of the terminal, numbers never.
//!
//! ```text
//! after 3.0 s: 2,034 events/s, 0 lost, 1.20 MiB
//!    now     all  function    module
//!  61.3%   59.8%  deflate     libz.so.1
//!  11.0%   12.1%  clear_page  [kernel.kallsyms]
//!  27.7%   28.1%  other (112 functions)
//!    now     all  threads  comm
//!  97.5%   98.0%        4  gzip
//! ```

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use indicatif::HumanBytes;
use perfquet_cli::escaped;
use perfquet_trace::count::{counted, grouped};
use perfquet_trace::normalize::Function;

use super::ranking::Ranked;

/// Below this width, there is no column of modules, and none of shares of the whole recording.
const WITH_MODULES: usize = 60;
const WITH_ALL: usize = 32;
/// Spaces between two columns.
const GAP: usize = 2;
/// Bytes of the journal that are normally not counted yet.
const WAITING_BYTES: u64 = 16 << 20;

/// What a refresh shows.
pub(super) struct Contents {
    /// Time since the start.
    pub(super) elapsed: Duration,
    /// Events by name, per second.
    pub(super) events: Vec<(String, u64)>,
    /// Number of events lost so far; `None` if they are counted only at the end.
    pub(super) lost: Option<u64>,
    /// Size of the journal.
    pub(super) bytes: u64,
    /// Number of its bytes that are not counted yet.
    pub(super) waiting_bytes: u64,
    /// The sampled event that weighs the shares; `None` if hits do.
    pub(super) weighed: Option<String>,
    pub(super) functions: Table<Function>,
    /// By name.
    pub(super) threads: Table<String>,
    /// Number of threads with a name in the interval.
    pub(super) thread_counts: HashMap<String, u64>,
}

/// Functions or threads, those with the largest share first.
pub(super) struct Table<K> {
    pub(super) rows: Vec<Ranked<K>>,
    /// Whether there are more than can be distinguished.
    pub(super) is_beyond: bool,
}

/// A line on the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) text: String,
    /// Whether it is the head of a table.
    pub(super) is_head: bool,
}

/// Maximum number of rows of each table, without its head and the row of all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Room {
    events: usize,
    functions: usize,
    threads: usize,
}

/// Returns the lines for a terminal of a size; without one, nothing is shortened.
pub(super) fn lines(contents: &Contents, size: Option<(usize, usize)>) -> Vec<Line> {
    let width = size.map_or(usize::MAX, |(width, _)| width);
    let mut lines = headline(contents, width);
    let room = match size {
        Some((_, height)) => room(contents, height.saturating_sub(lines.len())),
        None => room_of_text(contents),
    };
    if has_event_table(contents) {
        lines.extend(events(&contents.events, room.events, width));
    }
    if contents.weighed.is_some() {
        lines.extend(functions(contents, room.functions, width));
    }
    lines.extend(threads(contents, room.threads, width));
    if let Some((_, height)) = size {
        lines.truncate(height);
    }
    lines
}

/// A single event is in the headline.
fn has_event_table(contents: &Contents) -> bool {
    contents.events.len() > 1
}

/// Divides the lines of a terminal: functions get what events and threads leave.
fn room(contents: &Contents, height: usize) -> Room {
    /// The head of a table, and its row of all others.
    const BESIDE: usize = 2;
    let events = match has_event_table(contents) {
        true => contents.events.len().min(height / 5),
        false => 0,
    };
    let threads = contents.threads.rows.len().min(height / 4).max(1);
    let heads = BESIDE * (2 + usize::from(events > 0));
    Room {
        events,
        threads,
        functions: height.saturating_sub(events + threads + heads).max(1),
    }
}

/// Text scrolls, so it has only rows of the interval, or those of the whole recording if there are none.
fn room_of_text(contents: &Contents) -> Room {
    fn of<K>(table: &Table<K>, most: usize) -> usize {
        let all = table.rows.len();
        match table.rows.iter().filter(|row| row.now > 0.0).count() {
            0 => most.min(all),
            now => most.min(now),
        }
    }
    Room {
        events: 10,
        functions: of(&contents.functions, 20),
        threads: of(&contents.threads, 10),
    }
}

/// Time, rate, losses, bytes: on more than one line if necessary.
fn headline(contents: &Contents, width: usize) -> Vec<Line> {
    let rate: u64 = contents.events.iter().map(|(_, rate)| rate).sum();
    let mut parts = vec![
        format!("after {:.1} s", contents.elapsed.as_secs_f64()),
        format!("{}/s", counted(rate, "event")),
        match contents.lost {
            Some(lost) => format!("{} lost", grouped(lost)),
            None => "losses counted at the end".to_owned(),
        },
        HumanBytes(contents.bytes).to_string(),
    ];
    if contents.waiting_bytes > WAITING_BYTES {
        let waiting = HumanBytes(contents.waiting_bytes);
        parts.push(format!("{waiting} not counted yet"));
    }
    let mut lines: Vec<String> = Vec::new();
    for (index, part) in parts.into_iter().enumerate() {
        let Some(last) = lines.last_mut() else {
            lines.push(part);
            continue;
        };
        last.push(if index == 1 { ':' } else { ',' });
        // A comma may follow.
        if last.chars().count() + 1 + part.chars().count() < width {
            last.push(' ');
            last.push_str(&part);
        } else {
            lines.push(part);
        }
    }
    lines.into_iter().map(plain).collect()
}

fn events(events: &[(String, u64)], most: usize, width: usize) -> Vec<Line> {
    let mut sorted: Vec<&(String, u64)> = events.iter().collect();
    sorted.sort_by_key(|(name, rate)| (Reverse(*rate), name));
    let (shown, others) = sorted.split_at(most.min(sorted.len()));
    let mut rows: Vec<Vec<String>> = shown
        .iter()
        .map(|(name, rate)| vec![grouped(*rate), safe(name)])
        .collect();
    if !others.is_empty() {
        let rate: u64 = others.iter().map(|(_, rate)| rate).sum();
        rows.push(vec![grouped(rate), other(others.len(), "event", false)]);
    }
    grid(
        vec!["per second".to_owned(), "event".to_owned()],
        rows,
        1,
        width,
    )
}

fn functions(contents: &Contents, most: usize, width: usize) -> Vec<Line> {
    let mut head = vec!["function".to_owned(), "module".to_owned()];
    // With one event, the headline names none.
    if let Some(event) = contents
        .weighed
        .as_ref()
        .filter(|_| has_event_table(contents))
    {
        head[0] = format!("function ({})", safe(event));
    }
    let cells = |function: &Function| vec![safe(&function.name), file_name(function)];
    let with_modules = |mut cells: Vec<String>| {
        cells.truncate(if width < WITH_MODULES { 1 } else { 2 });
        cells
    };
    table(
        &contents.functions,
        ("function", most, width),
        0,
        with_modules(head),
        |function| with_modules(cells(function)),
    )
}

fn threads(contents: &Contents, most: usize, width: usize) -> Vec<Line> {
    let counts = &contents.thread_counts;
    let head = vec!["threads".to_owned(), "comm".to_owned()];
    table(&contents.threads, ("name", most, width), 1, head, |comm| {
        let threads = counts.get(comm).copied().unwrap_or(0);
        vec![grouped(threads), safe(comm)]
    })
}

/// A table with shares in front of `cells`, of which the first `numbers` are numbers.
fn table<K>(
    table: &Table<K>,
    (noun, most, width): (&str, usize, usize),
    numbers: usize,
    head: Vec<String>,
    cells: impl Fn(&K) -> Vec<String>,
) -> Vec<Line> {
    let with_shares = |now: String, all: String, mut cells: Vec<String>| {
        if width >= WITH_ALL {
            cells.insert(0, all);
        }
        cells.insert(0, now);
        cells
    };
    // A table of one more row takes no more lines.
    let is_all = table.rows.len() <= most + 1 && !table.is_beyond;
    let (shown, others) = table.rows.split_at(match is_all {
        true => table.rows.len(),
        false => most.min(table.rows.len()),
    });
    let row = |row: &Ranked<K>| with_shares(percent(row.now), percent(row.all), cells(&row.key));
    let mut rows: Vec<Vec<String>> = shown.iter().map(row).collect();
    if !is_all {
        // Weights beyond the limits count in the shares, but have no row.
        let left =
            |share: fn(&Ranked<K>) -> f64| (1.0 - shown.iter().map(share).sum::<f64>()).max(0.0);
        let mut last = vec![String::new(); numbers];
        last.push(other(others.len(), noun, table.is_beyond));
        let (now, all) = (left(|row| row.now), left(|row| row.all));
        rows.push(with_shares(percent(now), percent(all), last));
    }
    if rows.is_empty() {
        return Vec::new();
    }
    let head = with_shares("now".to_owned(), "all".to_owned(), head);
    let shares = if width >= WITH_ALL { 2 } else { 1 };
    grid(head, rows, shares + numbers, width)
}

/// Aligns columns with two spaces between them: numbers to the right, then texts, which are shortened to the width.
fn grid(head: Vec<String>, rows: Vec<Vec<String>>, numbers: usize, width: usize) -> Vec<Line> {
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let length = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let columns = rows.first().map_or(0, Vec::len);
    let mut widths: Vec<usize> = (0..columns).map(length).collect();
    let taken: usize = widths[..numbers].iter().map(|width| width + GAP).sum();
    let mut left = width.saturating_sub(taken);
    // The last column gets a third, the one before it the rest.
    for (column, share) in (numbers..columns).rev().zip([3, 1]) {
        let is_first = column == numbers;
        let most = if is_first { left } else { left / share };
        widths[column] = widths[column].min(most);
        left = left.saturating_sub(widths[column] + GAP);
    }
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, &width))| match column < numbers {
            true => format!("{cell:>width$}"),
            false => format!("{:<width$}", fitted(cell, width)),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let lines = rows.iter().enumerate();
    lines
        .map(|(index, row)| Line {
            text: line(row),
            is_head: index == 0,
        })
        .collect()
}

fn plain(text: String) -> Line {
    Line {
        text,
        is_head: false,
    }
}

/// The row of all keys that have none.
fn other(count: usize, noun: &str, is_beyond: bool) -> String {
    match is_beyond {
        true => "other (too many to distinguish)".to_owned(),
        false => format!("other ({})", counted(count as u64, noun)),
    }
}

fn percent(share: f64) -> String {
    format!("{:>6}", format!("{:.1}%", share * 100.0))
}

/// A name that cannot change the terminal's state.
fn safe(name: &str) -> String {
    escaped(name).into_owned()
}

fn file_name(function: &Function) -> String {
    let path = function.module.as_deref().unwrap_or_default();
    safe(path.rsplit('/').next().unwrap_or(path))
}

fn fitted(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    text.chars()
        .take(kept)
        .chain(std::iter::once('…'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, module: &str, now: f64, all: f64) -> Ranked<Function> {
        let key = Function {
            name: name.to_owned(),
            module: Some(module.to_owned()),
            is_kernel: false,
        };
        Ranked { key, now, all }
    }

    fn thread(comm: &str, now: f64, all: f64) -> Ranked<String> {
        let key = comm.to_owned();
        Ranked { key, now, all }
    }

    fn contents() -> Contents {
        let functions = vec![
            function("spin", "/tmp/busy", 0.5, 1.0 / 3.0),
            function(
                "std::collections::hash::map::HashMap<K,V,S>::insert",
                "/usr/lib/x86_64-linux-gnu/libc.so.6",
                0.25,
                0.2,
            ),
            function("clear\n\x1b[2J", "[kernel.kallsyms]", 0.125, 0.4),
            function("main", "/tmp/busy", 0.0625, 0.01),
            function("exit", "/tmp/busy", 0.0, 0.01),
        ];
        Contents {
            elapsed: Duration::from_millis(12_345),
            events: vec![("cpu-clock".to_owned(), 1_234_567)],
            lost: Some(0),
            bytes: 3 << 20,
            waiting_bytes: 0,
            weighed: Some("cpu-clock".to_owned()),
            functions: Table {
                rows: functions,
                is_beyond: true,
            },
            threads: Table {
                rows: vec![
                    thread("busy", 0.75, 0.8),
                    thread("kworker/0:1-eve", 0.25, 0.2),
                ],
                is_beyond: false,
            },
            thread_counts: HashMap::from([("busy".to_owned(), 1_024)]),
        }
    }

    fn check(contents: &Contents, size: Option<(usize, usize)>, expected: &str) {
        let lines = lines(contents, size);
        let text: String = lines.iter().map(|line| line.text.clone() + "\n").collect();
        assert_eq!(text, expected);
        if let Some((width, height)) = size {
            assert!(lines.len() <= height);
            assert!(lines.iter().all(|line| line.text.chars().count() <= width));
        }
    }

    #[test]
    fn text_is_not_shortened() {
        check(
            &contents(),
            None,
            "\
after 12.3 s: 1,234,567 events/s, 0 lost, 3.00 MiB
   now     all  function                                             module
 50.0%   33.3%  spin                                                 busy
 25.0%   20.0%  std::collections::hash::map::HashMap<K,V,S>::insert  libc.so.6
 12.5%   40.0%  clear\\n\\x1b[2J                                       [kernel.kallsyms]
  6.2%    1.0%  main                                                 busy
  6.2%    5.7%  other (too many to distinguish)
   now     all  threads  comm
 75.0%   80.0%    1,024  busy
 25.0%   20.0%        0  kworker/0:1-eve
",
        );
    }

    #[test]
    fn names_are_shortened_to_the_width_and_rows_to_the_height() {
        check(
            &contents(),
            Some((72, 24)),
            "\
after 12.3 s: 1,234,567 events/s, 0 lost, 3.00 MiB
   now     all  function                               module
 50.0%   33.3%  spin                                   busy
 25.0%   20.0%  std::collections::hash::map::HashMap…  libc.so.6
 12.5%   40.0%  clear\\n\\x1b[2J                         [kernel.kallsyms]
  6.2%    1.0%  main                                   busy
  0.0%    1.0%  exit                                   busy
  6.2%    4.7%  other (too many to distinguish)
   now     all  threads  comm
 75.0%   80.0%    1,024  busy
 25.0%   20.0%        0  kworker/0:1-eve
",
        );
        check(
            &contents(),
            Some((40, 9)),
            "\
after 12.3 s: 1,234,567 events/s,
0 lost, 3.00 MiB
   now     all  function
 50.0%   33.3%  spin
 25.0%   20.0%  std::collections::hash:…
 25.0%   46.7%  other (too many to dist…
   now     all  threads  comm
 75.0%   80.0%    1,024  busy
 25.0%   20.0%        0  kworker/0:1-eve
",
        );
        check(
            &contents(),
            Some((24, 7)),
            "\
after 12.3 s:
1,234,567 events/s,
0 lost, 3.00 MiB
   now  function
 50.0%  spin
 50.0%  other (too many…
   now  threads  comm
",
        );
    }

    #[test]
    fn several_events_have_their_rates() {
        let mut several = contents();
        several.events.push(("sched:sched_switch".to_owned(), 12));
        several.functions = Table {
            rows: Vec::new(),
            is_beyond: false,
        };
        several.lost = None;
        several.waiting_bytes = 20 << 20;
        several.threads.rows = (0..14)
            .map(|number| thread(["a", "b"][number % 2], 1.0 / 14.0, 1.0 / 14.0))
            .collect();
        let lines = lines(&several, None);
        let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
        let expected = [
            "after 12.3 s: 1,234,579 events/s, losses counted at the end, 3.00 MiB, 20.00 MiB not counted yet",
            "per second  event",
            " 1,234,567  cpu-clock",
            "        12  sched:sched_switch",
            "   now     all  threads  comm",
        ];
        assert_eq!(texts[..5], expected);
        assert_eq!(texts[15], " 28.6%   28.6%           other (4 names)");
    }
}
