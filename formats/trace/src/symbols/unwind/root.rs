//! Whether a stack by frame pointers reaches the start of its thread.

use super::super::limits::ROOT_FRAME_BYTES_MAX;
use super::rule::Rule;
use super::stubs::ENTRY_BYTES;
use super::{Machine, RegionCode, Searched, Unwinder};

impl Unwinder {
    /// Whether the outermost frame of a stack by frame pointers is at the start of a thread, or in code whose chain of frame pointers
    /// holds, so that it ended there. `is_innermost` if the stack has no other frame. Of large files, only the entry point is known.
    /// Always on other architectures than x86-64, whose programs have frame pointers.
    pub fn is_at_root(&mut self, pid: i32, address: u64, is_innermost: bool) -> bool {
        let Machine::X86_64(rules) = &mut self.machine else {
            return true;
        };
        let Some(process) = self.processes.get_mut(&pid) else {
            return false;
        };
        let looked_up = address.wrapping_sub(u64::from(!is_innermost));
        let Some((&start, region)) = process.regions.range_mut(..=looked_up).next_back() else {
            return false;
        };
        if looked_up >= region.end {
            return false;
        }
        if region.code == RegionCode::Unresolved {
            let files = &mut Searched {
                files: &mut self.files,
                missing: &mut self.missing,
                running: self.is_live.then_some(pid),
            };
            region.code = rules.resolve(files, start, region);
        }
        let RegionCode::File { index, bias } = region.code else {
            // Generated code mostly has frame pointers.
            return true;
        };
        let Some(file) = rules.code.file(index) else {
            return false;
        };
        let looked_up = looked_up.wrapping_add(bias);
        let image = &file.found.image;
        if looked_up.wrapping_sub(image.entry) < ENTRY_BYTES && image.entry != 0 {
            return true;
        }
        let frames = image.section(b".eh_frame");
        if frames.is_some_and(|frames| frames.bytes > ROOT_FRAME_BYTES_MAX) {
            return false;
        }
        match rules
            .code
            .rule_at(index, looked_up, Some(&mut process.frame_bytes))
        {
            Rule::Root => true,
            Rule::Gap => rules.code.file_mut(index).is_some_and(|file| {
                let rules = file.rules.as_mut();
                rules.is_some_and(|rules| rules.chains_hold(&file.found.image))
            }),
            _ => false,
        }
    }
}
