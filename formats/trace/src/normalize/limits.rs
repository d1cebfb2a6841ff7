//! Limits of the state kept of an input, before it is written or reset.
//!
//! ```text
//! limit reached            stacks: the tree is reset, IDs continue            frames: symbolized and written, then reset
//! ```
//! No data is lost at a limit: a stack or frame that recurs gets a second ID.

/// Maximum number of entries in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Frames before they are symbolized and written: 16 bytes each, and 10 in their table, which is full at 7/8 of a
    /// power of two. Most traces stay far below. But stacks walked by frame pointers through code without them end in
    /// random addresses: a compiler sampled at 10 kHz gave a million in half a minute.
    pub frames: usize,
    /// Nodes of stacks kept for lookup, 8 bytes each.
    pub nodes: usize,
    /// Number of nodes in the hash table, 13 bytes each, full at 7/8 of a power of two.
    pub branches: usize,
    /// Words of cached whole chains, 8 bytes each.
    pub chain_words: usize,
    /// Rows of mappings (72 bytes), and of ended threads (48 bytes), before they are written.
    pub rows: usize,
}

impl Limits {
    /// For imports, which may use the host: 39 MiB of frames, 66 of stacks, 40 of mappings.
    pub const IMPORT: Limits = Limits {
        frames: 7 << 18,
        nodes: 4 << 20,
        branches: 7 << 18,
        chain_words: 1 << 20,
        rows: 1 << 19,
    };

    /// For imports during a recording, which must leave memory to the recorded programs: 6 MiB of frames, 19 of
    /// stacks, 8 of mappings and threads.
    pub const RECORDING: Limits = Limits {
        frames: 7 << 15,
        nodes: 1 << 20,
        branches: 7 << 16,
        chain_words: 1 << 19,
        rows: 1 << 16,
    };
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::IMPORT
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Rows, Trace, at, clock, comm, mapping, send};
    use super::*;
    use perfquet_events::event::{Event, Exit, Fork, Sample, Space, Stack};

    /// A shell whose children end, each with stacks that share the outermost frames.
    fn recorded(limits: Limits) -> Rows {
        let mut trace = Trace::new();
        trace.limits = limits;
        trace.input("a", |sink| {
            send(sink, Event::Type(&clock()));
            send(sink, comm(40, b"sh"));
            send(sink, mapping(40, 0x1000, b"/bin/sh"));
            let mut seed = 1u64;
            for number in 0..60 {
                let (pid, time) = (100 + number, i64::from(number) * 10);
                let fork = Fork {
                    time: Some(time),
                    pid,
                    tid: pid,
                    parent_pid: 40,
                    parent_tid: 40,
                };
                send(sink, Event::Fork(fork));
                send(sink, mapping(pid, 0x5000, b"/lib/a"));
                let addresses: Vec<u64> = (0..6)
                    .map(|depth| {
                        seed = seed.wrapping_mul(6_364_136_223_846_793_005) + 1;
                        let base = [0x1000, 0x5000, 0x9000][depth as usize % 3];
                        base + 0x10 + (seed >> 60 & (7 >> depth))
                    })
                    .collect();
                let sample = Sample {
                    user_stack: Stack::of(Space::User, &addresses),
                    ..at(0, time + 1, pid)
                };
                send(sink, Event::Sample(&sample));
                let exit = Exit {
                    time: Some(time + 2),
                    pid: Some(pid),
                    tid: pid,
                    code: Some(0),
                };
                send(sink, Event::Exit(exit));
            }
        });
        trace.finish()
    }

    /// Time and name of each sample, and its stack's locations.
    fn samples(rows: &Rows) -> Vec<String> {
        let samples = rows.of("samples", &["time", "comm", "user_stack"]);
        let with_stack = |row: &String| {
            let (who, stack) = row.rsplit_once(' ').unwrap();
            format!("{who}: {}", rows.stack(stack))
        };
        samples.iter().map(with_stack).collect()
    }

    fn sorted(rows: &Rows, table: &str, columns: &[&str]) -> Vec<String> {
        let mut rows = rows.of(table, columns);
        rows.sort();
        rows
    }

    #[test]
    fn forgotten_frames_get_correct_names_again() {
        let whole = recorded(Limits::IMPORT);
        let expected = samples(&whole);
        assert!(expected[0].contains("/lib/a+"), "{}", expected[0]);
        let small = Limits {
            frames: 8,
            nodes: 16,
            branches: 8,
            chain_words: 16,
            rows: 4,
        };
        let one_small = [
            small,
            Limits {
                frames: 8,
                ..Limits::IMPORT
            },
            Limits {
                nodes: 16,
                ..Limits::IMPORT
            },
            Limits {
                branches: 4,
                ..Limits::IMPORT
            },
            Limits {
                chain_words: 16,
                ..Limits::IMPORT
            },
            Limits {
                rows: 4,
                ..Limits::IMPORT
            },
        ];
        for limits in one_small {
            let parts = recorded(limits);
            assert_eq!(samples(&parts), expected, "{limits:?}");
            for (table, columns) in [
                (
                    "threads",
                    &["tid", "comm", "start_time", "end_time", "exit_code"][..],
                ),
                ("mappings", &["pid", "start_address", "path"]),
            ] {
                assert_eq!(
                    sorted(&parts, table, columns),
                    sorted(&whole, table, columns)
                );
            }
        }
        // The limits were reached: recurring frames have other IDs.
        let parts = recorded(small);
        assert!(parts.counts.frames > 2 * whole.counts.frames);
        assert!(parts.counts.stacks > whole.counts.stacks);
    }
}
