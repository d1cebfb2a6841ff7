//! Text in the layout of `perf script -F comm,pid,tid,cpu,time,event,ip,sym,period,trace --ns --no-inline`.
//!
//! ```text
//!             perf   169/169   [000]     4.720337972:          1 sched:sched_wakeup: comm=migration/0 … ffffffff81114a38 ttwu_do_activate
//! workload   220/220   [001]    50.102807555:    1001001 cpu-clock:
//!         ffffffff81c95a7f __memset
//!                     11b7 work_inner
//! ```
//! tools/perf/builtin-script.c defines widths and spaces. If chains were recorded, perf prints frames of user modules
//! as file offsets, all others as addresses. This exporter does the same, because scripts expect it.

use std::collections::HashMap;
use std::io::Write;

use anyhow::Result;
use perfquet_events::event::{Field, FieldType, Fields, Space};
use perfquet_events::event_format::declared;
use perfquet_events::event_format::print::{PrintFormat, Record};
use perfquet_trace::reopen::kernel_facts;
use perfquet_trace::store::{ColumnSchema, ColumnType, Directory};
use perfquet_trace::symbols::{Origin, Request, Symbolizer};
use perfquet_trace::tables;

use super::mappings::Mappings;
use super::merged::{BatchRow, MergedRow, MergedRows};
use super::stacks::{Place, Stacks};
use super::{Exporter, Options, printable};

/// `--to perf-script`
pub(super) const EXPORTER: Exporter = Exporter {
    name: "perf-script",
    about: "text output of perf script",
    write,
};

/// The events of a table.
struct Event {
    /// `sched:sched_switch`; empty for `samples`, whose rows have the name.
    name: String,
    fields: Vec<Field>,
    print: Option<PrintFormat>,
    /// perf script shows the recorder's own records (mappings, switches) only on request.
    is_shown: bool,
}

fn write(trace: &Directory, options: &Options, out: &mut dyn Write) -> Result<()> {
    let mut rows = MergedRows::open(trace, options.time)?;
    let tables: Vec<&str> = rows.tables().collect();
    let (events, name_width) = events(trace, &tables, &rows.columns())?;
    let stacks = Stacks::read(trace)?;
    let mut printer = Printer {
        chains: stacks.has_chains(),
        stacks: &stacks,
        mappings: Mappings::read(trace)?,
        names: Names::new(trace, options)?,
        name_width,
        text: Vec::new(),
    };
    while let Some(row) = rows.next()? {
        let event = &events[row.table];
        if !event.is_shown {
            continue;
        }
        let values = row.columns.fields(event.fields.len());
        printer.line(&row, event, Fields::Values(&values));
        out.write_all(&printer.text)?;
    }
    Ok(())
}

/// The events of each table, and the width of the longest name. If an event's fields changed, each form has a
/// declaration and a table.
fn events(
    trace: &Directory,
    tables: &[&str],
    columns: &[Vec<ColumnSchema>],
) -> Result<(Vec<Event>, usize)> {
    let (mut declarations, width) = declarations(trace)?;
    let event = |(table, columns): (&&str, &Vec<ColumnSchema>)| {
        let mut of_table: Vec<&mut Declaration> = declarations
            .iter_mut()
            .filter(|declaration| declaration.folder == **table)
            .collect();
        // Each form has its own declaration; several filters give several equal ones.
        of_table.sort_by_key(|declaration| {
            (
                !has_fields(columns, &declaration.fields),
                declaration.is_used,
            )
        });
        let Some(declaration) = of_table.into_iter().next() else {
            return Event {
                name: table.trim_start_matches("events/").replace('/', ":"),
                fields: Vec::new(),
                print: None,
                is_shown: true,
            };
        };
        declaration.is_used = true;
        let fields = fields(&declaration.fields, columns);
        let print = declaration.print_format.as_deref();
        Event {
            name: declaration.name.clone(),
            print: print.map(|text| PrintFormat::new(text, &fields)),
            fields,
            is_shown: declaration.is_shown,
        }
    };
    Ok((tables.iter().zip(columns).map(event).collect(), width))
}

/// A row of `event_types`.
struct Declaration {
    /// The event's table, by its name in the manifest.
    folder: String,
    /// `sched:sched_switch`
    name: String,
    fields: Vec<String>,
    print_format: Option<String>,
    is_shown: bool,
    is_used: bool,
}

/// The declarations in the trace, and the width of the longest name.
fn declarations(trace: &Directory) -> Result<(Vec<Declaration>, usize)> {
    let mut declarations = Vec::new();
    let mut width = 0;
    for batch in trace.read(tables::event_types::NAME)? {
        let batch = batch?;
        for row in BatchRow::all(&batch) {
            let (Some(table), Some(name)) = (row.text("table_name"), row.text("event")) else {
                continue;
            };
            if table == tables::samples::NAME {
                width = width.max(name.chars().count());
                continue;
            }
            let full = match row.text("system") {
                Some(system) if !system.is_empty() => format!("{system}:{name}"),
                _ => name.to_owned(),
            };
            let is_shown = row.text("kind") != Some("recorder");
            if is_shown {
                width = width.max(full.chars().count());
            }
            declarations.push(Declaration {
                folder: format!("events/{}", table.replacen('.', "/", 1)),
                name: full,
                fields: row.texts("fields"),
                print_format: row.text("print_format").map(str::to_owned),
                is_shown,
                is_used: false,
            });
        }
    }
    Ok((declarations, width))
}

/// The event's fields, from their declarations and their columns.
fn fields(declarations: &[String], columns: &[ColumnSchema]) -> Vec<Field> {
    let columns = columns.iter().skip(tables::common::columns().len());
    declarations
        .iter()
        .zip(columns)
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

/// Whether a form has the columns of these fields: `arg_pid` for `int pid`, followed only by the extras recorded with
/// the event.
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

/// The type of a field with a column of this type. A list keeps 64 bits of each element, whatever its size was.
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

/// Names of kernel addresses inside events, each looked up once.
struct Names {
    symbolizer: Option<Symbolizer>,
    known: HashMap<u64, Option<(String, u64)>>,
}

impl Names {
    fn new(trace: &Directory, options: &Options) -> Result<Names> {
        let facts = &trace.manifest().facts;
        let facts = kernel_facts(facts);
        let symbolizer = Symbolizer::new(options.symbols.clone(), facts, Origin::default());
        if let Err(error) = &symbolizer {
            log::info!("no names for addresses inside events: {error}");
        }
        Ok(Names {
            symbolizer: symbolizer.ok(),
            known: HashMap::new(),
        })
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
    /// The current event.
    text: Vec<u8>,
}

impl Printer<'_> {
    /// Fills `text` with one event.
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
            let names = std::cell::RefCell::new(&mut self.names);
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

    /// The part up to the event's name.
    fn head(&mut self, row: &BatchRow<'_>, event: &Event) {
        let (pid, tid) = (row.i32("pid").unwrap_or(-1), row.i32("tid").unwrap_or(-1));
        let comm = row
            .text("comm")
            .map_or_else(|| format!(":{tid}"), printable);
        let mut head = if self.chains {
            format!("{comm} ")
        } else {
            format!("{comm:>16} ")
        };
        head += &format!("{pid:>5}/{tid:<5} ");
        if let Some(cpu) = row.i32("cpu") {
            head += &format!("[{cpu:03}] ");
        }
        if let Some(time) = row.i64("time") {
            // Unsigned, as in perf.
            let time = time.cast_unsigned();
            let (seconds, nanoseconds) = (time / 1_000_000_000, time % 1_000_000_000);
            head += &format!("{seconds:>5}.{nanoseconds:09}: ");
        }
        let period = match event.name.as_str() {
            tables::samples::NAME => row.i64("period"),
            _ => row.extra_i64("sample_period", event.fields.len()),
        };
        head += &format!("{:>10} ", period.unwrap_or(1));
        let name = match event.name.as_str() {
            tables::samples::NAME => row.text("event").unwrap_or_default(),
            name => name,
        };
        head += &format!("{:>width$}: ", printable(name), width = self.name_width);
        self.text.extend_from_slice(head.as_bytes());
    }

    /// One line per frame, and an empty line.
    fn chain(&mut self, row: &BatchRow<'_>) {
        self.text.push(b'\n');
        let mut places = Vec::new();
        for stack in ["kernel_stack", "user_stack"] {
            self.stacks.places(row.i32(stack), &mut places);
            for place in places.iter().filter(|place| !place.is_inlined) {
                let shown = place.address.or(place.offset).unwrap_or(0);
                let line = format!("\t{shown:>16x} {}\n", name(place));
                self.text.extend_from_slice(line.as_bytes());
            }
        }
    }

    /// Address and name of the IP.
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
            let text = format!(" {:>16x} {}", address.unwrap_or(0), name(place));
            self.text.extend_from_slice(text.as_bytes());
            return;
        }
    }
}

fn name(place: &Place<'_>) -> String {
    place
        .function
        .map_or_else(|| "[unknown]".to_owned(), printable)
}

/// Replaces control characters.
fn tame(text: &mut [u8], start: usize) {
    for byte in text.iter_mut().skip(start) {
        if byte.is_ascii_control() && !matches!(byte, b'\n' | b'\t') {
            *byte = b'?';
        }
    }
}
