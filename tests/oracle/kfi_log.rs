//! KFT logs generated here, their calls, and kd's output for these calls.
//!
//! No current kernel writes these logs, so a host is simulated: threads call functions, interrupts occur, some exits
//! are missed. The log is printed in the layout of `kernel/kft.c`, with addresses, and in that of `addr2sym`, with
//! names. kd's sums follow the rules of `scripts/kd` 1.1, over the simulated calls, not over the parsed ones.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// One call.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) entry: i64,
    /// Microseconds; -1 if the exit was not seen.
    pub(crate) delta: i64,
    /// "19", "-1" in an interrupt, "19.2" with the CPU.
    pub(crate) pid: String,
    pub(crate) function: &'static str,
    /// `None` for user space.
    pub(crate) caller: Option<&'static str>,
}

/// Functions with their addresses; the interrupt's come last.
const FUNCTIONS: &[(&str, u64)] = &[
    ("sys_open", 0xc000_a000),
    ("sys_read", 0xc000_a200),
    ("sys_write", 0xc000_a480),
    ("vfs_read", 0xc000_a700),
    ("vfs_write", 0xc000_a900),
    ("do_sync_read", 0xc000_b000),
    ("getname", 0xc000_b100),
    ("kmem_cache_alloc", 0xc000_b200),
    ("schedule", 0xc000_b400),
    ("do_page_fault", 0xc000_b800),
    ("__alloc_pages", 0xc000_ba00),
    ("copy_user_page", 0xc000_bc00),
    ("generic_file_read", 0xc000_bd00),
    ("might_sleep", 0xc000_bf00),
    ("do_lookup", 0xc000_c000),
    ("printk", 0xc000_c200),
];
const INTERRUPT: &[&str] = &[
    "timer_interrupt",
    "do_timer",
    "update_process_times",
    "scheduler_tick",
];
const USER: u64 = 0x1000_8094;

/// A simulated host.
pub(crate) struct Machine {
    random: u64,
    now: i64,
    has_cpus: bool,
    pub(crate) rows: Vec<Row>,
}

impl Machine {
    /// Simulates `calls` system calls of three threads.
    pub(crate) fn play(seed: u64, calls: usize, has_cpus: bool) -> Machine {
        let mut machine = Machine {
            random: seed,
            now: 0,
            has_cpus,
            rows: Vec::new(),
        };
        for _ in 0..calls {
            let thread = [19, 41, 77][machine.below(3)];
            let function = FUNCTIONS[machine.below(3)].0;
            machine.call(thread, function, None, 0);
            machine.now += 1 + machine.below(20) as i64;
        }
        machine
    }

    fn below(&mut self, bound: usize) -> usize {
        // xorshift64*
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as usize % bound
    }

    fn call(
        &mut self,
        thread: i32,
        function: &'static str,
        caller: Option<&'static str>,
        depth: u32,
    ) {
        let row = self.enter(thread, function, caller);
        if depth < 6 {
            for _ in 0..self.below(4) {
                let callee = FUNCTIONS[3 + self.below(FUNCTIONS.len() - 3)].0;
                self.call(thread, callee, Some(function), depth + 1);
            }
        }
        if self.below(25) == 0 {
            self.interrupt(function);
        }
        self.now += 1 + self.below(30) as i64;
        if caller.is_some() && self.below(40) == 0 {
            // The kernel records the CPU at the exit.
            self.rows[row].pid = pid(thread, self.has_cpus.then_some(0));
        } else {
            self.rows[row].delta = self.now - self.rows[row].entry;
        }
    }

    fn interrupt(&mut self, interrupted: &'static str) {
        let first = self.rows.len();
        let mut caller = interrupted;
        for function in INTERRUPT {
            self.enter(-1, function, Some(caller));
            caller = function;
        }
        for row in (first..self.rows.len()).rev() {
            self.now += 2;
            self.rows[row].delta = self.now - self.rows[row].entry;
        }
    }

    fn enter(
        &mut self,
        thread: i32,
        function: &'static str,
        caller: Option<&'static str>,
    ) -> usize {
        self.now += 1 + self.below(5) as i64;
        let cpu = self.has_cpus.then(|| self.below(4));
        self.rows.push(Row {
            entry: self.now,
            delta: -1,
            pid: pid(thread, cpu),
            function,
            caller,
        });
        self.rows.len() - 1
    }

    /// The log with names, and the log with addresses.
    pub(crate) fn logs(&self) -> (String, String) {
        let head = |first: &str| {
            format!(
                "\nKernel Instrumentation Run ID 1\n\nLogging started at 5000123 usec by entry to function {first}\n\
                 Logging stopped at 5075657 usec by user action\n\nFilter Counters:\nTotal entries filtered = 0\n\
                 Entries not found = 0\n\nNumber of entries after filters = {}\n\n\n \
                 Entry    Delta     PID        Function                        Caller\n\
                 -------- -------- -------- ----------------                 ------------\n",
                self.rows.len()
            )
        };
        let first = self.rows[0].function;
        let mut names = head(first);
        let mut addresses = head(&format!("{:#x}", address_of(first)));
        for row in &self.rows {
            let line = |text: &mut String, function: &str, caller: &str| {
                let (entry, delta, pid) = (row.entry, row.delta, &row.pid);
                let _ = writeln!(text, "{entry:8} {delta:8} {pid:>9} {function:<32} {caller}");
            };
            let caller = match row.caller {
                Some(caller) => format!("{caller}+{:#x}", row.entry % 60 * 4 + 4),
                None => format!("{USER:#x}"),
            };
            line(&mut names, row.function, &caller);
            let caller = match row.caller {
                Some(caller) => {
                    format!("{:#x}", address_of(caller) + row.entry as u64 % 60 * 4 + 4)
                }
                None => format!("{USER:#x}"),
            };
            line(
                &mut addresses,
                &format!("{:#x}", address_of(row.function)),
                &caller,
            );
        }
        (names, addresses)
    }
}

fn pid(thread: i32, cpu: Option<usize>) -> String {
    cpu.map_or_else(|| thread.to_string(), |cpu| format!("{thread}.{cpu}"))
}

fn address_of(function: &str) -> u64 {
    let known = FUNCTIONS.iter().find(|(name, _)| *name == function);
    let of_interrupt = || {
        INTERRUPT
            .iter()
            .position(|name| *name == function)
            .expect("a function")
    };
    known.map_or_else(
        || 0xc001_0000 + of_interrupt() as u64 * 0x100,
        |known| known.1,
    )
}

/// The symbols, in the layout of `System.map`.
pub(crate) fn system_map() -> String {
    let all = FUNCTIONS
        .iter()
        .map(|(name, _)| *name)
        .chain(INTERRUPT.iter().copied());
    let mut symbols: Vec<(u64, &str)> = all.map(|name| (address_of(name), name)).collect();
    symbols.sort_unstable();
    symbols.push((0xc002_0000, "_etext"));
    symbols
        .iter()
        .map(|(address, name)| format!("{address:08x} T {name}\n"))
        .collect()
}

/// kd's sums of a function.
#[derive(Debug, Default)]
struct Sums {
    count: i64,
    time: i64,
    sub_time: i64,
    /// Callees in the order of their first call, with the number of calls.
    callees: Vec<(&'static str, i64)>,
}

/// The words of kd's table `-f Fctalsmn -n 15`, sorted by `order` (t, l or c), ties by name.
pub(crate) fn table(rows: &[Row], order: char) -> Vec<Vec<String>> {
    let mut sums: BTreeMap<&'static str, Sums> = BTreeMap::new();
    for row in rows {
        let of = sums.entry(row.function).or_default();
        of.count += 1;
        of.time += row.delta;
        let Some(of) = row.caller.and_then(|caller| sums.get_mut(caller)) else {
            continue;
        };
        if row.delta != -1 {
            of.sub_time += row.delta;
        }
        match of
            .callees
            .iter_mut()
            .find(|(name, _)| *name == row.function)
        {
            Some((_, count)) => *count += 1,
            None => of.callees.push((row.function, 1)),
        }
    }
    let local = |sums: &Sums| {
        if sums.time == -1 {
            -1
        } else {
            sums.time - sums.sub_time
        }
    };
    let mut sorted: Vec<(&&str, &Sums)> = sums.iter().collect();
    sorted.sort_by_key(|(_, sums)| match order {
        't' => -sums.time,
        'l' => -local(sums),
        _ => -sums.count,
    });
    let lines = sorted.iter().take(15).map(|(name, of)| {
        let average = if of.time == -1 {
            -1
        } else {
            of.time.div_euclid(of.count)
        };
        let numbers = [of.count, of.time, average, local(of), of.sub_time];
        let mut words = vec![(**name).to_owned()];
        words.extend(numbers.map(|number| number.to_string()));
        // The first of the largest: kd replaces it only by a larger one.
        let mut largest: Option<(&str, i64)> = None;
        for (callee, count) in &of.callees {
            if largest.is_none_or(|(known, _)| sums[callee].time > sums[known].time) {
                largest = Some((callee, *count));
            }
        }
        words.extend(largest.map(|(callee, _)| callee.to_owned()));
        words.push(largest.map_or(0, |(_, count)| count).to_string());
        words
    });
    lines.collect()
}

/// A call in kd's tree.
struct Node {
    row: usize,
    local: i64,
    children: Vec<usize>,
    level: usize,
    root: usize,
}

const MARKS: [char; 18] = [
    '|', '!', '@', '[', '#', ';', '(', '$', '/', '{', '%', ']', '*', ')', '&', ':', '\\', '}',
];
/// kd's duration of a call whose exit was not seen.
const UNENDING: i64 = 9_999_999;

/// kd's tree `-c -l`, with `-i` interlaced.
pub(crate) fn tree(rows: &[Row], is_interlaced: bool) -> String {
    let mut nodes: Vec<Node> = Vec::new();
    let mut roots: Vec<usize> = Vec::new();
    let mut active: Vec<usize> = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let end = |row: &Row| row.entry + if row.delta == -1 { UNENDING } else { row.delta };
        active.retain(|&other| (rows[other].entry..=end(&rows[other])).contains(&row.entry));
        let is_caller = |other: &&usize| Some(rows[**other].function) == row.caller;
        let parent = active.iter().rev().find(is_caller).copied();
        let (level, root) = match parent {
            Some(parent) => (nodes[parent].level + 1, nodes[parent].root),
            None => {
                roots.push(index);
                (0, roots.len() - 1)
            }
        };
        if let Some(parent) = parent {
            nodes[parent].children.push(index);
            nodes[parent].local = (nodes[parent].local - row.delta).max(0);
        }
        nodes.push(Node {
            row: index,
            local: row.delta,
            children: Vec::new(),
            level,
            root,
        });
        active.push(index);
    }
    let mut printer = Printer {
        rows,
        nodes: &nodes,
        roots: &roots,
        next_root: 0,
        is_interlaced,
        text: " Entry      Duration   Local       Pid    Trace \n\
               ---------- ---------- ---------- ------- ---------------------------------\n"
            .to_owned(),
    };
    while let Some(&root) = roots.get(printer.next_root) {
        printer.next_root += 1;
        printer.node(root);
    }
    printer.text
}

struct Printer<'a> {
    rows: &'a [Row],
    nodes: &'a [Node],
    roots: &'a [usize],
    next_root: usize,
    is_interlaced: bool,
    text: String,
}

impl Printer<'_> {
    fn node(&mut self, index: usize) {
        let node = &self.nodes[index];
        let row = &self.rows[node.row];
        // Calls that began before this one are printed before it.
        while self.is_interlaced
            && let Some(&root) = self.roots.get(self.next_root)
            && self.rows[root].entry < row.entry
        {
            self.next_root += 1;
            let mark = self.mark(self.nodes[root].root).to_string().repeat(4);
            let _ = writeln!(self.text, "----------- {mark} start --------------");
            self.node(root);
            let _ = writeln!(self.text, "----------- {mark} end ----------------");
        }
        let indent = format!("{}  ", self.mark(node.root)).repeat(node.level);
        let (entry, delta, local, pid) = (row.entry, row.delta, node.local, &row.pid);
        let function = row.function;
        let _ = writeln!(
            self.text,
            "{entry:>10} {delta:>10} {local:>10} {pid:>7} {indent}{function}"
        );
        for &child in &node.children {
            self.node(child);
        }
    }

    fn mark(&self, root: usize) -> char {
        if self.is_interlaced {
            MARKS[root % MARKS.len()]
        } else {
            '|'
        }
    }
}
