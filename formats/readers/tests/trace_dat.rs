//! Reading a trace.dat of any size takes little memory. A separate program, so that no other test's allocations count.
//!
//! `PERFQUET_TRACE_DAT_MB` is the size of the file (default: 128 MB), `PERFQUET_TRACE_DAT` its path.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use perfquet_events::event::{Event, Sink};
use perfquet_events::{Error, Input};
use perfquet_readers::trace_dat::TRACE_DAT;

const PAGE_BYTES: usize = 4096;
const CPUS: u64 = 4;
const EVENTS_PER_PAGE: u64 = (PAGE_BYTES as u64 - 16) / EVENT_BYTES;
/// The head and payload of a sched_switch.
const EVENT_BYTES: u64 = 4 + 64;

const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";

const SWITCH: &str = "name: sched_switch\nID: 300\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
    \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
    \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
    \tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;\n\
    \tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\
    \tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;\n\
    \tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\n\
    \tfield:int next_prio;\toffset:60;\tsize:4;\tsigned:1;\n\n\
    print fmt: \"prev_comm=%s prev_pid=%d prev_prio=%d prev_state=%ld ==> next_comm=%s next_pid=%d next_prio=%d\", \
    REC->prev_comm, REC->prev_pid, REC->prev_prio, REC->prev_state, REC->next_comm, REC->next_pid, REC->next_prio\n";

fn sized(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

/// The parts before the pages, in version 6.
fn head(pages_per_cpu: u64) -> Vec<u8> {
    let mut bytes = b"\x17\x08\x44tracing6\0\0\x08\0\x10\0\0header_page\0".to_vec();
    sized(&mut bytes, HEADER_PAGE);
    bytes.extend(b"header_event\0");
    sized(&mut bytes, "");
    bytes.extend(0u32.to_le_bytes());
    bytes.extend([&1u32.to_le_bytes()[..], b"sched\0", &1u32.to_le_bytes()].concat());
    sized(&mut bytes, SWITCH);
    // kallsyms, printk formats, command lines
    bytes.extend([0; 8]);
    sized(&mut bytes, "1 one\n2 two\n");
    bytes.extend((CPUS as u32).to_le_bytes());
    bytes.extend(b"flyrecord\0");
    for cpu in 0..CPUS {
        let start = PAGE_BYTES as u64 * (1 + cpu * pages_per_cpu);
        bytes.extend(start.to_le_bytes());
        bytes.extend((PAGE_BYTES as u64 * pages_per_cpu).to_le_bytes());
    }
    assert!(bytes.len() <= PAGE_BYTES);
    bytes.resize(PAGE_BYTES, 0);
    bytes
}

/// A switch between a CPU's idle task and one of a few hundred threads.
fn event(number: u64, cpu: u64) -> Vec<u8> {
    let tid = 100 + (number * 7919 + cpu) as u32 % 300;
    let (idle, thread) = ((0, "swapper".to_owned()), (tid, format!("worker/{tid}")));
    let (previous, next) = match number % 2 {
        0 => (idle, thread),
        _ => (thread, idle),
    };
    let mut bytes = (16u32 | 500 << 5).to_le_bytes().to_vec();
    bytes.extend([44, 1, 0, 0]);
    bytes.extend(previous.0.to_le_bytes());
    for (index, (tid, comm)) in [previous, next].into_iter().enumerate() {
        let mut comm = comm.into_bytes();
        comm.resize(16, 0);
        bytes.extend(comm);
        bytes.extend(tid.to_le_bytes());
        bytes.extend(120u32.to_le_bytes());
        if index == 0 {
            bytes.extend((number % 2).to_le_bytes());
        }
    }
    assert_eq!(bytes.len() as u64, EVENT_BYTES);
    bytes
}

/// Writes a file of about `megabytes`; returns its number of events.
fn write(path: &Path, megabytes: u64) -> u64 {
    let pages_per_cpu = (megabytes << 20) / PAGE_BYTES as u64 / CPUS;
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path).unwrap());
    file.write_all(&head(pages_per_cpu)).unwrap();
    for cpu in 0..CPUS {
        for page in 0..pages_per_cpu {
            let first = page * EVENTS_PER_PAGE;
            let mut bytes = (first * 500 + cpu).to_le_bytes().to_vec();
            bytes.extend((EVENTS_PER_PAGE * EVENT_BYTES).to_le_bytes());
            for number in first..first + EVENTS_PER_PAGE {
                bytes.extend(event(number, cpu));
            }
            bytes.resize(PAGE_BYTES, 0);
            file.write_all(&bytes).unwrap();
        }
    }
    file.flush().unwrap();
    pages_per_cpu * CPUS * EVENTS_PER_PAGE
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[derive(Default)]
struct Count {
    events: u64,
    last: i64,
    most: u64,
}

impl Sink for Count {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Sample(sample) => {
                let time = sample.time.unwrap();
                assert!(time >= self.last, "{time} follows {}", self.last);
                self.last = time;
                self.events += 1;
                if self.events.is_multiple_of(100_000) {
                    self.most = self.most.max(resident_bytes());
                }
            }
            Event::Problem(problem) => panic!("{problem:?}"),
            _ => {}
        }
        Ok(())
    }
}

#[test]
fn a_large_file_takes_little_memory() {
    let megabytes = std::env::var("PERFQUET_TRACE_DAT_MB");
    let megabytes = megabytes.map_or(128, |text| text.parse().expect("a number"));
    let folder = tempfile::tempdir().unwrap();
    let kept = std::env::var_os("PERFQUET_TRACE_DAT").map(PathBuf::from);
    let path = kept.unwrap_or_else(|| folder.path().join("large.dat"));
    let events = write(&path, megabytes);
    let before = resident_bytes();
    let mut count = Count::default();
    let mut input = Input::open(&path).unwrap();
    TRACE_DAT.read(&mut input, &mut count).unwrap();
    assert_eq!(count.events, events);
    let most = count.most.saturating_sub(before);
    println!("{events} events in {megabytes} MB took {} MB", most >> 20);
    // 64 MB of the mapped file may be resident, plus the last megabyte read.
    assert!(most <= 80 << 20, "{} MB", most >> 20);
}
