//! Kernel parameters that trace the boot: those of the next one, and those of the last one.
//!
//! ```text
//! ftrace=function_graph ftrace_graph_filter=do_one_initcall ftrace_graph_max_depth=2 tracing_thresh=500
//! trace_event=initcall:*,sched:sched_process_exec kprobe_event=p:probe/vfs_read,vfs_read,count=$arg3:u64
//! ```
//! Sources: Documentation/admin-guide/kernel-parameters.txt; next_arg in lib/cmdline.c for the quotes.

use std::fs;
use std::io;

/// Parameters that make the top-level ring buffer record.
const TRACING: [&str; 3] = ["ftrace", "trace_event", "kprobe_event"];

/// The parameters of the running kernel that concern tracing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Reads those that the kernel was started with.
    pub(super) fn of_this_boot() -> io::Result<Parameters> {
        fs::read("/proc/cmdline").map(|line| Parameters::parse(&String::from_utf8_lossy(&line)))
    }

    pub(super) fn parse(line: &str) -> Parameters {
        let words = words(line).into_iter();
        // The rest is for the first process.
        let own = words.take_while(|word| word != "--");
        Parameters(
            own.filter_map(|word| {
                let (name, value) = word.split_once('=')?;
                // The kernel does not distinguish hyphens.
                Some((name.replace('-', "_"), value.to_owned()))
            })
            .collect(),
        )
    }

    /// Returns the value of a parameter. The last one counts if it is repeated.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let mut named = self.0.iter().filter(|(own, _)| own == name);
        named.next_back().map(|(_, value)| value.as_str())
    }

    /// Returns the events that were enabled, with wildcards: `sched:*`.
    pub(super) fn events(&self) -> impl Iterator<Item = &str> {
        let lists = self.0.iter().filter(|(name, _)| name == "trace_event");
        lists
            .flat_map(|(_, list)| list.split(','))
            .filter(|event| !event.is_empty())
    }

    /// Returns the probes that were defined under a name: `probe/vfs_read` of `p:probe/vfs_read,vfs_read`.
    pub(super) fn probes(&self) -> impl Iterator<Item = &str> {
        let list = self.value("kprobe_event").unwrap_or_default();
        list.split(';').filter_map(|probe| {
            let (_, name) = probe.split(',').next()?.split_once(':')?;
            name.contains('/').then_some(name)
        })
    }

    /// Returns the names of the instances that were created: `foo` of `foo^traceoff@map,sched,irq`.
    pub(super) fn instances(&self) -> Vec<&str> {
        let named = self.0.iter().filter(|(name, _)| name == "trace_instance");
        let name = |(_, value): &'_ (String, String)| value.find([',', '^', '@']);
        named
            .map(|instance| match name(instance) {
                Some(end) => instance.1.get(..end).unwrap_or_default(),
                None => &instance.1,
            })
            .collect()
    }

    /// Whether the top-level ring buffer was to record.
    pub(super) fn trace_the_top(&self) -> bool {
        TRACING.iter().any(|name| self.value(name).is_some())
    }
}

/// Splits a command line at spaces outside of quotes, and removes the quotes.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    for letter in line.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            letter if letter.is_ascii_whitespace() && !is_quoted => {
                words.push(std::mem::take(&mut word));
            }
            letter => word.push(letter),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_a_command_line() {
        let line = "root=/dev/sda1 quiet ftrace=function \"trace_event=initcall:*,sched:sched_switch\" \
            ftrace=function_graph trace-event=irq:* kprobe_event=\"p:probe/a,vfs_read,$arg1;p,vfs_write\" \
            trace_instance=foo^traceoff,sched trace_instance=bar -- ftrace=blk\n";
        let found = Parameters::parse(line);
        assert_eq!(found.value("ftrace"), Some("function_graph"));
        let events: Vec<&str> = found.events().collect();
        assert_eq!(events, ["initcall:*", "sched:sched_switch", "irq:*"]);
        assert_eq!(found.probes().collect::<Vec<_>>(), ["probe/a"]);
        assert_eq!(found.instances(), ["foo", "bar"]);
        assert!(found.trace_the_top());
    }

    #[test]
    fn boot_without_tracing() {
        for line in [
            "",
            "\n",
            "ro quiet",
            "ftrace_dump_on_oops",
            "a=b -- ftrace=function",
        ] {
            let found = Parameters::parse(line);
            assert!(!found.trace_the_top(), "{line}");
            assert_eq!(found.events().count(), 0);
        }
    }
}
