//! The call tree of `kd -c`.
//!
//! ```text
//!  Entry      Duration   Local       Pid    Trace
//! ---------- ---------- ---------- ------- ---------------------------------
//!         26       8415         16    77.3 do_fork
//!         33       6580         15    77.3 |  vfs_caches_init
//! ```
//! The parent of a line is the latest preceding active line of any thread with the name of its caller.

use std::collections::VecDeque;
use std::io::Write;

use anyhow::Result;

use super::kd_log::Log;
use crate::text::harmless;

/// Columns of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TreeStyle {
    pub(super) entry: bool,
    pub(super) duration: bool,
    pub(super) local: bool,
    pub(super) pid: bool,
    pub(super) interlaced: bool,
    pub(super) depth: usize,
    pub(super) length: usize,
}

/// kd's duration in microseconds of a call without an exit.
const FOREVER: i64 = 9_999_999;
/// The marks of threads, in the order of their assignment.
const MARKS: [char; 18] = [
    '|', '!', '@', '[', '#', ';', '(', '$', '/', '{', '%', ']', '*', ')', '&', ':', '\\', '}',
];

/// A line in the tree.
#[derive(Debug, Clone, Default)]
struct Node {
    parent: Option<usize>,
    children: Vec<usize>,
    local: i64,
    depth: usize,
    mark: Option<char>,
}

struct Tree<'a> {
    log: &'a Log,
    style: TreeStyle,
    nodes: Vec<Node>,
    /// Lines that may still have callees.
    active: Vec<usize>,
    roots: VecDeque<usize>,
    next_mark: usize,
}

/// Pending work.
enum Step {
    Show(usize),
    End(char),
}

/// Prints the whole tree.
pub(super) fn write(log: &Log, style: TreeStyle, out: &mut dyn Write) -> Result<()> {
    let mut tree = Tree::new(log, style);
    write_titles(style, out)?;
    (0..log.rows.len()).for_each(|row| tree.place(row));
    while let Some(root) = tree.roots.pop_front() {
        tree.show(root, out)?;
    }
    Ok(())
}

/// Prints every line in log order, before its callees are known.
pub(super) fn write_as_read(log: &Log, style: TreeStyle, out: &mut dyn Write) -> Result<()> {
    let mut tree = Tree::new(log, style);
    write_titles(style, out)?;
    for row in 0..log.rows.len() {
        tree.place(row);
        tree.write_line(row, out)?;
    }
    Ok(())
}

impl<'a> Tree<'a> {
    fn new(log: &'a Log, style: TreeStyle) -> Tree<'a> {
        Tree {
            log,
            style,
            nodes: vec![Node::default(); log.rows.len()],
            active: Vec::new(),
            roots: VecDeque::new(),
            next_mark: 0,
        }
    }

    /// Finds the parent of the next line.
    fn place(&mut self, row: usize) {
        let rows = &self.log.rows;
        let entry = rows[row].entry;
        // Both ends are inclusive.
        self.active.retain(|&active| {
            let active = &rows[active];
            let length = if active.duration == -1 {
                FOREVER
            } else {
                active.duration
            };
            active.entry <= entry && entry <= active.entry.saturating_add(length)
        });
        let is_caller = |active: &&usize| Some(rows[**active].function) == rows[row].caller;
        let parent = self.active.iter().rev().find(is_caller).copied();
        self.nodes[row].local = rows[row].duration;
        match parent {
            Some(parent) => {
                // A call without an exit adds 1.
                let around = &mut self.nodes[parent];
                around.local = (around.local - rows[row].duration).max(0);
                around.children.push(row);
                let depth = around.depth + 1;
                self.nodes[row].depth = depth;
                self.nodes[row].parent = Some(parent);
            }
            None => self.roots.push_back(row),
        }
        self.active.push(row);
    }

    /// Prints a line and its subtree; if interlaced, first prints the threads that begin before each line.
    fn show(&mut self, root: usize, out: &mut dyn Write) -> Result<()> {
        let mut steps = vec![Step::Show(root)];
        while let Some(step) = steps.pop() {
            let row = match step {
                Step::Show(row) => row,
                Step::End(mark) => {
                    writeln!(out, "----------- {} end ----------------", four(mark))?;
                    continue;
                }
            };
            let entry = self.log.rows[row].entry;
            let first = self.roots.front().copied();
            let earlier =
                first.filter(|&root| self.style.interlaced && self.log.rows[root].entry < entry);
            if let Some(root) = earlier {
                self.roots.pop_front();
                let mark = self.mark(root);
                writeln!(out, "----------- {} start --------------", four(mark))?;
                steps.extend([Step::Show(row), Step::End(mark), Step::Show(root)]);
                continue;
            }
            self.write_line(row, out)?;
            let children = self.nodes[row].children.iter().rev();
            steps.extend(children.map(|&child| Step::Show(child)));
        }
        Ok(())
    }

    /// The mark of a line's thread.
    fn mark(&mut self, row: usize) -> char {
        if let Some(mark) = self.nodes[row].mark {
            return mark;
        }
        let mark = match self.nodes[row].parent {
            _ if !self.style.interlaced => MARKS[0],
            // A parent is printed first.
            Some(parent) => self.nodes[parent].mark.unwrap_or(MARKS[0]),
            None => {
                let mark = MARKS[self.next_mark];
                self.next_mark = (self.next_mark + 1) % MARKS.len();
                mark
            }
        };
        self.nodes[row].mark = Some(mark);
        mark
    }

    fn write_line(&mut self, row: usize, out: &mut dyn Write) -> Result<()> {
        let mark = self.mark(row);
        let (style, node, line) = (self.style, &self.nodes[row], &self.log.rows[row]);
        let mut text = String::new();
        for (is_shown, number) in [
            (style.entry, line.entry),
            (style.duration, line.duration),
            (style.local, node.local),
        ] {
            if is_shown {
                text.push_str(&format!("{number:>10} "));
            }
        }
        if style.pid {
            text.push_str(&format!("{:>7} ", line.pid));
        }
        for _ in 0..node.depth {
            text.push(mark);
            text.push_str("  ");
        }
        let name = harmless(&self.log.names[line.function as usize]);
        text.push_str(&name);
        if !line.args.is_empty() {
            let depth = style.depth.saturating_sub(node.depth) * 3;
            let length = style.length.saturating_sub(name.chars().count());
            text.extend(std::iter::repeat_n(' ', depth + length));
            text.push_str(&harmless(&line.args));
        }
        writeln!(out, "{text}")?;
        Ok(())
    }
}

fn four(mark: char) -> String {
    std::iter::repeat_n(mark, 4).collect()
}

fn write_titles(style: TreeStyle, out: &mut dyn Write) -> Result<()> {
    let columns = [
        (style.entry, " Entry     ", "---------- "),
        (style.duration, " Duration  ", "---------- "),
        (style.local, " Local     ", "---------- "),
        (style.pid, "  Pid   ", "------- "),
        (true, " Trace ", "---------------------------------"),
    ];
    let shown = || columns.iter().filter(|column| column.0);
    let titles: String = shown().map(|column| column.1).collect();
    let rules: String = shown().map(|column| column.2).collect();
    writeln!(out, "{titles}\n{rules}")?;
    Ok(())
}
