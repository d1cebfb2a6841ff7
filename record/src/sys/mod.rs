//! Interfaces of the kernel: all `unsafe` code of this crate, one file per interface.

pub(crate) mod channel;
pub(crate) mod child;
pub(crate) mod clock;
pub(crate) mod file;
pub(crate) mod host;
pub(crate) mod kallsyms;
pub(crate) mod keyboard;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod perf_event;
pub(crate) mod privileges;
pub(crate) mod process;
pub(crate) mod procfs;
pub(crate) mod ring;
pub(crate) mod sample_filter;
pub(crate) mod signals;
pub(crate) mod thread;
pub(crate) mod tracefs;
pub(crate) mod wait;
