//! Code as instructions: where each goes on, and what it does to rsp and rbp.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    InstructionInfoOptions, Mnemonic, OpAccess, OpKind, Register,
};

use super::super::rule::RSP;

/// `mov eax, 15; syscall` with a 64-bit or 32-bit immediate: the end of a signal handler of musl or Go, which have no
/// call frame information.
pub(in super::super) const SIGNAL_RETURNS: [&[u8]; 2] = [
    &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05],
    &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05],
];
/// Registers that a call may change: rax, rcx, rdx, rsi, rdi, r8 to r11, by the numbers of instructions.
const CHANGED_BY_CALLS: u16 = 0b0000_1111_1100_0111;
/// DWARF's numbers of the registers, by the numbers of instructions.
pub(super) const DWARF_OF_NUMBER: [u8; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];

/// An instruction.
pub(super) struct Step {
    pub(super) offset: usize,
    /// Where it goes on; indices of instructions.
    pub(super) next: Way,
    pub(super) jump: Way,
    pub(super) is_return: bool,
    pub(super) is_call: bool,
    /// Of a direct call.
    pub(super) callee: Option<u64>,
    pub(super) is_padding: bool,
    pub(super) is_halt: bool,
    pub(super) clears_rbp: bool,
    pub(super) effect: Effect,
    /// Registers that it writes, by the numbers of instructions.
    pub(super) writes: u16,
}

/// Where an instruction goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Nowhere, or it is not known where.
    None,
    /// To an instruction.
    To(usize),
    /// To the entry of a function.
    Function,
}

/// What an instruction does to rsp and rbp.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    /// rsp += bytes
    Move(i32),
    /// rsp = register + bytes
    Switch(u8, i32),
    /// rsp = word at rsp + bytes
    Load(i32),
    /// rbp = rsp + bytes
    SetRbp(i32),
    PushRbp,
    PopRbp,
    /// rsp = rbp; pop rbp
    Leave,
    /// The word at rsp + bytes = rbp
    SaveRbp(i32),
    /// The reverse.
    RestoreRbp(i32),
    /// rsp = a value that is not known
    LoseRsp,
}

/// Decodes code, one instruction after another. Returns the targets of its calls, too.
pub(super) fn steps_of(
    start: u64,
    code: &[u8],
    is_function: &dyn Fn(u64) -> bool,
) -> (Vec<Step>, Vec<bool>) {
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let mut info = InstructionInfoFactory::new();
    let mut instruction = Instruction::default();
    let (mut steps, mut targets, mut taken) = (Vec::new(), Vec::new(), Vec::new());
    while decoder.can_decode() {
        let offset = decoder.position();
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            // Data, or the end of the code.
            let skipped = decoder.set_position(offset + 1);
            decoder.set_ip(start.wrapping_add(offset as u64 + 1));
            if skipped.is_err() {
                break;
            }
            steps.push(Step::end(offset));
            targets.push(None);
            continue;
        }
        let rest = code.get(offset..).unwrap_or_default();
        let step = match SIGNAL_RETURNS.iter().any(|bytes| rest.starts_with(bytes)) {
            true => Step::end(offset),
            false => step_of(&instruction, offset, &mut info),
        };
        taken.extend(taken_address(&instruction));
        targets.push(match instruction.flow_control() {
            FlowControl::UnconditionalBranch
            | FlowControl::ConditionalBranch
            | FlowControl::Call => Some(instruction.near_branch_target()),
            _ => None,
        });
        steps.push(step);
    }
    let index_of = |address: u64| {
        let offset = usize::try_from(address.checked_sub(start)?).ok()?;
        steps.binary_search_by_key(&offset, |step| step.offset).ok()
    };
    let mut entries = vec![false; steps.len()];
    let mut jumps = Vec::with_capacity(steps.len());
    for (step, target) in steps.iter().zip(targets) {
        let to = target.map(|target| (target, index_of(target)));
        jumps.push(match to {
            Some((_, Some(index))) if step.is_call => {
                if let Some(entry) = entries.get_mut(index) {
                    *entry = true;
                }
                Way::None
            }
            Some((_, Some(index))) => Way::To(index),
            Some((target, None)) if !step.is_call && is_function(target) => Way::Function,
            _ => Way::None,
        });
    }
    // The address of a function, not of a place in one.
    for index in taken.into_iter().filter_map(index_of) {
        let mut before = steps.get(..index).unwrap_or_default().iter().rev();
        let before = before.find(|step| !step.is_padding);
        let is_start = before.is_none_or(|step| step.is_call || step.next == Way::None);
        if let Some(entry) = entries.get_mut(index).filter(|_| is_start) {
            *entry = true;
        }
    }
    let count = steps.len();
    for (index, (step, jump)) in steps.iter_mut().zip(jumps).enumerate() {
        step.jump = jump;
        if step.next == Way::To(0) {
            step.next = match index + 1 < count {
                true => Way::To(index + 1),
                false => Way::None,
            };
        }
    }
    (steps, entries)
}

impl Step {
    /// An instruction after which nothing is known.
    fn end(offset: usize) -> Step {
        Step {
            offset,
            next: Way::None,
            jump: Way::None,
            is_return: false,
            is_call: false,
            callee: None,
            is_padding: false,
            is_halt: false,
            clears_rbp: false,
            effect: Effect::None,
            writes: 0,
        }
    }
}

/// An instruction whose next one is the first, until the indices are known.
fn step_of(instruction: &Instruction, offset: usize, info: &mut InstructionInfoFactory) -> Step {
    use FlowControl::{
        Call, ConditionalBranch, IndirectCall, Interrupt, Next, Return, UnconditionalBranch,
    };
    let flow = instruction.flow_control();
    let is_halt = instruction.mnemonic() == Mnemonic::Hlt;
    let is_call = matches!(flow, Call | IndirectCall);
    let is_system_call = instruction.mnemonic() == Mnemonic::Syscall;
    let goes_on = is_call || is_system_call || matches!(flow, Next | ConditionalBranch);
    let goes_on = goes_on && !is_halt && !matches!(flow, Interrupt | UnconditionalBranch);
    let operand = |index| match instruction.op_kind(index) {
        OpKind::Register => instruction.op_register(index),
        _ => Register::None,
    };
    let clears_rbp = instruction.mnemonic() == Mnemonic::Xor
        && operand(0).full_register() == Register::RBP
        && operand(0) == operand(1);
    Step {
        next: if goes_on { Way::To(0) } else { Way::None },
        is_return: flow == Return && instruction.code() != Code::Iretq,
        is_call,
        callee: (flow == Call).then(|| instruction.near_branch_target()),
        is_padding: instruction.mnemonic() == Mnemonic::Nop,
        is_halt,
        clears_rbp,
        effect: if is_call {
            Effect::None
        } else {
            effect_of(instruction)
        },
        writes: if is_call {
            CHANGED_BY_CALLS
        } else {
            writes_of(instruction, info)
        },
        ..Step::end(offset)
    }
}

/// The address that an instruction computes, which may be that of a function.
fn taken_address(instruction: &Instruction) -> Option<u64> {
    match instruction.mnemonic() {
        Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => {
            Some(instruction.ip_rel_memory_address())
        }
        Mnemonic::Mov
            if matches!(
                instruction.op_kind(1),
                OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64
            ) =>
        {
            Some(instruction.immediate(1))
        }
        _ => None,
    }
}

fn writes_of(instruction: &Instruction, info: &mut InstructionInfoFactory) -> u16 {
    let used = info.info_options(instruction, InstructionInfoOptions::NO_MEMORY_USAGE);
    let mut writes = 0;
    for used in used.used_registers() {
        let is_written = matches!(
            used.access(),
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        );
        if used.register().is_gpr() && is_written {
            writes |= 1 << (used.register().full_register().number() & 15);
        }
    }
    writes
}

fn effect_of(instruction: &Instruction) -> Effect {
    let register = |index| match instruction.op_count() > index {
        true if instruction.op_kind(index) == OpKind::Register => instruction.op_register(index),
        _ => Register::None,
    };
    // A register of 64 bits, with a displacement that fits 31.
    let memory = |index: u32| {
        let is_memory =
            instruction.op_count() > index && instruction.op_kind(index) == OpKind::Memory;
        let is_plain = instruction.memory_index() == Register::None
            && instruction.segment_prefix() == Register::None;
        let bytes = i32::try_from(instruction.memory_displacement64() as i64).ok()?;
        let base = instruction.memory_base();
        (is_memory && is_plain && base.is_gpr64()).then_some((base, bytes))
    };
    let immediate = || match instruction.op_kind(1) {
        OpKind::Immediate8to64 | OpKind::Immediate32to64 => {
            i32::try_from(instruction.immediate(1) as i64).ok()
        }
        _ => None,
    };
    let (to, from) = (register(0), register(1));
    match instruction.mnemonic() {
        Mnemonic::Leave => Effect::Leave,
        Mnemonic::Push if to == Register::RBP => Effect::PushRbp,
        Mnemonic::Pop if to == Register::RBP => Effect::PopRbp,
        Mnemonic::Pop if to == Register::RSP => Effect::LoseRsp,
        Mnemonic::Enter => Effect::LoseRsp,
        Mnemonic::Add if to == Register::RSP => immediate().map_or(Effect::LoseRsp, Effect::Move),
        Mnemonic::Sub if to == Register::RSP => {
            let bytes = immediate().and_then(i32::checked_neg);
            bytes.map_or(Effect::LoseRsp, Effect::Move)
        }
        Mnemonic::Lea if to == Register::RSP => match memory(1) {
            Some((Register::RSP, bytes)) => Effect::Move(bytes),
            Some((base, bytes)) => Effect::Switch(dwarf(base), bytes),
            None => Effect::LoseRsp,
        },
        Mnemonic::Lea if to == Register::RBP => match memory(1) {
            Some((Register::RSP, bytes)) => Effect::SetRbp(bytes),
            _ => Effect::None,
        },
        Mnemonic::Mov if to == Register::RSP => match memory(1) {
            Some((Register::RSP, bytes)) => Effect::Load(bytes),
            None if from.is_gpr64() => Effect::Switch(dwarf(from), 0),
            _ => Effect::LoseRsp,
        },
        Mnemonic::Mov if to == Register::RBP => match memory(1) {
            Some((Register::RSP, bytes)) => Effect::RestoreRbp(bytes),
            None if from == Register::RSP => Effect::SetRbp(0),
            _ => Effect::None,
        },
        Mnemonic::Mov if from == Register::RBP => match memory(0) {
            Some((Register::RSP, bytes)) => Effect::SaveRbp(bytes),
            _ => Effect::None,
        },
        _ if to.full_register() == Register::RSP && instruction.mnemonic() != Mnemonic::Push => {
            match instruction.mnemonic() {
                Mnemonic::Cmp | Mnemonic::Test => Effect::None,
                _ => Effect::LoseRsp,
            }
        }
        Mnemonic::Ret => Effect::None,
        _ => match instruction.stack_pointer_increment() {
            0 => Effect::None,
            bytes => Effect::Move(bytes),
        },
    }
}

fn dwarf(register: Register) -> u8 {
    let number = register.full_register().number();
    DWARF_OF_NUMBER.get(number).copied().unwrap_or(RSP)
}
