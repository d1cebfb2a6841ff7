//! Records that perf itself writes, and simpleperf: what the events are, how the file is packed, counts.

use perfquet_events::Error;
use perfquet_events::bytes::{Cursor, Short, before_nul};
use perfquet_events::event::{
    BuildId, CallFunction, Comm, Event, Fact, Place, Purpose, Selection, Symbol, Value,
};

use crate::perf_data::attr::{ATTR_BYTES_MAX, ATTR_BYTES_MIN, Attr};
use crate::perf_data::compressed::Unpacker;
use crate::perf_data::emit::signed;
use crate::perf_data::read::Session;
use crate::perf_data::record::{MISC_BIT_15, RecordHeader, Trailer, kind};
use crate::perf_data::recorder::RecorderEvent;
use crate::perf_data::sample::space_of;
use crate::tracing_data::{TracingData, printk_formats};

/// What a zstd stream begins with (RFC 8878).
const ZSTD_MAGIC: &[u8] = b"\x28\xb5\x2f\xfd";
/// Counts kept until their round ends; more are handed over without knowing its time.
const STAT_VALUES_MAX: usize = 1 << 16;

/// EVENT_UPDATE of perfquet-record: the kernel's filter as text. perf passes over kinds that it does not know.
const UPDATE_FILTER: u64 = 0x7071_0001;
/// Likewise: what its hits are for, as [`Purpose`] writes it.
const UPDATE_PURPOSE: u64 = 0x7071_0002;
/// Likewise, of the recording as a whole: what to keep of it, as [`Selection`] writes it.
const UPDATE_SELECTION: u64 = 0x7071_0003;
/// Likewise: a function whose calls a program tells, as [`CallFunction`] writes it.
const UPDATE_FUNCTION: u64 = 0x7071_0004;
/// Likewise, of the recording as a whole: what it is of ("system", "process 12").
const UPDATE_SCOPE: u64 = 0x7071_0005;

/// One count of `perf stat record`.
#[derive(Debug, Clone, Copy)]
pub(super) struct StatValue {
    id: u64,
    cpu: u32,
    thread: u32,
    value: u64,
    enabled: u64,
    running: u64,
}

impl Session<'_, '_> {
    /// Takes a record that is not the kernel's. `extra` follows it in the file.
    pub(super) fn tool_record(
        &mut self,
        header: RecordHeader,
        record: &[u8],
        offset: u64,
        extra: &[u8],
    ) -> Result<(), Error> {
        let body = self.body(record, offset);
        let result = match header.kind {
            kind::FINISHED_ROUND => return self.finish_round(),
            kind::COMPRESSED => return self.unpack(body.rest(), offset),
            kind::COMPRESSED2 => return self.unpack_padded(body, offset),
            kind::SIMPLEPERF_FIRST.. => return self.simpleperf_record(header, body),
            kind::HEADER_ATTR => self.header_attr(body)?,
            kind::HEADER_EVENT_TYPE => self.header_event_type(body),
            kind::TRACING_DATA => self.tracing_data_record(body, extra)?,
            kind::BUILD_ID => self.build_id(header, body, true)?,
            kind::AUXTRACE_INFO => self.auxtrace_info(body)?,
            kind::AUXTRACE => {
                self.undecoded.aux_buffers += 1;
                self.undecoded.aux_bytes += extra.len() as u64;
                Ok(())
            }
            kind::AUXTRACE_ERROR => self.auxtrace_error(body)?,
            kind::THREAD_MAP => self.thread_map(body)?,
            kind::STAT_CONFIG => self.stat_config(body)?,
            kind::STAT => self.stat(body)?,
            kind::STAT_ROUND => self.stat_round(body)?,
            kind::EVENT_UPDATE => self.event_update(body)?,
            kind::TIME_CONV => self.time_conv(body)?,
            kind::HEADER_FEATURE => self.header_feature(body)?,
            // Ids come with the attrs, CPUs with the samples; the others have nothing for the tables.
            kind::ID_INDEX | kind::CPU_MAP | kind::FINISHED_INIT | kind::BPF_METADATA => Ok(()),
            unknown => {
                self.count_unknown(unknown);
                Ok(())
            }
        };
        match result {
            Ok(()) => Ok(()),
            Err(short) => self.problem(Place::Offset(offset), "short record", || {
                let place = short.offset;
                format!("record of type {}: {place:#x}: {short}", header.kind)
            }),
        }
    }

    /// Adds an event with the ids of its counters.
    pub(super) fn add_attr(
        &mut self,
        attr: Attr,
        ids: impl IntoIterator<Item = u64>,
    ) -> Result<(), Error> {
        let index = self.attrs.len();
        for id in ids {
            self.ids.insert(id, index);
        }
        if index == 0 {
            self.sink.event(Event::Fact(Fact::Clock(attr.clock())))?;
        }
        self.attrs.push(attr);
        Ok(())
    }

    /// The outer error is the sink's, the inner one the record's; so below.
    fn header_attr(&mut self, body: Cursor<'_>) -> Result<Result<(), Short>, Error> {
        let mut probe = body;
        let size = match probe.u32().and_then(|_| probe.u32()) {
            Ok(0) => ATTR_BYTES_MIN,
            Ok(size) => u64::from(size),
            Err(short) => return Ok(Err(short)),
        };
        let size = size.clamp(ATTR_BYTES_MIN, ATTR_BYTES_MAX);
        let mut ids = body;
        // A short one means zeros.
        let size = size.min(ids.left());
        let attr = match ids.bytes(size) {
            Ok(bytes) => Attr::parse(bytes, self.endian),
            Err(short) => return Ok(Err(short)),
        };
        self.add_attr(attr, std::iter::from_fn(|| ids.u64().ok()))?;
        Ok(Ok(()))
    }

    /// Obsolete: `u64 config, char name[64]`.
    pub(super) fn header_event_type(&mut self, mut body: Cursor<'_>) -> Result<(), Short> {
        let config = body.u64()?;
        let name = before_nul(body.rest());
        let name = String::from_utf8_lossy(name).into_owned();
        self.type_names.insert(config, name);
        Ok(())
    }

    fn tracing_data_record(
        &mut self,
        mut body: Cursor<'_>,
        extra: &[u8],
    ) -> Result<Result<(), Short>, Error> {
        if let Err(short) = body.u32() {
            return Ok(Err(short));
        }
        if extra.is_empty() {
            self.tracing_data(body.rest(), body.offset())?;
        } else {
            self.tracing_data(extra, body.offset() + body.left())?;
        }
        Ok(Ok(()))
    }

    /// Keeps the formats of tracepoints, and hands over the names of threads and symbols that come with them.
    pub(super) fn tracing_data(&mut self, bytes: &[u8], offset: u64) -> Result<(), Error> {
        let Some(data) = TracingData::parse(bytes, offset) else {
            return self.problem(Place::Offset(offset), "tracing data", || {
                "expected tracing data, found another magic; payloads of tracepoints stay raw"
                    .into()
            });
        };
        self.is_payload_big = data.endian == perfquet_events::bytes::Endian::Big;
        let mut damaged = Vec::new();
        let formats = data.formats(|system, reason| damaged.push(format!("{system}: {reason}")));
        for reason in damaged.into_iter().chain(data.damage.clone()) {
            self.problem(Place::Offset(offset), "tracing data", || reason)?;
        }
        for (system, format) in formats {
            self.formats.insert(format.id, (system, format));
        }
        for line in data.saved_cmdlines.split(|&byte| byte == b'\n') {
            if let Some((tid, comm)) = split_once(line, b' ')
                && let Some(tid) = number(tid, 10)
            {
                self.sink.event(Event::Comm(Comm {
                    time: None,
                    pid: None,
                    tid: tid as i32,
                    comm,
                    exec: false,
                }))?;
            }
        }
        printk_formats::tell(data.printk_formats, self.sink)?;
        self.kallsyms(data.kallsyms)
    }

    /// Hands over the symbols of a /proc/kallsyms inside of the file.
    pub(super) fn kallsyms(&mut self, text: &[u8]) -> Result<(), Error> {
        for line in text.split(|&byte| byte == b'\n') {
            let Some((address, rest)) = split_once(line, b' ') else {
                continue;
            };
            let Some((b"t" | b"T" | b"w" | b"W", name)) = split_once(rest, b' ') else {
                continue;
            };
            // Zeros: hidden by kptr_restrict.
            let Some(start) = number(address, 16).filter(|&start| start != 0) else {
                continue;
            };
            let name = name
                .split(|byte| byte.is_ascii_whitespace())
                .next()
                .unwrap_or_default();
            self.sink.event(Event::Symbol(Symbol {
                module: None,
                start,
                length: 0,
                name,
            }))?;
        }
        Ok(())
    }

    /// `i32 pid, u8 id[20], u8 size, u8[3], char path[]`. The first perf wrote no pid.
    pub(super) fn build_id(
        &mut self,
        header: RecordHeader,
        mut body: Cursor<'_>,
        has_pid: bool,
    ) -> Result<Result<(), Short>, Error> {
        let pid = match has_pid {
            true => body.i32(),
            false => Ok(-1),
        };
        let (pid, id) = match pid.and_then(|pid| Ok((pid, body.bytes(24)?))) {
            Ok(both) => both,
            Err(short) => return Ok(Err(short)),
        };
        let told = id
            .get(20)
            .copied()
            .filter(|_| header.misc & MISC_BIT_15 != 0);
        let size = usize::from(told.unwrap_or(20)).min(20);
        let build_id = id.get(..size).unwrap_or(id);
        let path = before_nul(body.rest());
        let space = space_of(header.misc);
        if space == perfquet_events::event::Space::Kernel && path.starts_with(b"[kernel.kallsyms]")
        {
            self.sink
                .event(Event::Fact(Fact::KernelBuildId(build_id)))?;
        }
        self.sink.event(Event::BuildId(BuildId {
            pid,
            space,
            path,
            build_id,
        }))?;
        Ok(Ok(()))
    }

    fn auxtrace_info(&mut self, mut body: Cursor<'_>) -> Result<Result<(), Short>, Error> {
        let kind = match body.u32() {
            Ok(kind) => kind,
            Err(short) => return Ok(Err(short)),
        };
        // enum auxtrace_type, tools/perf/util/auxtrace.h
        let name = match kind {
            1 => "intel_pt",
            2 => "intel_bts",
            3 => "cs_etm",
            4 => "arm_spe",
            5 => "s390_cpumsf",
            6 => "hisi_ptt",
            _ => "unknown",
        };
        self.other_fact("perf.auxtrace", name)?;
        Ok(Ok(()))
    }

    /// `u32 type, code, cpu, pid, tid, fmt; u64 ip, time; char msg[]`.
    fn auxtrace_error(&mut self, mut body: Cursor<'_>) -> Result<Result<(), Short>, Error> {
        let mut read = || {
            let head = [body.u32()?, body.u32()?, body.u32()?];
            let (pid, tid, format) = (body.i32()?, body.i32()?, body.u32()?);
            let ip = body.u64()?;
            // Before format 1 there was no time.
            let time = if format == 0 { 0 } else { body.u64()? };
            Ok((head, pid, tid, ip, time))
        };
        let ([error, code, cpu], pid, tid, ip, time) = match read() {
            Ok(all) => all,
            Err(short) => return Ok(Err(short)),
        };
        let trailer = Trailer {
            pid: Some(pid),
            tid: Some(tid),
            time: Some(time),
            cpu: Some(cpu),
            ..Trailer::default()
        };
        let values = [
            Value::UInt(error.into()),
            Value::UInt(code.into()),
            Value::UInt(ip),
            Value::Bytes(before_nul(body.rest())),
        ];
        self.emit_values(RecorderEvent::AuxtraceError, &trailer, &values)?;
        Ok(Ok(()))
    }

    /// `u64 n; {u64 tid, char comm[16]}[n]`: what was asked to be traced.
    fn thread_map(&mut self, mut body: Cursor<'_>) -> Result<Result<(), Short>, Error> {
        if let Err(short) = body.u64() {
            return Ok(Err(short));
        }
        while body.left() >= 24 {
            let (Ok(tid), Ok(comm)) = (body.i64(), body.bytes(16)) else {
                break;
            };
            let comm = before_nul(comm);
            // -1: all threads.
            if let Ok(tid @ 0..) = i32::try_from(tid)
                && !comm.is_empty()
            {
                self.sink.event(Event::Comm(Comm {
                    time: None,
                    pid: None,
                    tid,
                    comm,
                    exec: false,
                }))?;
            }
        }
        Ok(Ok(()))
    }

    /// `u64 n; {u64 tag, u64 value}[n]`.
    fn stat_config(&mut self, mut body: Cursor<'_>) -> Result<Result<(), Short>, Error> {
        if let Err(short) = body.u64() {
            return Ok(Err(short));
        }
        while let (Ok(tag), Ok(value)) = (body.u64(), body.u64()) {
            let name = match tag {
                0 => "perf.stat_aggregation",
                1 => "perf.stat_interval_ms",
                2 => "perf.stat_scale",
                _ => continue,
            };
            self.other_fact(name, &value.to_string())?;
        }
        Ok(Ok(()))
    }

    fn stat(&mut self, mut body: Cursor<'_>) -> Result<Result<(), Short>, Error> {
        let mut read = || {
            Ok(StatValue {
                id: body.u64()?,
                cpu: body.u32()?,
                thread: body.u32()?,
                value: body.u64()?,
                enabled: body.u64()?,
                running: body.u64()?,
            })
        };
        match read() {
            Ok(value) => self.stat_values.push(value),
            Err(short) => return Ok(Err(short)),
        }
        if self.stat_values.len() >= STAT_VALUES_MAX {
            self.flush_stat(None)?;
        }
        Ok(Ok(()))
    }

    fn stat_round(&mut self, mut body: Cursor<'_>) -> Result<Result<(), Short>, Error> {
        match body.u64().and_then(|kind| Ok((kind, body.u64()?))) {
            Ok((kind, time)) => self.flush_stat(Some((time, kind == 1))).map(Ok),
            Err(short) => Ok(Err(short)),
        }
    }

    /// Hands over the counts of a round; its time comes after them.
    pub(super) fn flush_stat(&mut self, round: Option<(u64, bool)>) -> Result<(), Error> {
        let int = |word: u64| signed(word).map_or(Value::Null, Value::Int);
        for stat in std::mem::take(&mut self.stat_values) {
            let name = self.name_of_id(Some(stat.id))?;
            let values = [
                Value::Bytes(name.as_bytes()),
                int(stat.thread.into()),
                Value::UInt(stat.value),
                int(stat.enabled),
                int(stat.running),
                round.map_or(Value::Null, |(time, _)| int(time)),
                round.map_or(Value::Null, |(_, is_final)| Value::Bool(is_final)),
            ];
            let trailer = Trailer {
                cpu: Some(stat.cpu),
                ..Trailer::default()
            };
            self.emit_values(RecorderEvent::Stat, &trailer, &values)?;
        }
        Ok(())
    }

    /// `u64 type, id; data`: unit, scale, name or CPUs of an event.
    fn event_update(&mut self, mut body: Cursor<'_>) -> Result<Result<(), Short>, Error> {
        let (kind, id) = match body.u64().and_then(|kind| Ok((kind, body.u64()?))) {
            Ok(both) => both,
            Err(short) => return Ok(Err(short)),
        };
        let Some(index) = self.attr_of_id(Some(id)) else {
            return Ok(Ok(()));
        };
        match kind {
            0 => {
                let unit = String::from_utf8_lossy(before_nul(body.rest())).into_owned();
                let name = format!("perf.unit.{}", self.name_of_id(Some(id))?);
                self.other_fact(&name, &unit)?;
            }
            1 => {
                let scale = f64::from_bits(body.u64().unwrap_or(0));
                let name = format!("perf.scale.{}", self.name_of_id(Some(id))?);
                self.other_fact(&name, &scale.to_string())?;
            }
            2 => {
                let name = String::from_utf8_lossy(before_nul(body.rest())).into_owned();
                if let Some(attr) = self.attrs.get_mut(index)
                    && !name.is_empty()
                {
                    attr.name = Some(name);
                }
            }
            UPDATE_FILTER => {
                let filter = String::from_utf8_lossy(before_nul(body.rest())).into_owned();
                if let Some(attr) = self.attrs.get_mut(index) {
                    attr.filter = Some(filter);
                }
            }
            UPDATE_PURPOSE => {
                let text = String::from_utf8_lossy(before_nul(body.rest()));
                match (Purpose::parse(&text), self.attrs.get_mut(index)) {
                    (Some(purpose), Some(attr)) => attr.purpose = purpose,
                    (None, _) => self.problem(Place::Whole, "purpose", || {
                        format!("unknown purpose of an event: {text:?}")
                    })?,
                    (Some(_), None) => {}
                }
            }
            UPDATE_FUNCTION => {
                let text = String::from_utf8_lossy(before_nul(body.rest()));
                match CallFunction::parse(&text) {
                    Some(function) => {
                        self.call_functions.insert(function.number, function);
                    }
                    None => self.problem(Place::Whole, "function", || {
                        format!("unknown function of calls: {text:?}")
                    })?,
                }
            }
            UPDATE_SCOPE => {
                let scope = String::from_utf8_lossy(before_nul(body.rest())).into_owned();
                self.other_fact("scope", &scope)?;
            }
            UPDATE_SELECTION => {
                let text = String::from_utf8_lossy(before_nul(body.rest()));
                match Selection::parse(&text) {
                    Ok(selection) => {
                        // The recorder waits for the rows.
                        if selection.max_events.is_some() {
                            self.queue.hurry();
                        }
                        self.sink.event(Event::Selection(&selection))?;
                    }
                    Err(word) => self.problem(Place::Whole, "selection", || {
                        format!("unknown selection of calls: {word:?}")
                    })?,
                }
            }
            _ => {}
        }
        Ok(Ok(()))
    }

    /// `u64 shift, mult, zero`: time = zero + (tsc · mult >> shift).
    fn time_conv(&mut self, mut body: Cursor<'_>) -> Result<Result<(), Short>, Error> {
        let mut read = || Ok((body.u64()?, body.u64()?, body.u64()?));
        match read() {
            Ok((shift, mult, zero)) => {
                let text = format!("shift={shift} mult={mult} zero={zero}");
                self.other_fact("perf.time_conv", &text)?;
                Ok(Ok(()))
            }
            Err(short) => Ok(Err(short)),
        }
    }

    fn header_feature(&mut self, mut body: Cursor<'_>) -> Result<Result<(), Short>, Error> {
        match body.u64() {
            Ok(bit) => {
                self.feature(u32::try_from(bit).unwrap_or(u32::MAX), body)?;
                Ok(Ok(()))
            }
            Err(short) => Ok(Err(short)),
        }
    }

    pub(super) fn other_fact(&mut self, name: &str, value: &str) -> Result<(), Error> {
        self.sink.event(Event::Fact(Fact::Other { name, value }))
    }

    /// `u64 size, bytes`, padded to 8.
    fn unpack_padded(&mut self, mut body: Cursor<'_>, offset: u64) -> Result<(), Error> {
        match body.u64().and_then(|size| body.bytes(size)) {
            Ok(packed) => self.unpack(packed, offset),
            Err(short) => self.short("compressed record", short),
        }
    }

    fn unpack(&mut self, packed: &[u8], offset: u64) -> Result<(), Error> {
        // A stream that begins here refers to nothing before it.
        if packed.starts_with(ZSTD_MAGIC)
            && (self.is_unpacking_broken || self.unpacker.as_ref().is_some_and(|old| old.is_broken))
        {
            self.unpacker = None;
            self.is_unpacking_broken = false;
        }
        let mut unpacker = match self.unpacker.take() {
            Some(unpacker) => unpacker,
            None => Unpacker::new().map_err(Error::io("zstd"))?,
        };
        if unpacker.is_broken || self.is_unpacking_broken {
            self.unpacker = Some(unpacker);
            return self.problem(Place::Offset(offset), "compressed record", || {
                "the stream of compressed records is damaged before this one".into()
            });
        }
        let result = unpacker.unpack(packed, |bytes| {
            self.unpacked_records(bytes, offset, false)
                .map_err(Stop::Sink)
        });
        unpacker.is_broken |= self.is_unpacking_broken;
        self.unpacker = Some(unpacker);
        match result {
            Ok(()) => Ok(()),
            Err(Stop::Sink(error)) => Err(error),
            Err(Stop::Packed(error)) => self.problem(Place::Offset(offset), "compressed record", || {
                format!("expected a zstd stream: {error}; this and all later compressed records are not read")
            }),
        }
    }
}

/// Why unpacking stopped.
enum Stop {
    Sink(Error),
    Packed(std::io::Error),
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Stop {
        Stop::Packed(error)
    }
}

fn split_once(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let index = text.iter().position(|&byte| byte == at)?;
    Some((text.get(..index)?, text.get(index + 1..)?))
}

fn number(text: &[u8], radix: u32) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(text).ok()?.trim(), radix).ok()
}
