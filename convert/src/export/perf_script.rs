//! Text in the layout of `perf script -F +pid --ns --no-inline`: perf's default fields of a sample, with the PID.
//!
//! ```text
//!             perf   169/169   [000]     4.720337972:          1 sched:sched_wakeup: comm=migration/0 … ffffffff81114a38 ttwu_do_activate+0x58 ([kernel.kallsyms])
//! workload   220/220   [001]    50.102807555:    1001001 cpu-clock:
//!         ffffffff81c95a7f __memset+0xf ([kernel.kallsyms])
//!                     11b7 work_inner+0x31 (/w/workload)
//! ```
//! tools/perf/builtin-script.c and tools/perf/util/evsel_fprintf.c define widths and spaces. Programs that read this text
//! recognize a frame by the module in parentheses (stackcollapse-perf.pl, FlameScope, speedscope). If chains were recorded, perf prints frames of user modules
//! as file offsets, all others as addresses. This exporter does the same, because scripts expect it.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::io::Write;

use anyhow::Result;
use perfquet_events::event::{Field, FieldType, Fields, Flags, Space};
use perfquet_events::event_format::declared;
use perfquet_events::event_format::print::{PrintFormat, Record};
use perfquet_trace::reopen::kernel_facts;
use perfquet_trace::store::{ColumnSchema, ColumnType};
use perfquet_trace::symbols::{Origin, Request, Symbolizer};
use perfquet_trace::tables;

use super::batch::BatchRow;
use super::event_types::EventType;
use super::losses::{each_loss, problems};
use super::mappings::Mappings;
use super::merged::{MergedRow, MergedRows};
use super::source::{RowTable, Source};
use super::stacks::{Place, Stacks};
use super::{Exporter, Output, Tally, printable};

/// `--to perf-script`
pub(super) const EXPORTER: Exporter = Exporter {
    name: "perf-script",
    about: "text output of perf script",
    output: Output::Text { write },
};

/// The events of a table.
struct Event {
    /// `sched:sched_switch`; empty for `samples`, whose rows have the name.
    name: String,
    fields: Vec<Field>,
    print: Option<PrintFormat>,
    is_shown: bool,
}

fn write(source: &Source<'_>, out: &mut dyn Write, tally: &mut Tally) -> Result<()> {
    let tables: Vec<&RowTable<'_>> = source.samples().chain(source.events()).collect();
    let (events, name_width) = events(source, &tables);
    let stacks = Stacks::read(source.trace)?;
    let mut printer = Printer {
        chains: stacks.has_chains(),
        stacks: &stacks,
        mappings: Mappings::read(source.trace)?,
        names: Names::new(source),
        name_width,
        text: Vec::new(),
    };
    let (mut written, mut hidden) = (0, 0);
    let mut rows = MergedRows::open(source, &tables)?;
    while let Some(row) = rows.next()? {
        let event = &events[row.table];
        if !event.is_shown {
            hidden += 1;
            continue;
        }
        written += 1;
        let values = row.columns.fields(event.fields.len());
        printer.line(&row, event, Fields::Values(&values));
        out.write_all(&printer.text)?;
    }
    tally.wrote("event", written);
    tally.omit("record", "of the recorder, which perf script hides", hidden);
    tally.omit("call", "perf script has no calls", source.call_rows());
    let aggregates = source.aggregate_rows();
    tally.omit("aggregate", "perf script has no aggregates", aggregates);
    each_loss(source, tally, |_| Ok(()))?;
    problems(source, tally)?;
    Ok(())
}

/// Returns the events of each table, and the width of the longest name. If an event's fields changed, each form has a
/// declaration and a table.
fn events(source: &Source<'_>, tables: &[&RowTable<'_>]) -> (Vec<Event>, usize) {
    let declared: Vec<&EventType> = source.event_types().collect();
    let mut used: BTreeSet<usize> = BTreeSet::new();
    let event = |table: &&RowTable<'_>| {
        let own = declared
            .iter()
            .enumerate()
            .filter(|(_, event)| event.table == table.name && !table.is_samples());
        // Each form has a separate declaration; several filters produce equal ones.
        let own = own.min_by_key(|(index, event)| {
            (
                !has_fields(&table.columns, &event.fields),
                used.contains(index),
            )
        });
        let Some((index, declaration)) = own else {
            return Event {
                name: table.name.trim_start_matches("events/").replace('/', ":"),
                fields: Vec::new(),
                print: None,
                is_shown: true,
            };
        };
        used.insert(index);
        let fields = fields(&declaration.fields, &table.columns);
        let print = declaration.print_format.as_deref();
        Event {
            name: declaration.full_name(),
            print: print.map(|text| PrintFormat::new(text, &fields)),
            fields,
            is_shown: is_shown(declaration),
        }
    };
    let events = tables.iter().map(event).collect();
    let shown = declared
        .iter()
        .filter(|event| event.is_sampled() || is_shown(event));
    let widths = shown.map(|event| event.full_name().chars().count());
    (events, widths.max().unwrap_or(0))
}

/// perf script shows the recorder's own records (mappings, switches) only on request.
fn is_shown(event: &EventType) -> bool {
    event.kind != "recorder"
}

/// Returns the fields of an event, from its declarations and columns.
fn fields(declarations: &[String], columns: &[ColumnSchema]) -> Vec<Field> {
    let columns = columns.iter().skip(tables::common::columns().len());
    declarations
        .iter()
        .zip(columns)
        // perf prints no flags.
        .take_while(|(_, column)| !Flags::has_field(&column.name))
        .map(|(declaration, column)| {
            let (name, width) = declared(declaration).unwrap_or((declaration, 0));
            Field {
                name: name.to_owned(),
                kind: field_type(column.kind, width),
                layout: None,
                declaration: declaration.clone(),
            }
        })
        .collect()
}

/// Returns whether a form has the columns of these fields: `arg_pid` for `int pid`, followed only by extra values
/// recorded with the event.
fn has_fields(columns: &[ColumnSchema], declarations: &[String]) -> bool {
    let own = columns.iter().skip(tables::common::columns().len());
    let extras = own.clone().skip(declarations.len());
    let plain = |letter: char| {
        if letter.is_ascii_alphanumeric() {
            letter.to_ascii_lowercase()
        } else {
            '_'
        }
    };
    let is_of = |(column, declaration): (&ColumnSchema, &String)| {
        let name = declared(declaration).map_or(declaration.as_str(), |(name, _)| name);
        let name: String = name.chars().map(plain).collect();
        column.name.to_ascii_lowercase().contains(&name)
    };
    own.clone().count() >= declarations.len()
        && own.zip(declarations).all(is_of)
        && extras
            .clone()
            .all(|column| column.name.starts_with("sample_"))
}

/// Returns the type of a field with a column of this type. A list element has 64 bits, whatever its original size.
fn field_type(column: ColumnType, element_bytes: u8) -> FieldType {
    let element_bytes = if element_bytes == 0 { 8 } else { element_bytes };
    match column {
        ColumnType::Bool => FieldType::Bool,
        ColumnType::Int8 => FieldType::Int(1),
        ColumnType::Int16 => FieldType::Int(2),
        ColumnType::Int32 => FieldType::Int(4),
        ColumnType::Int64 | ColumnType::Int128 => FieldType::Int(8),
        ColumnType::UInt8 => FieldType::UInt(1),
        ColumnType::UInt16 => FieldType::UInt(2),
        ColumnType::UInt32 => FieldType::UInt(4),
        ColumnType::UInt64 | ColumnType::Bits => FieldType::UInt(8),
        ColumnType::Float64 => FieldType::Float,
        ColumnType::Text => FieldType::Text,
        ColumnType::Binary => FieldType::Binary,
        ColumnType::Int64List => FieldType::IntList(element_bytes),
        ColumnType::UInt64List | ColumnType::BitsList => FieldType::UIntList(element_bytes),
        ColumnType::TextList => FieldType::TextList,
    }
}

/// Names of kernel addresses in event fields, each looked up once.
struct Names {
    symbolizer: Option<Symbolizer>,
    known: HashMap<u64, Option<(String, u64)>>,
}

impl Names {
    fn new(source: &Source<'_>) -> Names {
        let facts = kernel_facts(&source.trace.manifest().facts);
        let symbolizer = Symbolizer::new(source.symbols.clone(), facts, Origin::default());
        if let Err(error) = &symbolizer {
            log::info!("no names for addresses inside events: {error}");
        }
        Names {
            symbolizer: symbolizer.ok(),
            known: HashMap::new(),
        }
    }

    fn name(&mut self, address: u64) -> Option<(String, u64)> {
        if let Some(known) = self.known.get(&address) {
            return known.clone();
        }
        let names = self.symbolizer.as_mut().map(|symbolizer| {
            symbolizer.names(&[Request {
                address: Some(address),
                space: Space::Kernel,
                ..Request::default()
            }])
        });
        let name = names
            .and_then(|names| names.into_iter().next()?.into_iter().next())
            .map(|name| (name.function, name.function_offset.unwrap_or(0)));
        self.known.insert(address, name.clone());
        name
    }
}

struct Printer<'t> {
    /// Whether stacks were recorded, or only the IP.
    chains: bool,
    stacks: &'t Stacks,
    mappings: Mappings,
    names: Names,
    name_width: usize,
    /// Text of the current event.
    text: Vec<u8>,
}

impl Printer<'_> {
    /// Formats an event in `text`.
    fn line(&mut self, row: &MergedRow<'_>, event: &Event, values: Fields<'_>) {
        self.text.clear();
        self.head(&row.columns, event);
        let start = self.text.len();
        let record = Record {
            fields: &event.fields,
            values,
            big_endian: false,
        };
        if let Some(print) = &event.print {
            let names = RefCell::new(&mut self.names);
            let name = |address| names.borrow_mut().name(address);
            print.print(&record, Some(&name), &mut self.text);
        } else {
            // An event imported from text has no format: its fields are printed by name, after one space.
            self.text.pop();
            record.pairs(&mut self.text);
            if self.text.len() < start {
                self.text.push(b' ');
            }
        }
        tame(&mut self.text, start);
        if self.chains {
            self.chain(&row.columns);
        } else {
            self.place(&row.columns, event);
        }
        self.text.push(b'\n');
    }

    /// Formats the part before the event's name.
    fn head(&mut self, row: &BatchRow<'_>, event: &Event) {
        let tid = row.i32("tid").unwrap_or(-1);
        let comm = row
            .text("comm")
            .map_or_else(|| format!(":{tid}"), printable);
        let mut head = if self.chains {
            format!("{comm} ")
        } else {
            format!("{comm:>16} ")
        };
        // A single number is the TID. Readers would take the -1 of an unknown PID for a part of the comm.
        head += &match row.i32("pid") {
            Some(pid) => format!("{pid:>5}/{tid:<5} "),
            None => format!("{tid:>5} "),
        };
        if let Some(cpu) = row.i32("cpu") {
            head += &format!("[{cpu:03}] ");
        }
        if let Some(time) = row.i64("time") {
            // perf prints it as unsigned, too.
            let time = time.cast_unsigned();
            let (seconds, nanoseconds) = (time / 1_000_000_000, time % 1_000_000_000);
            head += &format!("{seconds:>5}.{nanoseconds:09}: ");
        }
        let period = match event.name.as_str() {
            tables::samples::NAME => row.i64("period"),
            // A hit is one event.
            _ => Some(
                row.extra_i64("sample_period", event.fields.len())
                    .unwrap_or(1),
            ),
        };
        if let Some(period) = period {
            head += &format!("{period:>10} ");
        }
        let name = match event.name.as_str() {
            tables::samples::NAME => row.text("event").unwrap_or_default(),
            name => name,
        };
        head += &format!("{:>width$}: ", printable(name), width = self.name_width);
        self.text.extend_from_slice(head.as_bytes());
    }

    /// Formats one line per frame, and an empty line.
    fn chain(&mut self, row: &BatchRow<'_>) {
        self.text.push(b'\n');
        let mut places = Vec::new();
        for stack in ["kernel_stack", "user_stack"] {
            self.stacks.places(row.i32(stack), &mut places);
            for place in places.iter().filter(|place| !place.is_inlined) {
                let shown = place.address.or(place.offset).unwrap_or(0);
                let line = format!("\t{shown:>16x} {}\n", symbol(place));
                self.text.extend_from_slice(line.as_bytes());
            }
        }
    }

    /// Formats address and name of the IP.
    fn place(&mut self, row: &BatchRow<'_>, event: &Event) {
        let mut places = Vec::new();
        for stack in ["kernel_stack", "user_stack"] {
            self.stacks.places(row.i32(stack), &mut places);
            let Some(place) = places.iter().find(|place| !place.is_inlined) else {
                continue;
            };
            let mapped = || {
                let (module, offset) = (place.module?, place.offset?);
                self.mappings
                    .address(row.i32("pid")?, row.i64("time"), module, offset)
            };
            // In an event's table, the column `ip` is a field of the event.
            let sampled = match event.name.as_str() {
                tables::samples::NAME => row.u64("ip"),
                _ => None,
            };
            let address = sampled.or(place.address).or_else(mapped).or(place.offset);
            let text = format!(" {:>16x} {}", address.unwrap_or(0), symbol(place));
            self.text.extend_from_slice(text.as_bytes());
            return;
        }
    }
}

/// Formats function and module: `vfs_read+0x1f ([kernel.kallsyms])`, `[unknown] (/w/workload)`.
fn symbol(place: &Place<'_>) -> String {
    let module = printable(place.module.unwrap_or("[unknown]"));
    match (place.function, place.function_offset) {
        (Some(function), Some(offset)) => format!("{}+{offset:#x} ({module})", printable(function)),
        (Some(function), None) => format!("{} ({module})", printable(function)),
        (None, _) => format!("[unknown] ({module})"),
    }
}

/// Replaces control characters.
fn tame(text: &mut [u8], start: usize) {
    for byte in text.iter_mut().skip(start) {
        if byte.is_ascii_control() && !matches!(byte, b'\n' | b'\t') {
            *byte = b'?';
        }
    }
}
