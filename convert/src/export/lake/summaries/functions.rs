//! Samples by hour, event and function, and by stack, with the weights that `perfquet-query top` prints.
//!
//! *self* is the weight of samples whose innermost frame is of the function, *total* that of samples whose stack contains it: recursion
//! counts once. Kernel and user code never share a function.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use perfquet_trace::function_name::in_brackets;
use perfquet_trace::store::Directory;
use perfquet_trace::tables;

use super::super::super::batch::{Heads, column, i64_at, i64_column, text_at};
use super::super::super::stacks::{FrameId, Stacks};
use super::{SummaryTable, Texts, Value, hour_of};

/// Hour and event.
type Group = (Option<i64>, Arc<str>);

/// Samples with the same stacks.
#[derive(Debug, Default, Clone, Copy)]
struct Weight {
    samples: u64,
    weight: i128,
}

/// A function.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Function {
    name: Arc<str>,
    module: Option<Arc<str>>,
    is_kernel: bool,
}

/// Samples of a function.
#[derive(Debug, Default, Clone, Copy)]
struct FunctionWeight {
    samples: u64,
    own: i128,
    total: i128,
}

/// `summary_functions` and `summary_stacks`
pub(super) fn of(trace: &Directory, wall_offset: Option<i64>) -> Result<Vec<SummaryTable>> {
    let mut texts = Texts::default();
    let folded = folded(trace, wall_offset, &mut texts)?;
    let mut functions: HashMap<(Group, usize), FunctionWeight> = HashMap::new();
    let mut stacks: HashMap<(Group, Option<Arc<str>>), Weight> = HashMap::new();
    let read = match folded.is_empty() {
        true => Stacks::default(),
        false => Stacks::read(trace)?,
    };
    let mut names = Names::new(&read);
    for ((group, pair), weight) in folded {
        let [kernel, user] = pair.map(|stack| names.frames(stack, &mut texts));
        let leaf = kernel.first().or(user.first()).copied();
        let own = leaf.unwrap_or(Names::STACKLESS);
        let of_function = |number: usize| ((group.0, Arc::clone(&group.1)), number);
        let own = functions.entry(of_function(own)).or_default();
        own.samples += weight.samples;
        own.own += weight.weight;
        if leaf.is_none() {
            own.total += weight.weight;
        }
        for frames in [&kernel, &user] {
            let mut seen = frames.clone();
            seen.sort_unstable();
            seen.dedup();
            for function in seen {
                functions.entry(of_function(function)).or_default().total += weight.weight;
            }
        }
        let text = names.text(&kernel, &user);
        let stack = text.map(|text| texts.once(&text));
        let stack = stacks.entry((group, stack)).or_default();
        stack.samples += weight.samples;
        stack.weight += weight.weight;
    }
    let functions = functions
        .into_iter()
        .map(|(((hour, event), number), found)| {
            let function = &names.functions[number];
            vec![
                Value::Number(hour),
                Value::Text(Some(event)),
                Value::Text(Some(Arc::clone(&function.name))),
                Value::Text(function.module.clone()),
                Value::Bool(function.is_kernel),
                Value::count(found.samples),
                Value::sum(found.own),
                Value::sum(found.total),
            ]
        });
    let stacks = stacks.into_iter().map(|(((hour, event), stack), found)| {
        vec![
            Value::Number(hour),
            Value::Text(Some(event)),
            Value::Text(stack),
            Value::count(found.samples),
            Value::sum(found.weight),
        ]
    });
    Ok(vec![
        SummaryTable::new(tables::summary_functions::schema(), functions.collect()),
        SummaryTable::new(tables::summary_stacks::schema(), stacks.collect()),
    ])
}

/// The kernel's and the user stack.
type Pair = [Option<i32>; 2];

/// The samples of each hour, event and pair of stacks.
fn folded(
    trace: &Directory,
    wall_offset: Option<i64>,
    texts: &mut Texts,
) -> Result<HashMap<(Group, Pair), Weight>> {
    let mut folded: HashMap<(Group, Pair), Weight> = HashMap::new();
    let name = tables::samples::NAME;
    for form in trace.forms(name) {
        let has = |wanted: &&str| form.columns.iter().any(|column| column.name == *wanted);
        let wanted = ["time", "event", "kernel_stack", "user_stack", "period"];
        let wanted: Vec<&str> = wanted.into_iter().filter(has).collect();
        for batch in trace.read_form_columns(&form, &wanted)? {
            let batch = batch?;
            let heads = Heads::of(&batch);
            let (periods, events) = (i64_column(&batch, "period"), column(&batch, "event"));
            for row in 0..batch.num_rows() {
                let head = heads.row(row);
                let event = events.and_then(|events| text_at(events, row));
                let event = texts.once(event.unwrap_or_default());
                let group = (hour_of(head.time, wall_offset), event);
                // 0 is the empty stack.
                let pair = [head.kernel_stack, head.user_stack].map(|id| id.filter(|&id| id > 0));
                let weight = folded.entry((group, pair)).or_default();
                weight.samples += 1;
                weight.weight += i128::from(i64_at(periods, row).unwrap_or(1));
            }
        }
    }
    Ok(folded)
}

/// The functions of frames, by number.
struct Names<'s> {
    stacks: &'s Stacks,
    functions: Vec<Function>,
    known: HashMap<Function, usize>,
    of_frame: HashMap<FrameId, usize>,
}

impl Names<'_> {
    /// The function of samples without a stack.
    const STACKLESS: usize = 0;

    fn new(stacks: &Stacks) -> Names<'_> {
        let stackless = Function {
            name: "[no stack]".into(),
            module: None,
            is_kernel: false,
        };
        Names {
            stacks,
            functions: vec![stackless.clone()],
            known: HashMap::from([(stackless, Names::STACKLESS)]),
            of_frame: HashMap::new(),
        }
    }

    /// The functions of a stack, innermost first.
    fn frames(&mut self, stack: Option<i32>, texts: &mut Texts) -> Vec<usize> {
        let mut frames = Vec::new();
        self.stacks.frames_of(stack, &mut frames);
        frames
            .iter()
            .map(|&frame| self.function(frame, texts))
            .collect()
    }

    fn function(&mut self, frame: FrameId, texts: &mut Texts) -> usize {
        if let Some(&known) = self.of_frame.get(&frame) {
            return known;
        }
        let found = self.stacks.frame(frame).copied().unwrap_or_default();
        let module = self.stacks.text(found.module);
        let name = match (self.stacks.text(found.function), module) {
            (Some(function), _) => texts.once(function),
            (None, Some(module)) => texts.once(&in_brackets(module)),
            (None, None) => texts.once("[unknown]"),
        };
        let function = Function {
            name,
            module: module.map(|module| texts.once(module)),
            is_kernel: found.is_kernel,
        };
        let next = self.functions.len();
        let number = *self.known.entry(function.clone()).or_insert(next);
        if number == next {
            self.functions.push(function);
        }
        self.of_frame.insert(frame, number);
        number
    }

    /// `main;read;vfs_read`; `None` without a stack.
    fn text(&self, kernel: &[usize], user: &[usize]) -> Option<String> {
        let frames = user.iter().rev().chain(kernel.iter().rev());
        let names: Vec<&str> = frames
            .map(|&number| &*self.functions[number].name)
            .collect();
        (!names.is_empty()).then(|| names.join(";"))
    }
}
