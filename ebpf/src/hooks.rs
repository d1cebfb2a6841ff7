//! Attaches a program to many kernel functions through one link, which is created and removed at once. One event per
//! function takes the kernel several milliseconds at both ends.
//!
//! The kernel must know before verification that a program is used this way (`BPF_TRACE_KPROBE_MULTI`), which aya does
//! not support. So the object is parsed again, bound to the maps that aya created, and loaded by a separate
//! request.

use std::collections::HashSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use aya::maps::Map;
use aya::{Btf, Ebpf};

use crate::error::Error;
use crate::sys;

/// Loads the program `name` of the object `bytes`, whose maps are in `loaded`, for functions of the kernel.
pub(crate) fn load(bytes: &[u8], name: &str, loaded: &Ebpf, btf: &Btf) -> Result<OwnedFd, Error> {
    let step = || format!("loading the program {name} for functions");
    let failed = |error: &(dyn std::error::Error + 'static)| Error::failed(step(), error);
    let mut object = aya_obj::Object::parse(bytes).map_err(|error| failed(&error))?;
    object.relocate_btf(btf).map_err(|error| failed(&error))?;
    let sections: HashSet<usize> = object
        .functions
        .keys()
        .map(|(section, _)| *section)
        .collect();
    let maps = std::mem::take(&mut object.maps);
    let bound = maps.iter().filter_map(|(name, map)| {
        let descriptor = loaded.map(name).and_then(descriptor)?;
        Some((name.as_str(), descriptor, map))
    });
    object
        .relocate_maps(bound, &sections)
        .map_err(|error| failed(&error))?;
    object
        .relocate_calls(&sections)
        .map_err(|error| failed(&error))?;
    let program = object.programs.get(name);
    let found = program.and_then(|program| {
        let function = object.functions.get(&program.function_key())?;
        Some((program, function))
    });
    let Some((program, function)) = found else {
        return Err(Error::Failed {
            step: step(),
            reason: "the object has none of that name".to_owned(),
        });
    };
    sys::load_for_functions(&function.instructions, &program.license)
        .map_err(|error| failed(&error))
}

/// File descriptor of a map, for the map types in use.
fn descriptor(map: &Map) -> Option<RawFd> {
    let data = match map {
        Map::Array(data)
        | Map::PerCpuArray(data)
        | Map::HashMap(data)
        | Map::LruHashMap(data)
        | Map::PerCpuHashMap(data)
        | Map::PerfEventArray(data)
        | Map::StackTraceMap(data) => data,
        _ => return None,
    };
    Some(data.fd().as_fd().as_raw_fd())
}
