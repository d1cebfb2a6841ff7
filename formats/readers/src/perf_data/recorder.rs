//! Information from perf and the kernel about the recording itself, as event types of the system "perf".
//!
//! Context switches, throttling, namespaces, counts of `perf stat record`: each kind of record has a separate table,
//! declared with its first record. The fields are those of the record, with the kernel's names if these are words.

use perfquet_events::event::{EventKind, EventType, Field, FieldType};

/// A kind of record that becomes an event type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecorderEvent {
    Read,
    Throttle,
    Unthrottle,
    Switch,
    Namespaces,
    Cgroup,
    BpfEvent,
    TextPoke,
    Aux,
    ItraceStart,
    AuxOutputHwId,
    AuxtraceError,
    Stat,
    SamplingRate,
}

/// Number of these types.
pub(super) const COUNT: usize = 14;

/// Names of the namespaces in the order of PERF_RECORD_NAMESPACES (`enum` in include/uapi/linux/perf_event.h;
/// the time namespace follows in newer kernels).
pub(super) const NAMESPACES: [&str; 8] =
    ["net", "uts", "ipc", "pid", "user", "mnt", "cgroup", "time"];

impl RecorderEvent {
    /// Returns the index in a table of all types.
    pub(super) fn index(self) -> usize {
        self as usize
    }

    fn name(self) -> &'static str {
        match self {
            RecorderEvent::Read => "read",
            RecorderEvent::Throttle => "throttle",
            RecorderEvent::Unthrottle => "unthrottle",
            RecorderEvent::Switch => "context_switch",
            RecorderEvent::Namespaces => "namespaces",
            RecorderEvent::Cgroup => "cgroup",
            RecorderEvent::BpfEvent => "bpf_event",
            RecorderEvent::TextPoke => "text_poke",
            RecorderEvent::Aux => "aux",
            RecorderEvent::ItraceStart => "itrace_start",
            RecorderEvent::AuxOutputHwId => "aux_output_hw_id",
            RecorderEvent::AuxtraceError => "auxtrace_error",
            RecorderEvent::Stat => "stat",
            RecorderEvent::SamplingRate => "sampling_rate",
        }
    }

    fn fields(self) -> Vec<Field> {
        use FieldType::{Binary, Bool, Int, Text, UInt};
        let plain: &[(&str, FieldType)] = match self {
            RecorderEvent::Read => &[
                ("event", Text),
                ("value", UInt(8)),
                ("time_enabled", Int(8)),
                ("time_running", Int(8)),
                ("lost", Int(8)),
            ],
            RecorderEvent::Throttle | RecorderEvent::Unthrottle => {
                &[("event", Text), ("stream_id", UInt(8))]
            }
            RecorderEvent::Switch => &[
                ("out", Bool),
                ("preempted", Bool),
                ("other_pid", Int(4)),
                ("other_tid", Int(4)),
            ],
            RecorderEvent::Namespaces => {
                let both = NAMESPACES.iter().flat_map(|name| {
                    let field = |part| field(&format!("{name}_{part}"), UInt(8));
                    [field("device"), field("inode")]
                });
                return both.collect();
            }
            RecorderEvent::Cgroup => &[("id", UInt(8)), ("path", Text)],
            RecorderEvent::BpfEvent => &[
                ("action", Text),
                ("id", UInt(4)),
                ("flags", UInt(2)),
                ("tag", Binary),
            ],
            RecorderEvent::TextPoke => &[
                ("addr", UInt(8)),
                ("old_bytes", Binary),
                ("new_bytes", Binary),
            ],
            RecorderEvent::Aux => &[
                ("aux_offset", UInt(8)),
                ("aux_size", UInt(8)),
                ("flags", UInt(8)),
            ],
            RecorderEvent::ItraceStart => &[],
            RecorderEvent::AuxOutputHwId => &[("hw_id", UInt(8))],
            RecorderEvent::AuxtraceError => &[
                ("error_type", UInt(4)),
                ("code", UInt(4)),
                ("ip", UInt(8)),
                ("message", Text),
            ],
            RecorderEvent::Stat => &[
                ("event", Text),
                ("thread_index", Int(4)),
                ("value", UInt(8)),
                ("time_enabled", Int(8)),
                ("time_running", Int(8)),
                ("round_time", Int(8)),
                ("is_final", Bool),
            ],
            RecorderEvent::SamplingRate => &[("event", Text), ("frequency", UInt(8))],
        };
        let fields = plain.iter().map(|(name, kind)| field(name, *kind));
        fields.collect()
    }

    /// Returns the declaration.
    pub(super) fn event_type(self) -> EventType {
        EventType {
            system: "perf".into(),
            name: self.name().into(),
            kind: EventKind::Recorder,
            fields: self.fields(),
            ..EventType::default()
        }
    }
}

fn field(name: &str, kind: FieldType) -> Field {
    Field {
        name: name.into(),
        kind,
        layout: None,
        declaration: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_index() {
        assert_eq!(RecorderEvent::SamplingRate.index() + 1, COUNT);
        let fields = RecorderEvent::Namespaces.event_type().fields;
        assert_eq!(fields.len(), 16);
        assert_eq!(fields[1].name, "net_inode");
    }
}
