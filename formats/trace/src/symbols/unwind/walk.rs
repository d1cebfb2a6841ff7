//! The walk over a stack of x86-64: from a frame to its caller, by the rule of the frame's code.
//!
//! ```text
//! ip 0x5647b6e511b7   rule: CFA = rsp+8        →   0x5647b6e51222   rule: CFA = rbp+16   →   …   →   rule: root
//! ```
//! A return address is looked up minus one, because a call may be the last instruction of its function.

use super::Unwound;
use super::flow::SIGNAL_RETURNS;
use super::rule::{Frame, RBP, RSP, Rbp, Rule};

/// Maximum number of frames in a stack: deeper recursion adds no information.
const DEPTH_MAX: usize = 1024;

/// Offset of the saved registers in `struct ucontext` (uc_mcontext), in bytes, and of three in `struct sigcontext`, in words
/// (arch/x86/include/uapi/asm/sigcontext.h).
const CONTEXT_REGISTERS: u64 = 40;
const CONTEXT_RBP: u64 = 10;
const CONTEXT_RSP: u64 = 15;
const CONTEXT_RIP: u64 = 16;

/// Registers of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    pub(super) ip: u64,
    pub(super) sp: u64,
    /// `None` if it was lost on the way.
    pub(super) bp: Option<u64>,
}

/// The code at an address, as needed for the walk.
pub(super) struct Code<'a> {
    pub(super) rule: Rule,
    /// The instructions from the frame's address on, if the file has them; empty otherwise.
    pub(super) instructions: &'a [u8],
    /// Whether code without a rule can be left by its frame pointer.
    pub(super) chains_hold: bool,
}

/// The process.
pub(super) trait Process {
    /// Returns the code of a frame at `address`. `looked_up` is one less in callers. `None` outside of all code.
    fn code(&mut self, address: u64, looked_up: u64) -> Option<Code<'_>>;
    /// Whether there is code at an address.
    fn is_code(&self, address: u64) -> bool;
    /// Eight bytes of the stack.
    fn word(&self, address: u64) -> Option<u64>;
    /// A register by its DWARF number; only those of the innermost frame are known.
    fn register(&self, number: u8) -> Option<u64>;
}

/// Why a step led nowhere.
enum Stop {
    Root,
    Memory,
    NoRule,
    Lost,
}

/// Walks a stack. Fills `addresses` with the current address of the thread and the return addresses, leaf first.
pub(super) fn walk(process: &mut impl Process, start: State, addresses: &mut Vec<u64>) -> Unwound {
    let mut state = start;
    addresses.push(start.ip);
    // Interrupted code is not left by a call: its address is its own.
    let mut is_interrupted = true;
    loop {
        let looked_up = state.ip.wrapping_sub(u64::from(!is_interrupted));
        let is_leaf = addresses.len() == 1;
        let stepped = match process.code(state.ip, looked_up) {
            Some(code) => {
                let rule = rule_of(&code, is_interrupted);
                let chains_hold = code.chains_hold;
                step(
                    process,
                    rule,
                    chains_hold,
                    &mut state,
                    is_leaf,
                    &mut is_interrupted,
                )
            }
            // A call through an invalid pointer has pushed the return address and done nothing else.
            None if is_leaf => {
                is_interrupted = false;
                leave(process, state.sp.wrapping_add(8), -8, state.bp, &mut state)
            }
            None => Err(Stop::Lost),
        };
        match stepped {
            Ok(()) => {}
            Err(Stop::Root) => return Unwound::Complete,
            Err(Stop::Memory) => return Unwound::MemoryEnded,
            Err(Stop::NoRule) => return Unwound::NoRule,
            Err(Stop::Lost) => return Unwound::Lost,
        }
        let caller = state.ip.wrapping_sub(u64::from(!is_interrupted));
        if !process.is_code(caller) {
            return Unwound::Lost;
        }
        if addresses.len() >= DEPTH_MAX {
            return Unwound::TooDeep;
        }
        // Users of stacks subtract one from the address of a caller.
        addresses.push(state.ip.wrapping_add(u64::from(is_interrupted)));
    }
}

/// Returns the rule of a frame; if the tables have none, derives it from the instructions.
fn rule_of(code: &Code<'_>, is_interrupted: bool) -> Rule {
    if code.rule != Rule::Gap {
        return code.rule;
    }
    let starts_with = |bytes: &[u8]| code.instructions.starts_with(bytes);
    if SIGNAL_RETURNS.iter().any(|bytes| starts_with(bytes)) {
        return Rule::Signal;
    }
    match code.instructions {
        _ if !is_interrupted => Rule::Gap,
        // endbr64; push rbp: at the entry.
        [0xf3, 0x0f, 0x1e, 0xfa, ..] | [0x55, 0x48, 0x89 | 0x8b, ..] => Rule::Frame(Frame::ENTRY),
        // mov rbp, rsp
        [0x48, 0x89, 0xe5, ..] | [0x48, 0x8b, 0xec, ..] => {
            Rule::Frame(Frame::at(RSP, 16, Rbp::AtCfa(-16)))
        }
        // ret
        [0xc3 | 0xc2, ..] | [0xf3, 0xc3, ..] => Rule::Frame(Frame::ENTRY),
        _ => Rule::Gap,
    }
}

fn step(
    process: &impl Process,
    rule: Rule,
    chains_hold: bool,
    state: &mut State,
    is_leaf: bool,
    is_interrupted: &mut bool,
) -> Result<(), Stop> {
    let was_interrupted = std::mem::replace(is_interrupted, false);
    match rule {
        Rule::Root => Err(Stop::Root),
        Rule::Opaque => Err(Stop::NoRule),
        Rule::Gap if !chains_hold => Err(Stop::NoRule),
        Rule::Gap => step_by_frame_pointer(process, state),
        Rule::Plt { pushed_from } => {
            let pushed = u64::from(state.ip & 15 >= pushed_from.into() && was_interrupted);
            let cfa = state.sp.wrapping_add(8 + 8 * pushed);
            leave(process, cfa, -8, state.bp, state)
        }
        Rule::Signal => {
            let at = |word: u64| state.sp.wrapping_add(CONTEXT_REGISTERS + word * 8);
            let saved = |word| process.word(at(word)).ok_or(Stop::Memory);
            let (ip, sp, bp) = (
                saved(CONTEXT_RIP)?,
                saved(CONTEXT_RSP)?,
                saved(CONTEXT_RBP)?,
            );
            *is_interrupted = true;
            *state = State {
                ip,
                sp,
                bp: Some(bp),
            };
            Ok(())
        }
        Rule::Switch => {
            let bp = state.bp.ok_or(Stop::NoRule)?;
            // Wherever that stack is.
            state.sp = bp;
            step_by_frame_pointer(process, state)
        }
        Rule::Frame(frame) => step_by_rule(process, frame, state, is_leaf),
    }
}

fn step_by_rule(
    process: &impl Process,
    frame: Frame,
    state: &mut State,
    is_leaf: bool,
) -> Result<(), Stop> {
    let word = |address| process.word(address).ok_or(Stop::Memory);
    let base = match frame.base {
        RSP => Some(state.sp),
        RBP => state.bp,
        number if is_leaf => process.register(number),
        _ => None,
    };
    let mut cfa = add(base.ok_or(Stop::NoRule)?, frame.offset);
    if let Some(more) = frame.indirect {
        cfa = add(word(cfa)?, more);
    }
    let saved_at = match frame.rbp {
        Rbp::Same | Rbp::Unknown => None,
        Rbp::AtCfa(bytes) => Some(add(cfa, bytes)),
        Rbp::AtFrame(bytes) => Some(add(state.bp.ok_or(Stop::NoRule)?, bytes)),
    };
    let bp = match saved_at {
        // Already popped: the tables keep the location to save rows.
        Some(place) if place < state.sp => state.bp,
        Some(place) => Some(word(place)?),
        None if frame.rbp == Rbp::Unknown => None,
        None => state.bp,
    };
    leave(process, cfa, frame.return_address, bp, state)
}

fn step_by_frame_pointer(process: &impl Process, state: &mut State) -> Result<(), Stop> {
    let bp = state.bp.ok_or(Stop::NoRule)?;
    if bp == 0 {
        return Err(Stop::Root);
    }
    let caller = process.word(bp).ok_or(match bp < state.sp {
        true => Stop::Lost,
        false => Stop::Memory,
    })?;
    leave(process, bp.wrapping_add(16), -8, Some(caller), state)
}

/// Moves to the caller, whose stack pointer is the CFA.
fn leave(
    process: &impl Process,
    cfa: u64,
    return_address: i32,
    bp: Option<u64>,
    state: &mut State,
) -> Result<(), Stop> {
    // Stacks grow downwards: a caller's frame is above.
    if cfa <= state.sp {
        return Err(Stop::Lost);
    }
    let ip = process.word(add(cfa, return_address)).ok_or(Stop::Memory)?;
    if ip == 0 {
        return Err(Stop::Root);
    }
    *state = State { ip, sp: cfa, bp };
    Ok(())
}

fn add(address: u64, offset: i32) -> u64 {
    address.wrapping_add_signed(offset.into())
}
