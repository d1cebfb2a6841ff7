//! What samples have besides stacks: addresses of data, branches, registers.
//!
//! ```text
//! -d, --data                 page faults, breakpoints, memory events of the CPU: addr, data_src
//! -b, -j any_call,u          the CPU's last branches: branch_from, branch_to, branch_flags
//! --user-regs ip,sp,di       registers of user space: user_regs, user_regs_mask
//! ```
//! The names are perf's (perf-record(1)).

use std::io;

use clap::Args;

use super::Probe;
use crate::failure::{Failure, failed, misuse};
use crate::sys::perf_event::{Attr, abi};

/// The options.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ExtraOptions {
    /// Record the address of the data with samples
    ///
    /// Page faults, breakpoints and the CPU's memory events have one, in column addr; the latter also have its source, in
    /// data_src. Other events have none.
    #[arg(short = 'd', long = "data")]
    has_data: bool,
    /// Record the CPU's last branches with samples; short for -j any
    #[arg(short = 'b', long = "branch-any")]
    has_branches: bool,
    /// Record the CPU's last branches that match FILTER; comma-separated
    ///
    /// any, any_call, any_ret, ind_call, ind_jmp, cond, call; with u, k, hv, in_tx, no_tx, abort_tx, no_flags, no_cycles,
    /// save_type, hw_index. Requires a hardware counter such as cycles, and a CPU with branch records.
    #[arg(short = 'j', long = "branch-filter", value_name = "FILTER", value_parser = branches, conflicts_with = "has_branches")]
    branch_filter: Option<u64>,
    /// Record registers of user space with samples; all, or comma-separated names
    ///
    /// x86-64: ax, bx, cx, dx, si, di, bp, sp, ip, flags, cs, ss, r8 to r15. ARM64: x0 to x30, sp, pc.
    #[arg(long, value_name = "REGISTERS", num_args = 0..=1, require_equals = true, default_missing_value = "all", value_parser = registers)]
    user_regs: Option<u64>,
}

/// What the samples of counters and clocks have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    has_data: bool,
    /// `branch_sample_type`
    branches: Option<u64>,
    /// `sample_regs_user`
    registers: Option<u64>,
}

impl ExtraOptions {
    /// Combines the options; fails if no event supports a requested member.
    pub(crate) fn extras(&self, probes: &[Probe]) -> Result<Extras, Failure> {
        let any = self
            .has_branches
            .then_some(u64::from(abi::PERF_SAMPLE_BRANCH_ANY));
        let extras = Extras {
            has_data: self.has_data,
            branches: self.branch_filter.or(any),
            registers: self.user_regs,
        };
        if extras == Extras::default() {
            return Ok(extras);
        }
        if !probes.iter().any(Probe::is_sampled) {
            return Err(
                misuse("-d, -b, -j and --user-regs: require a counter or clock")
                    .hint("add one with -e; tracepoints and probes record their own arguments"),
            );
        }
        if extras.has_data && !probes.iter().any(|probe| may_have_data(&probe.attr)) {
            return Err(misuse("-d: none of the events has addresses of data").hint(
                "use page faults (-e page-faults -c 1), a breakpoint (-e mem:ADDR), or a memory event of the CPU",
            ));
        }
        Ok(extras)
    }
}

impl Extras {
    /// Adds them to the attributes of a counter or clock.
    pub(crate) fn add_to(self, attr: &mut Attr) {
        if self.has_data && may_have_data(attr) {
            attr.sample_type |= u64::from(abi::PERF_SAMPLE_ADDR);
            if is_of_cpu(attr) {
                attr.sample_type |= u64::from(abi::PERF_SAMPLE_DATA_SRC);
            }
        }
        if let Some(branches) = self.branches {
            attr.sample_type |= u64::from(abi::PERF_SAMPLE_BRANCH_STACK);
            attr.branch_sample_type |= branches;
        }
        if let Some(registers) = self.registers {
            attr.sample_type |= u64::from(abi::PERF_SAMPLE_REGS_USER);
            attr.sample_regs_user |= registers;
        }
    }

    /// Whether registers are recorded for their own sake.
    pub(crate) fn has_registers(self) -> bool {
        self.registers.is_some()
    }

    /// Returns the error of an event that the kernel rejects because of branches.
    pub(crate) fn no_branches(
        self,
        attr: &Attr,
        event: &str,
        error: &io::Error,
    ) -> Option<Failure> {
        let number = error.raw_os_error();
        let is_of_branches = matches!(
            number,
            Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOENT | libc::ENODEV)
        );
        (self.branches.is_some() && is_of_branches).then(|| {
            let reason = match (attr.type_, number) {
                (abi::PERF_TYPE_SOFTWARE | abi::PERF_TYPE_BREAKPOINT, _) => {
                    format!("{event} is no counter of the CPU")
                }
                (_, Some(libc::ENOENT | libc::ENODEV)) => {
                    format!("this host has no hardware counter {event}")
                }
                _ => format!("this CPU or kernel has none of this kind for {event}: {error}"),
            };
            failed(format!("-b, -j: cannot record branches: {reason}"))
                .hint("drop the option; it requires a physical CPU with branch records (Intel LBR, AMD Zen 3, ARM BRBE) and -e cycles")
        })
    }
}

/// Whether samples of the event can have the address of data: the clocks and other software events have none.
fn may_have_data(attr: &Attr) -> bool {
    let faults = [
        abi::PERF_COUNT_SW_PAGE_FAULTS,
        abi::PERF_COUNT_SW_PAGE_FAULTS_MIN,
        abi::PERF_COUNT_SW_PAGE_FAULTS_MAJ,
        abi::PERF_COUNT_SW_ALIGNMENT_FAULTS,
    ];
    match attr.type_ {
        abi::PERF_TYPE_SOFTWARE => faults.iter().any(|&fault| attr.config == u64::from(fault)),
        abi::PERF_TYPE_TRACEPOINT => false,
        _ => true,
    }
}

/// Whether it is an event of the CPU or another device.
fn is_of_cpu(attr: &Attr) -> bool {
    !matches!(
        attr.type_,
        abi::PERF_TYPE_SOFTWARE | abi::PERF_TYPE_BREAKPOINT | abi::PERF_TYPE_TRACEPOINT
    )
}

/// `any_call,u`
fn branches(text: &str) -> Result<u64, String> {
    let mut filter = 0;
    for word in text.split(',') {
        filter |= match word.trim() {
            "any" => abi::PERF_SAMPLE_BRANCH_ANY,
            "any_call" => abi::PERF_SAMPLE_BRANCH_ANY_CALL,
            "any_ret" => abi::PERF_SAMPLE_BRANCH_ANY_RETURN,
            "ind_call" => abi::PERF_SAMPLE_BRANCH_IND_CALL,
            "ind_jmp" => abi::PERF_SAMPLE_BRANCH_IND_JUMP,
            "cond" => abi::PERF_SAMPLE_BRANCH_COND,
            "call" => abi::PERF_SAMPLE_BRANCH_CALL,
            "u" => abi::PERF_SAMPLE_BRANCH_USER,
            "k" => abi::PERF_SAMPLE_BRANCH_KERNEL,
            "hv" => abi::PERF_SAMPLE_BRANCH_HV,
            "in_tx" => abi::PERF_SAMPLE_BRANCH_IN_TX,
            "no_tx" => abi::PERF_SAMPLE_BRANCH_NO_TX,
            "abort_tx" => abi::PERF_SAMPLE_BRANCH_ABORT_TX,
            "no_flags" => abi::PERF_SAMPLE_BRANCH_NO_FLAGS,
            "no_cycles" => abi::PERF_SAMPLE_BRANCH_NO_CYCLES,
            "save_type" => abi::PERF_SAMPLE_BRANCH_TYPE_SAVE,
            "hw_index" => abi::PERF_SAMPLE_BRANCH_HW_INDEX,
            word => return Err(format!("unknown kind of branch {word:?}")),
        };
    }
    let spaces =
        abi::PERF_SAMPLE_BRANCH_USER | abi::PERF_SAMPLE_BRANCH_KERNEL | abi::PERF_SAMPLE_BRANCH_HV;
    if filter & !spaces == 0 {
        filter |= abi::PERF_SAMPLE_BRANCH_ANY;
    }
    Ok(filter.into())
}

/// The registers of a 64-bit process, by their bits in the architecture's perf_regs.h; NULL ones cannot be sampled.
#[cfg(target_arch = "x86_64")]
const NAMES: &[&str] = &[
    "ax", "bx", "cx", "dx", "si", "di", "bp", "sp", "ip", "flags", "cs", "ss", "", "", "", "",
    "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
];
#[cfg(target_arch = "aarch64")]
const NAMES: &[&str] = &[
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14",
    "x15", "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27",
    "x28", "x29", "x30", "sp", "pc",
];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const NAMES: &[&str] = &[];

/// `all`, `ip,sp,di`
fn registers(text: &str) -> Result<u64, String> {
    if NAMES.is_empty() {
        return Err("supported only on x86-64 and ARM64".to_owned());
    }
    let numbered = || NAMES.iter().enumerate();
    if text == "all" {
        let known = numbered().filter(|(_, name)| !name.is_empty());
        return Ok(known.map(|(bit, _)| 1 << bit).sum());
    }
    let mut mask = 0;
    for word in text.split(',') {
        let word = word.trim().to_ascii_lowercase();
        let found = numbered().find(|(_, name)| !name.is_empty() && **name == word);
        let Some((bit, _)) = found else {
            let known: Vec<&str> = NAMES
                .iter()
                .copied()
                .filter(|name| !name.is_empty())
                .collect();
            return Err(format!(
                "no register {word:?}; there are {}",
                known.join(", ")
            ));
        };
        mask |= 1 << bit;
    }
    Ok(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_branches() {
        let any = u64::from(abi::PERF_SAMPLE_BRANCH_ANY);
        assert_eq!(branches("any"), Ok(any));
        // Without a kind, all.
        assert_eq!(
            branches("u"),
            Ok(any | u64::from(abi::PERF_SAMPLE_BRANCH_USER))
        );
        let calls = abi::PERF_SAMPLE_BRANCH_ANY_CALL | abi::PERF_SAMPLE_BRANCH_KERNEL;
        assert_eq!(branches("any_call,k"), Ok(calls.into()));
        for wrong in ["", "any,", "calls"] {
            assert!(branches(wrong).is_err(), "{wrong}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn names_of_registers() {
        assert_eq!(registers("all"), Ok(0xff_0fff));
        assert_eq!(registers("ax,IP,r8"), Ok(1 | 1 << 8 | 1 << 16));
        for wrong in ["", "eax", "ax,", "x0"] {
            assert!(registers(wrong).is_err(), "{wrong}");
        }
    }
}
