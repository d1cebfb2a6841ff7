//! A loaded object: its programs, its maps, its target.
//!
//! ```text
//! Object::load ─► send_to (maps of events) ─► program, attach ─► set_on(true) … set_on(false) ─► maps, losses
//! ```
//! Dropping it removes everything from the kernel, and so does the end of the process.

use std::borrow::Borrow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, PerCpuHashMap};
use aya::programs::{BtfTracePoint, Program, ProgramError, RawTracePoint};
use aya::{Btf, Ebpf, EbpfLoader, Pod};

use crate::error::{Error, chain};
use crate::hooks;
use crate::layout::{Control, FrameSettings, MOST_REASONS, Whom, WhomState};
use crate::sys;
use crate::sys::{End, Hook};

/// The kernel's BTF, which the loader reads for each object.
const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";
/// Maximum number of processes or threads followed at the same time.
const MOST_FOLLOWED: u32 = 1 << 16;
/// Programs that maintain the map `whom`, and their tracepoints.
const FOLLOWERS: [(&str, &str); 3] = [
    ("follow_fork", "sched_process_fork"),
    ("follow_exec", "sched_process_exec"),
    ("follow_exit", "sched_process_exit"),
];

/// Programs that observe the start and end of address spaces, and their tracepoints.
const BIRTHS: [(&str, &str); 3] = [
    ("walk_fork", "sched_process_fork"),
    ("walk_exec", "sched_process_exec"),
    ("walk_exit", "sched_process_exit"),
];

/// The target that an object's programs record.
#[derive(Debug, Clone, Default)]
pub struct Target {
    /// The kind of selection.
    pub whom: Whom,
    /// PIDs or TIDs.
    pub ids: Vec<(u32, WhomState)>,
    /// Only these CPUs; all if empty.
    pub cpus: Vec<u32>,
}

/// A loaded object.
pub struct Object {
    bytes: &'static [u8],
    ebpf: Ebpf,
    links: Vec<OwnedFd>,
    /// Links of one point of many functions each.
    hooks: Vec<(End, OwnedFd)>,
    control: Control,
}

/// Keys of a map with the values of all CPUs.
pub type PerCpu<K, V> = Vec<(K, Box<[V]>)>;

impl Object {
    /// Loads an object (of `objects/`, 8-byte aligned) that records `target`. `configure` sets its own constants and
    /// map sizes. Only the programs that follow the target are loaded yet.
    pub fn load<'a>(
        bytes: &'static [u8],
        target: &Target,
        configure: impl FnOnce(&mut EbpfLoader<'a>),
    ) -> Result<Object, Error> {
        // Check this first: without BTF, the loader's own error would be about the first relocation.
        if !Path::new(KERNEL_BTF).exists() {
            return Err(Error::NoBtf);
        }
        let settings = FrameSettings::new(target.whom, std::process::id(), &target.cpus);
        let ebpf = {
            let mut loader = EbpfLoader::new();
            configure(&mut loader);
            load_with(loader, &settings, target, bytes)?
        };
        let mut object = Object {
            bytes,
            ebpf,
            links: Vec::new(),
            hooks: Vec::new(),
            control: Control::default(),
        };
        if target.whom != Whom::Everything {
            object.follow(target)?;
        }
        Ok(object)
    }

    /// Sends the records that the programs write to `map` to an event on a CPU.
    pub fn send_to(&mut self, map: &str, cpu: u32, event: BorrowedFd<'_>) -> Result<(), Error> {
        let Some(Map::PerfEventArray(data)) = self.ebpf.map(map) else {
            return Err(no_such("map", map));
        };
        sys::put_event(data.fd().as_fd(), cpu, event)
            .map_err(|error| Error::failed(format!("event into the map {map}"), &error))
    }

    /// Attaches a program to an event (a probe, a tracepoint, a clock); `cookie` is the program's value of
    /// `bpf_get_attach_cookie`. Loads the program first if necessary. A cookie other than 0 requires Linux 5.15.
    pub fn attach(
        &mut self,
        program: &str,
        event: BorrowedFd<'_>,
        cookie: u64,
    ) -> Result<(), Error> {
        let loaded = self.loaded(program)?;
        let link = sys::attach(loaded, event, cookie)
            .map_err(|error| Error::failed(format!("attaching the program {program}"), &error))?;
        self.links.extend(link);
        Ok(())
    }

    /// Loads a program for events, so that loading errors do not occur in [`Object::attach`].
    pub fn prepare(&mut self, program: &str) -> Result<(), Error> {
        self.loaded(program).map(drop)
    }

    /// Attaches a program of the section `kprobe` to kernel functions, all known to function tracing, through one link.
    /// Requires Linux 5.18 with CONFIG_FPROBE.
    pub fn hook(&mut self, program: &str, end: End, functions: &[Hook]) -> Result<(), Error> {
        let loaded = hooks::load(self.bytes, program, &self.ebpf, &*kernel_btf()?)?;
        let link = sys::hook(loaded.as_fd(), end, functions).map_err(|error| {
            Error::failed(
                format!("attaching the program {program} to functions"),
                &error,
            )
        })?;
        self.hooks.push((end, link));
        Ok(())
    }

    /// Detaches the programs from those functions.
    pub fn unhook(&mut self) {
        self.hooks.clear();
    }

    /// Returns of those functions that the kernel missed since they were hooked, of any process: it was already in a
    /// program, or had no room to track one more. Kernels before 6.7 do not report them.
    pub fn missed(&self) -> u64 {
        let returns = self.hooks.iter().filter(|(end, _)| *end == End::Return);
        returns.map(|(_, link)| sys::missed(link.as_fd())).sum()
    }

    /// Attaches a program of the section `tp_btf` to a kernel tracepoint, or its form `PROGRAM_raw` where the object has one
    /// and the kernel accepts it.
    pub fn attach_tracepoint(&mut self, program: &str, tracepoint: &str) -> Result<(), Error> {
        let raw: Option<&mut RawTracePoint> = self
            .ebpf
            .program_mut(&format!("{program}_raw"))
            .and_then(|program| program.try_into().ok());
        if let Some(raw) = raw
            && raw.load().is_ok()
            && raw.attach(tracepoint).is_ok()
        {
            return Ok(());
        }
        let found = self.at_tracepoint(program, tracepoint)?;
        found
            .attach()
            .map(drop)
            .map_err(|error| Error::failed(format!("attaching the program {program}"), &error))
    }

    /// Loads a program of the section `tp_btf`, so that loading errors do not occur in [`Object::attach_tracepoint`].
    pub fn prepare_tracepoint(&mut self, program: &str, tracepoint: &str) -> Result<(), Error> {
        self.at_tracepoint(program, tracepoint).map(drop)
    }

    /// Attaches the programs that observe the start and end of address spaces, in objects whose programs walk stacks.
    pub fn observe_births(&mut self) -> Result<(), Error> {
        for (program, tracepoint) in BIRTHS {
            self.attach_tracepoint(program, tracepoint)?;
        }
        Ok(())
    }

    /// Returns a program of the section `tp_btf`; loads it if necessary.
    fn at_tracepoint(
        &mut self,
        program: &str,
        tracepoint: &str,
    ) -> Result<&mut BtfTracePoint, Error> {
        let btf = kernel_btf()?;
        let found: &mut BtfTracePoint = self
            .ebpf
            .program_mut(program)
            .and_then(|program| program.try_into().ok())
            .ok_or_else(|| no_such("program", program))?;
        match found.load(tracepoint, &btf) {
            Ok(()) | Err(ProgramError::AlreadyLoaded) => Ok(found),
            Err(error) => Err(refused(program, error)),
        }
    }

    /// Starts or stops recording in the programs.
    pub fn set_on(&mut self, is_on: bool) -> Result<(), Error> {
        self.control.is_on = is_on.into();
        self.set_control()
    }

    /// Switches the programs to interval `number`, which has separate cells.
    pub fn begin_interval(&mut self, number: u32) -> Result<(), Error> {
        self.control.interval = number;
        self.set_control()
    }

    fn set_control(&mut self) -> Result<(), Error> {
        let failed = |error| Error::failed("controlling programs", &error);
        let value = self.control;
        let mut control: Array<&mut MapData, Control> =
            Array::try_from(self.map_mut("control")?).map_err(failed)?;
        control.set(0, value, 0).map_err(failed)
    }

    /// The links that keep the programs attached.
    pub fn links(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let hooks = self.hooks.iter().map(|(_, link)| link);
        self.links.iter().chain(hooks).map(OwnedFd::as_fd)
    }

    /// Detaches the programs from their events. The maps stay.
    pub fn detach(&mut self) {
        self.links.clear();
        self.unhook();
    }

    /// Number of losses by reason, without zeros.
    pub fn lost(&self) -> Result<Vec<(u32, u64)>, Error> {
        let failed = |error| Error::failed("reading losses", &error);
        let lost: PerCpuArray<&MapData, u64> =
            PerCpuArray::try_from(self.map("lost")?).map_err(failed)?;
        let mut found = Vec::new();
        for reason in 0..MOST_REASONS {
            let count: u64 = lost.get(&reason, 0).map_err(failed)?.iter().sum();
            if count > 0 {
                found.push((reason, count));
            }
        }
        Ok(found)
    }

    /// All entries of a per-CPU map.
    pub fn per_cpu<K: Pod, V: Pod>(&self, map: &str) -> Result<PerCpu<K, V>, Error> {
        let failed = |error| Error::failed(format!("reading the map {map}"), &error);
        let found: PerCpuHashMap<&MapData, K, V> =
            PerCpuHashMap::try_from(self.map(map)?).map_err(failed)?;
        let mut all = Vec::new();
        for entry in found.iter() {
            let (key, values) = entry.map_err(failed)?;
            all.push((key, values.iter().copied().collect()));
        }
        Ok(all)
    }

    /// Removes an entry of a per-CPU map; one that is gone is no error.
    pub fn remove_per_cpu<K: Pod, V: Pod>(&mut self, map: &str, key: &K) -> Result<(), Error> {
        let failed = |error| Error::failed(format!("writing the map {map}"), &error);
        let mut found: PerCpuHashMap<&mut MapData, K, V> =
            PerCpuHashMap::try_from(self.map_mut(map)?).map_err(failed)?;
        match found.remove(key) {
            Ok(()) | Err(MapError::KeyNotFound) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    /// All entries of a map.
    pub fn entries<K: Pod, V: Pod>(&self, map: &str) -> Result<Vec<(K, V)>, Error> {
        let failed = |error| Error::failed(format!("reading the map {map}"), &error);
        let found: HashMap<&MapData, K, V> = HashMap::try_from(self.map(map)?).map_err(failed)?;
        found
            .iter()
            .map(|entry| entry.map_err(failed))
            .collect::<Result<_, _>>()
    }

    /// Inserts an entry into a map.
    pub fn insert<K: Pod, V: Pod>(
        &mut self,
        map: &str,
        key: impl Borrow<K>,
        value: impl Borrow<V>,
    ) -> Result<(), Error> {
        let failed = |error| Error::failed(format!("writing the map {map}"), &error);
        let mut found: HashMap<&mut MapData, K, V> =
            HashMap::try_from(self.map_mut(map)?).map_err(failed)?;
        found.insert(key, value, 0).map_err(failed)
    }

    /// Sets an element of an array map.
    pub fn set<V: Pod>(&mut self, map: &str, place: u32, value: V) -> Result<(), Error> {
        let failed = |error| Error::failed(format!("writing the map {map}"), &error);
        let mut found: Array<&mut MapData, V> =
            Array::try_from(self.map_mut(map)?).map_err(failed)?;
        found.set(place, value, 0).map_err(failed)
    }

    fn follow(&mut self, target: &Target) -> Result<(), Error> {
        for (id, state) in &target.ids {
            self.insert::<u32, u32>("whom", id, *state as u32)?;
        }
        for (program, tracepoint) in FOLLOWERS {
            self.attach_tracepoint(program, tracepoint)?;
        }
        Ok(())
    }

    /// Returns a loaded program; loads it if necessary.
    fn loaded(&mut self, name: &str) -> Result<BorrowedFd<'_>, Error> {
        let program = self
            .ebpf
            .program_mut(name)
            .ok_or_else(|| no_such("program", name))?;
        let loaded = match program {
            Program::KProbe(program) => program.load(),
            Program::UProbe(program) => program.load(),
            Program::TracePoint(program) => program.load(),
            Program::PerfEvent(program) => program.load(),
            _ => Err(ProgramError::UnexpectedProgramType),
        };
        match loaded {
            Ok(()) | Err(ProgramError::AlreadyLoaded) => {}
            Err(error) => return Err(refused(name, error)),
        }
        let fd = program.fd().map_err(|error| refused(name, error))?;
        Ok(fd.as_fd())
    }

    fn map(&self, name: &str) -> Result<&Map, Error> {
        self.ebpf.map(name).ok_or_else(|| no_such("map", name))
    }

    /// Takes a map out of the object.
    pub(crate) fn take_map(&mut self, name: &str) -> Result<Map, Error> {
        self.ebpf.take_map(name).ok_or_else(|| no_such("map", name))
    }

    fn map_mut(&mut self, name: &str) -> Result<&mut Map, Error> {
        self.ebpf.map_mut(name).ok_or_else(|| no_such("map", name))
    }
}

/// A separate lifetime: values set by `configure` outlive the settings here.
fn load_with<'a>(
    mut loader: EbpfLoader<'a>,
    settings: &'a FrameSettings,
    target: &Target,
    bytes: &[u8],
) -> Result<Ebpf, Error> {
    loader.override_global("frame_settings", settings, true);
    if target.whom != Whom::Everything {
        loader.map_max_entries("whom", MOST_FOLLOWED);
    }
    loader
        .load(bytes)
        .map_err(|error| Error::failed("loading programs", &error))
}

/// The kernel's BTF: several megabytes, parsed once, and only if a program is attached by it.
fn kernel_btf() -> Result<Arc<Btf>, Error> {
    static BTF: OnceLock<Option<Arc<Btf>>> = OnceLock::new();
    let btf = BTF.get_or_init(|| Btf::from_sys_fs().ok().map(Arc::new));
    btf.clone().ok_or(Error::NoBtf)
}

fn no_such(what: &str, name: &str) -> Error {
    Error::Failed {
        step: format!("{what} {name}"),
        reason: "the object has none of that name and kind".to_owned(),
    }
}

/// The end of the verifier's log, or the other error.
fn refused(program: &str, error: ProgramError) -> Error {
    let ProgramError::LoadError {
        io_error,
        verifier_log,
    } = &error
    else {
        return Error::failed(format!("loading the program {program}"), &error);
    };
    let log = verifier_log.to_string();
    const STATISTICS: [&str; 3] = ["processed ", "verification time ", "stack depth "];
    let is_reason = |line: &&str| {
        let is_number = STATISTICS.iter().any(|start| line.starts_with(start));
        !line.trim().is_empty() && !is_number
    };
    let reasons: Vec<&str> = log.lines().filter(is_reason).collect();
    if reasons.is_empty() && matches!(io_error.raw_os_error(), Some(libc::EPERM | libc::EACCES)) {
        return Error::NotPermitted;
    }
    Error::Refused {
        program: program.to_owned(),
        reason: reasons
            .last()
            .map_or_else(|| chain(&error), |why| why.trim().to_owned()),
        log,
    }
}
