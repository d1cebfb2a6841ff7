//! Codes of the distinct values of a column, in the order of their first rows.
//!
//! ```text
//! cat cat dd NULL cat   →   0 0 1 2 0
//! ```
//! A small table of recent values answers nearly every row. Short texts are compared as the 16 bytes of their view, long ones by
//! their place in the buffers of the array, which are the same for all rows of a dictionary.

use std::mem::size_of;

use arrow::array::{Array, ArrayRef, AsArray, StringViewArray};
use arrow::buffer::Buffer;
use arrow::datatypes::DataType;
use datafusion::error::Result;
use hashbrown::HashMap;

use crate::engine::integers::Integers;

/// Number of recent values; a power of two.
const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 9;
/// An odd number with bits of no pattern.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

fn slot_of(bits: u64) -> usize {
    (bits.wrapping_mul(MULTIPLIER) >> (u64::BITS - SLOT_BITS)) as usize
}

/// Returns the code of NULL, which is the next one at its first row.
fn code_of_null(null: &mut Option<u32>, count: &mut u32, row: usize, new: &mut Vec<u32>) -> u32 {
    *null.get_or_insert_with(|| {
        new.push(row as u32);
        *count += 1;
        *count - 1
    })
}

/// The codes of a column.
#[derive(Debug)]
pub(crate) enum Codes {
    Texts(Texts),
    Integers(Numbers),
}

impl Codes {
    /// The codes of texts as views, or of integers.
    pub(crate) fn new(kind: &DataType) -> Codes {
        match kind {
            DataType::Utf8View => Codes::Texts(Texts::default()),
            _ => Codes::Integers(Numbers::default()),
        }
    }

    /// Replaces `codes` by those of the rows. Returns the rows with values that are new.
    pub(crate) fn number(&mut self, column: &ArrayRef, codes: &mut Vec<u32>) -> Result<Vec<u32>> {
        let mut new = Vec::new();
        codes.clear();
        match self {
            Codes::Texts(texts) => texts.number(column.as_string_view(), codes, &mut new),
            Codes::Integers(numbers) => {
                let integers = Integers::of(column)?;
                let keys = integers.values.iter().enumerate();
                codes.extend(keys.map(|(row, &key)| {
                    if integers.is_null(row) {
                        code_of_null(&mut numbers.null, &mut numbers.count, row, &mut new)
                    } else {
                        numbers.number(key, row, &mut new)
                    }
                }));
            }
        }
        Ok(new)
    }

    /// Memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Codes::Texts(texts) => texts.bytes + size_of::<TextSlot>() * SLOTS,
            Codes::Integers(numbers) => numbers.bytes(),
        }
    }
}

/// A recent text.
#[derive(Debug, Clone, Copy)]
struct TextSlot {
    view: u128,
    code: u32,
    /// When its buffers were the current ones.
    round: u32,
}

/// No view has this length.
const NO_VIEW: u128 = u128::MAX;
/// Texts up to this length are in the view itself.
const INLINE_BYTES: u32 = 12;

/// Codes of texts.
#[derive(Debug)]
pub(crate) struct Texts {
    codes: HashMap<Box<str>, u32>,
    null: Option<u32>,
    count: u32,
    bytes: usize,
    recent: Box<[TextSlot]>,
    /// The buffers of the last array. Kept, so that no other buffer can have their addresses.
    buffers: Vec<Buffer>,
    round: u32,
}

impl Default for Texts {
    fn default() -> Texts {
        let empty = TextSlot {
            view: NO_VIEW,
            code: 0,
            round: 0,
        };
        Texts {
            codes: HashMap::new(),
            null: None,
            count: 0,
            bytes: 0,
            recent: vec![empty; SLOTS].into_boxed_slice(),
            buffers: Vec::new(),
            round: 0,
        }
    }
}

impl Texts {
    fn number(&mut self, texts: &StringViewArray, codes: &mut Vec<u32>, new: &mut Vec<u32>) {
        let buffers = texts.data_buffers();
        let is_same = |(a, b): (&Buffer, &Buffer)| a.as_ptr() == b.as_ptr() && a.len() == b.len();
        if buffers.len() != self.buffers.len() || !buffers.iter().zip(&self.buffers).all(is_same) {
            self.buffers = buffers.to_vec();
            self.round = self.round.wrapping_add(1);
        }
        let (mut last, mut code) = (NO_VIEW, 0);
        let nulls = texts.nulls().filter(|nulls| nulls.null_count() > 0);
        codes.resize(texts.len(), 0);
        let rows = texts.views().iter().zip(codes.iter_mut()).enumerate();
        for (row, (&view, place)) in rows {
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                *place = code_of_null(&mut self.null, &mut self.count, row, new);
                continue;
            }
            if view != last {
                (last, code) = (view, self.code(texts, view, row, new));
            }
            *place = code;
        }
    }

    #[inline]
    fn code(&mut self, texts: &StringViewArray, view: u128, row: usize, new: &mut Vec<u32>) -> u32 {
        let place = slot_of(view as u64 ^ ((view >> 64) as u64).rotate_left(29));
        let slot = self.recent[place];
        if slot.view == view && (view as u32 <= INLINE_BYTES || slot.round == self.round) {
            return slot.code;
        }
        let code = self.look_up(texts.value(row), row, new);
        self.recent[place] = TextSlot {
            view,
            code,
            round: self.round,
        };
        code
    }

    #[inline(never)]
    fn look_up(&mut self, text: &str, row: usize, new: &mut Vec<u32>) -> u32 {
        if let Some(&code) = self.codes.get(text) {
            return code;
        }
        let code = self.count;
        self.codes.insert(text.into(), code);
        self.count += 1;
        // The text here and in the output, and two entries of a table that is half full.
        self.bytes += 2 * (text.len() + size_of::<(Box<str>, u32)>()) + size_of::<u128>();
        new.push(row as u32);
        code
    }
}

/// Codes of integers.
#[derive(Debug)]
pub(crate) struct Numbers {
    codes: HashMap<i64, u32>,
    null: Option<u32>,
    count: u32,
    recent: Box<[(i64, u32)]>,
}

/// No value has this code.
const NO_CODE: u32 = u32::MAX;

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers {
            codes: HashMap::new(),
            null: None,
            count: 0,
            recent: vec![(0, NO_CODE); SLOTS].into_boxed_slice(),
        }
    }
}

impl Numbers {
    /// The code of a value in this row; `new` gets the row if the value is new.
    #[inline]
    pub(crate) fn number(&mut self, key: i64, row: usize, new: &mut Vec<u32>) -> u32 {
        let place = slot_of(key as u64);
        let (recent, code) = self.recent[place];
        if recent == key && code != NO_CODE {
            return code;
        }
        let code = self.look_up(key, row, new);
        self.recent[place] = (key, code);
        code
    }

    #[inline(never)]
    fn look_up(&mut self, key: i64, row: usize, new: &mut Vec<u32>) -> u32 {
        let count = &mut self.count;
        *self.codes.entry(key).or_insert_with(|| {
            new.push(row as u32);
            *count += 1;
            *count - 1
        })
    }

    /// Memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let entries = 2 * self.codes.len() + SLOTS;
        entries * size_of::<(i64, u32)>() + self.codes.len() * size_of::<i64>()
    }
}
