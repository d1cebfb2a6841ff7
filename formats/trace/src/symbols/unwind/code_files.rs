//! Unwind rules of files, read on demand and within limits of memory.
//!
//! ```text
//! address 0x1180 of libc.so.6   evaluated lately?   →  its own index (.eh_frame_hdr)   →  the list of its functions
//! ```

use std::cell::OnceCell;
use std::collections::BTreeSet;

use super::super::elf::EM_X86_64;
use super::super::files::Found;
use super::super::limits::{FRAMES_BYTES_MAX, PROCESS_FRAME_BYTES_MAX, UNWOUND_FILES_MAX};
use super::cfi::{FrameIndex, Scratch};
use super::rule::Rule;
use super::table::CodeRules;

/// Rules evaluated last, by file and address. A quarter of the frames of a large program's samples are different.
const RECENT_RULES: usize = 1 << 13;
/// Parts of files whose rules are read before the pages are released: about three places for each, of which the kernel maps 64 KiB.
const PARTS_READ: usize = 1 << 14;
/// The same while recording.
const PARTS_READ_LIVE: usize = 1 << 7;
/// Size of a part, as a power of two: its call frame information has a few KiB.
const PART_BITS: u32 = 16;

/// Files with code, by number.
pub(super) struct CodeFiles {
    files: Vec<CodeFile>,
    /// Call frame information of all files in memory, in bytes.
    frame_bytes: u64,
    recent: Box<[Recent; RECENT_RULES]>,
    scratch: Scratch,
    /// Files and parts whose rules were read since the last release.
    touched: BTreeSet<(u32, u64)>,
}

/// A file with code.
pub(super) struct CodeFile {
    pub(super) found: Found,
    /// Once needed; `None` if the file has no index.
    index: OnceCell<Option<FrameIndex>>,
    /// Once the index lacks an address.
    pub(super) rules: Option<CodeRules>,
}

#[derive(Clone, Copy)]
struct Recent {
    /// Past the end of all files: free.
    file: u32,
    address: u64,
    rule: Rule,
}

impl Default for CodeFiles {
    fn default() -> CodeFiles {
        let free = Recent {
            file: u32::MAX,
            address: 0,
            rule: Rule::Gap,
        };
        CodeFiles {
            files: Vec::new(),
            frame_bytes: 0,
            recent: Box::new([free; RECENT_RULES]),
            scratch: Scratch::default(),
            touched: BTreeSet::new(),
        }
    }
}

impl CodeFiles {
    /// Adds a file for this architecture.
    pub(super) fn add(&mut self, found: Found) -> Option<u32> {
        let has_room = (self.files.len() as u64) < UNWOUND_FILES_MAX;
        let is_fit = has_room && found.image.machine == EM_X86_64;
        let index = u32::try_from(self.files.len()).ok().filter(|_| is_fit)?;
        // Its headers and its build ID were read, and few of their pages are needed again.
        found.release();
        self.files.push(CodeFile {
            found,
            index: OnceCell::new(),
            rules: None,
        });
        Some(index)
    }

    /// A file.
    pub(super) fn file(&self, number: u32) -> Option<&CodeFile> {
        self.files.get(number as usize)
    }

    /// The same, to change it.
    pub(super) fn file_mut(&mut self, number: u32) -> Option<&mut CodeFile> {
        self.files.get_mut(number as usize)
    }

    /// The rule at an address of a file. A process of which `frame_bytes` were read has its share of them.
    pub(super) fn rule_at(
        &mut self,
        file: u32,
        address: u64,
        frame_bytes: Option<&mut u64>,
    ) -> Rule {
        let place = (address ^ u64::from(file) << 7).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 51;
        let slot = self.recent.get_mut(place as usize);
        if let Some(recent) = &slot
            && (recent.file, recent.address) == (file, address)
        {
            return recent.rule;
        }
        self.note_read((file, address >> PART_BITS), frame_bytes.is_some());
        let Some(CodeFile {
            found,
            index,
            rules,
        }) = self.files.get_mut(file as usize)
        else {
            return Rule::Gap;
        };
        let index = index.get_or_init(|| FrameIndex::of(&found.image));
        let indexed = index.as_ref().and_then(|index| {
            let rule = index.rule_at(address, &mut self.scratch);
            rule.or_else(|| index.stub_rule_at(address))
        });
        let rule = match (indexed, rules) {
            (Some(rule), _) => rule,
            (None, Some(rules)) => rules.rule_at(address),
            (None, None) => {
                if let Some(read) = frame_bytes.as_deref()
                    && *read > PROCESS_FRAME_BYTES_MAX
                {
                    return Rule::Opaque;
                }
                let mut new = CodeRules::of(found);
                let bytes = new.bytes();
                if let Some(read) = frame_bytes {
                    *read += bytes;
                }
                let rule = new.rule_at(address);
                self.keep(file, new, bytes);
                rule
            }
        };
        let slot = self.recent.get_mut(place as usize);
        if let Some(slot) = slot {
            *slot = Recent {
                file,
                address,
                rule,
            };
        }
        rule
    }

    /// Notes that a rule is read from a part of a file, and releases the pages of files from time to time.
    fn note_read(&mut self, part: (u32, u64), is_live: bool) {
        if !self.touched.insert(part) {
            return;
        }
        let most = match is_live {
            true => PARTS_READ_LIVE,
            false => PARTS_READ,
        };
        if self.touched.len() < most {
            return;
        }
        let mut released = None;
        for (file, _) in std::mem::take(&mut self.touched) {
            if released != Some(file)
                && let Some(file) = self.files.get(file as usize)
            {
                file.found.release();
            }
            released = Some(file);
        }
    }

    /// Keeps the rules of a file, and no others if they are too many.
    fn keep(&mut self, file: u32, rules: CodeRules, bytes: u64) {
        if self.frame_bytes + bytes > FRAMES_BYTES_MAX {
            for file in &mut self.files {
                file.rules = None;
            }
            self.frame_bytes = 0;
        }
        self.frame_bytes += bytes;
        if let Some(file) = self.files.get_mut(file as usize) {
            file.rules = Some(rules);
        }
    }
}
