//! Messages between a program and the process that reads debug info for it: lines of JSON, over one socket.
//!
//! ```text
//! [4438,4451]                                                                      addresses, in their order
//! {"texts":["/w/a.c","next"],"places":[{"Ok":[[null,0,6],[1,0,3]]},{"Err":"NotThere"}]}
//! ```
//! A string is sent once and referenced by ID from then on, since a thousand addresses share a file.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Located, Location, NoLines};

/// Maximum size of strings sent about one file. A program of a gigabyte has about ten million bytes.
const TEXTS_MAX_BYTES: usize = 64 << 20;

/// The answer to some addresses.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Reply {
    /// New strings; the first one's ID follows the last one sent.
    pub(super) texts: Vec<String>,
    /// For each address.
    pub(super) places: Vec<Result<Vec<Level>, NoLines>>,
}

/// A function at an address, with the file and the line: first the symbol's function, which has no name here.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Level(
    pub(super) Option<u32>,
    pub(super) Option<u32>,
    pub(super) Option<u32>,
);

/// IDs of strings, for the sending side.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    numbers: HashMap<String, u32>,
    bytes: usize,
}

impl Numbers {
    /// The ID of a string, which is added to the reply if it is new.
    pub(super) fn number(&mut self, text: &str, reply: &mut Reply) -> Result<u32, NoLines> {
        if let Some(&number) = self.numbers.get(text) {
            return Ok(number);
        }
        self.bytes += text.len();
        if self.bytes > TEXTS_MAX_BYTES {
            return Err(NoLines::TooLarge);
        }
        let number = u32::try_from(self.numbers.len()).map_err(|_| NoLines::TooLarge)?;
        self.numbers.insert(text.to_owned(), number);
        reply.texts.push(text.to_owned());
        Ok(number)
    }
}

/// Strings by ID, for the receiving side.
#[derive(Debug, Default)]
pub(super) struct Texts(Vec<Arc<str>>);

impl Texts {
    /// The places of a reply.
    pub(super) fn places(&mut self, reply: Reply) -> Vec<Located> {
        self.0.extend(reply.texts.into_iter().map(Arc::from));
        let places = reply.places.into_iter();
        places.map(|place| self.place(&place?)).collect()
    }

    fn place(&self, levels: &[Level]) -> Located {
        let (outer, inlined) = levels.split_first().ok_or(NoLines::NotThere)?;
        let line = |level: &Level| Ok((self.text(level.1)?, level.2));
        let mut location = Location {
            outer: line(outer)?,
            inlined: Vec::with_capacity(inlined.len()),
        };
        for level in inlined {
            let function = self.text(level.0)?.ok_or(NoLines::Damaged)?;
            location.inlined.push((function, line(level)?));
        }
        Ok(location)
    }

    fn text(&self, number: Option<u32>) -> Result<Option<Arc<str>>, NoLines> {
        let Some(number) = number else {
            return Ok(None);
        };
        let text = self.0.get(number as usize).ok_or(NoLines::Damaged)?;
        Ok(Some(Arc::clone(text)))
    }
}
