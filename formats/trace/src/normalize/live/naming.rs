//! The functions of an interval's frames. Names are kept, so that each frame is looked up once.

use std::time::{Duration, Instant};

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::event::Space;

use super::super::frames::{Frame, FrameKey};
use super::super::names::place;
use super::Interval;
use crate::function_name::in_brackets;
use crate::symbols::{FRAMES_AT_ONCE, Options, Symbolizer, is_generated};

/// Names kept; at the limit, all are forgotten.
const KEPT: usize = 1 << 17;
/// Time between two readings of the names of generated code, which grow while it is compiled.
const REREAD: Duration = Duration::from_secs(5);

/// A function, or code without a name in a module.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Function {
    /// Name; `[module]` or `[unknown]` if there is none.
    pub name: String,
    /// Path of its module.
    pub module: Option<String>,
    /// Whether it is the kernel's.
    pub is_kernel: bool,
}

/// The names of functions, as reports show them.
pub struct FunctionNames {
    options: Options,
    symbolizer: Option<Symbolizer>,
    /// Index into `functions`.
    known: HashMap<(Frame, Space), usize>,
    functions: Vec<Function>,
    by_function: HashMap<Function, usize>,
    reread_at: Option<Instant>,
}

impl FunctionNames {
    /// Knows no names yet.
    pub fn new(options: Options) -> FunctionNames {
        FunctionNames {
            options,
            symbolizer: None,
            known: HashMap::new(),
            functions: Vec::new(),
            by_function: HashMap::new(),
            reread_at: None,
        }
    }

    /// Returns the functions of an interval with their weights, in no order.
    pub fn weights(&mut self, interval: &Interval) -> Result<Vec<(Function, u64)>, Error> {
        if self.known.len() > KEPT {
            self.known.clear();
            self.functions.clear();
            self.by_function.clear();
        }
        self.find(interval)?;
        let mut weights: HashMap<usize, u64> = HashMap::new();
        for (key, weight) in &interval.frames {
            if let Some(&function) = self.known.get(&(key.frame(), key.space)) {
                let sum = weights.entry(function).or_default();
                *sum = sum.saturating_add(*weight);
            }
        }
        let named = weights.into_iter().filter_map(|(function, weight)| {
            let function = self.functions.get(function)?;
            Some((function.clone(), weight))
        });
        let named = named.collect();
        self.forget_unnamed();
        Ok(named)
    }

    /// Looks up the frames that are not known yet.
    fn find(&mut self, interval: &Interval) -> Result<(), Error> {
        let mut symbolizer = match self.symbolizer.take() {
            Some(symbolizer) => symbolizer,
            None => Symbolizer::new(
                self.options.clone(),
                interval.kernel.clone(),
                interval.origin.clone(),
            )?,
        };
        interval.input.pass_to(&mut symbolizer);
        let keys = interval.frames.iter().map(|(key, _)| key);
        let unknown = keys.filter(|key| !self.known.contains_key(&(key.frame(), key.space)));
        let mut unknown: Vec<&FrameKey> = unknown.collect();
        // Module by module; the kernel's symbols, which take the most memory, come last.
        unknown.sort_by_key(|key| (key.space == Space::Kernel, key.frame()));
        let is_new = |key: &&&FrameKey| is_generated_code(key, interval);
        if unknown.iter().any(|key| is_new(&key)) && self.is_time_to_reread() {
            symbolizer.reread_generated();
        }
        for chunk in unknown.chunks(FRAMES_AT_ONCE) {
            let places: Vec<_> = chunk
                .iter()
                .map(|key| place(key, &[], &interval.modules))
                .collect();
            let requests: Vec<_> = chunk
                .iter()
                .zip(&places)
                .map(|(key, place)| place.request(key))
                .collect();
            let found = symbolizer.names(&requests);
            for ((key, place), found) in chunk.iter().zip(&places).zip(&found) {
                let name = found.first().or(place.names.first());
                let name = match (name, place.module) {
                    (Some(name), _) => name.function.clone(),
                    (None, Some(module)) => in_brackets(module),
                    (None, None) => "[unknown]".to_owned(),
                };
                let function = Function {
                    name,
                    module: place.module.map(str::to_owned),
                    is_kernel: key.space == Space::Kernel,
                };
                self.keep((key.frame(), key.space), function);
            }
        }
        self.symbolizer = Some(symbolizer);
        Ok(())
    }

    fn keep(&mut self, key: (Frame, Space), function: Function) {
        let index = match self.by_function.get(&function) {
            Some(&index) => index,
            None => {
                self.functions.push(function.clone());
                self.by_function.insert(function, self.functions.len() - 1);
                self.functions.len() - 1
            }
        };
        self.known.insert(key, index);
    }

    fn is_time_to_reread(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.reread_at.is_none_or(|last| now - last >= REREAD);
        if is_due {
            self.reread_at = Some(now);
        }
        is_due
    }

    /// Forgets generated code without a name: its process may still write it.
    fn forget_unnamed(&mut self) {
        let functions = &self.functions;
        self.known.retain(|_, index| {
            functions.get(*index).is_none_or(|function| {
                let is_unnamed = function.name.starts_with('[');
                !(is_unnamed && function.module.as_deref().is_some_and(is_generated))
            })
        });
    }
}

fn is_generated_code(key: &FrameKey, interval: &Interval) -> bool {
    place(key, &[], &interval.modules)
        .module
        .is_some_and(is_generated)
}
