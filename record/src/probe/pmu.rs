//! Events of a PMU as described in sysfs: `PMU/TERM=VALUE,…/MODIFIERS`, or a bare event name.
//!
//! ```text
//! /sys/bus/event_source/devices/cpu/type            4
//! /sys/bus/event_source/devices/cpu/format/umask    config:8-15
//! /sys/bus/event_source/devices/cpu/events/mem-loads    event=0xcd,umask=0x1,ldlat=3
//! ```
//! Type numbers differ between hosts, so they are read each time.

use perfquet_cli::nearest;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Kind, Probe, event_attr, modifiers};
use crate::failure::{Failure, failed, misuse};
use crate::sys::perf_event::Attr;

const DEVICES: &str = "/sys/bus/event_source/devices";

/// Parses `cpu/event=0x3c,umask=1/u`.
pub(crate) fn parse(event: &str) -> Result<Probe, Failure> {
    let (pmu, rest) = event.split_once('/').unwrap_or((event, ""));
    let Some((terms, modifiers)) = rest.rsplit_once('/') else {
        return Err(misuse(format!(
            "{event}: expected a second '/' after the terms"
        )));
    };
    let modifiers = modifiers.strip_prefix(':').unwrap_or(modifiers);
    let device = Path::new(DEVICES).join(pmu);
    let Some(kind) = read_number(&device.join("type")) else {
        return Err(
            misuse(format!("{event}: no PMU {pmu} on this system")).hint(format!(
                "use one of: {}",
                folder(Path::new(DEVICES)).join(", ")
            )),
        );
    };
    let mut attr = event_attr::of_pmu(kind);
    for term in terms.split(',').filter(|term| !term.is_empty()) {
        set_term(&device, event, term.trim(), &mut attr)?;
    }
    let wants_precision = modifiers::apply(event, modifiers, &mut attr)?;
    Ok(Probe {
        name: event.to_owned(),
        attr,
        kind: Kind::Sampled,
        filter: None,
        wants_precision,
        pattern: None,
        members: Vec::new(),
    })
}

/// Parses a bare name that some PMU lists, such as `mem-loads`.
pub(crate) fn parse_alias(name: &str) -> Result<Option<Probe>, Failure> {
    let (name, modifiers) = name.split_once(':').unwrap_or((name, ""));
    if name.is_empty() || name.starts_with('.') {
        return Ok(None);
    }
    for pmu in folder(Path::new(DEVICES)) {
        if Path::new(DEVICES)
            .join(&pmu)
            .join("events")
            .join(name)
            .is_file()
        {
            return parse(&format!("{pmu}/{name}/{modifiers}")).map(Some);
        }
    }
    Ok(None)
}

/// Returns `PMU/NAME/` for all events listed by PMUs.
pub(crate) fn names() -> impl Iterator<Item = String> {
    folder(Path::new(DEVICES)).into_iter().flat_map(|pmu| {
        let names = folder(&Path::new(DEVICES).join(&pmu).join("events")).into_iter();
        names
            .filter(|name| !name.contains('.')) // NAME.unit, NAME.scale
            .map(move |name| format!("{pmu}/{name}/"))
    })
}

/// Returns name and type of each PMU.
pub(crate) fn types() -> Vec<(u32, String)> {
    let number = |pmu: String| {
        let kind = read_number(&Path::new(DEVICES).join(&pmu).join("type"))?;
        Some((kind, pmu))
    };
    folder(Path::new(DEVICES))
        .into_iter()
        .filter_map(number)
        .collect()
}

/// Applies `NAME=VALUE`, `NAME` (a flag, or an event listed by the PMU), `config=…` or `period=…` to the attr.
fn set_term(device: &Path, event: &str, term: &str, attr: &mut Attr) -> Result<(), Failure> {
    let (name, value) = term.split_once('=').unwrap_or((term, "1"));
    if !term.contains('=')
        && let Ok(terms) = fs::read_to_string(file_in(&device.join("events"), name))
    {
        return terms
            .trim()
            .split(',')
            .try_for_each(|inner| match inner.split_once('=') {
                // Only one level: the kernel's lists contain terms, not names.
                _ if inner == name => Ok(()),
                _ => set_term(device, event, inner, attr),
            });
    }
    let value = parse_number(value).ok_or_else(|| {
        misuse(format!(
            "{event}: expected a number for {name}, found \"{value}\""
        ))
    })?;
    match name {
        "config" => attr.config = value,
        "config1" => attr.config1 = value,
        "config2" => attr.config2 = value,
        "config3" => attr.config3 = value,
        "period" => attr.sample_period = value,
        "freq" => {
            attr.set_freq(1);
            attr.sample_freq = value;
        }
        "name" => {}
        _ => {
            let Ok(format) = fs::read_to_string(file_in(&device.join("format"), name)) else {
                return Err(misuse(format!("{event}: the PMU has no term {name}"))
                    .hint(terms_hint(device, name)));
            };
            spread(format.trim(), value, attr)
                .map_err(|message| failed(format!("{event}: {name}: {message}")))?;
        }
    }
    Ok(())
}

fn terms_hint(device: &Path, name: &str) -> String {
    let mut names = folder(&device.join("format"));
    names.extend(folder(&device.join("events")));
    let near = nearest(name, names.clone());
    let shown = if near.is_empty() { names } else { near };
    format!(
        "it has {}, config, config1, config2, period and freq",
        shown.join(", ")
    )
}

/// Writes `value` into the bits of a format: `config1:0-7,32-35`.
fn spread(format: &str, value: u64, attr: &mut Attr) -> Result<(), String> {
    let (word, ranges) = format.split_once(':').unwrap_or((format, "0-63"));
    let mut left = value;
    let mut bits = 0u64;
    for range in ranges.split(',') {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let (Ok(low), Ok(high)) = (low.parse::<u32>(), high.parse::<u32>()) else {
            return Err(format!("the kernel describes it as {format:?}"));
        };
        if low > high || high > 63 {
            return Err(format!("the kernel describes it as {format:?}"));
        }
        let width = high - low + 1;
        let mask = u64::MAX >> (64 - width);
        bits |= (left & mask) << low;
        left = left.checked_shr(width).unwrap_or(0);
    }
    if left != 0 {
        return Err(format!("{value:#x} does not fit into {format}"));
    }
    match word {
        "config" => attr.config |= bits,
        "config1" => attr.config1 |= bits,
        "config2" => attr.config2 |= bits,
        "config3" => attr.config3 |= bits,
        _ => return Err(format!("the kernel describes it as {format:?}")),
    }
    Ok(())
}

/// Returns the path of a file with this name, which comes from the command line and must not lead elsewhere.
fn file_in(folder: &Path, name: &str) -> PathBuf {
    folder.join(name.replace('/', "_"))
}

fn parse_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn read_number(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn folder(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_go_where_the_format_says() {
        let check = |format: &str, value, expected: Option<(u64, u64)>| {
            let mut attr = Attr::default();
            let done = spread(format, value, &mut attr).is_ok();
            assert_eq!(
                done.then_some((attr.config, attr.config1)),
                expected,
                "{format}"
            );
        };
        check("config:0-7,32-35", 0x3c, Some((0x3c, 0)));
        check("config:0-7,32-35", 0x53c, Some((0x5_0000_003c, 0)));
        check("config:0-7,32-35", 0x1_053c, None);
        check("config1:23", 1, Some((0, 1 << 23)));
        check("config:0-63", u64::MAX, Some((u64::MAX, 0)));
        check("config:8-", 1, None);
        check("config:0-99", 1, None);
        check("elsewhere:0-7", 1, None);
    }
}
