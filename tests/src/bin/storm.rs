//! Workloads for the benchmarks: they repeat one operation and print their own cost.
//!
//! ```text
//! $ storm syscalls 400000      read and write one byte 400,000 times
//! $ storm switches 100000      100,000 round trips between two threads over pipes
//! $ storm mallocs 100000       malloc and free 1 to 4096 bytes 100,000 times
//! $ storm stacks 3000          3000 ms of work below 40 nested calls
//! storm: 104857600 ns of CPU, 106954752 ns
//! ```

use std::fs::{File, OpenOptions};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, count] = arguments.as_slice() else {
        return misuse();
    };
    let Ok(count) = count.parse() else {
        return misuse();
    };
    let started = Instant::now();
    let done = match kind.as_str() {
        "syscalls" => syscalls(count),
        "mallocs" => Ok(mallocs(count)),
        "switches" => switches(count),
        "stacks" => Ok(stacks(count)),
        _ => return misuse(),
    };
    match done {
        Ok(other_threads) => {
            println!(
                "storm: {} ns of CPU, {} ns",
                own_cpu() + other_threads,
                started.elapsed().as_nanos()
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("storm: {error}");
            ExitCode::FAILURE
        }
    }
}

fn misuse() -> ExitCode {
    eprintln!("usage: storm syscalls|mallocs|switches|stacks COUNT");
    ExitCode::from(2)
}

/// Nanoseconds of CPU of the calling thread: the first field of schedstat, exact where /proc/PID/stat counts ticks.
fn own_cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|field| field.parse().ok())
        .unwrap_or(0)
}

fn syscalls(count: u64) -> std::io::Result<u64> {
    let mut zero = File::open("/dev/zero")?;
    let mut null = OpenOptions::new().write(true).open("/dev/null")?;
    let mut byte = [0];
    for _ in 0..count {
        zero.read_exact(&mut byte)?;
        null.write_all(&byte)?;
    }
    Ok(0)
}

fn mallocs(count: u64) -> u64 {
    for turn in 0..count {
        // Unless its result is used, the compiler would remove it.
        std::hint::black_box(Vec::<u8>::with_capacity((turn % 4096 + 1) as usize));
    }
    0
}

fn switches(count: u64) -> std::io::Result<u64> {
    let (mut there_read, mut there_write) = std::io::pipe()?;
    let (mut back_read, mut back_write) = std::io::pipe()?;
    let partner = std::thread::spawn(move || {
        let passed = pass(count, &mut there_read, &mut back_write, false);
        passed.map(|()| own_cpu())
    });
    pass(count, &mut back_read, &mut there_write, true)?;
    partner
        .join()
        .unwrap_or_else(|_| Err(std::io::Error::other("the partner died")))
}

fn pass(
    count: u64,
    from: &mut PipeReader,
    to: &mut PipeWriter,
    first: bool,
) -> std::io::Result<()> {
    let mut byte = [0];
    for _ in 0..count {
        if first {
            to.write_all(&byte)?;
        }
        from.read_exact(&mut byte)?;
        if !first {
            to.write_all(&byte)?;
        }
    }
    Ok(())
}

fn stacks(milliseconds: u64) -> u64 {
    let until = Instant::now() + Duration::from_millis(milliseconds);
    let mut sum = 0_u64;
    while Instant::now() < until {
        sum = sum.wrapping_add(nested(40, sum));
    }
    std::hint::black_box(sum);
    0
}

/// Real frames: neither inlined nor turned into a loop.
#[inline(never)]
fn nested(depth: u32, value: u64) -> u64 {
    if depth == 0 {
        return (0..2000).fold(value, |sum, step| {
            std::hint::black_box(sum.rotate_left(5) ^ step)
        });
    }
    std::hint::black_box(nested(depth - 1, value.wrapping_add(1))).wrapping_mul(3)
}
