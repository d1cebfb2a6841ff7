//! The label in the box of a frame.

use std::collections::HashMap;

use perfquet::stacks::{Frames, Tree};
use perfquet_trace::function_name::without_arguments;

use crate::render::flame::{Kind, Label};
use crate::text::harmless;

/// Naming of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reports) enum Naming {
    Functions,
    /// As printed by DTrace and folded by `stackcollapse.pl`: `genunix`copen`.
    WithModules,
}

/// The labels of a tree's frames: the index of each frame's, and the labels. Frame 0 has none.
pub(super) fn of_frames(tree: &Tree, naming: Naming) -> (Vec<u32>, Vec<Label>) {
    let frames = &tree.frames;
    let mut labels: Vec<Label> = Vec::new();
    let mut known: HashMap<(u32, bool), u32> = HashMap::new();
    let mut indexes = vec![0];
    for frame in 1..=frames.len() as u32 {
        let same = (frames.same_function(frame), frames.is_inlined(frame));
        let label = *known.entry(same).or_insert_with(|| {
            labels.push(label(frames, frame, naming));
            labels.len() as u32 - 1
        });
        add_source(&mut labels[label as usize], frames, frame);
        indexes.push(label);
    }
    (indexes, labels)
}

fn label(frames: &Frames, frame: u32, naming: Naming) -> Label {
    let name = match naming {
        Naming::Functions => frames.name(frame).into_owned(),
        Naming::WithModules => with_module(frames, frame),
    };
    Label {
        name: clean(&name),
        kind: kind(frames, frame),
        module: frames.module(frame).map(str::to_owned),
        source: None,
    }
}

fn kind(frames: &Frames, frame: u32) -> Kind {
    if frames.is_kernel(frame) {
        return Kind::Kernel;
    }
    if frames.is_inlined(frame) {
        return Kind::Inlined;
    }
    match (frames.module(frame), frames.function(frame)) {
        (Some(module), _) => kind_of_module(module),
        (None, Some(_)) => Kind::Function,
        (None, None) => Kind::Unknown,
    }
}

fn kind_of_module(module: &str) -> Kind {
    let name = module.rsplit('/').next().unwrap_or(module);
    let is_map = name.starts_with("perf-") && name.ends_with(".map");
    if is_map || name.starts_with("jitted-") || name.contains("anon") || name == "[heap]" {
        return Kind::Generated;
    }
    let is_library = name.ends_with(".so") || name.contains(".so.") || name.starts_with("[v");
    match is_library || name.starts_with("ld-") || name.ends_with(".dylib") {
        true => Kind::Library,
        false => Kind::Program,
    }
}

/// Adds the line of a frame to those of its function.
fn add_source(label: &mut Label, frames: &Frames, frame: u32) {
    let (Some(file), line) = frames.source(frame) else {
        return;
    };
    match &mut label.source {
        None => label.source = Some((clean(file), line.map(|line| (line, line)))),
        Some((_, lines)) => {
            if let Some(line) = line {
                let (first, last) = lines.unwrap_or((line, line));
                *lines = Some((first.min(line), last.max(line)));
            }
        }
    }
}

/// `genunix`copen`, `unix`0xfffffffffb800c91`: a frame as printed by DTrace, without its offset and the arguments of
/// C++.
fn with_module(frames: &Frames, frame: u32) -> String {
    let name = match (frames.function(frame), frames.place(frame)) {
        (Some(function), _) => without_arguments(function).to_owned(),
        (None, Some(address)) => format!("{address:#x}"),
        (None, None) => "-".to_owned(),
    };
    match (frames.module(frame), frames.function(frame)) {
        _ if frames.is_inlined(frame) => format!("{name}_[i]"),
        (Some(module), _) => format!("{module}`{name}"),
        (None, Some(function)) => function.to_owned(),
        (None, None) => name,
    }
}

/// Makes a name safe for folded stacks: no semicolon, nothing harmful to a terminal or XML.
pub(in crate::reports) fn clean(name: &str) -> String {
    harmless(name).replace(';', ":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_have_kinds() {
        let check = |module: &str, kind| assert_eq!(kind_of_module(module), kind, "{module}");
        check("/usr/bin/ls", Kind::Program);
        check("/usr/lib/x86_64-linux-gnu/libc.so.6", Kind::Library);
        check("/usr/lib/ld-linux-x86-64.so.2", Kind::Library);
        check("[vdso]", Kind::Library);
        check("/tmp/perf-12.map", Kind::Generated);
        check("//anon", Kind::Generated);
    }
}
