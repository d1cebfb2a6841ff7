//! Functions that an input tells by address get their names at once, from the symbols that the user gave or
//! that the trace brought.

use hashbrown::HashMap;

use super::super::names::Told;
use super::super::texts::{TextId, Texts};
use crate::Error;
use crate::event::{Function, Space};
use crate::symbols::{KernelFacts, Options, Request, Symbolizer};

/// Addresses remembered.
const KNOWN: usize = 1 << 20;

/// Names of addresses, looked up once each.
#[derive(Default)]
pub(crate) struct Names {
    symbolizer: Option<Symbolizer>,
    known: HashMap<(Space, u64), Box<[u8]>>,
}

/// A function's name and module among the texts.
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
        texts: &mut Texts,
        told: &Told,
        kernel: &KernelFacts,
        options: &Options,
    ) -> Result<Named, Error> {
        Ok(match function {
            Function::Unknown => Named::default(),
            Function::Named { name, module } => Named {
                function: Some(texts.intern(name)),
                module: (!module.is_empty()).then(|| texts.intern(module)),
            },
            Function::Address { space, address } => {
                if let Some(name) = self.known.get(&(space, address)) {
                    return Ok(Named {
                        function: Some(texts.intern(name)),
                        module: None,
                    });
                }
                let name = self.look_up(space, address, told, kernel, options)?;
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

    fn look_up(
        &mut self,
        space: Space,
        address: u64,
        told: &Told,
        kernel: &KernelFacts,
        options: &Options,
    ) -> Result<Box<[u8]>, Error> {
        let symbolizer = match &mut self.symbolizer {
            Some(symbolizer) => symbolizer,
            none => {
                let mut symbolizer = Symbolizer::new(options.clone(), kernel.clone())?;
                told.tell(&mut symbolizer);
                none.insert(symbolizer)
            }
        };
        let request = Request {
            module: None,
            build_id: None,
            offset: None,
            address: Some(address),
            space,
            return_address: false,
        };
        let names = symbolizer.names(&[request]);
        let name = names.first().and_then(|names| names.first());
        Ok(match name {
            Some(name) => name.function.as_bytes().into(),
            None => format!("{address:#x}").into_bytes().into(),
        })
    }
}
