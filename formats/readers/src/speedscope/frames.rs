//! The frames that all profiles share.

use std::borrow::Cow;

use perfquet_events::event::{NamedFrame, Space};

use crate::json::{elements, integer, members, text};
use crate::placeholder::without_placeholder;

/// Frames of a file; a hostile one has a frame for every three bytes.
const FRAMES_MAX: usize = 1 << 22;

/// A frame.
#[derive(Debug, Default)]
pub(super) struct Frame<'a> {
    pub(super) name: Cow<'a, [u8]>,
    file: Cow<'a, [u8]>,
    line: Option<u32>,
    module: Cow<'a, [u8]>,
    is_kernel: bool,
}

impl<'a> Frame<'a> {
    /// `is_ours`: `--to speedscope` writes the module as the file if no source is known, and as a member of its own otherwise.
    fn of(object: &'a [u8], is_ours: bool) -> Frame<'a> {
        let mut frame = Frame::default();
        let mut module = None;
        for (key, value) in members(object) {
            match key {
                b"name" => frame.name = text(value),
                b"file" if value != b"null" => frame.file = text(value),
                b"line" => frame.line = integer(value).and_then(|line| u32::try_from(line).ok()),
                b"module" if is_ours => module = Some(text(value)),
                b"space" if is_ours => frame.is_kernel = value == b"\"kernel\"",
                _ => {}
            }
        }
        frame.line = frame.line.filter(|line| *line > 0);
        frame.module = match module {
            Some(module) => module,
            None if is_ours && frame.line.is_none() => std::mem::take(&mut frame.file),
            None => Cow::default(),
        };
        // Exports of earlier versions have no member `space`.
        frame.is_kernel |= frame.module.starts_with(b"[kernel");
        frame
    }

    pub(super) fn module(&self) -> &[u8] {
        &self.module
    }

    pub(super) fn named(&self) -> NamedFrame<'_> {
        NamedFrame {
            function: without_placeholder(&self.name, &self.module),
            module: &self.module,
            file: &self.file,
            line: self.line,
            space: match self.is_kernel {
                true => Space::Kernel,
                false => Space::Unknown,
            },
            ..NamedFrame::default()
        }
    }
}

/// The frames of the member `shared`, and the number of those beyond the limit.
pub(super) fn frames(shared: &[u8], is_ours: bool) -> (Vec<Frame<'_>>, u64) {
    let list = members(shared).find(|(key, _)| *key == b"frames");
    let mut all = elements(list.map_or(b"", |(_, list)| list));
    let frames: Vec<Frame<'_>> = all
        .by_ref()
        .take(FRAMES_MAX)
        .map(|object| Frame::of(object, is_ours))
        .collect();
    (frames, all.count() as u64)
}
