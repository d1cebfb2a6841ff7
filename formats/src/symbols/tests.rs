//! Names as perf prints them for the corpus, and files made on the spot.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::*;

/// The recordings beside the project, if they are there.
fn corpus() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus");
    let root = std::env::var_os("PERFQUET_CORPUS").map_or_else(beside, PathBuf::from);
    let found = root.join("perf-data/programs").is_dir().then_some(root);
    if found.is_none() {
        println!("skipped: needs the corpus");
    }
    found
}

/// A frame of perf script: address, function with offset, module.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Printed {
    address: u64,
    name: Option<String>,
    module: String,
}

/// `   11a7 work_inner+0x21 (/w/workload)`, alone or at the end of a line with a sample's fields.
fn printed(line: &str) -> Option<Printed> {
    let (frame, module) = line.strip_suffix(')')?.rsplit_once(" (")?;
    let frame = frame.rsplit_once(": ").map_or(frame, |(_, frame)| frame);
    let (address, name) = frame.trim_start().split_once(' ')?;
    Some(Printed {
        address: u64::from_str_radix(address, 16).ok()?,
        name: (name != "[unknown]").then(|| name.to_owned()),
        module: module.to_owned(),
    })
}

/// The distinct frames of all perf script outputs of a folder.
fn all_printed(folder: &Path) -> BTreeSet<Printed> {
    let mut all = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "script")
        {
            let text = fs::read_to_string(&path).unwrap();
            all.extend(text.lines().filter_map(printed));
        }
    }
    all
}

fn as_printed(names: &[Name]) -> Option<String> {
    let name = names.first()?;
    Some(format!(
        "{}+{:#x}",
        name.function,
        name.function_offset.unwrap()
    ))
}

fn request(frame: &Printed) -> Request<'_> {
    let kernel = frame.module.starts_with('[');
    Request {
        module: Some(&frame.module),
        build_id: None,
        offset: (!kernel).then_some(frame.address),
        address: kernel.then_some(frame.address),
        space: if kernel { Space::Kernel } else { Space::User },
        return_address: false,
    }
}

/// Stacks are printed with offsets in the file, single addresses as they were: those of a program that is always
/// mapped at 0x400000 can be told, others not.
fn in_file(frame: Printed) -> Option<Printed> {
    let address = match frame.address {
        small if small < 0x40_0000 => small,
        absolute if frame.module.ends_with("/workload") => absolute - 0x40_0000,
        _ => return None,
    };
    Some(Printed { address, ..frame })
}

#[test]
fn kernel_names_are_those_of_perf() {
    let Some(corpus) = corpus() else { return };
    let folder = corpus.join("perf-data/6.12");
    let options = Options {
        kernel: KernelSource::Kallsyms(folder.join("kallsyms.part")),
        ..Options::default()
    };
    let mut symbolizer = Symbolizer::new(options, KernelFacts::default()).unwrap();
    let frames: Vec<_> = all_printed(&folder)
        .into_iter()
        .filter(|frame| frame.module == KERNEL && frame.name.is_some())
        .collect();
    let requests: Vec<_> = frames.iter().map(request).collect();
    let names = symbolizer.names(&requests);
    let mut wrong = Vec::new();
    for (frame, names) in frames.iter().zip(&names) {
        if as_printed(names) != frame.name {
            wrong.push((frame, as_printed(names)));
        }
    }
    println!(
        "{} of {} kernel frames as perf",
        frames.len() - wrong.len(),
        frames.len()
    );
    assert!(frames.len() > 100, "{}", frames.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn user_names_are_those_of_perf() {
    let Some(corpus) = corpus() else { return };
    let options = Options {
        directories: vec![corpus.join("perf-data/programs")],
        system: false,
        ..Options::default()
    };
    let mut symbolizer = Symbolizer::new(options, KernelFacts::default()).unwrap();
    let frames: Vec<_> = ["6.12", "host-6.18"]
        .iter()
        .flat_map(|folder| all_printed(&corpus.join("perf-data").join(folder)))
        .filter(|frame| frame.module.contains("/workload"))
        .filter_map(in_file)
        .collect();
    let requests: Vec<_> = frames.iter().map(request).collect();
    let names = symbolizer.names(&requests);
    let mut wrong = Vec::new();
    for (frame, names) in frames.iter().zip(&names) {
        if as_printed(names) != frame.name {
            wrong.push((frame, as_printed(names)));
        }
    }
    println!(
        "{} of {} user frames as perf",
        frames.len() - wrong.len(),
        frames.len()
    );
    assert!(frames.len() > 50, "{}", frames.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}
