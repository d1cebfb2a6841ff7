//! Evaluates the call frame information that compilers usually generate, in one pass over its bytes. Anything else is left to `gimli`, which
//! tracks the rules of all registers, though unwinding needs two, and takes four times as long.
//!
//! ```text
//! FDE 0x11a0..0x11f2   41           advance 1            →  0x11a0  rsp+8
//!                      0e 10 86 02  cfa+16, rbp at -16
//!                      43           advance 3            →  0x11a1  rsp+16, rbp at -16
//!                      0d 06        cfa by rbp           →  0x11a4  rbp+16, rbp at -16
//! ```
//! DWARF 5, section 6.4; LSB, "Exception Frames".

use gimli::{
    BaseAddresses, CallFrameInstruction, CfaRule, CommonInformationEntry, DwEhPe, EhFrame,
    Encoding, EndianSlice, LittleEndian, Register, RegisterRule, UnwindExpression,
};
use perfquet_events::bytes::{Cursor, Endian};

use super::rule::{RA, RBP};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// States that are remembered at one time: any unwinder has room for them.
const REMEMBERED_MAX: usize = 2;
/// More registers than x86-64 has rules for.
const REGISTER_MAX: u64 = 63;
/// Addresses relative to their place, in four bytes.
const RELATIVE: DwEhPe = DwEhPe(0x1b);
const RELATIVE_BYTES: u64 = 4;
/// Lengths from here on have other meanings.
const LENGTH_MAX: u32 = 0xffff_fff0;

/// The rules that a row has for the caller's stack pointer, return address and rbp.
#[derive(Clone)]
pub(super) struct State {
    pub(super) cfa: CfaRule<usize>,
    pub(super) return_address: Option<RegisterRule<usize>>,
    pub(super) rbp: Option<RegisterRule<usize>>,
}

/// What FDEs have in common.
pub(super) struct Common {
    /// Of the CIE, in the section.
    pub(super) offset: usize,
    /// `None` if it is unusual.
    usual: Option<Usual>,
}

struct Usual {
    code_alignment: u64,
    data_alignment: i64,
    first: State,
    encoding: Encoding,
    is_signal: bool,
}

impl Common {
    /// Reads a CIE.
    pub(super) fn of(
        cie: &CommonInformationEntry<Slice<'_>>,
        section: &EhFrame<Slice<'_>>,
        bases: &BaseAddresses,
    ) -> Common {
        Common {
            offset: cie.offset(),
            usual: Usual::of(cie, section, bases),
        }
    }
}

impl Usual {
    fn of(
        cie: &CommonInformationEntry<Slice<'_>>,
        section: &EhFrame<Slice<'_>>,
        bases: &BaseAddresses,
    ) -> Option<Usual> {
        if cie.fde_address_encoding() != Some(RELATIVE) {
            return None;
        }
        let mut usual = Usual {
            code_alignment: cie.code_alignment_factor(),
            data_alignment: cie.data_alignment_factor(),
            first: State {
                cfa: CfaRule::RegisterAndOffset {
                    register: Register(0),
                    offset: 0,
                },
                return_address: None,
                rbp: None,
            },
            encoding: cie.encoding(),
            is_signal: cie.is_signal_trampoline(),
        };
        let mut instructions = cie.instructions(section, bases);
        while let Some(instruction) = instructions.next().ok()? {
            match instruction {
                CallFrameInstruction::Nop => {}
                CallFrameInstruction::DefCfa { register, offset } => {
                    usual.first.cfa = CfaRule::RegisterAndOffset {
                        register,
                        offset: offset as i64,
                    };
                }
                CallFrameInstruction::Offset {
                    register,
                    factored_offset,
                } => {
                    let offset = (factored_offset as i64).wrapping_mul(usual.data_alignment);
                    let rule = Some(RegisterRule::Offset(offset));
                    usual.first.set(register.0.into(), rule)?;
                }
                _ => return None,
            }
        }
        Some(usual)
    }
}

impl State {
    /// Sets the rule of a register; `None` for registers that no compiler names.
    fn set(&mut self, register: u64, rule: Option<RegisterRule<usize>>) -> Option<()> {
        const RBP_U64: u64 = RBP as u64;
        const RA_U64: u64 = RA as u64;
        match register {
            RBP_U64 => self.rbp = rule,
            RA_U64 => self.return_address = rule,
            0..=REGISTER_MAX => {}
            _ => return None,
        }
        Some(())
    }

    fn restore(&mut self, register: u64, first: &State) -> Option<()> {
        let rule = match register == u64::from(RBP) {
            true => &first.rbp,
            false => &first.return_address,
        };
        self.set(register, rule.clone())
    }

    fn cfa(&mut self) -> Option<(&mut Register, &mut i64)> {
        match &mut self.cfa {
            CfaRule::RegisterAndOffset { register, offset } => Some((register, offset)),
            CfaRule::Expression(_) => None,
        }
    }
}

/// An FDE of `.eh_frame`.
pub(super) struct Entry<'a> {
    /// Offset of its CIE in the section.
    pub(super) cie: usize,
    /// What follows.
    rest: Cursor<'a>,
}

impl<'a> Entry<'a> {
    /// The FDE at an offset.
    pub(super) fn at(section: &'a [u8], offset: usize) -> Option<Entry<'a>> {
        let mut entry = Cursor::new(section.get(offset..)?, offset as u64, Endian::Little);
        let length = entry.u32().ok().filter(|length| *length < LENGTH_MAX)?;
        let mut rest = entry.part(length.into()).ok()?;
        let place = rest.offset();
        let cie = place.checked_sub(rest.u32().ok()?.into())?;
        Some(Entry {
            cie: usize::try_from(cie).ok()?,
            rest,
        })
    }
}

/// Passes the rows of the FDE of the code from `start` to `end`, each with its encoding, and whether it is of a signal frame.
/// Returns `None` if the FDE is unusual, after any number of rows.
pub(super) fn each_row(
    entry: Entry<'_>,
    common: &Common,
    (start, end): (u64, u64),
    each: &mut dyn FnMut(u64, &State, Encoding, bool),
) -> Option<()> {
    let usual = common.usual.as_ref()?;
    let mut entry = entry.rest;
    entry.bytes(2 * RELATIVE_BYTES).ok()?;
    let bytes = unsigned(&mut entry)?;
    entry.bytes(bytes).ok()?;
    let mut state = usual.first.clone();
    let mut remembered: [Option<State>; REMEMBERED_MAX] = [None, None];
    let mut depth = 0usize;
    let mut address = start;
    while address < end {
        let Ok(byte) = entry.u8() else {
            each(address, &state, usual.encoding, usual.is_signal);
            return Some(());
        };
        let operand = u64::from(byte & 0x3f);
        let advance = match byte {
            0x40..=0x7f => operand,
            0x02 => entry.u8().ok()?.into(),
            0x03 => entry.u16().ok()?.into(),
            0x04 => entry.u32().ok()?.into(),
            0x0a => {
                *remembered.get_mut(depth)? = Some(state.clone());
                depth += 1;
                continue;
            }
            0x0b => {
                depth = depth.checked_sub(1)?;
                state = remembered.get_mut(depth)?.take()?;
                continue;
            }
            _ => {
                usual.change(&mut state, byte, operand, &mut entry)?;
                continue;
            }
        };
        each(address, &state, usual.encoding, usual.is_signal);
        address = address.checked_add(advance.wrapping_mul(usual.code_alignment))?;
    }
    Some(())
}

impl Usual {
    /// Applies an instruction that changes rules.
    fn change(
        &self,
        state: &mut State,
        byte: u8,
        operand: u64,
        entry: &mut Cursor<'_>,
    ) -> Option<()> {
        let factored = |number: i64| number.wrapping_mul(self.data_alignment);
        match byte {
            0x80..=0xbf => {
                let offset = factored(unsigned(entry)? as i64);
                state.set(operand, Some(RegisterRule::Offset(offset)))?;
            }
            0xc0..=0xff => state.restore(operand, &self.first)?,
            // Nothing.
            0x00 => {}
            0x05 => {
                let register = unsigned(entry)?;
                let offset = factored(unsigned(entry)? as i64);
                state.set(register, Some(RegisterRule::Offset(offset)))?;
            }
            0x06 => state.restore(unsigned(entry)?, &self.first)?,
            0x07 => state.set(unsigned(entry)?, Some(RegisterRule::Undefined))?,
            0x08 => state.set(unsigned(entry)?, Some(RegisterRule::SameValue))?,
            0x0c => {
                let register = register(entry)?;
                let offset = unsigned(entry)? as i64;
                state.cfa = CfaRule::RegisterAndOffset { register, offset };
            }
            0x0d => *state.cfa()?.0 = register(entry)?,
            0x0e => *state.cfa()?.1 = unsigned(entry)? as i64,
            0x0f => state.cfa = CfaRule::Expression(expression(entry)?),
            0x10 => {
                let register = unsigned(entry)?;
                let expression = RegisterRule::Expression(expression(entry)?);
                state.set(register, Some(expression))?;
            }
            0x16 => {
                let register = unsigned(entry)?;
                let expression = RegisterRule::ValExpression(expression(entry)?);
                state.set(register, Some(expression))?;
            }
            // DW_CFA_GNU_args_size
            0x2e => drop(unsigned(entry)?),
            _ => return None,
        }
        Some(())
    }
}

fn register(entry: &mut Cursor<'_>) -> Option<Register> {
    let number = unsigned(entry).filter(|number| *number <= REGISTER_MAX)?;
    Some(Register(number as u16))
}

fn expression(entry: &mut Cursor<'_>) -> Option<UnwindExpression<usize>> {
    let length = unsigned(entry)?;
    let offset = usize::try_from(entry.offset()).ok()?;
    entry.bytes(length).ok()?;
    Some(UnwindExpression {
        offset,
        length: usize::try_from(length).ok()?,
    })
}

/// Reads a number of at most nine bytes (ULEB128).
fn unsigned(entry: &mut Cursor<'_>) -> Option<u64> {
    let mut number = 0;
    for place in 0..9 {
        let byte = entry.u8().ok()?;
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}
