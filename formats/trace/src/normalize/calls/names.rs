//! Names of functions that an input gives by address, from the user's symbols or those of the trace.

use std::borrow::Cow;

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::event::{Function, Space};

use super::super::names::InputSymbols;
use super::super::texts::{SharedTexts, TextId};
use crate::symbols::{self, KernelFacts, Options, Origin, Request, Symbolizer};

/// Maximum number of addresses remembered.
const KNOWN: usize = 1 << 20;
/// Maximum number of mangled names remembered.
const READABLE: usize = 1 << 12;

/// Names of addresses, looked up once each.
#[derive(Default)]
pub(crate) struct Names {
    symbolizer: Option<Symbolizer>,
    known: HashMap<(Space, u64), Box<[u8]>>,
    /// By symbol.
    readable: HashMap<Box<[u8]>, Box<[u8]>>,
}

/// A function's name and module, as string IDs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) function: Option<TextId>,
    pub(super) module: Option<TextId>,
}

impl Names {
    /// Name and module of a function. An address without a name is its own name: `0xc0009a80`.
    pub(super) fn of(
        &mut self,
        function: Function<'_>,
        texts: &mut SharedTexts,
        input_symbols: &InputSymbols,
        kernel: &KernelFacts,
        options: &Options,
    ) -> Result<Named, Error> {
        Ok(match function {
            Function::Unknown => Named::default(),
            Function::Named { name, module } => Named {
                function: Some(texts.intern(&self.readable(name))),
                module: (!module.is_empty()).then(|| texts.intern(module)),
            },
            Function::Address { space, address } => {
                if let Some(name) = self.known.get(&(space, address)) {
                    return Ok(Named {
                        function: Some(texts.intern(name)),
                        module: None,
                    });
                }
                let name = self.look_up(space, address, input_symbols, kernel, options)?;
                let function = Some(texts.intern(&name));
                if self.known.len() >= KNOWN {
                    self.known.clear();
                }
                self.known.insert((space, address), name);
                Named {
                    function,
                    module: None,
                }
            }
        })
    }

    /// The demangled name: functions of C++ and Rust are recorded by symbol.
    fn readable<'n>(&mut self, name: &'n [u8]) -> Cow<'n, [u8]> {
        if !symbols::may_be_mangled(name) {
            return Cow::Borrowed(name);
        }
        if let Some(known) = self.readable.get(name) {
            return Cow::Owned(known.to_vec());
        }
        let readable = symbols::demangle(name).into_bytes();
        if self.readable.len() >= READABLE {
            self.readable.clear();
        }
        self.readable.insert(name.into(), readable.clone().into());
        Cow::Owned(readable)
    }

    fn look_up(
        &mut self,
        space: Space,
        address: u64,
        input_symbols: &InputSymbols,
        kernel: &KernelFacts,
        options: &Options,
    ) -> Result<Box<[u8]>, Error> {
        let symbolizer = match &mut self.symbolizer {
            Some(symbolizer) => symbolizer,
            none => {
                let mut symbolizer =
                    Symbolizer::new(options.clone(), kernel.clone(), Origin::default())?;
                input_symbols.pass_to(&mut symbolizer);
                none.insert(symbolizer)
            }
        };
        let request = Request {
            address: Some(address),
            space,
            ..Request::default()
        };
        let names = symbolizer.names(&[request]);
        let name = names.first().and_then(|names| names.first());
        Ok(match name {
            Some(name) => name.function.as_bytes().into(),
            None => format!("{address:#x}").into_bytes().into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_demangled() {
        let mut names = Names::default();
        let mut check = |symbol: &[u8], expected: &str| {
            let readable = String::from_utf8(names.readable(symbol).into_owned()).unwrap();
            assert_eq!(readable, expected);
        };
        for _ in 0..2 {
            check(b"_ZN2ns4overEi", "ns::over");
            check(b"_RNvC7mycrate3foo", "mycrate::foo");
            check(b"vfs_read", "vfs_read");
            check(b"_R", "_R");
        }
    }
}
