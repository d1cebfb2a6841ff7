//! The configuration of KFI: triggers and filters of a run. It is checked and described, never executed.
//!
//! ```text
//! new
//! begin
//!   trigger start entry do_fork
//!   trigger stop exit do_fork
//!   filter mintime 10
//!   filter noints
//!   logentries 500
//! end
//! ```
//! Input for `/proc/kft` begins with `new` and has one block. `kfistatic.conf` has one or more blocks, with comments
//! after `#`, and function lists separated by commas instead of terminated by `fend`. `kft_parse_config` in
//! `kernel/kft.c` compares only the beginnings of words, skips unknown words and validates no value, so this check
//! reports more than the kernel would.

use std::collections::BTreeMap;
use std::fmt;

use crate::lines::{hexadecimal, unsigned};

/// `COMMAND_BUFFER_LEN` of `kernel/kft.c`.
const COMMAND_BYTES_MAX: usize = 2048;
/// Bytes examined: a configuration is short. A longer text is not one, or continues after these bytes.
const LOOKED_AT_BYTES: usize = 4096;
/// Words that begin an item, and the word that ends a block.
const ITEMS: [&str; 7] = [
    "trigger",
    "filter",
    "logentries",
    "logsize",
    "autorepeat",
    "watch",
    "end",
];
/// Maximum number of problems reported.
const PROBLEMS_MAX: usize = 100;

/// A configuration and its problems.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// Whether it begins with `new`, for `/proc/kft`.
    pub is_command: bool,
    /// One for each block.
    pub runs: Vec<Run>,
    /// In the order of the lines.
    pub problems: Vec<Problem>,
}

/// One block.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Run {
    /// `None`: by hand (`echo start >/proc/kft`).
    pub start: Option<Trigger>,
    /// `None`: by hand, or when the log is full.
    pub stop: Option<Trigger>,
    /// Shorter calls are dropped, in microseconds.
    pub mintime_us: Option<u64>,
    /// Longer calls are dropped, in microseconds.
    pub maxtime_us: Option<u64>,
    /// No calls in interrupts.
    pub noints: bool,
    /// Only calls in interrupts.
    pub onlyints: bool,
    /// Only these functions; empty for all.
    pub functions: Vec<String>,
    /// Number of rows in the log buffer.
    pub log_entries: Option<u64>,
    /// Whether the run restarts after its stop.
    pub autorepeat: bool,
    /// Stack watch: the kind (`stack` or `worst-stack`) and the limit in bytes.
    pub watch: Option<(String, u64)>,
    /// The line of each item, by its keyword ("start", "stop", "mintime", "noints", "logentries", …).
    pub lines: BTreeMap<&'static str, u64>,
}

/// An event that starts or stops a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trigger {
    /// A function is entered: its name or address.
    Entry(String),
    /// A function is left: its name or address.
    Exit(String),
    /// Microseconds since boot, or since the start.
    Time(u64),
}

/// A problem in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// From 1.
    pub line: u64,
    /// The expectation and the text found, or the kernel's interpretation of it.
    pub message: String,
}

/// Reads a configuration.
///
/// ```
/// let config = perfquet_readers::kfi::config::check("begin trigger start entry do_fork end");
/// assert_eq!(config.to_string(), "a run from the entry to do_fork until it is stopped by hand");
/// ```
pub fn check(text: &str) -> Config {
    let mut checker = Checker {
        tokens: tokens(text),
        next: 0,
        config: Config::default(),
    };
    checker.config(text.len());
    checker.config
}

/// Whether a text is a configuration, judged by its first words.
pub(super) fn is_config(text: &[u8]) -> bool {
    let head = text.get(..LOOKED_AT_BYTES).unwrap_or(text);
    let head = String::from_utf8_lossy(head);
    let mut words = head
        .lines()
        .flat_map(|line| without_comment(line).split_ascii_whitespace())
        .skip_while(|word| *word == "new");
    words.next() == Some("begin") && words.next().is_some_and(|word| ITEMS.contains(&word))
}

fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default()
}

#[derive(Clone, Copy)]
struct Token<'a> {
    line: u64,
    word: &'a str,
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    (1..)
        .zip(text.lines())
        .flat_map(|(line, content)| {
            without_comment(content)
                .split_ascii_whitespace()
                .map(move |word| Token { line, word })
        })
        .collect()
}

struct Checker<'a> {
    tokens: Vec<Token<'a>>,
    next: usize,
    config: Config,
}

impl<'a> Checker<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.next).map(|token| token.word)
    }

    fn take(&mut self) -> Option<&'a str> {
        let word = self.peek()?;
        self.next += 1;
        Some(word)
    }

    /// Line of the last word taken.
    fn line(&self) -> u64 {
        let last = self.tokens.get(self.next.saturating_sub(1));
        last.map_or(1, |token| token.line)
    }

    fn problem(&mut self, message: String) {
        let line = self.line();
        if self.config.problems.len() < PROBLEMS_MAX {
            self.config.problems.push(Problem { line, message });
        }
    }

    fn config(&mut self, bytes: usize) {
        if self.peek() == Some("new") {
            self.next += 1;
            self.config.is_command = true;
            if bytes > COMMAND_BYTES_MAX {
                let message = format!("{bytes} bytes: /proc/kft takes at most {COMMAND_BYTES_MAX}");
                self.problem(message);
            }
        }
        while let Some(word) = self.take() {
            if word == "begin" {
                self.block();
            } else {
                self.problem(format!("expected begin, found {word:?}"));
            }
        }
        match self.config.runs.len() {
            0 => self.problem("expected begin, found the end of the text".to_owned()),
            1 => {}
            _ if self.config.is_command => {
                self.problem("several blocks: /proc/kft uses only the first".to_owned());
            }
            _ => {}
        }
    }

    fn block(&mut self) {
        let mut run = Run::default();
        run.lines.insert("begin", self.line());
        loop {
            match self.take() {
                None => {
                    self.problem("expected end, found the end of the text".to_owned());
                    break;
                }
                Some("end") => break,
                Some("trigger") => self.trigger(&mut run),
                Some("filter") => self.filter(&mut run),
                Some("logentries" | "logsize") => {
                    run.lines.insert("logentries", self.line());
                    run.log_entries = self.number("a number of rows");
                }
                Some("autorepeat") => {
                    run.lines.insert("autorepeat", self.line());
                    run.autorepeat = true;
                }
                Some("watch") => self.watch(&mut run),
                Some("begin") => {
                    self.problem("expected end before the next begin".to_owned());
                }
                Some(word) => self.problem(unknown(
                    "trigger, filter, logentries, autorepeat, watch or end",
                    word,
                    &ITEMS,
                )),
            }
        }
        self.contradictions(&run);
        self.config.runs.push(run);
    }

    fn trigger(&mut self, run: &mut Run) {
        let is_start = match self.take() {
            Some("start") => true,
            Some("stop") => false,
            word => {
                let found = found(word);
                self.problem(format!("expected start or stop, found {found}"));
                return self.skip_item();
            }
        };
        run.lines
            .insert(if is_start { "start" } else { "stop" }, self.line());
        let trigger = match self.take() {
            Some("entry") => self.function().map(Trigger::Entry),
            Some("exit") => self.function().map(Trigger::Exit),
            Some("time") => self.number("microseconds").map(Trigger::Time),
            word => {
                let expected = "entry, exit or time";
                let message = unknown(
                    expected,
                    word.unwrap_or_default(),
                    &["entry", "exit", "time"],
                );
                self.problem(message);
                return self.skip_item();
            }
        };
        let (place, name) = match is_start {
            true => (&mut run.start, "start"),
            false => (&mut run.stop, "stop"),
        };
        let is_second = place.is_some();
        *place = trigger;
        if is_second {
            self.problem(format!("a second trigger {name}: it replaces the first"));
        }
    }

    fn filter(&mut self, run: &mut Run) {
        let word = self.take();
        let names = ["noints", "onlyints", "mintime", "maxtime", "funclist"];
        if let Some(name) = names.into_iter().find(|name| Some(*name) == word) {
            run.lines.insert(name, self.line());
        }
        match word {
            Some("noints") => run.noints = true,
            Some("onlyints") => run.onlyints = true,
            Some("mintime") => run.mintime_us = self.number("microseconds"),
            // 0 means no limit, like an absent maxtime.
            Some("maxtime") => run.maxtime_us = self.number("microseconds").filter(|us| *us > 0),
            Some("funclist") => self.functions(run),
            word => {
                let expected = "noints, onlyints, mintime, maxtime or funclist";
                self.problem(unknown(expected, word.unwrap_or_default(), &names));
                self.skip_item();
            }
        }
    }

    /// Skips to the next word that begins an item or ends the block.
    fn skip_item(&mut self) {
        while self.peek().is_some_and(|word| !ITEMS.contains(&word)) {
            self.next += 1;
        }
    }

    fn watch(&mut self, run: &mut Run) {
        run.lines.insert("watch", self.line());
        match self.take() {
            Some(kind @ ("stack" | "worst-stack")) => {
                let bytes = self.number("a number of bytes");
                run.watch = bytes.map(|bytes| (kind.to_owned(), bytes));
            }
            word => {
                let found = found(word);
                self.problem(format!("expected stack or worst-stack, found {found}"));
            }
        }
    }

    /// `f g h fend`, or `f, g,` and `h` on the next line.
    fn functions(&mut self, run: &mut Run) {
        let mut has_commas = false;
        let start = self.next;
        while let Some(word) = self.peek() {
            if word == "fend" {
                self.next += 1;
                break;
            }
            // A comma-separated list ends with the first word that has no comma.
            if ITEMS.contains(&word) {
                let is_one = self.next == start + 1;
                if self.config.is_command || !(has_commas || is_one) {
                    self.problem("expected fend after the list of functions".to_owned());
                }
                break;
            }
            self.next += 1;
            has_commas |= word.contains(',');
            for name in word.split(',').filter(|name| !name.is_empty()) {
                self.check_function(name);
                run.functions.push(name.to_owned());
            }
            if has_commas && !word.ends_with(',') && self.peek() != Some("fend") {
                break;
            }
        }
        if run.functions.is_empty() {
            self.problem("expected functions after funclist".to_owned());
        }
    }

    fn function(&mut self) -> Option<String> {
        match self.take() {
            Some(word) if ITEMS.contains(&word) => {
                self.next -= 1;
                self.problem("expected a function".to_owned());
                None
            }
            Some(name) => {
                self.check_function(name);
                Some(name.to_owned())
            }
            None => {
                self.problem("expected a function, found the end of the text".to_owned());
                None
            }
        }
    }

    /// `/proc/kft` takes only addresses; `sym2addr` replaces names by addresses.
    fn check_function(&mut self, name: &str) {
        let digits = name.strip_prefix("0x").or_else(|| name.strip_prefix("0X"));
        let is_address = hexadecimal(digits.unwrap_or(name).as_bytes()).is_some();
        if self.config.is_command && !is_address {
            self.problem(format!(
                "{name} is a name: /proc/kft requires addresses, as written by sym2addr"
            ));
        }
    }

    fn number(&mut self, what: &str) -> Option<u64> {
        let word = self.peek().unwrap_or_default();
        let number = unsigned(word.as_bytes());
        if number.is_some() {
            self.next += 1;
        } else {
            let word = self.peek();
            self.problem(format!("expected {what}, found {}", found(word)));
            // A keyword in place of the number begins the next item.
            if word.is_some_and(|word| !ITEMS.contains(&word)) {
                self.next += 1;
            }
        }
        number
    }

    /// Reports filters that no call passes.
    fn contradictions(&mut self, run: &Run) {
        if run.noints && run.onlyints {
            self.problem("noints and onlyints: no call passes both".to_owned());
        }
        if let (Some(min), Some(max)) = (run.mintime_us, run.maxtime_us)
            && min > max
        {
            self.problem(format!(
                "mintime {min} above maxtime {max}: no call passes both"
            ));
        }
        if run.log_entries == Some(0) {
            self.problem("logentries 0: no room for calls".to_owned());
        }
    }
}

fn found(word: Option<&str>) -> String {
    word.map_or("the end of the text".to_owned(), |word| format!("{word:?}"))
}

/// The kernel compares only beginnings: it accepts `timeout` as `time`.
fn unknown(expected: &str, word: &str, names: &[&str]) -> String {
    if word.is_empty() {
        return format!("expected {expected}, found the end of the text");
    }
    let meant = names.iter().find(|name| word.starts_with(*name));
    let taken = meant.map(|name| format!(", which the kernel reads as {name}"));
    format!(
        "expected {expected}, found {word:?}{}",
        taken.unwrap_or_default()
    )
}

impl fmt::Display for Config {
    /// The runs, then the problems, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut is_first = true;
        for run in &self.runs {
            write!(f, "{}{run}", if is_first { "" } else { "; then " })?;
            is_first = false;
        }
        if self.runs.is_empty() {
            f.write_str("no run")?;
        }
        for problem in &self.problems {
            write!(f, "; line {}: {}", problem.line, problem.message)?;
        }
        Ok(())
    }
}

impl fmt::Display for Run {
    /// "a run from the entry to do_fork until the exit from do_fork, of calls from 10 µs to 400 µs, outside interrupts"
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.start {
            None => f.write_str("a run that is started by hand")?,
            Some(Trigger::Time(us)) => write!(f, "a run from {us} µs after boot")?,
            Some(trigger) => write!(f, "a run from {trigger}")?,
        }
        match &self.stop {
            None => f.write_str(" until it is stopped by hand")?,
            Some(Trigger::Time(us)) => write!(f, " for {us} µs")?,
            Some(trigger) => write!(f, " until {trigger}")?,
        }
        match (self.mintime_us.filter(|us| *us > 0), self.maxtime_us) {
            (None, None) => {}
            (Some(min), None) => write!(f, ", of calls of {min} µs or longer")?,
            (None, Some(max)) => write!(f, ", of calls up to {max} µs")?,
            (Some(min), Some(max)) => write!(f, ", of calls from {min} µs to {max} µs")?,
        }
        if self.noints {
            f.write_str(", outside interrupts")?;
        }
        if self.onlyints {
            f.write_str(", inside interrupts")?;
        }
        match self.functions.as_slice() {
            [] => {}
            [function] => write!(f, ", of the function {function}")?,
            functions => write!(f, ", of {} functions", functions.len())?,
        }
        if let Some(entries) = self.log_entries {
            write!(f, ", with room for {entries} calls")?;
        }
        if let Some((kind, bytes)) = &self.watch {
            write!(f, ", watching for {bytes} bytes ({kind})")?;
        }
        if self.autorepeat {
            f.write_str(", repeatedly")?;
        }
        Ok(())
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trigger::Entry(function) => write!(f, "the entry to {function}"),
            Trigger::Exit(function) => write!(f, "the exit from {function}"),
            Trigger::Time(us) => write!(f, "{us} µs"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(super::check(text).to_string(), expected);
        assert!(is_config(text.as_bytes()), "{text}");
    }

    #[test]
    fn whole_ones() {
        check(
            "new\nbegin\n trigger start entry c0010000\n trigger stop exit 0xc0010000\n filter mintime 10\n \
             filter maxtime 400\n filter noints\n logentries 500\nend\n",
            "a run from the entry to c0010000 until the exit from 0xc0010000, of calls from 10 µs to 400 µs, \
             outside interrupts, with room for 500 calls",
        );
        check(
            "# two\nbegin\n trigger start entry start_kernel\n trigger stop entry to_userspace\n filter mintime 500\n \
             filter maxtime 0\n# filter noints\nend\nbegin\n trigger start time 10000000\n filter funclist a, b,\n \
             c\n autorepeat\nend\n",
            "a run from the entry to start_kernel until the entry to to_userspace, of calls of 500 µs or longer; \
             then a run from 10000000 µs after boot until it is stopped by hand, of 3 functions, repeatedly",
        );
        check(
            "begin trigger stop time 5000000 filter funclist c02cb754 c0008110 fend watch worst-stack 4096 end",
            "a run that is started by hand for 5000000 µs, of 2 functions, watching for 4096 bytes (worst-stack)",
        );
        check(
            "begin filter onlyints filter funclist schedule end",
            "a run that is started by hand until it is stopped by hand, inside interrupts, of the function schedule",
        );
    }

    #[track_caller]
    fn check_problem(text: &str, line: u64, message: &str) {
        let problems = super::check(text).problems;
        let expected = Problem {
            line,
            message: message.to_owned(),
        };
        assert_eq!(problems, [expected], "{text}");
    }

    #[test]
    fn wrong_ones() {
        check_problem(
            "begin\nautorepeat\n",
            2,
            "expected end, found the end of the text",
        );
        check_problem("", 1, "expected begin, found the end of the text");
        check_problem(
            "begin\n trigger start timeout 5\nend",
            2,
            "expected entry, exit or time, found \"timeout\", which the kernel reads as time",
        );
        check_problem(
            "begin trigger begins end",
            1,
            "expected start or stop, found \"begins\"",
        );
        check_problem(
            "begin filter mintime 1x end",
            1,
            "expected microseconds, found \"1x\"",
        );
        check_problem(
            "begin filter short end",
            1,
            "expected noints, onlyints, mintime, maxtime or funclist, found \"short\"",
        );
        check_problem(
            "begin filter noints\nfilter onlyints\nend",
            3,
            "noints and onlyints: no call passes both",
        );
        check_problem(
            "begin filter mintime 5 filter maxtime 4 end",
            1,
            "mintime 5 above maxtime 4: no call passes both",
        );
        check_problem(
            "new begin trigger start entry do_fork end",
            1,
            "do_fork is a name: /proc/kft requires addresses, as written by sym2addr",
        );
        check_problem(
            "new begin filter funclist c0008000 c0009000 end",
            1,
            "expected fend after the list of functions",
        );
        check_problem(
            "begin filter funclist fend end",
            1,
            "expected functions after funclist",
        );
        check_problem(
            "new begin end begin end",
            1,
            "several blocks: /proc/kft uses only the first",
        );
        check_problem("begin end\nstop", 2, "expected begin, found \"stop\"");
        check_problem("begin trigger start entry end", 1, "expected a function");
        check_problem(
            "begin trigger stop time 1\ntrigger stop time 2 end",
            2,
            "a second trigger stop: it replaces the first",
        );
        let long = format!(
            "new begin filter funclist {} fend end",
            "c0008000 ".repeat(300)
        );
        check_problem(&long, 1, "2735 bytes: /proc/kft takes at most 2048");
    }

    #[test]
    fn items_know_their_lines() {
        let text = "begin\n trigger start time 5 trigger stop entry f\n\n filter mintime 1\n filter\n noints\n \
            logsize 9\nend\nbegin autorepeat end";
        let config = super::check(text);
        let lines = |run: usize| -> Vec<(&str, u64)> {
            config.runs[run]
                .lines
                .iter()
                .map(|(item, line)| (*item, *line))
                .collect()
        };
        let expected = [
            ("begin", 1),
            ("logentries", 7),
            ("mintime", 4),
            ("noints", 6),
            ("start", 2),
            ("stop", 2),
        ];
        assert_eq!(lines(0), expected);
        assert_eq!(lines(1), [("autorepeat", 9), ("begin", 9)]);
    }

    #[test]
    fn other_text() {
        for text in [
            "",
            "new",
            "begin",
            "begin transaction",
            "new begin x",
            "# begin end",
        ] {
            assert!(!is_config(text.as_bytes()), "{text}");
        }
    }
}
