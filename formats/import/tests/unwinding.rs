//! Stacks unwound from copied stack memory are those that `perf script` prints.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use perfquet_events::event::{Event, Mapping, Registers, Sample, Sink};
use perfquet_events::{Error, Input};
use perfquet_readers::perf_data::PERF_DATA;
use perfquet_trace::symbols::{Object, Options, Origin, Unwinder};

/// The recordings of this project, and downloaded ones if available.
fn corpora() -> Vec<PathBuf> {
    let clone = Path::new(env!("CARGO_MANIFEST_DIR"));
    let clone = clone.ancestors().nth(2).unwrap();
    let foreign = std::env::var_os("PERFQUET_CORPUS").map(PathBuf::from);
    let foreign = foreign.unwrap_or_else(|| clone.join("../shared/corpus"));
    let foreign = foreign.is_dir().then_some(foreign);
    [clone.join("tests/corpus")]
        .into_iter()
        .chain(foreign)
        .collect()
}

/// `   11a7 work_inner+0x21 (/w/workload)`, alone or at the end of a line with a sample's fields: address and module.
fn printed(line: &str) -> Option<(u64, String)> {
    let (frame, module) = line.strip_suffix(')')?.rsplit_once(" (")?;
    let frame = frame.rsplit_once(": ").map_or(frame, |(_, frame)| frame);
    let (address, _) = frame.trim_start().split_once(' ')?;
    Some((u64::from_str_radix(address, 16).ok()?, module.to_owned()))
}

/// The origin of a recording that began now, at time 0.
fn now() -> Origin {
    let now = std::time::SystemTime::now();
    let now = now.duration_since(std::time::UNIX_EPOCH).unwrap();
    Origin {
        wall_offset: Some(now.as_nanos() as i64),
        began: Some(0),
        ..Origin::default()
    }
}

/// Unwinds the stacks of a recording and prints them like perf script: file offsets, those of callers minus one.
struct Unwinding {
    unwinder: Unwinder,
    build_ids: HashMap<Vec<u8>, Vec<u8>>,
    mappings: Vec<(i32, u64, u64, u64, String)>,
    stacks: Vec<Vec<(u64, String)>>,
}

impl Unwinding {
    fn add(&mut self, sample: &Sample<'_>, registers: &Registers<'_>) {
        let mut addresses = Vec::new();
        let pid = sample.pid.unwrap();
        let memory = sample.user_memory;
        self.unwinder.unwind(pid, registers, memory, &mut addresses);
        let in_file = |(index, address): (usize, &u64)| {
            let address = address - u64::from(index > 0);
            let mapping = self.mappings.iter().rev();
            mapping
                .filter(|(of, ..)| *of == pid)
                .find(|(_, start, length, ..)| (*start..start + length).contains(&address))
                .map(|(_, start, _, offset, path)| (address - start + offset, path.clone()))
                .unwrap()
        };
        let stack = addresses.iter().enumerate().map(in_file).collect();
        self.stacks.push(stack);
    }
}

impl Sink for Unwinding {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Mapping(mapping) => {
                let build_id = self.build_ids.get(mapping.path).map(Vec::as_slice);
                self.unwinder.add_mapping(&Mapping {
                    build_id: mapping.build_id.or(build_id),
                    ..mapping
                });
                let Mapping {
                    pid,
                    start,
                    length,
                    file_offset,
                    path,
                    ..
                } = mapping;
                let path = String::from_utf8_lossy(path).into_owned();
                self.mappings.push((pid, start, length, file_offset, path));
            }
            Event::BuildId(id) => {
                let (path, id) = (id.path.to_vec(), id.build_id.to_vec());
                self.build_ids.insert(path, id);
            }
            Event::Sample(sample) => {
                if let Some(registers) = &sample.user_registers {
                    self.add(sample, registers);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[test]
fn stacks_are_those_of_perf() {
    let libc = Object::open(Path::new("/usr/lib/x86_64-linux-gnu/libc.so.6"));
    let recorded = "93ac61ec5a8eb1396f9fbd350e3169a558528a40";
    let hex = |id: &[u8]| -> String { id.iter().map(|byte| format!("{byte:02x}")).collect() };
    let has_libc = libc.is_ok_and(|libc| libc.build_id().map(hex).as_deref() == Some(recorded));
    // The traced program of this project's recordings has no library; the downloaded one has.
    let corpora = corpora();
    let own = ["6.12", "host"].map(|folder| (&corpora[0], folder));
    let foreign = corpora.iter().skip(1).filter(|_| has_libc);
    let foreign = foreign.flat_map(|corpus| ["6.12", "host-6.18"].map(|folder| (corpus, folder)));
    for (corpus, folder) in own.into_iter().chain(foreign) {
        let path = corpus
            .join("perf-data")
            .join(folder)
            .join("cpu-clock-dwarf.data");
        let options = Options {
            directories: vec![corpus.join("perf-data/programs")],
            ..Options::default()
        };
        let mut unwinding = Unwinding {
            unwinder: Unwinder::new(&options, now(), "x86_64"),
            build_ids: HashMap::new(),
            mappings: Vec::new(),
            stacks: Vec::new(),
        };
        let mut input = Input::open(&path).unwrap();
        PERF_DATA.read(&mut input, &mut unwinding).unwrap();

        let script = fs::read_to_string(path.with_extension("script")).unwrap();
        let stack = |block: &str| -> Vec<_> {
            let frames = block.lines().filter_map(printed);
            frames
                .filter(|(_, module)| !module.starts_with("[kernel"))
                .collect()
        };
        let blocks = script
            .split("\n\n")
            .filter(|block| !block.trim().is_empty());
        let expected: Vec<_> = blocks.map(stack).collect();
        println!("{folder}: {} stacks", expected.len());
        assert!(expected.len() > 50);
        assert_eq!(unwinding.stacks, expected);
        let counts = unwinding.unwinder.counts();
        assert_eq!(counts.complete, expected.len() as u64);
    }
}
