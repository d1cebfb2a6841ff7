//! Address ranges of the kernel and its modules, and the kernel's build ID.
//!
//! Written as by perf: `[kernel.kallsyms]_text`, from `_text` to `_etext`, with the address of `_text` as its file
//! offset; each module from `/proc/modules` with the path of its file.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::build_ids::add_build_id;
use super::record::{Records, kind, misc};
use crate::sys::host;

const KERNEL: &str = "[kernel.kallsyms]";
/// PID of kernel mappings.
const NO_PID: i32 = -1;

/// Returns the records of the kernel and its modules; empty if addresses are hidden (kptr_restrict).
pub(super) fn records() -> Vec<u8> {
    let mut records = Records::new();
    if let Some(build_id) = host::kernel_build_id() {
        add_build_id(&mut records, misc::KERNEL, KERNEL.as_bytes(), &build_id);
    }
    if let Some(text) = kernel_text() {
        let name = format!("{KERNEL}{}", text.symbol);
        add_mapping(
            &mut records,
            text.start,
            text.end - text.start,
            text.start,
            &name,
        );
        add_modules(&mut records);
    }
    records.into_bytes()
}

struct Text {
    symbol: &'static str,
    start: u64,
    end: u64,
}

/// Returns the range of the kernel's code; `None` if addresses are hidden.
fn kernel_text() -> Option<Text> {
    let file = fs::File::open("/proc/kallsyms").ok()?;
    let (mut text, mut stext, mut etext) = (None, None, None);
    // The start is among the first symbols and the end among the last of 100,000, which take the kernel 40 ms to list.
    for (number, line) in BufReader::with_capacity(1 << 12, file)
        .split(b'\n')
        .enumerate()
    {
        let line = line.ok()?;
        let mut words = line.split(|&byte| byte == b' ');
        let (Some(address), Some(_), Some(name)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let place = match name {
            b"_text" => &mut text,
            b"_stext" => &mut stext,
            b"_etext" => &mut etext,
            _ if number % NEAR == NEAR - 1 => {
                if let (Some(start), Some(bytes)) = (text, code_bytes()) {
                    etext = Some(start + bytes);
                    break;
                }
                continue;
            }
            _ => continue,
        };
        *place = u64::from_str_radix(std::str::from_utf8(address).ok()?, 16).ok();
        if etext.is_some() && (text.is_some() || stext.is_some()) {
            break;
        }
    }
    let (symbol, start) = match (text, stext) {
        (Some(start), _) => ("_text", start),
        (None, start) => ("_stext", start?),
    };
    let end = etext.unwrap_or(u64::MAX);
    (start != 0 && start < end).then_some(Text { symbol, start, end })
}

/// Number of symbols to read before other sources for the end of the code are tried.
const NEAR: usize = 16;

/// Bytes from `_text` to `_etext`, as on x86-64 the kernel reserves physical memory for its code; `None` if they are hidden,
/// and on other architectures, which reserve more.
///
/// ```text
///   01000000-02209987 : Kernel code
/// ```
fn code_bytes() -> Option<u64> {
    match cfg!(target_arch = "x86_64") {
        true => code_bytes_in(&fs::read_to_string("/proc/iomem").ok()?),
        false => None,
    }
}

fn code_bytes_in(iomem: &str) -> Option<u64> {
    let line = iomem
        .lines()
        .find(|line| line.ends_with(" : Kernel code"))?;
    let (start, end) = line.split_once(" : ")?.0.trim().split_once('-')?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    let last = number(end)?.checked_sub(number(start)?)?;
    (last > 0).then_some(last + 1)
}

/// `ext4 1003520 1 - Live 0xffffffffc0a00000`
fn add_modules(records: &mut Records) {
    let Ok(modules) = fs::read_to_string("/proc/modules") else {
        return; // a kernel without modules
    };
    let files = module_files(&host::names().release);
    for line in modules.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (Some(name), Some(size), Some(address)) = (words.first(), words.get(1), words.get(5))
        else {
            continue;
        };
        let digits = address.strip_prefix("0x").unwrap_or(address);
        let (Ok(size), Ok(address)) = (size.parse(), u64::from_str_radix(digits, 16)) else {
            continue;
        };
        if address == 0 {
            return;
        }
        let path = match files.get(*name) {
            Some(path) => path.clone(),
            None => format!("[{name}]"),
        };
        add_mapping(records, address, size, 0, &path);
        let notes = format!("/sys/module/{name}/notes/.note.gnu.build-id");
        if let Some(build_id) = fs::read(notes)
            .ok()
            .and_then(|notes| host::build_id_in_notes(&notes))
        {
            add_build_id(records, misc::KERNEL, path.as_bytes(), &build_id);
        }
    }
}

/// Returns the files of modules by name, from depmod's list: `kernel/fs/ext4/ext4.ko.xz: …`.
fn module_files(release: &str) -> HashMap<String, String> {
    let folder = Path::new("/lib/modules").join(release);
    let list = fs::read_to_string(folder.join("modules.dep")).unwrap_or_default();
    let entry = |line: &str| {
        let file = line.split(':').next()?;
        let base = file.rsplit('/').next()?;
        // The kernel's name of a module has underscores; its file name may have dashes instead.
        let name = base.split(".ko").next()?.replace('-', "_");
        Some((name, folder.join(file).display().to_string()))
    };
    list.lines().filter_map(entry).collect()
}

fn add_mapping(records: &mut Records, start: u64, length: u64, file_offset: u64, path: &str) {
    records.add(kind::MMAP, misc::KERNEL, |body| {
        body.i32(NO_PID);
        body.i32(0);
        body.u64(start);
        body.u64(length);
        body.u64(file_offset);
        body.text(path.as_bytes());
        body.trailer(NO_PID, 0, 0, 0, 0);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_ends_where_its_memory_ends() {
        let iomem = "00100000-7fffffff : System RAM\n  01000000-02209987 : Kernel code\n  02400000-1 : Kernel data\n";
        assert_eq!(code_bytes_in(iomem), Some(0x0120_9988));
        assert_eq!(code_bytes_in("  00000000-00000000 : Kernel code\n"), None);
        assert_eq!(code_bytes_in("00000000-00000000 : System RAM\n"), None);
    }

    /// Both sources give the same end.
    #[test]
    fn code_ends_where_the_symbols_end() {
        let symbols = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let address = |name: &str| {
            let line = symbols
                .lines()
                .find(|line| line.ends_with(&format!(" {name}")))?;
            u64::from_str_radix(line.split(' ').next()?, 16).ok()
        };
        if let (Some(text), Some(start), Some(end)) =
            (kernel_text(), address("_text"), address("_etext"))
        {
            assert_eq!((text.start, text.end), (start, end));
        }
    }
}
