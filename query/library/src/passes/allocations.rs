//! `pass_allocations()`: memory from its allocation to its release.
//!
//! ```text
//! calls: malloc (args bytes=64, retval 0x5500)  …  free (args ptr=0x5500)      a program's, by process and address
//!                                               …  probe_libc:free ptr=0x5500  a probe without a return is no call
//! kmem:kmalloc ptr=… bytes_req=…                …  kmem:kfree ptr=…            the kernel's
//! ```
//! An allocation within another, such as malloc within `operator new`, is the same block. What is not recorded is reported: an
//! allocation without a recorded release looks like a leak.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field};
use datafusion::error::Result;
use datafusion::logical_expr::lit;
use hashbrown::HashMap;
use perfquet_trace::count::counted;

use super::Function;
use super::names::{Name, Names};
use super::pass::{Machine, Pass, PassPlan, Tables};
use super::rows::{Rows, emitted};
use super::selection::Selection;
use super::source::{Input, Row, Source, column};

pub(super) const FUNCTION: Function = Function {
    name: "pass_allocations",
    create: |arguments| match arguments {
        [] => Some(Arc::new(Allocations)),
        _ => None,
    },
};

#[derive(Debug)]
struct Allocations;

emitted! {
    TIME "time" Int64,
    CPU "cpu" Int32,
    PID "pid" Int32,
    TID "tid" Int32,
    COMM "comm" Text,
    KIND "kind" Text,
    FUNCTION_NAME "function" Text,
    BYTES "bytes" Int64,
    ALLOCATED "allocated" Int64,
    ADDRESS "address" Address,
    FREED_AT "freed_at" Int64,
    LIFETIME "lifetime" Int64,
    KERNEL_STACK "kernel_stack" Stack,
    USER_STACK "user_stack" Stack,
}

/// Scope in which addresses are unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Space {
    Kernel,
    /// Pages, by number.
    Pages,
    Process(i32),
}

/// Effect of an event on memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Feed {
    /// Kind and function.
    Allocates(&'static str, &'static str),
    Frees(Space),
    /// A probe at the start of a function that releases its argument.
    Probe,
    Calls,
}

/// Every event; then the probes, then calls.
const FEEDS: [(&str, Feed); 9] = [
    ("kmem:kfree", Feed::Frees(Space::Kernel)),
    ("kmem:kmem_cache_free", Feed::Frees(Space::Kernel)),
    ("kmem:mm_page_free", Feed::Frees(Space::Pages)),
    ("kmem:mm_page_free_direct", Feed::Frees(Space::Pages)),
    ("kmem:kmalloc", Feed::Allocates("kmalloc", "kmalloc")),
    (
        "kmem:kmalloc_node",
        Feed::Allocates("kmalloc", "kmalloc_node"),
    ),
    (
        "kmem:kmem_cache_alloc",
        Feed::Allocates("slab", "kmem_cache_alloc"),
    ),
    (
        "kmem:kmem_cache_alloc_node",
        Feed::Allocates("slab", "kmem_cache_alloc_node"),
    ),
    (
        "kmem:mm_page_alloc",
        Feed::Allocates("pages", "mm_page_alloc"),
    ),
];

/// Functions of programs whose result is new memory.
const ALLOCATE: [&str; 10] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "memalign",
    "aligned_alloc",
    "valloc",
    "pvalloc",
    "__libc_memalign",
    GLIBCS_OWN,
];
/// What posix_memalign of glibc calls; it has a name where debug symbols of the library are installed.
const GLIBCS_OWN: &str = "_int_memalign";
/// The function that returns new memory in an argument, which no return probe can read.
const ALLOCATE_IN_ARGUMENT: &str = "posix_memalign";
const FREE: [&str; 2] = ["free", "cfree"];

const PAGE_BYTES: i64 = 4096;

impl Pass for Allocations {
    fn name(&self) -> &'static str {
        FUNCTION.name
    }

    fn columns(&self, id: &DataType) -> Vec<Field> {
        fields(id)
    }

    fn plan(&self, _: &Selection, tables: &Tables<'_>) -> PassPlan {
        let mut sources: Vec<Source> = FEEDS
            .iter()
            .map(|(event, _)| {
                let columns = vec![
                    Input::integer(&["cpu"]),
                    Input::integer(&["pid"]),
                    Input::integer(&["tid"]),
                    Input::text(&["comm"]),
                    Input::integer(&["kernel_stack"]),
                    Input::integer(&["user_stack"]),
                    Input::integer(&["ptr", "pfn"]),
                    Input::integer(&["bytes_req"]),
                    Input::integer(&["bytes_alloc"]),
                    Input::integer(&["order"]),
                ];
                Source::event(event, columns)
            })
            .collect();
        let probes = probes(tables);
        sources.extend(probes.iter().map(|(event, column)| {
            let columns = vec![
                Input::integer(&["cpu"]),
                Input::integer(&["pid"]),
                Input::integer(&["tid"]),
                Input::integer(&[column]),
            ];
            Source::event(event, columns)
        }));
        let names = ALLOCATE
            .iter()
            .chain(&FREE)
            .chain(&[ALLOCATE_IN_ARGUMENT])
            .map(|&name| lit(name))
            .collect();
        let function = || column("function");
        let is_one = function()
            .in_list(names, false)
            .or(function().like(lit("operator new%")))
            .or(function().like(lit("operator delete%")));
        let calls = vec![
            Input::integer(&["cpu"]),
            Input::integer(&["pid"]),
            Input::integer(&["tid"]),
            Input::text(&["comm"]),
            Input::integer(&["kernel_stack"]),
            Input::integer(&["user_stack"]),
            Input::text(&["function"]),
            Input::integer(&["retval"]),
            Input::texts(&["args"]),
            Input::integer(&["duration"]),
        ];
        sources.push(Source::fixed("calls", "time", calls).with_condition(is_one));
        let count = probes.len();
        PassPlan::new(sources, move || Memory {
            probes: count,
            ..Memory::default()
        })
    }
}

/// The probes at the start of functions that release memory, as `system:event`, and the column with the address.
fn probes(tables: &Tables<'_>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut systems = tables.catalog.schema_names();
    systems.retain(|system| system.contains("probe"));
    systems.sort();
    for system in systems {
        for event in tables.events_of(&system) {
            if !is_release(event.trim_start_matches("p_")) {
                continue;
            }
            let name = format!("{system}:{event}");
            let Some(fields) = tables.fields(&name) else {
                continue;
            };
            let is_own = |field: &str| !COMMON.contains(&field) && !field.starts_with("__probe_");
            let is_entry = fields.field_with_name("__probe_func").is_err();
            let own = fields
                .fields()
                .iter()
                .find(|field| is_own(field.name()) && field.data_type().is_integer());
            if let (true, Some(own)) = (is_entry, own) {
                found.push((name, own.name().clone()));
            }
        }
    }
    found
}

/// Columns that every table of an event may have.
const COMMON: [&str; 9] = [
    "time",
    "cpu",
    "pid",
    "tid",
    "comm",
    "kernel_stack",
    "user_stack",
    "preempt_count",
    "trace",
];

fn is_release(function: &str) -> bool {
    FREE.contains(&function) || function.starts_with("operator delete")
}

/// Allocated memory.
#[derive(Debug, Clone, Copy)]
struct Block {
    time: i64,
    cpu: Option<i32>,
    pid: Option<i32>,
    tid: Option<i32>,
    comm: Name,
    kind: &'static str,
    function: Name,
    bytes: Option<i64>,
    allocated: Option<i64>,
    kernel_stack: Option<i64>,
    user_stack: Option<i64>,
    /// End of the call that allocated it.
    until: Option<i64>,
}

/// What was recorded of programs and of the kernel, for messages.
#[derive(Debug, Default)]
struct Seen {
    allocations: u64,
    without_bytes: u64,
    releases: u64,
    in_argument: u64,
}

#[derive(Default)]
struct Memory {
    /// Number of probes among the sources.
    probes: usize,
    programs: Seen,
    kernel: Seen,
    has_glibcs_own: bool,
    blocks: HashMap<(Space, i64), Block>,
    names: Names,
    comm: Name,
    function: Name,
    at_end: Option<std::vec::IntoIter<(i64, Block)>>,
}

impl Memory {
    fn block(&mut self, row: Row<'_>, kind: &'static str, function: &str) -> Block {
        self.comm = self.names.of(row.text(3), self.comm);
        self.function = self.names.of(Some(function), self.function);
        Block {
            time: row.time,
            cpu: row.id(0),
            pid: row.id(1),
            tid: row.id(2),
            comm: self.comm,
            kind,
            function: self.function,
            bytes: None,
            allocated: None,
            kernel_stack: row.integer(4),
            user_stack: row.integer(5),
            until: None,
        }
    }

    fn allocate(&mut self, space: Space, address: i64, block: Block, rows: &mut Rows) {
        // The allocation failed.
        if address == 0 {
            return;
        }
        let around = self.blocks.get(&(space, address));
        if around.is_some_and(|around| around.tid == block.tid && around.until >= Some(block.time))
        {
            return;
        }
        let seen = self.seen(space);
        seen.allocations += 1;
        seen.without_bytes += u64::from(block.bytes.is_none());
        if let Some(before) = self.blocks.insert((space, address), block) {
            // The release of the earlier allocation at this address was not recorded.
            self.emit(address, &before, None, rows);
        }
    }

    fn seen(&mut self, space: Space) -> &mut Seen {
        match space {
            Space::Process(_) => &mut self.programs,
            Space::Kernel | Space::Pages => &mut self.kernel,
        }
    }

    fn free(&mut self, space: Space, address: i64, time: i64, rows: &mut Rows) {
        self.seen(space).releases += 1;
        if let Some(block) = self.blocks.remove(&(space, address)) {
            self.emit(address, &block, Some(time), rows);
        }
    }

    fn emit(&self, address: i64, block: &Block, freed_at: Option<i64>, rows: &mut Rows) {
        rows.integer(TIME, Some(block.time));
        rows.id(CPU, block.cpu);
        rows.id(PID, block.pid);
        rows.id(TID, block.tid);
        rows.text(COMM, self.names.text(block.comm));
        rows.text(KIND, Some(block.kind));
        rows.text(FUNCTION_NAME, self.names.text(block.function));
        rows.integer(BYTES, block.bytes);
        rows.integer(ALLOCATED, block.allocated);
        rows.integer(ADDRESS, Some(address));
        rows.integer(FREED_AT, freed_at);
        rows.integer(LIFETIME, freed_at.map(|time| time - block.time));
        rows.integer(KERNEL_STACK, block.kernel_stack);
        rows.integer(USER_STACK, block.user_stack);
        rows.end_row();
    }

    fn call(&mut self, row: Row<'_>, rows: &mut Rows) {
        let Some(function) = row.text(6) else {
            return;
        };
        let space = Space::Process(row.id(1).or(row.id(2)).unwrap_or_default());
        let arguments = row.list(8);
        let argument = |place: usize| arguments.as_ref().and_then(|list| number(list, place));
        let is_freed = is_release(function);
        self.has_glibcs_own |= function == GLIBCS_OWN;
        let address = row.integer(7);
        // A realloc that fails leaves the block as it is; one to 0 bytes frees it.
        let is_realloc = ["realloc", "reallocarray"].contains(&function);
        let is_failed = is_realloc && address == Some(0) && argument(1) != Some(0);
        if function == ALLOCATE_IN_ARGUMENT {
            self.programs.in_argument += u64::from(address.is_none_or(|status| status == 0));
            return;
        }
        if is_freed || is_realloc && !is_failed {
            if let Some(address) = argument(0) {
                self.free(space, address, row.time, rows);
            }
            if is_freed {
                return;
            }
        }
        let Some(address) = address.filter(|&address| address != 0) else {
            return;
        };
        let bytes = match function {
            "calloc" => argument(0)
                .zip(argument(1))
                .and_then(|(count, size)| count.checked_mul(size)),
            "reallocarray" => argument(1)
                .zip(argument(2))
                .and_then(|(count, size)| count.checked_mul(size)),
            "realloc" | "memalign" | "aligned_alloc" | "__libc_memalign" => argument(1),
            GLIBCS_OWN => argument(2),
            _ => argument(0),
        };
        let block = self.block(row, "malloc", function);
        let until = row
            .integer(9)
            .and_then(|duration| row.time.checked_add(duration));
        let block = Block {
            bytes,
            until,
            ..block
        };
        self.allocate(space, address, block, rows);
    }
}

impl Memory {
    /// Prints what was not recorded, with the command that records it.
    fn report_what_is_missing(&self) {
        let (programs, kernel) = (&self.programs, &self.kernel);
        if programs.allocations > 0 && programs.releases == 0 {
            log::warn!(
                "allocations: no release of memory was recorded, so all blocks look like leaks; record: --call 'libc.so.6:malloc bytes=$arg1:u64 $retval' --call 'libc.so.6:free ptr=$arg1:x64'"
            );
        } else if programs.without_bytes > 0 {
            log::warn!(
                "allocations: the size of {} was not recorded; record: --call 'libc.so.6:malloc bytes=$arg1:u64 $retval' --call 'libc.so.6:free ptr=$arg1:x64'",
                counted(programs.without_bytes, "block")
            );
        }
        if programs.in_argument > 0 && !self.has_glibcs_own {
            log::warn!(
                "allocations: {} of posix_memalign not listed, since an argument has the address; with debug symbols of libc, record also: --call 'libc.so.6:_int_memalign arena=$arg1:x64 alignment=$arg2:u64 bytes=$arg3:u64 $retval'",
                counted(programs.in_argument, "block")
            );
        }
        if kernel.allocations > 0 && kernel.releases == 0 {
            log::warn!(
                "allocations: no release of the kernel's memory was recorded, so all blocks look like leaks; record: -e 'kmem:kmalloc,kmem:kfree,kmem:kmem_cache_alloc,kmem:kmem_cache_free,kmem:mm_page_alloc,kmem:mm_page_free'"
            );
        }
    }
}

/// The value of an argument `name=value`.
fn number(list: &ArrayRef, place: usize) -> Option<i64> {
    let texts = list.as_string_view_opt()?;
    let text = (place < texts.len() && texts.is_valid(place)).then(|| texts.value(place))?;
    let value = text.split_once('=').map_or(text, |(_, value)| value).trim();
    match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok().map(u64::cast_signed),
        None => value.parse().ok(),
    }
}

impl Machine for Memory {
    fn row(&mut self, source: usize, row: Row<'_>, rows: &mut Rows) -> Result<()> {
        let other = match source < FEEDS.len() + self.probes {
            true => Feed::Probe,
            false => Feed::Calls,
        };
        match FEEDS.get(source).map_or(other, |(_, feed)| *feed) {
            Feed::Frees(space) => {
                if let Some(address) = row.integer(6) {
                    let address = match space {
                        Space::Pages => address.wrapping_mul(PAGE_BYTES),
                        _ => address,
                    };
                    self.free(space, address, row.time, rows);
                }
            }
            Feed::Allocates(kind, function) => {
                let Some(address) = row.integer(6) else {
                    return Ok(());
                };
                let block = self.block(row, kind, function);
                if kind == "pages" {
                    let order = row.integer(9).filter(|order| (0..32).contains(order));
                    let bytes = order.map(|order| PAGE_BYTES << order);
                    let block = Block {
                        bytes,
                        allocated: bytes,
                        ..block
                    };
                    self.allocate(Space::Pages, address.wrapping_mul(PAGE_BYTES), block, rows);
                } else {
                    let block = Block {
                        bytes: row.integer(7),
                        allocated: row.integer(8),
                        ..block
                    };
                    self.allocate(Space::Kernel, address, block, rows);
                }
            }
            Feed::Probe => {
                let space = Space::Process(row.id(1).or(row.id(2)).unwrap_or_default());
                if let Some(address) = row.integer(3) {
                    self.free(space, address, row.time, rows);
                }
            }
            Feed::Calls => self.call(row, rows),
        }
        Ok(())
    }

    fn end(&mut self, rows: &mut Rows) -> Result<bool> {
        let mut left = match self.at_end.take() {
            Some(left) => left,
            None => {
                self.report_what_is_missing();
                let left = self
                    .blocks
                    .drain()
                    .map(|((_, address), block)| (address, block));
                let mut left: Vec<(i64, Block)> = left.collect();
                left.sort_unstable_by_key(|(address, block)| (block.time, *address));
                left.into_iter()
            }
        };
        for (address, block) in left.by_ref() {
            self.emit(address, &block, None, rows);
            if rows.is_full() {
                break;
            }
        }
        let has_more = left.len() > 0;
        self.at_end = Some(left);
        Ok(has_more)
    }

    fn bytes(&self) -> usize {
        let at_end = self.at_end.as_ref().map_or(0, ExactSizeIterator::len);
        (self.blocks.capacity() + at_end) * size_of::<((Space, i64), Block)>() + self.names.bytes()
    }
}
