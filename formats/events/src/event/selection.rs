//! The recorder's selection: minimum duration, contexts, triggers, limits.
//!
//! A journal contains more than the selection, such as events before the trigger and calls that are too short. The
//! recorder therefore stores the selection in the journal, and `normalize` applies it, also on recovery:
//!
//! ```text
//! min_duration=500000 context=task,softirq starts=entry:do_sys_openat2 stop_after=5000000000 max_events=1000
//! enter\nvfs_read\n                  purpose of an event: the entry of vfs_read, without a row
//! start\nentry:do_sys_openat2        purpose of an event: the first hit begins the trace
//! ```

use super::Context;

/// Purpose of an event's hits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Purpose {
    /// Rows of a table.
    #[default]
    Rows,
    /// Rows of a table, and no edges of calls: the input has the calls themselves.
    RowsOnly,
    /// Edges of calls; they become rows of `calls` with the other edge, and have no table.
    Edge(CallEdge),
    /// The first hit starts the trace.
    Start(String),
    /// The first hit after the start ends it.
    Stop(String),
}

/// The entry or the return of a function.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallEdge {
    /// Entry or return.
    pub is_entry: bool,
    /// The function.
    pub function: String,
    /// File that contains the function; empty for the kernel.
    pub module: String,
}

impl Purpose {
    /// Whether hits are rows of a table.
    #[inline]
    pub fn has_rows(&self) -> bool {
        match self {
            Purpose::Rows | Purpose::RowsOnly => true,
            Purpose::Edge(_) | Purpose::Start(_) | Purpose::Stop(_) => false,
        }
    }

    /// Returns the purpose as stored in the journal; `None` for plain rows.
    pub fn text(&self) -> Option<String> {
        match self {
            Purpose::Rows | Purpose::RowsOnly => None,
            Purpose::Edge(edge) => {
                let word = if edge.is_entry { "enter" } else { "leave" };
                Some(format!("{word}\n{}\n{}", edge.function, edge.module))
            }
            Purpose::Start(trigger) => Some(format!("start\n{trigger}")),
            Purpose::Stop(trigger) => Some(format!("stop\n{trigger}")),
        }
    }

    /// Parses a purpose; `None` if it is of another version.
    pub fn parse(text: &str) -> Option<Purpose> {
        let (word, rest) = text.split_once('\n')?;
        Some(match word {
            "enter" | "leave" => {
                let (function, module) = rest.split_once('\n').unwrap_or((rest, ""));
                Purpose::Edge(CallEdge {
                    is_entry: word == "enter",
                    function: function.to_owned(),
                    module: module.to_owned(),
                })
            }
            "start" => Purpose::Start(rest.to_owned()),
            "stop" => Purpose::Stop(rest.to_owned()),
            _ => return None,
        })
    }
}

/// A set of contexts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Contexts(u8);

impl Contexts {
    const ALL: [Context; 4] = [Context::Task, Context::Softirq, Context::Irq, Context::Nmi];

    /// Adds a context.
    #[must_use]
    #[inline]
    pub fn with(self, context: Context) -> Contexts {
        Contexts(self.0 | 1 << context as u8)
    }

    /// Whether the set contains a context.
    #[inline]
    pub fn has(self, context: Context) -> bool {
        self.0 & 1 << context as u8 != 0
    }

    /// Formats the set as `task,softirq`.
    pub fn text(self) -> String {
        let names = Contexts::ALL.into_iter().filter(|&one| self.has(one));
        names.map(Context::as_str).collect::<Vec<_>>().join(",")
    }

    /// Parses such a list; fails with the unknown word.
    pub fn parse(text: &str) -> Result<Contexts, &str> {
        text.split(',').try_fold(Contexts::default(), |all, word| {
            let known = Contexts::ALL.into_iter().find(|one| one.as_str() == word);
            known.map(|one| all.with(one)).ok_or(word)
        })
    }
}

/// The selection. The default keeps everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    /// Minimum duration of calls in nanoseconds.
    pub min_duration: Option<i64>,
    /// Maximum duration of calls in nanoseconds.
    pub max_duration: Option<i64>,
    /// Contexts of calls and hits; those of unknown context are kept.
    pub contexts: Option<Contexts>,
    /// Maximum number of rows of requested events and calls.
    pub max_events: Option<u64>,
    /// Starts at the first hit of an event with [`Purpose::Start`].
    pub waits: bool,
    /// Start time.
    pub begin: Option<i64>,
    /// Duration from the start in nanoseconds.
    pub stop_after: Option<i64>,
}

impl Selection {
    /// Returns the selection as stored in the journal.
    pub fn text(&self) -> String {
        let mut words = Vec::new();
        let mut number = |name: &str, value: Option<i64>| {
            words.extend(value.map(|value| format!("{name}={value}")));
        };
        number("min_duration", self.min_duration);
        number("max_duration", self.max_duration);
        number("begin", self.begin);
        number("stop_after", self.stop_after);
        let most = self.max_events;
        words.extend(most.map(|most| format!("max_events={most}")));
        let contexts = self.contexts;
        words.extend(contexts.map(|contexts| format!("context={}", contexts.text())));
        if self.waits {
            words.push("waits=1".to_owned());
        }
        words.join(" ")
    }

    /// Parses a stored selection; fails with the unknown word.
    pub fn parse(text: &str) -> Result<Selection, &str> {
        let mut selection = Selection::default();
        for word in text.split_whitespace() {
            let (name, value) = word.split_once('=').ok_or(word)?;
            let number = || value.parse::<i64>().map(Some).map_err(|_| word);
            match name {
                "min_duration" => selection.min_duration = number()?,
                "max_duration" => selection.max_duration = number()?,
                "begin" => selection.begin = number()?,
                "stop_after" => selection.stop_after = number()?,
                "max_events" => selection.max_events = Some(value.parse().map_err(|_| word)?),
                "context" => {
                    selection.contexts = Some(Contexts::parse(value).map_err(|_| word)?);
                }
                "waits" => selection.waits = value == "1",
                _ => return Err(word),
            }
        }
        Ok(selection)
    }
}

/// Formats a duration in the largest unit that gives at least 1: `500us`, `1.5s`.
pub fn span(nanoseconds: i64) -> String {
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    let unit = units.iter().find(|(_, size)| nanoseconds >= *size);
    match unit {
        Some((name, size)) if nanoseconds % size == 0 => format!("{}{name}", nanoseconds / size),
        Some((name, size)) => format!("{}{name}", nanoseconds as f64 / *size as f64),
        None => format!("{nanoseconds}ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        let contexts = Contexts::default().with(Context::Irq).with(Context::Task);
        for selection in [
            Selection::default(),
            Selection {
                min_duration: Some(500_000),
                max_duration: Some(i64::MAX),
                contexts: Some(contexts),
                max_events: Some(10),
                waits: true,
                begin: Some(5),
                stop_after: Some(7),
            },
        ] {
            assert_eq!(Selection::parse(&selection.text()), Ok(selection));
        }
        assert_eq!(contexts.text(), "task,irq");
        for wrong in ["x", "x=1", "begin=a", "context=tusk", "max_events=-1"] {
            assert_eq!(Selection::parse(wrong), Err(wrong));
        }
        for purpose in [
            Purpose::Start("entry:f".to_owned()),
            Purpose::Stop("exit:/a b:f".to_owned()),
            Purpose::Edge(CallEdge {
                is_entry: false,
                function: "f".to_owned(),
                module: "/a\nb".to_owned(),
            }),
        ] {
            let text = purpose.text().unwrap();
            assert_eq!(Purpose::parse(&text), Some(purpose));
        }
        assert_eq!(Purpose::Rows.text(), None);
        assert_eq!(Purpose::parse("later\nthing"), None);
    }

    #[test]
    fn spans() {
        let shown = [500_000, 1_500_000_000, 2_000_000, 7, 1_234_567].map(span);
        assert_eq!(shown, ["500us", "1.5s", "2ms", "7ns", "1.234567ms"]);
    }
}
