//! Fields of a packet, and what their absence from the tables means.

/// The form of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Number,
    Bytes,
    Message,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is decoded.
    Read,
    /// It describes the recording: its number is a fact.
    Fact,
    /// No table holds it: counted in `problems`.
    Unread,
}

/// The form of a field of a packet; `None` if it is unknown.
pub(super) fn form(number: u64) -> Option<Form> {
    match number {
        3 | 8 | 10 | 13 | 41 | 42 | 58 | 79 | 87 | 98 => Some(Form::Number),
        _ => kind(number).map(|(_, form, _)| form),
    }
}

/// Name, form and fate of the data of a packet.
pub(super) fn kind(number: u64) -> Option<(&'static str, Form, Fate)> {
    let found = KINDS.binary_search_by_key(&number, |kind| kind.0).ok()?;
    KINDS
        .get(found)
        .map(|&(_, name, form, fate)| (name, form, fate))
}

#[rustfmt::skip]
const KINDS: &[(u64, &str, Form, Fate)] = &[
    (1, "ftrace_events", Form::Message, Fate::Read),
    (2, "process_tree", Form::Message, Fate::Read),
    (4, "inode_file_map", Form::Message, Fate::Unread),
    (5, "chrome_events", Form::Message, Fate::Unread),
    (6, "clock_snapshot", Form::Message, Fate::Read),
    (7, "sys_stats", Form::Message, Fate::Read),
    (9, "process_stats", Form::Message, Fate::Read),
    (11, "track_event", Form::Message, Fate::Read),
    (12, "interned_data", Form::Message, Fate::Read),
    (33, "trace_config", Form::Message, Fate::Fact),
    (34, "ftrace_stats", Form::Message, Fate::Read),
    (35, "trace_stats", Form::Message, Fate::Fact),
    (36, "synchronization_marker", Form::Bytes, Fate::Fact),
    (37, "profile_packet", Form::Message, Fate::Unread),
    (38, "battery", Form::Message, Fate::Unread),
    (39, "android_log", Form::Message, Fate::Unread),
    (40, "power_rails", Form::Message, Fate::Unread),
    (43, "process_descriptor", Form::Message, Fate::Read),
    (44, "thread_descriptor", Form::Message, Fate::Read),
    (45, "system_info", Form::Message, Fate::Read),
    (46, "trigger", Form::Message, Fate::Fact),
    (47, "packages_list", Form::Message, Fate::Fact),
    (48, "chrome_benchmark_metadata", Form::Message, Fate::Fact),
    (49, "perfetto_metatrace", Form::Message, Fate::Fact),
    (50, "compressed_packets", Form::Bytes, Fate::Read),
    (51, "chrome_metadata", Form::Message, Fate::Fact),
    (52, "gpu_counter_event", Form::Message, Fate::Unread),
    (53, "gpu_render_stage_event", Form::Message, Fate::Unread),
    (54, "streaming_profile_packet", Form::Message, Fate::Unread),
    (57, "graphics_frame_event", Form::Message, Fate::Unread),
    (59, "trace_packet_defaults", Form::Message, Fate::Read),
    (60, "track_descriptor", Form::Message, Fate::Read),
    (61, "module_symbols", Form::Message, Fate::Unread),
    (62, "vulkan_memory_event", Form::Message, Fate::Unread),
    (63, "gpu_log", Form::Message, Fate::Unread),
    (64, "deobfuscation_mapping", Form::Message, Fate::Unread),
    (65, "vulkan_api_event", Form::Message, Fate::Unread),
    (66, "perf_sample", Form::Message, Fate::Read),
    (67, "cpu_info", Form::Message, Fate::Fact),
    (68, "smaps_packet", Form::Message, Fate::Unread),
    (69, "service_event", Form::Message, Fate::Fact),
    (70, "initial_display_state", Form::Message, Fate::Fact),
    (71, "gpu_mem_total_event", Form::Message, Fate::Unread),
    (72, "extension_descriptor", Form::Message, Fate::Fact),
    (73, "memory_tracker_snapshot", Form::Message, Fate::Unread),
    (74, "streaming_allocation", Form::Message, Fate::Unread),
    (75, "streaming_free", Form::Message, Fate::Unread),
    (77, "android_energy_estimation_breakdown", Form::Message, Fate::Unread),
    (78, "ui_state", Form::Message, Fate::Fact),
    (82, "translation_table", Form::Message, Fate::Unread),
    (83, "android_game_intervention_list", Form::Message, Fate::Unread),
    (84, "statsd_atom", Form::Message, Fate::Unread),
    (86, "android_system_property", Form::Message, Fate::Fact),
    (89, "trace_uuid", Form::Message, Fate::Fact),
    (90, "track_event_range_of_interest", Form::Message, Fate::Fact),
    (91, "entity_state_residency", Form::Message, Fate::Unread),
    (95, "etw_events", Form::Message, Fate::Unread),
    (99, "v8_js_code", Form::Message, Fate::Unread),
    (100, "v8_internal_code", Form::Message, Fate::Unread),
    (101, "v8_wasm_code", Form::Message, Fate::Unread),
    (102, "v8_reg_exp_code", Form::Message, Fate::Unread),
    (103, "v8_code_move", Form::Message, Fate::Unread),
    (107, "remote_clock_sync", Form::Message, Fate::Unread),
    (109, "chrome_trigger", Form::Message, Fate::Fact),
    (110, "pixel_modem_events", Form::Message, Fate::Unread),
    (111, "pixel_modem_token_database", Form::Message, Fate::Unread),
    (113, "clone_snapshot_trigger", Form::Message, Fate::Fact),
    (115, "kernel_wakelock_data", Form::Message, Fate::Unread),
    (117, "generic_kernel_task_state_event", Form::Message, Fate::Unread),
    (118, "generic_kernel_cpu_freq_event", Form::Message, Fate::Unread),
    (119, "cpu_per_uid_data", Form::Message, Fate::Unread),
    (120, "generic_kernel_task_rename_event", Form::Message, Fate::Unread),
    (122, "generic_kernel_process_tree", Form::Message, Fate::Unread),
    (123, "user_list", Form::Message, Fate::Unread),
    (124, "trace_provenance", Form::Message, Fate::Fact),
    (125, "protovms", Form::Message, Fate::Fact),
    (126, "trace_attributes", Form::Message, Fate::Read),
    (127, "android_aflags", Form::Message, Fate::Unread),
    (128, "gpu_info", Form::Message, Fate::Unread),
    (129, "generic_gpu_frequency_event", Form::Message, Fate::Unread),
    (130, "interrupt_info", Form::Message, Fate::Unread),
    (131, "art_process_metadata", Form::Message, Fate::Unread),
    (132, "journald_event", Form::Message, Fate::Unread),
    (133, "zstd_compressed_packets", Form::Bytes, Fate::Read),
    (134, "concurrent_session_event", Form::Message, Fate::Fact),
    (135, "stack_sample", Form::Message, Fate::Unread),
    (900, "for_testing", Form::Message, Fate::Unread),
];
