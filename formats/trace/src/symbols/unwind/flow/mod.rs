//! Unwind rules of code without call frame information, from its instructions: C libraries that are built without it (musl), and
//! assembly (x264, FFmpeg).
//!
//! ```text
//! push rbx            CFA = rsp+8         ▲ backward, from each ret: the word at rsp is the return address there
//! sub  rsp, 32        CFA = rsp+16        │
//! call f              CFA = rsp+48        │
//! add  rsp, 32        CFA = rsp+48        │
//! pop  rbx            CFA = rsp+16        │ forward, from the targets of calls: it is the return address there, too
//! ret                 CFA = rsp+8         ▼
//! ```
//! Both are propagated over jumps. Where they contradict each other or themselves, as after a call that never returns, the code has no rule.
//! The code may be hostile: the work is bounded by its size.

mod prologues;
mod steps;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use super::rule::{Frame, RBP, RSP, Rbp, Rule};
use steps::{DWARF_OF_NUMBER, Effect, Step, Way, steps_of};

pub(super) use prologues::has_prologues;
pub(super) use steps::SIGNAL_RETURNS;

/// Sweeps over the code until rules no longer change: one for each nested loop, and each backward jump out of one.
const SWEEPS_MAX: usize = 12;
/// Instructions from the start of a thread to its call, and from there to `hlt`.
const START_INSTRUCTIONS: usize = 16;

/// The frame before an instruction, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Nothing,
    Frame(Frame),
    /// Two ways lead here with different frames.
    Contradiction,
}

impl Known {
    fn meet(self, other: Known) -> Known {
        match (self, other) {
            (Known::Nothing, known) | (known, Known::Nothing) => known,
            (Known::Frame(one), Known::Frame(other)) if is_same_cfa(&one, &other) => {
                let is_same = one.rbp == other.rbp;
                let rbp = if is_same { one.rbp } else { Rbp::Unknown };
                Known::Frame(Frame { rbp, ..one })
            }
            _ => Known::Contradiction,
        }
    }

    fn of(frame: Option<Frame>) -> Known {
        frame.map_or(Known::Nothing, Known::Frame)
    }
}

fn is_same_cfa(one: &Frame, other: &Frame) -> bool {
    (one.base, one.offset, one.indirect) == (other.base, other.offset, other.indirect)
}

/// Returns the rules of a piece of code, each with the first address that it applies to; [`Rule::Gap`] where no rule is certain.
/// `is_function` returns whether a function begins at an address outside of the piece.
pub(super) fn rules_of(
    start: u64,
    code: &[u8],
    is_function: &dyn Fn(u64) -> bool,
) -> Vec<(u64, Rule)> {
    let (mut steps, entries) = steps_of(start, code, is_function);
    let mut backward = backward_of(&steps);
    if end_at_last_calls(&mut steps, &entries, &backward) {
        backward = backward_of(&steps);
    }
    let forward = forward(&steps, &entries);
    let known = forward.iter().zip(&backward);
    let mut rules: Vec<Rule> = known
        .map(|(forward, backward)| rule_of(*forward, *backward))
        .collect();
    mark_starts(&steps, &mut rules);
    let mut of_addresses: Vec<(u64, Rule)> = Vec::new();
    for (step, mut rule) in steps.iter().zip(rules) {
        let rest = code.get(step.offset..).unwrap_or_default();
        let is_system_call = rest.starts_with(&[0x0f, 0x05]);
        let before = of_addresses.last().map(|(_, rule)| *rule);
        if SIGNAL_RETURNS.iter().any(|bytes| rest.starts_with(bytes))
            || is_system_call && before == Some(Rule::Signal)
        {
            rule = Rule::Signal;
        }
        if before != Some(rule) {
            of_addresses.push((start.saturating_add(step.offset as u64), rule));
        }
    }
    of_addresses
}

/// Ends the way after calls of functions that never return: after one of their calls, another function begins. Returns whether there
/// are any.
fn end_at_last_calls(steps: &mut [Step], entries: &[bool], before: &[Known]) -> bool {
    let mut never_return = HashSet::new();
    for (index, step) in steps.iter().enumerate() {
        let (Some(callee), Way::To(next)) = (step.callee, step.next) else {
            continue;
        };
        let rest = steps.get(next..).unwrap_or_default();
        let padding = rest.iter().take_while(|step| step.is_padding).count();
        let is_last = entries.get(next + padding).copied().unwrap_or(false);
        let after = before.get(index + 1).copied().unwrap_or(Known::Nothing);
        if is_last || after_call(step, after) != after {
            never_return.insert(callee);
        }
    }
    for step in &mut *steps {
        if step
            .callee
            .is_some_and(|callee| never_return.contains(&callee))
        {
            step.next = Way::None;
        }
    }
    !never_return.is_empty()
}

/// The frame before each instruction, from the entries of functions on.
fn forward(steps: &[Step], entries: &[bool]) -> Vec<Known> {
    let mut before: Vec<Known> = entries
        .iter()
        .map(|is_entry| match is_entry {
            true => Known::Frame(Frame::ENTRY),
            false => Known::Nothing,
        })
        .collect();
    for _ in 0..SWEEPS_MAX {
        let mut has_changed = false;
        for (index, step) in steps.iter().enumerate() {
            let Some(Known::Frame(frame)) = before.get(index).copied() else {
                continue;
            };
            let after = Known::of(frame_after(step, frame));
            for way in [step.next, step.jump] {
                let Way::To(to) = way else { continue };
                let is_entry = entries.get(to).copied().unwrap_or(true);
                let Some(known) = before.get_mut(to).filter(|_| !is_entry) else {
                    continue;
                };
                let met = known.meet(after);
                has_changed |= met != *known;
                *known = met;
            }
        }
        if !has_changed {
            break;
        }
    }
    before
}

/// The frame before each instruction, from the returns backward.
fn backward_of(steps: &[Step]) -> Vec<Known> {
    let mut before = vec![Known::Nothing; steps.len()];
    for _ in 0..SWEEPS_MAX {
        let mut has_changed = false;
        for (index, step) in steps.iter().enumerate().rev() {
            let at = |way| match way {
                Way::None => Known::Nothing,
                Way::Function => Known::Frame(Frame::ENTRY),
                Way::To(to) => before.get(to).copied().unwrap_or(Known::Nothing),
            };
            let after = match step.is_return {
                true => Known::Frame(Frame::ENTRY),
                false => after_call(step, at(step.next)).meet(at(step.jump)),
            };
            let known = match after {
                Known::Frame(frame) => Known::of(frame_before(step, frame)),
                after => after,
            };
            if let Some(last) = before.get_mut(index).filter(|last| **last != known) {
                has_changed = true;
                *last = known;
            }
        }
        if !has_changed {
            break;
        }
    }
    before
}

/// What follows a call, unless that is another function, to which the call never returns. Stacks are aligned to 16 bytes where
/// functions are called (System V ABI), so that they are not where functions begin.
fn after_call(step: &Step, after: Known) -> Known {
    match after {
        Known::Frame(frame)
            if step.is_call
                && frame.base == RSP
                && frame.indirect.is_none()
                && frame.offset % 16 != 0 =>
        {
            Known::Nothing
        }
        after => after,
    }
}

/// Whether the instruction writes a register, by DWARF's number.
fn writes(step: &Step, register: u8) -> bool {
    let number = DWARF_OF_NUMBER.iter().position(|dwarf| *dwarf == register);
    number.is_some_and(|number| step.writes & (1 << number) != 0)
}

/// rsp plus bytes relative to the CFA, if that is at rsp plus an offset.
fn from_cfa(frame: &Frame, bytes: i32) -> Option<i32> {
    match frame.base == RSP && frame.indirect.is_none() {
        true => bytes.checked_sub(frame.offset),
        false => None,
    }
}

/// The frame with another offset, if its base is rsp, and another base.
fn rebased(frame: Frame, base: u8, bytes: i32) -> Option<Frame> {
    Some(match frame.base {
        RSP => Frame {
            base,
            offset: frame.offset.checked_add(bytes)?,
            ..frame
        },
        _ => frame,
    })
}

/// Where the caller's rbp is if the register holds another value.
fn overwritten(rbp: Rbp) -> Rbp {
    match rbp {
        Rbp::Same => Rbp::Unknown,
        rbp => rbp,
    }
}

/// Where the caller's rbp is before it is read from the stack.
fn unread(rbp: Rbp, at: Option<i32>) -> Rbp {
    match (rbp, at) {
        (Rbp::Same, Some(bytes)) => Rbp::AtCfa(bytes),
        (rbp, _) => overwritten(rbp),
    }
}

/// The frame on both sides of an instruction that does not move rsp by a known distance.
fn unmoved(step: &Step, frame: Frame) -> Option<Frame> {
    let is_lost = match step.effect {
        Effect::LoseRsp => frame.base == RSP,
        _ => frame.base == RBP && writes(step, RBP),
    };
    let rbp = match step.effect {
        Effect::None if writes(step, RBP) => overwritten(frame.rbp),
        _ => frame.rbp,
    };
    (!is_lost).then_some(Frame { rbp, ..frame })
}

/// Whether the instruction overwrites the base of the CFA, which is neither rsp nor rbp.
fn loses_base(step: &Step, frame: Frame) -> bool {
    frame.base != RSP && frame.base != RBP && writes(step, frame.base)
}

/// The frame after an instruction.
fn frame_after(step: &Step, frame: Frame) -> Option<Frame> {
    if loses_base(step, frame) {
        return None;
    }
    let Frame {
        base, offset, rbp, ..
    } = frame;
    let moved = |frame: Frame, bytes: i32| rebased(frame, RSP, bytes.checked_neg()?);
    let saved = |at: Option<i32>| match (rbp, at) {
        (Rbp::Same, Some(bytes)) => Rbp::AtCfa(bytes),
        (rbp, _) => rbp,
    };
    let restored = |at: Option<i32>| match at {
        Some(bytes) if rbp == Rbp::AtCfa(bytes) => Rbp::Same,
        _ => overwritten(rbp),
    };
    match step.effect {
        Effect::Move(bytes) => moved(frame, bytes),
        Effect::PushRbp => {
            let rbp = saved(from_cfa(&frame, -8));
            moved(Frame { rbp, ..frame }, -8)
        }
        Effect::PopRbp | Effect::RestoreRbp(_) if base == RBP => None,
        Effect::PopRbp => {
            let rbp = restored(from_cfa(&frame, 0));
            moved(Frame { rbp, ..frame }, 8)
        }
        Effect::Leave => (base == RBP && frame.indirect.is_none()).then_some(Frame {
            base: RSP,
            offset: offset.checked_sub(8)?,
            rbp: restored(offset.checked_neg()),
            ..frame
        }),
        Effect::Switch(register, bytes) => (base == register).then_some(Frame {
            base: RSP,
            offset: offset.checked_sub(bytes)?,
            ..frame
        }),
        Effect::Load(bytes) => match frame.indirect {
            Some(more) if base == RSP && offset == bytes => Some(Frame {
                offset: more,
                indirect: None,
                ..frame
            }),
            _ => None,
        },
        Effect::SetRbp(_) if base == RBP => None,
        Effect::SetRbp(bytes) => {
            let rbp = overwritten(rbp);
            rebased(Frame { rbp, ..frame }, RBP, bytes.checked_neg()?)
        }
        Effect::SaveRbp(bytes) => Some(Frame {
            rbp: saved(from_cfa(&frame, bytes)),
            ..frame
        }),
        Effect::RestoreRbp(bytes) => Some(Frame {
            rbp: restored(from_cfa(&frame, bytes)),
            ..frame
        }),
        Effect::LoseRsp | Effect::None => unmoved(step, frame),
    }
}

/// The frame before an instruction.
fn frame_before(step: &Step, frame: Frame) -> Option<Frame> {
    if loses_base(step, frame) {
        return None;
    }
    let Frame {
        base, offset, rbp, ..
    } = frame;
    let unsaved = |at: Option<i32>| match at {
        Some(bytes) if rbp == Rbp::AtCfa(bytes) => Rbp::Same,
        _ => rbp,
    };
    let popped = || {
        let before = rebased(frame, RSP, 8)?;
        let rbp = unread(rbp, from_cfa(&before, 0));
        Some(Frame { rbp, ..before })
    };
    match step.effect {
        Effect::Move(bytes) => rebased(frame, RSP, bytes),
        Effect::PushRbp => {
            let rbp = unsaved(from_cfa(&frame, 0));
            rebased(Frame { rbp, ..frame }, RSP, -8)
        }
        Effect::PopRbp | Effect::Leave | Effect::RestoreRbp(_) if base == RBP => None,
        Effect::PopRbp => popped(),
        Effect::Leave => rebased(popped()?, RBP, 0),
        Effect::Switch(register, bytes) => rebased(frame, register, bytes),
        Effect::Load(bytes) if base == RSP => {
            let is_direct = frame.indirect.is_none();
            is_direct.then_some(Frame {
                offset: bytes,
                indirect: Some(offset),
                ..frame
            })
        }
        Effect::Load(_) => Some(frame),
        Effect::SetRbp(bytes) => {
            let rbp = overwritten(rbp);
            let (base, offset) = match base {
                RBP => (RSP, offset.checked_add(bytes)?),
                _ => (base, offset),
            };
            Some(Frame {
                base,
                offset,
                rbp,
                ..frame
            })
        }
        Effect::SaveRbp(bytes) => Some(Frame {
            rbp: unsaved(from_cfa(&frame, bytes)),
            ..frame
        }),
        Effect::RestoreRbp(bytes) => Some(Frame {
            rbp: unread(rbp, from_cfa(&frame, bytes)),
            ..frame
        }),
        Effect::LoseRsp | Effect::None => unmoved(step, frame),
    }
}

/// Combines the frames that follow from entries and from returns.
fn rule_of(forward: Known, backward: Known) -> Rule {
    let frame = match (forward, backward) {
        (Known::Frame(forward), Known::Frame(backward)) => {
            let is_comparable = forward.base == backward.base
                && forward.indirect.is_some() == backward.indirect.is_some();
            (!is_comparable || is_same_cfa(&forward, &backward)).then_some(forward)
        }
        (Known::Frame(frame), _) | (_, Known::Frame(frame)) => Some(frame),
        _ => None,
    };
    let frame = frame.filter(|frame| {
        let offset = frame.indirect.unwrap_or(frame.offset);
        offset >= 8 && offset % 8 == 0 || frame.base != RSP && frame.base != RBP
    });
    frame.map_or(Rule::Gap, Rule::Frame)
}

/// Marks the code where threads begin: it clears rbp, calls, and never returns.
fn mark_starts(steps: &[Step], rules: &mut [Rule]) {
    for (first, _) in steps.iter().enumerate().filter(|(_, step)| step.clears_rbp) {
        let rest = steps.get(first..).unwrap_or_default().iter().enumerate();
        let mut call = None;
        for (index, step) in rest.take(2 * START_INSTRUCTIONS) {
            call = call.or(step.is_call.then_some(index));
            if step.is_halt && call.is_some_and(|call| call < START_INSTRUCTIONS) {
                let range = rules.get_mut(first..=first + index);
                range.unwrap_or_default().fill(Rule::Root);
            }
            if !step.is_call && (step.next == Way::None || step.jump != Way::None) {
                break;
            }
        }
    }
}
