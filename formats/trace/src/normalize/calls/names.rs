//! Names of functions that an input gives by address, from the user's symbols or those of the trace.

use std::borrow::Cow;

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::event::{Function, Space};

use super::super::mappings::AddressMap;
use super::super::modules::{ModuleId, Modules};
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
    known: HashMap<Place, Box<[u8]>>,
    /// By symbol.
    readable: HashMap<Box<[u8]>, Box<[u8]>>,
}

/// Where the code of a function is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    /// Outside of known mappings, and in the kernel.
    Address(Space, u64),
    /// At an offset in a mapped file.
    InModule(u32, u64),
}

impl Place {
    fn of(space: Space, address: u64, map: &AddressMap) -> Place {
        match map.find(address).filter(|_| space == Space::User) {
            Some(range) => {
                let offset = (address - range.start).wrapping_add(range.file_offset);
                Place::InModule(range.module.0, offset)
            }
            None => Place::Address(space, address),
        }
    }
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
        (map, modules): (&AddressMap, &mut Modules),
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
                let place = Place::of(space, address, map);
                let module = match place {
                    Place::Address(..) => None,
                    Place::InModule(module, _) => {
                        let path = modules.path(ModuleId(module));
                        (!path.is_empty()).then(|| texts.intern(path))
                    }
                };
                if let Some(name) = self.known.get(&place) {
                    let function = Some(texts.intern(name));
                    return Ok(Named { function, module });
                }
                let name = self.look_up(place, modules, input_symbols, kernel, options)?;
                let name = name.unwrap_or_else(|| format!("{address:#x}").into_bytes().into());
                let function = Some(texts.intern(&name));
                // An address that is its own name depends on the process.
                if self.known.len() >= KNOWN {
                    self.known.clear();
                }
                if module.is_none() || !name.starts_with(b"0x") {
                    self.known.insert(place, name);
                }
                Named { function, module }
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
        place: Place,
        modules: &mut Modules,
        input_symbols: &InputSymbols,
        kernel: &KernelFacts,
        options: &Options,
    ) -> Result<Option<Box<[u8]>>, Error> {
        let symbolizer = match &mut self.symbolizer {
            Some(symbolizer) => symbolizer,
            none => {
                let mut symbolizer =
                    Symbolizer::new(options.clone(), kernel.clone(), Origin::default())?;
                input_symbols.pass_to(&mut symbolizer);
                none.insert(symbolizer)
            }
        };
        let (path, build_id);
        let request = match place {
            Place::Address(space, address) => Request {
                address: Some(address),
                space,
                ..Request::default()
            },
            Place::InModule(module, offset) => {
                let module = ModuleId(module);
                path = String::from_utf8_lossy(modules.path(module)).into_owned();
                build_id = modules.build_id_of(module).map(<[u8]>::to_vec);
                Request {
                    module: Some(&path),
                    build_id: build_id.as_deref(),
                    file: modules.file_of(module),
                    first_mapped: modules.first_mapped(module),
                    offset: Some(offset),
                    space: Space::User,
                    ..Request::default()
                }
            }
        };
        let names = symbolizer.names(&[request]);
        // The last one is the function itself, those before it are inlined at this address.
        let name = names.first().and_then(|names| names.last());
        Ok(name.map(|name| name.function.as_bytes().into()))
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
