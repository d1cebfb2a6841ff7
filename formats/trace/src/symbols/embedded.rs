//! Symbols contained in a trace: BPF programs loaded while recording, Python functions, simpleperf's symbol tables.

use std::collections::HashMap;

use super::Name;
use super::demangle::demangle;
use super::elf::Part;
use super::table::{Symbol, Table};

/// Symbols by module; `None` for the kernel.
#[derive(Default)]
pub(super) struct TraceSymbols {
    modules: HashMap<Option<String>, List>,
}

#[derive(Default)]
struct List {
    symbols: Vec<Symbol>,
    text: Vec<u8>,
    /// Source files and lines, by the start of their symbol.
    lines: HashMap<u64, (String, u32)>,
    /// A table of all symbols so far; built on request.
    table: Option<Table>,
}

impl TraceSymbols {
    pub(super) fn add(&mut self, module: Option<&str>, start: u64, length: u64, name: &[u8]) {
        let list = self.modules.entry(module.map(str::to_owned)).or_default();
        // Above 4 GiB of names, later symbols have none.
        let (Ok(at), Ok(bytes)) = (u32::try_from(list.text.len()), u32::try_from(name.len()))
        else {
            return;
        };
        list.text.extend_from_slice(name);
        let end = start.saturating_add(length);
        list.symbols.push(Symbol::new(start, end, at, bytes));
        list.table = None;
    }

    pub(super) fn add_line(&mut self, module: &str, start: u64, file: &str, line: u32) {
        let list = self.modules.entry(Some(module.to_owned())).or_default();
        list.lines.insert(start, (file.to_owned(), line));
    }

    /// The name at `code`, with the offset of `place`.
    pub(super) fn name(&mut self, module: Option<&str>, code: u64, place: u64) -> Option<Name> {
        if self.modules.is_empty() {
            return None;
        }
        let list = self.modules.get_mut(&module.map(str::to_owned))?;
        let table = list.table.get_or_insert_with(|| {
            let text = Part::owned(list.text.clone());
            Table::new(list.symbols.clone(), text, |_, _, _| true)
        });
        let symbol = table.at(code).or_else(|| table.at(place))?;
        let function = demangle(table.name(symbol));
        let line = list.lines.get(&symbol.start);
        Some(Name {
            file: line.map(|(file, _)| file.clone()),
            line: line.map(|(_, line)| *line),
            ..Name::of(function, place.wrapping_sub(symbol.start))
        })
    }
}
