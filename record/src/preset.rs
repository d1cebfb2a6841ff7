//! `--preset`: names for sets of options.
//!
//! ```text
//! --preset runqlat      --latency 'sched:sched_wakeup[pid],... -> sched:sched_switch[next_pid]' --agg 'runqlat = quantize(duration)'
//! ```
//! The options of presets precede those of the command line, which may extend them: `--filter` and `--agg` apply to the last
//! event of a preset, and the last one of a non-repeatable option counts. Without a target, the whole system is recorded.
//! Parts whose tracepoints the kernel lacks are skipped and reported.

use std::ffi::OsString;

use crate::sys::tracefs::Tracefs;

/// A set of options.
pub(crate) struct Preset {
    pub(crate) name: &'static str,
    /// Description for `--list presets`.
    about: &'static str,
    /// The report to run on the trace.
    report: &'static str,
    /// Whether events that concern a thread also occur in others: interrupts, kernel workers, threads that wake it.
    is_system_wide: bool,
    parts: &'static [Part],
}

/// Options that are used together.
struct Part {
    /// Required tracepoints; without them, the part is skipped.
    needs: &'static [&'static str],
    options: &'static [&'static str],
}

const WAITS: Part = Part {
    needs: &[],
    options: &[
        "--latency",
        "sched:sched_wakeup[pid], sched:sched_wakeup_new[pid], \
         sched:sched_switch[prev_pid]/(prev_state == 0 || prev_state == 256) && prev_pid != 0/ \
         -> sched:sched_switch[next_pid]",
        "--filter",
        "next_pid != 0",
        "--agg",
        "runqlat = quantize(duration)",
    ],
};

const RUNS: Part = Part {
    needs: &[],
    options: &[
        "--latency",
        "sched:sched_switch[next_pid]/next_pid != 0/ -> sched:sched_switch[prev_pid]",
        "--agg",
        "cpudist = quantize(duration)",
    ],
};

const BLOCK_IO: Part = Part {
    needs: &["block:block_rq_issue", "block:block_rq_complete"],
    options: &[
        "--latency",
        "block:block_rq_issue[dev,sector] -> block:block_rq_complete[dev,sector]",
        "--agg",
        "biolatency = quantize(duration)",
    ],
};

/// Every preset.
pub(crate) const PRESETS: &[Preset] = &[
    Preset {
        name: "sched",
        about: "every switch, wakeup, migration, fork, exec and exit",
        report: "top --by event",
        is_system_wide: true,
        parts: &[Part {
            needs: &[],
            options: &[
                "-e",
                "sched:sched_switch,sched:sched_wakeup,sched:sched_wakeup_new,sched:sched_migrate_task,\
                 sched:sched_process_fork,sched:sched_process_exec,sched:sched_process_exit",
            ],
        }],
    },
    Preset {
        name: "io",
        about: "block requests with their latencies, by program and operation",
        report: "hist",
        is_system_wide: true,
        parts: &[
            Part {
                needs: BLOCK_IO.needs,
                // A request that the driver refused is issued once more.
                options: &[
                    "-e",
                    "block:block_rq_issue,block:block_rq_requeue,block:block_rq_complete",
                ],
            },
            BLOCK_IO,
            Part {
                needs: BLOCK_IO.needs,
                options: &[
                    "--agg",
                    "count(), sum(start.bytes), max(duration) by start.comm, start.rwbs",
                ],
            },
        ],
    },
    Preset {
        name: "net",
        about: "packets to and from devices, connection states, retransmits and drops",
        report: "top --by event",
        is_system_wide: true,
        parts: &[
            Part {
                needs: &["net:net_dev_queue", "net:netif_receive_skb"],
                options: &["-e", "net:net_dev_queue,net:netif_receive_skb"],
            },
            Part {
                needs: &["sock:inet_sock_set_state"],
                options: &["-e", "sock:inet_sock_set_state"],
            },
            Part {
                needs: &["tcp:tcp_retransmit_skb"],
                options: &["-e", "tcp:tcp_retransmit_skb"],
            },
            Part {
                needs: &["skb:kfree_skb"],
                options: &["-e", "skb:kfree_skb"],
            },
        ],
    },
    Preset {
        name: "syscalls",
        about: "every system call with its duration and result",
        report: "durations",
        is_system_wide: false,
        parts: &[Part {
            needs: &[],
            options: &["-e", "raw_syscalls:sys_enter,raw_syscalls:sys_exit"],
        }],
    },
    Preset {
        name: "latency",
        about: "waits for a CPU, interrupts, softirqs and block requests, aggregated in the kernel",
        report: "hist",
        is_system_wide: true,
        parts: &[
            WAITS,
            Part {
                needs: &["irq:irq_handler_entry", "irq:irq_handler_exit"],
                options: &[
                    "--latency",
                    "irq:irq_handler_entry[cpu,irq] -> irq:irq_handler_exit[cpu,irq]",
                    "--agg",
                    "irqs = count(), irq time = sum(duration), longest irq = max(duration) by cpu, irq",
                ],
            },
            Part {
                needs: &["irq:softirq_raise", "irq:softirq_entry", "irq:softirq_exit"],
                options: &[
                    "--latency",
                    "irq:softirq_raise[cpu,vec] -> irq:softirq_entry[cpu,vec]",
                    "--agg",
                    "softirq wait = quantize(duration) by vec",
                    "--latency",
                    "irq:softirq_entry[cpu,vec] -> irq:softirq_exit[cpu,vec]",
                    "--agg",
                    "softirqs = count(), softirq time = sum(duration), longest softirq = max(duration) by cpu, vec",
                ],
            },
            BLOCK_IO,
        ],
    },
    Preset {
        name: "locks",
        about: "time that threads wait for kernel locks, by stack",
        report: "flamegraph -o FILE.svg",
        is_system_wide: false,
        parts: &[Part {
            needs: &["lock:contention_begin", "lock:contention_end"],
            options: &[
                "--latency",
                "lock:contention_begin[tid,lock_addr] -> lock:contention_end[tid,lock_addr]",
                "--agg",
                "lock wait = sum(duration), lock waits = count() by comm, start.flags, kstack",
                "--agg",
                "lock latency = quantize(duration)",
            ],
        }],
    },
    Preset {
        name: "memory",
        about: "page faults by stack, direct reclaim and victims of the OOM killer",
        report: "flamegraph -o FILE.svg",
        is_system_wide: false,
        parts: &[
            Part {
                needs: &[],
                options: &[
                    "-e",
                    "page-faults",
                    "--agg",
                    "page faults = count() by comm, pid, ustack",
                ],
            },
            Part {
                needs: &[
                    "vmscan:mm_vmscan_direct_reclaim_begin",
                    "vmscan:mm_vmscan_direct_reclaim_end",
                ],
                options: &[
                    "--latency",
                    "vmscan:mm_vmscan_direct_reclaim_begin[tid] -> vmscan:mm_vmscan_direct_reclaim_end[tid]",
                    "--agg",
                    "reclaims = count(), reclaim time = sum(duration), longest reclaim = max(duration) by comm",
                ],
            },
            Part {
                needs: &["oom:mark_victim"],
                options: &["-e", "oom:mark_victim"],
            },
        ],
    },
    Preset {
        name: "off-cpu",
        about: "time off the CPU by stack, reason and waker",
        report: "flamegraph -o FILE.svg",
        is_system_wide: false,
        parts: &[Part {
            needs: &[],
            options: &["--off-cpu"],
        }],
    },
    Preset {
        name: "fleet",
        about: "stacks at 19 Hz, waits for a CPU and times on it, aggregated in the kernel, to be left on",
        report: "flamegraph -o FILE.svg",
        is_system_wide: false,
        parts: &[
            Part {
                needs: &[],
                // Unwind tables of all programs would take more CPU time than the rest.
                options: &["--profile", "-F", "19", "--call-graph", "fp"],
            },
            WAITS,
            RUNS,
        ],
    },
    Preset {
        name: "runqlat",
        about: "how long threads wait for a CPU",
        report: "hist",
        is_system_wide: false,
        parts: &[WAITS],
    },
    Preset {
        name: "cpudist",
        about: "how long threads stay on a CPU",
        report: "hist",
        is_system_wide: false,
        parts: &[RUNS],
    },
    Preset {
        name: "biolatency",
        about: "latency of block requests, from issue to completion",
        report: "hist",
        is_system_wide: true,
        parts: &[BLOCK_IO],
    },
];

/// Returns the first of these presets whose events occur in threads other than those that they concern.
pub(crate) fn system_wide<'a>(mut names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names.find(|name| {
        let mut presets = PRESETS.iter();
        presets.any(|preset| preset.name == *name && preset.is_system_wide)
    })
}

/// Returns the options of the presets with these names, as words of a command line.
pub(crate) fn options<'a>(names: impl Iterator<Item = &'a str>) -> Vec<OsString> {
    let presets = names.filter_map(|name| PRESETS.iter().find(|preset| preset.name == name));
    let mut words = Vec::new();
    for preset in presets {
        for part in preset.parts {
            match part.needs.iter().find(|name| !exists(name)) {
                Some(missing) => log::warn!(
                    "--preset {}: this kernel has no {missing}; skipping {}",
                    preset.name,
                    shown(part.options)
                ),
                None => words.extend(part.options.iter().map(OsString::from)),
            }
        }
    }
    words
}

/// Whether the kernel has a tracepoint. True where that cannot be found out: then opening it explains why.
fn exists(name: &str) -> bool {
    let (Ok(tracefs), Some((system, event))) = (Tracefs::open(), name.split_once(':')) else {
        return true;
    };
    tracefs.path("events").join(system).join(event).is_dir()
}

/// `--list presets`: each with its options and a report.
pub(crate) fn list() -> String {
    let mut text = String::new();
    for preset in PRESETS {
        text.push_str(&format!("{:<11} {}\n", preset.name, preset.about));
        for part in preset.parts {
            text.push_str(&format!("            {}\n", shown(part.options)));
        }
        text.push_str(&format!(
            "            next: perfquet-query {}\n",
            preset.report
        ));
    }
    text
}

/// As typed in a shell.
fn shown(options: &[&str]) -> String {
    let word = |word: &&str| match word
        .contains(|c: char| c.is_whitespace() || "[]()<>*$&|;'".contains(c))
    {
        true => format!("'{word}'"),
        false => (*word).to_owned(),
    };
    options.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_can_be_typed() {
        assert_eq!(
            shown(&["-e", "a:b,c:d", "--agg", "n = count()"]),
            "-e a:b,c:d --agg 'n = count()'"
        );
        for preset in PRESETS {
            let words = preset.parts.iter().flat_map(|part| part.options);
            assert!(
                words.clone().all(|word| !word.contains('\'')),
                "{}",
                preset.name
            );
            assert!(
                words.clone().all(|word| !word.contains("  ")),
                "{}",
                preset.name
            );
        }
    }

    #[test]
    fn every_preset_is_listed() {
        let text = list();
        let names = text.lines().filter(|line| !line.starts_with(' '));
        assert_eq!(names.count(), PRESETS.len());
    }
}
