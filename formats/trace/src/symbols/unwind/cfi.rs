//! Unwind rules from call frame information: `.eh_frame`, or `.debug_frame`.
//!
//! ```text
//! CIE "zR"   def_cfa rsp+8; ra at cfa-8
//! FDE 0x11a0..0x11f2   advance 1: def_cfa_offset 16; rbp at cfa-16     advance 3: def_cfa rbp+16     …
//! ```
//! DWARF 5, section 6.4; LSB, "Exception Frames". The section may be hostile: the work is bounded by its size.

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, CommonInformationEntry, DebugFrame, EhFrame, EhFrameHdr,
    EhFrameOffset, Encoding, EndianSlice, FrameDescriptionEntry, LittleEndian, Operation, Pointer,
    Register, RegisterRule, UnwindContext, UnwindExpression, UnwindOffset, UnwindSection,
    UnwindTableRow,
};

use perfquet_events::bytes::Endian;

use super::super::elf::{Elf, Part};
use super::super::limits::FRAME_BYTES_MAX;
use super::frame_rows::{Common, Entry, State, each_row};
use super::go::has_functions as has_go;
use super::rule::{Frame, RA, RBP, RSP, Rbp, Rule};
use super::stubs::{Stub, entry_of, stubs_in_sections};

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Fde<'a> = FrameDescriptionEntry<Slice<'a>>;
/// The CIE of the last FDE; most have the same.
#[derive(Default)]
pub(super) struct LastCie<'a> {
    parsed: Option<CommonInformationEntry<Slice<'a>>>,
    /// The same as a start of rows, once needed.
    common: Option<Common>,
}

/// Total size of the CIEs and FDEs that are evaluated, in multiples of the section's size: each FDE begins with the
/// instructions of its CIE, which are few. In libLLVM it is 1.6.
const WORK_MAX: usize = 16;

/// The call frame information of a file.
pub(super) struct CallFrames {
    section: Part,
    is_eh_frame: bool,
    bases: BaseAddresses,
    /// By start; sorted, not overlapping.
    functions: Vec<Function>,
}

/// A range of code with its own FDE.
#[derive(Debug, Clone, Copy)]
pub(super) struct Function {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Of the FDE, in the section.
    offset: usize,
}

/// Space for evaluating FDEs, allocated once.
#[derive(Default)]
pub(super) struct Scratch {
    context: UnwindContext<usize>,
    /// Rules of a function, by address.
    rules: Vec<(u64, Rule)>,
}

impl CallFrames {
    /// Returns the call frame information of a file: its `.eh_frame`, otherwise the `.debug_frame` of the file or of
    /// its debug file.
    pub(super) fn of(image: &Elf, debug: Option<&Elf>) -> Option<CallFrames> {
        let mut frames = CallFrames::unlisted(image, debug)?;
        frames.functions = match frames.is_eh_frame {
            true => frames.functions_in(&frames.eh_frame()),
            false => frames.functions_in(&frames.debug_frame()),
        };
        Some(frames)
    }

    /// The same without the list of functions, for which all of the section is read.
    fn unlisted(image: &Elf, debug: Option<&Elf>) -> Option<CallFrames> {
        let address = |name: &[u8]| image.section(name).map_or(0, |section| section.address);
        let bases = BaseAddresses::default()
            .set_eh_frame(address(b".eh_frame"))
            .set_text(address(b".text"))
            .set_got(address(b".got"));
        // A section with more than its end mark.
        let contents = |elf: &Elf, name: &[u8]| {
            let contents = elf.contents_up_to(name, FRAME_BYTES_MAX);
            contents.filter(|contents| contents.len() > 4)
        };
        let debug_frame = || {
            let of_debug = debug.and_then(|debug| contents(debug, b".debug_frame"));
            of_debug.or_else(|| contents(image, b".debug_frame"))
        };
        let (section, is_eh_frame) = match contents(image, b".eh_frame") {
            Some(section) => (section, true),
            None => (debug_frame()?, false),
        };
        Some(CallFrames {
            section,
            is_eh_frame,
            bases,
            functions: Vec::new(),
        })
    }

    /// Size of what was read.
    pub(super) fn bytes(&self) -> u64 {
        (self.section.len() as u64).min(FRAME_BYTES_MAX)
    }

    /// The functions, by address.
    pub(super) fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The rule at an address; [`Rule::Gap`] outside of all functions.
    pub(super) fn rule_at(&self, address: u64, scratch: &mut Scratch) -> Rule {
        let next = self
            .functions
            .partition_point(|function| function.start <= address);
        let function = next
            .checked_sub(1)
            .and_then(|last| self.functions.get(last));
        match function.filter(|function| address < function.end) {
            None => Rule::Gap,
            Some(function) => match self.is_eh_frame {
                true => self.evaluate(&self.eh_frame(), function, address, scratch),
                false => self.evaluate(&self.debug_frame(), function, address, scratch),
            },
        }
    }

    /// Passes every rule of a function with its first address, in order.
    pub(super) fn rules_of<'a>(
        &'a self,
        function: &Function,
        (last_cie, scratch): (&mut LastCie<'a>, &mut Scratch),
        each: &mut dyn FnMut(u64, Rule),
    ) {
        let state = (last_cie, scratch);
        match self.is_eh_frame {
            true => {
                let section = self.eh_frame();
                if self.evaluate_usual(&section, function, (&mut *state.0, &mut *state.1)) {
                    let rules = state.1.rules.iter();
                    return rules.for_each(|(address, rule)| each(*address, *rule));
                }
                self.evaluate_all(&section, function, state, each);
            }
            false => self.evaluate_all(&self.debug_frame(), function, state, each),
        }
    }

    /// Evaluates a function's rules, unless its call frame information is unusual.
    fn evaluate_usual<'a>(
        &'a self,
        section: &EhFrame<Slice<'a>>,
        function: &Function,
        (last_cie, scratch): (&mut LastCie<'a>, &mut Scratch),
    ) -> bool {
        let Scratch { rules, .. } = scratch;
        rules.clear();
        let LastCie { parsed, common } = last_cie;
        let Some(entry) = Entry::at(&self.section, function.offset) else {
            return false;
        };
        if common.as_ref().is_none_or(|last| last.offset != entry.cie) {
            let offset = EhFrameOffset(entry.cie);
            *common = cie_at(parsed, section, &self.bases, offset)
                .ok()
                .map(|cie| Common::of(&cie, section, &self.bases));
        }
        let Some(common) = common else {
            return false;
        };
        let range = (function.start, function.end);
        let all = each_row(
            entry,
            common,
            range,
            &mut |address, state, encoding, is_signal| {
                rules.push((address, rule_of(state, section, encoding, is_signal)));
            },
        );
        all.is_some()
    }

    fn eh_frame(&self) -> EhFrame<Slice<'_>> {
        let mut section = EhFrame::new(&self.section, LittleEndian);
        section.set_address_size(8);
        section
    }

    fn debug_frame(&self) -> DebugFrame<Slice<'_>> {
        let mut section = DebugFrame::new(&self.section, LittleEndian);
        section.set_address_size(8);
        section
    }

    /// Lists the FDEs, up to the first unreadable one. Of two that overlap, the one that starts later applies from its
    /// start on.
    fn functions_in<'a, S>(&'a self, section: &S) -> Vec<Function>
    where
        S: UnwindSection<Slice<'a>>,
    {
        let mut functions = Vec::new();
        let mut last_cie = LastCie::default();
        let mut work_left = self.section.len().saturating_mul(WORK_MAX);
        let mut entries = section.entries(&self.bases);
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else {
                continue;
            };
            let parsed = &mut last_cie.parsed;
            let fde =
                partial.parse(|section, bases, offset| cie_at(parsed, section, bases, offset));
            let Ok(fde) = fde else { continue };
            let work = fde.entry_len().saturating_add(fde.cie().entry_len());
            let Some(left) = work_left.checked_sub(work) else {
                break;
            };
            work_left = left;
            if fde.offset() as u64 > FRAME_BYTES_MAX {
                break;
            }
            let (start, end) = (fde.initial_address(), fde.end_address());
            if start < end {
                functions.push(Function {
                    start,
                    end,
                    offset: fde.offset(),
                });
            }
        }
        functions.sort_unstable_by_key(|function| (function.start, function.offset));
        functions.dedup_by_key(|function| function.start);
        let mut next = u64::MAX;
        for function in functions.iter_mut().rev() {
            function.end = function.end.min(next);
            next = function.start;
        }
        functions.shrink_to_fit();
        functions
    }

    fn fde<'a, S>(
        &'a self,
        section: &S,
        function: &Function,
        last_cie: &mut LastCie<'a>,
    ) -> Option<Fde<'a>>
    where
        S: UnwindSection<Slice<'a>>,
    {
        let offset = S::Offset::from(function.offset);
        let parsed = &mut last_cie.parsed;
        let fde = section.fde_from_offset(&self.bases, offset, |section, bases, offset| {
            cie_at(parsed, section, bases, offset)
        });
        fde.ok()
    }

    fn evaluate<'a, S>(
        &'a self,
        section: &S,
        function: &Function,
        address: u64,
        scratch: &mut Scratch,
    ) -> Rule
    where
        S: UnwindSection<Slice<'a>>,
    {
        match self.fde(section, function, &mut LastCie::default()) {
            Some(fde) => self.rule_in(&fde, section, address, scratch),
            None => Rule::Opaque,
        }
    }

    fn rule_in<'a, S>(
        &self,
        fde: &Fde<'a>,
        section: &S,
        address: u64,
        scratch: &mut Scratch,
    ) -> Rule
    where
        S: UnwindSection<Slice<'a>>,
    {
        let (encoding, is_signal) = (fde.cie().encoding(), fde.is_signal_trampoline());
        let row = fde.unwind_info_for_address(section, &self.bases, &mut scratch.context, address);
        match row {
            Ok(row) => rule_of(&state_of(row), section, encoding, is_signal),
            Err(_) => Rule::Opaque,
        }
    }

    fn evaluate_all<'a, S>(
        &'a self,
        section: &S,
        function: &Function,
        (last_cie, scratch): (&mut LastCie<'a>, &mut Scratch),
        each: &mut dyn FnMut(u64, Rule),
    ) where
        S: UnwindSection<Slice<'a>>,
    {
        let Some(fde) = self.fde(section, function, last_cie) else {
            return each(function.start, Rule::Opaque);
        };
        let (encoding, is_signal) = (fde.cie().encoding(), fde.is_signal_trampoline());
        let Ok(mut rows) = fde.rows(section, &self.bases, &mut scratch.context) else {
            return each(function.start, Rule::Opaque);
        };
        let mut covered_to = function.start;
        loop {
            match rows.next_row() {
                Ok(Some(row)) if row.start_address() >= function.end => return,
                Ok(Some(row)) => {
                    let address = row.start_address().max(function.start);
                    let rule = rule_of(&state_of(row), section, encoding, is_signal);
                    each(address, rule);
                    covered_to = row.end_address();
                }
                Ok(None) => return,
                // The rules after the unreadable instruction are unknown.
                Err(_) => return each(covered_to.max(function.start), Rule::Opaque),
            }
        }
    }
}

/// A file's own index of its call frame information: `.eh_frame_hdr`, by which programs find rules when they throw exceptions. It
/// spares the list of functions, for which all of `.eh_frame` is read: 16 MB in chromium.
///
/// ```text
/// version 1, the search table has pairs of 4-byte offsets   0x11a0 → FDE at 0x2010    0x1200 → FDE at 0x2038    …
/// ```
/// LSB, "The .eh_frame_hdr section".
pub(super) struct FrameIndex {
    /// Without the list of functions.
    frames: CallFrames,
    header: Part,
    /// Address of the header, which the offsets of its table count from.
    address: u64,
    /// Code outside of the functions that has a section of its own, and the entry point; by address.
    pub(super) stubs: Vec<Stub>,
}

/// Version, and encodings of the pointer to the section, the number of functions, and the table, as linkers write them.
const HEADER: [u8; 2] = [1, 0x1b];
const HEADER_TABLE: [u8; 2] = [0x03, 0x3b];
const HEADER_BYTES: usize = 12;

impl FrameIndex {
    /// The index of a file, if it has one.
    pub(super) fn of(image: &Elf) -> Option<FrameIndex> {
        let section = image.section(b".eh_frame_hdr")?;
        let header = image.contents_up_to(b".eh_frame_hdr", FRAME_BYTES_MAX)?;
        let mut frames = CallFrames::unlisted(image, None).filter(|frames| frames.is_eh_frame)?;
        frames.bases = frames.bases.set_eh_frame_hdr(section.address);
        let mut index = FrameIndex {
            frames,
            header,
            address: section.address,
            stubs: Vec::new(),
        };
        if index.function_count() > 0 && !has_go(image) {
            let mut stubs = stubs_in_sections(image, &|address| index.covers(address));
            if !index.covers(image.entry) {
                let next = index.entry(index.entries_up_to(image.entry));
                stubs.extend(entry_of(image.entry, next.map(|(start, _)| start)));
            }
            stubs.sort_by_key(|stub| stub.code.start);
            index.stubs = stubs;
        }
        Some(index)
    }

    /// Number of functions in the table; 0 if the header is not of the usual form.
    pub(super) fn function_count(&self) -> usize {
        let is_usual = self.header.starts_with(&HEADER)
            && self.header.get(HEADER.len()..4) == Some(&HEADER_TABLE[..]);
        let count = Endian::Little.u32_at(&self.header, 8).filter(|_| is_usual);
        let room = self.header.len().saturating_sub(HEADER_BYTES) / 8;
        count.map_or(0, |count| room.min(count as usize))
    }

    /// A pair of the table: the start of a function, and the address of its FDE.
    fn entry(&self, place: usize) -> Option<(u64, u64)> {
        let at = HEADER_BYTES.checked_add(place.checked_mul(8)?)?;
        let pair = self.header.get(at..at + 8)?;
        let relative = |at| {
            let offset = Endian::Little.u32_at(pair, at)? as i32;
            Some(self.address.wrapping_add_signed(offset.into()))
        };
        Some((relative(0)?, relative(4)?)).filter(|_| place < self.function_count())
    }

    /// Number of functions that start at or before an address.
    fn entries_up_to(&self, address: u64) -> usize {
        let (mut low, mut high) = (0, self.function_count());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.entry(middle) {
                Some((start, _)) if start <= address => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    fn function<'a>(&'a self, place: usize, last_cie: &mut LastCie<'a>) -> Option<Function> {
        let (start, at) = self.entry(place)?;
        let offset = at.checked_sub(self.frames.bases.eh_frame.section?)?;
        let mut function = Function {
            start,
            end: start,
            offset: usize::try_from(offset).ok()?,
        };
        let section = self.frames.eh_frame();
        let fde = section.fde_from_offset(
            &self.frames.bases,
            EhFrameOffset(function.offset),
            |section, bases, offset| cie_at(&mut last_cie.parsed, section, bases, offset),
        );
        let fde = fde.ok().filter(|fde| fde.initial_address() == start)?;
        function.end = match self.entry(place + 1) {
            Some((next, _)) if next > start => fde.end_address().min(next),
            _ => fde.end_address(),
        };
        Some(function).filter(|function| function.start < function.end)
    }

    /// Whether a function of the table has an address.
    pub(super) fn covers(&self, address: u64) -> bool {
        let place = self.entries_up_to(address).checked_sub(1);
        let function = place.and_then(|place| self.function(place, &mut LastCie::default()));
        function.is_some_and(|function| address < function.end)
    }

    /// The rule of a stub at an address.
    pub(super) fn stub_rule_at(&self, address: u64) -> Option<Rule> {
        let next = self
            .stubs
            .partition_point(|stub| stub.code.start <= address);
        let stub = next.checked_sub(1).and_then(|last| self.stubs.get(last));
        let stub = stub.filter(|stub| stub.code.contains(&address))?;
        Some(stub.rule_at(address)).filter(|rule| *rule != Rule::Gap)
    }

    /// The rule at an address; `None` if the index has no function there.
    pub(super) fn rule_at(&self, address: u64, scratch: &mut Scratch) -> Option<Rule> {
        let FrameIndex { frames, header, .. } = self;
        let header = EhFrameHdr::new(header, LittleEndian);
        let header = header.parse(&frames.bases, 8).ok()?;
        let table = header.table()?;
        let found = table.lookup(address, &frames.bases).ok()?;
        let Pointer::Direct(found) = found else {
            return None;
        };
        let offset = found.checked_sub(frames.bases.eh_frame.section?)?;
        let offset = EhFrameOffset(usize::try_from(offset).ok()?);
        let section = frames.eh_frame();
        let fde = section.fde_from_offset(&frames.bases, offset, EhFrame::cie_from_offset);
        let fde = fde.ok().filter(|fde| fde.contains(address))?;
        Some(frames.rule_in(&fde, &section, address, scratch))
    }
}

/// Reads the CIE at an offset, unless it is the last one.
fn cie_at<'a, S>(
    last_cie: &mut Option<CommonInformationEntry<Slice<'a>>>,
    section: &S,
    bases: &BaseAddresses,
    offset: S::Offset,
) -> gimli::Result<CommonInformationEntry<Slice<'a>>>
where
    S: UnwindSection<Slice<'a>>,
{
    let at = UnwindOffset::<usize>::into(offset);
    if let Some(cie) = last_cie.as_ref().filter(|cie| cie.offset() == at) {
        return Ok(cie.clone());
    }
    let cie = section.cie_from_offset(bases, offset)?;
    *last_cie = Some(cie.clone());
    Ok(cie)
}

fn state_of(row: &UnwindTableRow<usize>) -> State {
    State {
        cfa: row.cfa().clone(),
        return_address: row.register(Register(RA.into())),
        rbp: row.register(Register(RBP.into())),
    }
}

/// The rule that a row of the DWARF table expresses.
fn rule_of<'a, S>(row: &State, section: &S, encoding: Encoding, is_signal: bool) -> Rule
where
    S: UnwindSection<Slice<'a>>,
{
    if is_signal {
        return Rule::Signal;
    }
    let return_address = match row.return_address {
        None | Some(RegisterRule::Undefined) => return Rule::Root,
        Some(RegisterRule::Offset(offset)) => offset,
        Some(_) => return Rule::Opaque,
    };
    let (base, offset, indirect) = match &row.cfa {
        CfaRule::RegisterAndOffset { register, offset } => (register.0, *offset, None),
        CfaRule::Expression(expression) => {
            let mut steps = [Step::Other; STEPS_MAX];
            match read_steps(expression, section, encoding, &mut steps) {
                Some([Step::Register(RSP_U16, 8), rest @ ..]) if is_of_plt(rest) => {
                    let pushed_from = plt_limit(rest);
                    return pushed_from
                        .map_or(Rule::Opaque, |pushed_from| Rule::Plt { pushed_from });
                }
                Some([Step::Register(base, offset), Step::Deref]) => (*base, *offset, Some(0)),
                Some(
                    [Step::Register(base, offset), Step::Deref, Step::Add(add)]
                    | [
                        Step::Register(base, offset),
                        Step::Deref,
                        Step::Number(add),
                        Step::Plus,
                    ],
                ) => (*base, *offset, Some(*add)),
                Some([Step::Register(base, offset)]) => (*base, *offset, None),
                Some([Step::Register(base, offset), Step::Add(add)]) => {
                    (*base, offset.saturating_add(*add), None)
                }
                _ => return Rule::Opaque,
            }
        }
    };
    let rbp = match row.rbp {
        // A frame that uses rbp for itself has lost the caller's if it does not save it.
        None | Some(RegisterRule::SameValue) if base == u16::from(RBP) => Rbp::Unknown,
        None | Some(RegisterRule::SameValue) => Rbp::Same,
        Some(RegisterRule::Offset(offset)) => {
            i32::try_from(offset).map_or(Rbp::Unknown, Rbp::AtCfa)
        }
        Some(RegisterRule::Expression(expression)) => {
            let mut steps = [Step::Other; STEPS_MAX];
            match read_steps(&expression, section, encoding, &mut steps) {
                Some([Step::Register(RBP_U16, offset)]) => {
                    i32::try_from(*offset).map_or(Rbp::Unknown, Rbp::AtFrame)
                }
                _ => Rbp::Unknown,
            }
        }
        Some(_) => Rbp::Unknown,
    };
    let frame = || {
        Some(Frame {
            base: u8::try_from(base).ok().filter(|&base| base < RA)?,
            offset: offset.try_into().ok()?,
            indirect: match indirect {
                Some(add) => Some(add.try_into().ok()?),
                None => None,
            },
            return_address: i32::try_from(return_address).ok()?,
            rbp,
        })
    };
    frame().map_or(Rule::Opaque, Rule::Frame)
}

const RSP_U16: u16 = RSP as u16;
const RBP_U16: u16 = RBP as u16;
/// Maximum number of operations in an expression.
const STEPS_MAX: usize = 9;

/// An operation of a DWARF expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Register(u16, i64),
    Number(i64),
    Add(i64),
    Deref,
    Plus,
    And,
    Ge,
    Shl,
    Other,
}

/// The operations of an expression; `None` if it is longer, or unreadable.
fn read_steps<'a, 'b, S>(
    expression: &UnwindExpression<usize>,
    section: &S,
    encoding: Encoding,
    steps: &'b mut [Step; STEPS_MAX],
) -> Option<&'b [Step]>
where
    S: UnwindSection<Slice<'a>>,
{
    let expression = expression.get(section).ok()?;
    let mut operations = expression.operations(encoding);
    let mut count = 0;
    while let Some(operation) = operations.next().ok()? {
        *steps.get_mut(count)? = match operation {
            Operation::RegisterOffset {
                register, offset, ..
            } => Step::Register(register.0, offset),
            Operation::UnsignedConstant { value } => Step::Number(value.try_into().ok()?),
            Operation::SignedConstant { value } => Step::Number(value),
            Operation::PlusConstant { value } => Step::Add(value.try_into().ok()?),
            Operation::Deref {
                size: 8,
                space: false,
                ..
            } => Step::Deref,
            Operation::Plus => Step::Plus,
            Operation::And => Step::And,
            Operation::Ge => Step::Ge,
            Operation::Shl => Step::Shl,
            _ => Step::Other,
        };
        count += 1;
    }
    steps.get(..count)
}

/// Whether an expression continues like that of a procedure linkage table, as written by linkers: `rsp + 8 + ((rip &
/// 15) >= N) << 3`.
fn is_of_plt(rest: &[Step]) -> bool {
    plt_limit(rest).is_some()
}

fn plt_limit(rest: &[Step]) -> Option<u8> {
    match rest {
        [
            Step::Register(16, 0),
            Step::Number(15),
            Step::And,
            Step::Number(limit @ 0..16),
            Step::Ge,
            Step::Number(3),
            Step::Shl,
            Step::Plus,
        ] => u8::try_from(*limit).ok(),
        _ => None,
    }
}

/// Rules by the address from which they hold.
#[cfg(test)]
type PlacedRules = Vec<(u64, Rule)>;

#[cfg(test)]
impl CallFrames {
    /// The rules of a function, evaluated in both ways; `None` if its call frame information is unusual.
    pub(super) fn both_ways(&self, function: &Function) -> (Option<PlacedRules>, PlacedRules) {
        let section = self.eh_frame();
        let (mut last_cie, mut scratch) = (LastCie::default(), Scratch::default());
        let is_usual = self.evaluate_usual(&section, function, (&mut last_cie, &mut scratch));
        let usual = is_usual.then(|| scratch.rules.clone());
        let mut all = Vec::new();
        let state = (&mut last_cie, &mut scratch);
        self.evaluate_all(&section, function, state, &mut |address, rule| {
            all.push((address, rule))
        });
        (usual, all)
    }
}
