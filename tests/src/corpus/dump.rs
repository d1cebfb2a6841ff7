//! The samples of a perf.data, one per line, from the output of `perf script -D`.
//!
//! ```text
//! 0 78022471842 0x470 [0xa0]: PERF_RECORD_SAMPLE(IP, 0x1): 227/227: 0xffffffff81445d55 period: 1 addr: 0
//! ... FP chain: nr:3
//! .....  0: ffffffffffffff80
//! .....  1: ffffffff81445d55
//! .....  2: ffffffff8144637f
//! ```
//! becomes `78022471842 0 227 227 - 1 ffffffff81445d55,ffffffff8144637f`; a file whose samples have no CPU has only one
//! leading number.

use std::fmt::Write as _;

/// Addresses from here on are marks for the space of the following ones.
const MARKS: u64 = (-4096i64).cast_unsigned();

/// The lines, sorted.
pub(super) fn samples(text: &str) -> String {
    let mut samples: Vec<String> = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(mut sample) = head(line) else {
            continue;
        };
        let mut chain = None;
        // Registers and stacks may come between the head and the chain.
        while let Some(line) = lines.next_if(|line| line.starts_with("...")) {
            if line.starts_with("... FP chain:") {
                chain = Some(Vec::new());
            } else if let (Some(chain), Some((number, address))) =
                (&mut chain, line.trim_start_matches('.').split_once(':'))
                && number.trim().parse::<u32>().is_ok()
                && let Ok(address) = u64::from_str_radix(address.trim(), 16)
            {
                chain.push(address);
            } else if chain.is_some() {
                break;
            }
        }
        let chain = chain.unwrap_or_else(|| vec![sample.1]);
        let addresses: Vec<String> = chain
            .iter()
            .filter(|address| **address < MARKS)
            .map(|address| format!("{address:x}"))
            .collect();
        let chain = if addresses.is_empty() {
            "-".to_owned()
        } else {
            addresses.join(",")
        };
        let _ = write!(sample.0, " {chain}");
        samples.push(sample.0);
    }
    samples.sort();
    samples.iter().map(|line| format!("{line}\n")).collect()
}

/// The line up to the period, and the address of the instruction.
fn head(line: &str) -> Option<(String, u64)> {
    let (before, after) = line.split_once(": PERF_RECORD_SAMPLE(")?;
    let numbers: Vec<&str> = before.split_whitespace().collect();
    let (cpu, time) = match numbers.as_slice() {
        [cpu, time, offset, _] if offset.starts_with("0x") => (*cpu, *time),
        [time, offset, _] if offset.starts_with("0x") => ("-", *time),
        _ => return None,
    };
    let (_, ids) = after.split_once("): ")?;
    let words: Vec<&str> = ids.split_whitespace().collect();
    let (pid, tid) = words.first()?.strip_suffix(':')?.split_once('/')?;
    let address = u64::from_str_radix(words.get(1)?.strip_prefix("0x")?, 16).ok()?;
    let period = words.iter().position(|word| *word == "period:")?;
    let period = words.get(period + 1)?;
    Some((format!("{time} {cpu} {pid} {tid} - {period}"), address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_with_and_without_a_chain() {
        let text = "0 30 0x470 [0xa0]: PERF_RECORD_SAMPLE(IP, 0x1): 227/228: 0xffffffff81445d55 period: 1 addr: 0\n\
            ... FP chain: nr:3\n.....  0: ffffffffffffff80\n.....  1: ffffffff81445d55\n.....  2: 7f970c47d350\n \
            ... thread: dd:227\n ...... dso: [kernel.kallsyms]\ndd 227 ...\n\
            20 0x510 [0x28]: PERF_RECORD_SAMPLE(IP, 0x2): 7/7: 0x401000 period: 1001001 addr: 0\n ... thread: a:7\n\
            0 0x1 [0x8]: PERF_RECORD_FINISHED_ROUND\n";
        let expected =
            "20 - 7 7 - 1001001 401000\n30 0 227 228 - 1 ffffffff81445d55,7f970c47d350\n";
        assert_eq!(samples(text), expected);
    }
}
