//! Field numbers of Perfetto's messages, as in its `protos/perfetto/trace`.

pub(super) mod trace {
    pub(in crate::export::perfetto) const PACKET: u32 = 1;
}

pub(super) mod packet {
    pub(in crate::export::perfetto) const FTRACE_EVENTS: u32 = 1;
    pub(in crate::export::perfetto) const PROCESS_TREE: u32 = 2;
    pub(in crate::export::perfetto) const CLOCK_SNAPSHOT: u32 = 6;
    pub(in crate::export::perfetto) const TIMESTAMP: u32 = 8;
    pub(in crate::export::perfetto) const SEQUENCE_ID: u32 = 10;
    pub(in crate::export::perfetto) const TRACK_EVENT: u32 = 11;
    pub(in crate::export::perfetto) const INTERNED_DATA: u32 = 12;
    pub(in crate::export::perfetto) const SEQUENCE_FLAGS: u32 = 13;
    pub(in crate::export::perfetto) const SYSTEM_INFO: u32 = 45;
    pub(in crate::export::perfetto) const DEFAULTS: u32 = 59;
    pub(in crate::export::perfetto) const TRACK_DESCRIPTOR: u32 = 60;
    pub(in crate::export::perfetto) const PERF_SAMPLE: u32 = 66;
    pub(in crate::export::perfetto) const MACHINE_ID: u32 = 98;
    pub(in crate::export::perfetto) const TRACE_ATTRIBUTES: u32 = 126;
}

pub(super) mod sequence_flags {
    pub(in crate::export::perfetto) const CLEARED: u64 = 1;
    pub(in crate::export::perfetto) const NEEDED: u64 = 2;
}

pub(super) mod clock_snapshot {
    pub(in crate::export::perfetto) const CLOCKS: u32 = 1;
    pub(in crate::export::perfetto) const CLOCK_ID: u32 = 1;
    pub(in crate::export::perfetto) const TIMESTAMP: u32 = 2;
    pub(in crate::export::perfetto) const PRIMARY: u32 = 2;
    pub(in crate::export::perfetto) const REALTIME: u64 = 1;
    pub(in crate::export::perfetto) const BOOTTIME: u64 = 6;
}

pub(super) mod system_info {
    pub(in crate::export::perfetto) const UTSNAME: u32 = 1;
    pub(in crate::export::perfetto) const SYSNAME: u32 = 1;
    pub(in crate::export::perfetto) const VERSION: u32 = 2;
    pub(in crate::export::perfetto) const RELEASE: u32 = 3;
    pub(in crate::export::perfetto) const MACHINE: u32 = 4;
    pub(in crate::export::perfetto) const CPUS: u32 = 8;
    pub(in crate::export::perfetto) const MEMORY_BYTES: u32 = 16;
}

pub(super) mod attributes {
    pub(in crate::export::perfetto) const ATTRIBUTE: u32 = 1;
    pub(in crate::export::perfetto) const KEY: u32 = 1;
    pub(in crate::export::perfetto) const TEXT: u32 = 3;
}

pub(super) mod process_tree {
    pub(in crate::export::perfetto) const PROCESSES: u32 = 1;
    pub(in crate::export::perfetto) const PID: u32 = 1;
    pub(in crate::export::perfetto) const PARENT: u32 = 2;
    pub(in crate::export::perfetto) const CMDLINE: u32 = 3;
    pub(in crate::export::perfetto) const THREADS: u32 = 2;
    pub(in crate::export::perfetto) const TID: u32 = 1;
    pub(in crate::export::perfetto) const NAME: u32 = 2;
    pub(in crate::export::perfetto) const TGID: u32 = 3;
}

pub(super) mod bundle {
    pub(in crate::export::perfetto) const CPU: u32 = 1;
    pub(in crate::export::perfetto) const EVENT: u32 = 2;
    pub(in crate::export::perfetto) const LOST_EVENTS: u32 = 3;
}

pub(super) mod ftrace_event {
    pub(in crate::export::perfetto) const TIMESTAMP: u32 = 1;
    pub(in crate::export::perfetto) const TID: u32 = 2;
    pub(in crate::export::perfetto) const SCHED_SWITCH: u32 = 4;
    pub(in crate::export::perfetto) const CPU_FREQUENCY: u32 = 11;
    pub(in crate::export::perfetto) const CPU_IDLE: u32 = 13;
    pub(in crate::export::perfetto) const SCHED_WAKEUP: u32 = 17;
    pub(in crate::export::perfetto) const SCHED_WAKING: u32 = 20;
    pub(in crate::export::perfetto) const SCHED_WAKEUP_NEW: u32 = 114;
    pub(in crate::export::perfetto) const GENERIC: u32 = 327;
}

pub(super) mod generic {
    pub(in crate::export::perfetto) const EVENT_NAME: u32 = 1;
    pub(in crate::export::perfetto) const FIELD: u32 = 2;
    pub(in crate::export::perfetto) const NAME: u32 = 1;
    pub(in crate::export::perfetto) const TEXT: u32 = 3;
    pub(in crate::export::perfetto) const INT: u32 = 4;
    pub(in crate::export::perfetto) const UINT: u32 = 5;
}

pub(super) mod track {
    pub(in crate::export::perfetto) const UUID: u32 = 1;
    pub(in crate::export::perfetto) const NAME: u32 = 2;
    pub(in crate::export::perfetto) const PROCESS: u32 = 3;
    pub(in crate::export::perfetto) const THREAD: u32 = 4;
    pub(in crate::export::perfetto) const PARENT: u32 = 5;
    pub(in crate::export::perfetto) const COUNTER: u32 = 8;
    pub(in crate::export::perfetto) const DESCRIPTION: u32 = 14;
    /// Of a process and of a thread.
    pub(in crate::export::perfetto) const PID: u32 = 1;
    pub(in crate::export::perfetto) const TID: u32 = 2;
    pub(in crate::export::perfetto) const THREAD_NAME: u32 = 5;
}

pub(super) mod track_event {
    pub(in crate::export::perfetto) const CATEGORY: u32 = 3;
    pub(in crate::export::perfetto) const ANNOTATION: u32 = 4;
    pub(in crate::export::perfetto) const TYPE: u32 = 9;
    pub(in crate::export::perfetto) const NAME: u32 = 10;
    pub(in crate::export::perfetto) const TRACK: u32 = 11;
    pub(in crate::export::perfetto) const COUNTER: u32 = 30;
    pub(in crate::export::perfetto) const COUNTER_DOUBLE: u32 = 44;
    pub(in crate::export::perfetto) const BEGIN: u64 = 1;
    pub(in crate::export::perfetto) const END: u64 = 2;
    pub(in crate::export::perfetto) const INSTANT: u64 = 3;
    pub(in crate::export::perfetto) const COUNT: u64 = 4;
}

pub(super) mod annotation {
    pub(in crate::export::perfetto) const NAME: u32 = 1;
    pub(in crate::export::perfetto) const BOOL: u32 = 2;
    pub(in crate::export::perfetto) const UINT: u32 = 3;
    pub(in crate::export::perfetto) const INT: u32 = 4;
    pub(in crate::export::perfetto) const DOUBLE: u32 = 5;
    pub(in crate::export::perfetto) const TEXT: u32 = 6;
}

pub(super) mod interned {
    pub(in crate::export::perfetto) const CATEGORIES: u32 = 1;
    pub(in crate::export::perfetto) const EVENT_NAMES: u32 = 2;
    pub(in crate::export::perfetto) const ANNOTATION_NAMES: u32 = 3;
    pub(in crate::export::perfetto) const FUNCTION_NAMES: u32 = 5;
    pub(in crate::export::perfetto) const FRAMES: u32 = 6;
    pub(in crate::export::perfetto) const CALLSTACKS: u32 = 7;
    pub(in crate::export::perfetto) const BUILD_IDS: u32 = 16;
    pub(in crate::export::perfetto) const MAPPING_PATHS: u32 = 17;
    pub(in crate::export::perfetto) const SOURCE_PATHS: u32 = 18;
    pub(in crate::export::perfetto) const MAPPINGS: u32 = 19;
    pub(in crate::export::perfetto) const IID: u32 = 1;
    /// Of a string.
    pub(in crate::export::perfetto) const TEXT: u32 = 2;
}

pub(super) mod mapping {
    pub(in crate::export::perfetto) const BUILD_ID: u32 = 2;
    pub(in crate::export::perfetto) const PATH: u32 = 7;
}

pub(super) mod frame {
    pub(in crate::export::perfetto) const FUNCTION: u32 = 2;
    pub(in crate::export::perfetto) const MAPPING: u32 = 3;
    pub(in crate::export::perfetto) const OFFSET: u32 = 4;
    pub(in crate::export::perfetto) const SOURCE: u32 = 5;
    pub(in crate::export::perfetto) const LINE: u32 = 6;
}

pub(super) mod callstack {
    /// From the root.
    pub(in crate::export::perfetto) const FRAMES: u32 = 2;
}

pub(super) mod defaults {
    pub(in crate::export::perfetto) const PERF_SAMPLE: u32 = 12;
    pub(in crate::export::perfetto) const TIMEBASE: u32 = 1;
    pub(in crate::export::perfetto) const PERIOD: u32 = 1;
    pub(in crate::export::perfetto) const FREQUENCY: u32 = 2;
    pub(in crate::export::perfetto) const TRACEPOINT: u32 = 3;
    pub(in crate::export::perfetto) const COUNTER: u32 = 4;
    pub(in crate::export::perfetto) const NAME: u32 = 10;
    /// Of a tracepoint.
    pub(in crate::export::perfetto) const TRACEPOINT_NAME: u32 = 1;
}

pub(super) mod perf_sample {
    pub(in crate::export::perfetto) const CPU: u32 = 1;
    pub(in crate::export::perfetto) const PID: u32 = 2;
    pub(in crate::export::perfetto) const TID: u32 = 3;
    pub(in crate::export::perfetto) const CALLSTACK: u32 = 4;
    pub(in crate::export::perfetto) const MODE: u32 = 5;
    pub(in crate::export::perfetto) const TOTAL: u32 = 6;
    pub(in crate::export::perfetto) const LOST: u32 = 17;
}
