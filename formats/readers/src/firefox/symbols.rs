//! Names of functions that samply saves beside a profile (`samply record --save-only --unstable-presymbolicate`).
//!
//! ```text
//! profile.json.gz      libs: {"name":"work","breakpadId":"9A7C…0"}   frameTable: address 4660 in lib 0, named "0x1234"
//! profile.syms.json    {"string_table":["UNKNOWN","main"],"data":[{"debug_name":"work","debug_id":"9a7c…","code_id":"…",
//!                       "symbol_table":[{"rva":4640,"size":90,"symbol":1}],"known_addresses":[[4660,0]]}]}
//! ```
//! Names alone are taken: a symbol's `frames`, its lines and inlined functions, are those of the first of its addresses.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::Input;
use perfquet_events::input::Map;

use crate::json::{elements, integer, members, text};

/// Addresses of all libraries; a hostile file has one for every six bytes.
const ADDRESSES_MAX: usize = 1 << 24;

/// Names by library and address.
#[derive(Debug, Default)]
pub(super) struct Symbols<'a> {
    strings: Vec<Cow<'a, [u8]>>,
    /// Libraries by their ID.
    libraries: HashMap<Vec<u8>, u32>,
    /// Index of the string by number of the library and address.
    names: HashMap<(u32, i64), u32>,
}

/// Opens the file beside a profile, if there is one: `profile.syms.json` for `profile.json` and `profile.json.gz`.
pub(super) fn beside(input: &Input) -> Result<Option<(PathBuf, Arc<Map>)>, Error> {
    let Some(path) = input.path() else {
        return Ok(None);
    };
    let without_gz = match path.extension() {
        Some(ending) if ending == "gz" => path.with_extension(""),
        _ => path.to_owned(),
    };
    let found = candidates(&without_gz)
        .into_iter()
        .find(|path| path.is_file());
    let Some(path) = found else {
        return Ok(None);
    };
    let mut symbols = Input::open(&path)?;
    symbols.set_temporary_bytes_max(input.temporary_bytes_max());
    Ok(symbols.whole()?.map(|map| (path, map)))
}

/// Versions of samply differ in whether `.json` stays in the name.
fn candidates(path: &Path) -> [PathBuf; 2] {
    let mut longer = path.as_os_str().to_owned();
    longer.push(".syms.json");
    [path.with_extension("syms.json"), PathBuf::from(longer)]
}

impl<'a> Symbols<'a> {
    /// Parses the file; `None` if it is another one.
    pub(super) fn of(bytes: &'a [u8]) -> Option<Symbols<'a>> {
        let member = |name: &[u8]| {
            let found = members(bytes).find(|(key, _)| *key == name);
            found.map(|(_, value)| value)
        };
        let mut symbols = Symbols {
            strings: elements(member(b"string_table")?)
                .take(ADDRESSES_MAX)
                .map(text)
                .collect(),
            ..Symbols::default()
        };
        for (number, library) in (0..).zip(elements(member(b"data")?)) {
            symbols.library(number, library);
        }
        Some(symbols)
    }

    fn library(&mut self, number: u32, library: &'a [u8]) {
        let (mut id, mut table, mut addresses) = (Vec::new(), &b""[..], &b""[..]);
        for (key, value) in members(library) {
            match key {
                b"debug_id" => id = plain_id(&text(value)),
                b"symbol_table" => table = value,
                b"known_addresses" => addresses = value,
                _ => {}
            }
        }
        let index = |value: &[u8]| integer(value).and_then(|index| u32::try_from(index).ok());
        let symbol = |object: &'a [u8]| {
            let found = members(object).find(|(key, _)| *key == b"symbol");
            found.and_then(|(_, value)| index(value))
        };
        let table: Vec<Option<u32>> = elements(table).take(ADDRESSES_MAX).map(symbol).collect();
        for pair in elements(addresses) {
            let mut pair = elements(pair);
            let (address, place) = (pair.next().and_then(integer), pair.next().and_then(index));
            let name = place.and_then(|place| table.get(place as usize).copied().flatten());
            if let (Some(address), Some(name)) = (address, name)
                && self.names.len() < ADDRESSES_MAX
            {
                self.names.insert((number, address), name);
            }
        }
        self.libraries.insert(id, number);
    }

    /// The number of a library by the `breakpadId` that the profile has.
    pub(super) fn number(&self, breakpad_id: &[u8]) -> Option<u32> {
        self.libraries.get(&plain_id(breakpad_id)).copied()
    }

    /// The name of the function at an address of a library.
    pub(super) fn name(&self, library: u32, address: i64) -> Option<&[u8]> {
        let index = self.names.get(&(library, address))?;
        self.strings.get(*index as usize).map(|name| &**name)
    }

    /// Number of named addresses.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }
}

/// An ID without hyphens, in capitals, with its appendix, which is missing if it is 0: `9a7c…` and `9A7C…0` are the same.
fn plain_id(id: &[u8]) -> Vec<u8> {
    const UUID_DIGITS: usize = 32;
    let mut plain = id.to_ascii_uppercase();
    plain.retain(|byte| *byte != b'-');
    if plain.len() == UUID_DIGITS {
        plain.push(b'0');
    }
    plain
}
