//! A function's instructions with weights and source lines: as rows, and as lines for people.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use anyhow::Result;
use arrow::array::{ArrayRef, Float64Array, Int32Array, RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use perfquet::unit::{DURATION, UNIT};
use perfquet_trace::count::{counted, grouped};
use perfquet_trace::symbols::{Code, SourcePlace};

use super::instructions::Instruction;
use super::sampled::{Function, Hits, Sampled, Weight};
use super::source_text::SourceText;
use crate::render::{ListedFunction, ListedLine};
use crate::text::shortened;
use crate::totals;

/// A function of this many instructions is shown whole.
const SHORT: usize = 40;
/// Share of the function, in percent, from which on an instruction is shown in a longer one.
const SHOWN_PERCENT: f64 = 0.5;
/// Instructions shown around it.
const AROUND: usize = 4;
/// Lines shown around a sampled one.
const LINES_AROUND: u32 = 2;

/// A function with its code.
pub(super) struct Annotated {
    function: Function,
    /// Per event, of the function; and of the whole trace.
    total: Vec<Weight>,
    all: Vec<Weight>,
    instructions: Vec<Annotation>,
    /// Messages below the heading: missing sources, unverified files.
    notes: Vec<String>,
}

struct Annotation {
    instruction: Instruction,
    /// Per event.
    weights: Vec<Weight>,
    /// From the function to the innermost one inlined there.
    places: Vec<SourcePlace>,
}

impl Annotation {
    fn innermost(&self) -> Option<&SourcePlace> {
        self.places.last().filter(|place| place.file.is_some())
    }
}

impl Annotated {
    pub(super) fn new(
        function: &Function,
        hits: &Hits,
        code: &Code,
        instructions: Vec<Instruction>,
        places: Vec<Vec<SourcePlace>>,
        sampled: &Sampled,
    ) -> Annotated {
        let nothing = vec![Weight::default(); hits.total.len()];
        let mut instructions: Vec<Annotation> = instructions
            .into_iter()
            .zip(places)
            .map(|(instruction, places)| Annotation {
                instruction,
                weights: nothing.clone(),
                places,
            })
            .collect();
        let mut outside = 0;
        for (&offset, weights) in &hits.places {
            let address = code.address_of(offset);
            let next = instructions.partition_point(|one| one.instruction.address <= address);
            let at = next.checked_sub(1).and_then(|at| instructions.get_mut(at));
            let at = at.filter(|one| {
                address - one.instruction.address < one.instruction.bytes.max(1) as u64
            });
            let Some(at) = at else {
                outside += weights.iter().map(|weight| weight.samples).sum::<u64>();
                continue;
            };
            for (sum, weight) in at.weights.iter_mut().zip(weights) {
                sum.add(*weight);
            }
        }
        let mut notes = Vec::new();
        if outside > 0 {
            notes.push(format!(
                "{} outside of the function's code, which other symbols may have",
                counted(outside, "sample")
            ));
        }
        Annotated {
            function: function.clone(),
            total: hits.total.clone(),
            all: sampled.total.clone(),
            instructions,
            notes,
        }
    }

    pub(super) fn has_no_lines(&self) -> bool {
        self.instructions
            .iter()
            .all(|one| one.innermost().is_none())
    }

    /// Adds messages about the origin of the code, incomplete or unverified code, and about missing or newer sources.
    pub(super) fn note(&mut self, origin: Vec<String>, code: &Code, source: &mut SourceText) {
        self.notes.extend(origin);
        if code.is_cut {
            self.notes.push(format!(
                "only the first {} of the function, which has {}",
                counted(code.bytes.len() as u64, "byte"),
                grouped(code.size)
            ));
        }
        if !code.is_verified {
            self.notes.push(
                "unverified: the recording has no build ID of this file, which may be another one"
                    .to_owned(),
            );
        }
        let mut files: Vec<&Arc<str>> = self
            .instructions
            .iter()
            .filter_map(|one| one.innermost()?.file.as_ref())
            .collect();
        files.sort_unstable();
        files.dedup();
        let missing = files.iter().filter(|file| !source.is_found(file)).count();
        if missing > 0 {
            self.notes.push(format!(
                "{} not found (--source DIR)",
                counted(missing as u64, "source file")
            ));
        }
        if let Some(built) = code.changed {
            let newer = files.iter().filter(|file| source.is_newer(file, built));
            let newer = newer.map(|file| format!("{file} has changed since the program was built"));
            self.notes.extend(newer);
        }
    }

    /// Percentages of the function, per event.
    fn percents(&self, weights: &[Weight]) -> Vec<f64> {
        let pairs = weights.iter().zip(&self.total);
        pairs.map(|(weight, all)| weight.percent_of(*all)).collect()
    }

    /// What stands above the listing.
    fn heading(&self, events: &[&str]) -> Vec<String> {
        let shares: Vec<String> = events
            .iter()
            .zip(&self.total)
            .zip(&self.all)
            .map(|((event, own), all)| {
                format!(
                    "{:.2}% of {event}, {}",
                    own.percent_of(*all),
                    counted(own.samples, "sample")
                )
            })
            .collect();
        let name = &self.function.name;
        let mut heading = vec![format!("{name}: {}", shares.join("; "))];
        let module = &self.function.module;
        let count = counted(self.instructions.len() as u64, "instruction");
        heading.push(format!("  {module}, {count}"));
        heading.extend(self.notes.iter().map(|note| format!("  {note}")));
        heading
    }
}

/// The columns that both kinds of rows begin with.
struct Common {
    event: Vec<String>,
    function: Vec<String>,
    module: Vec<String>,
    percent: Vec<f64>,
    own: Vec<u128>,
    samples: Vec<u64>,
}

impl Common {
    fn new() -> Common {
        Common {
            event: Vec::new(),
            function: Vec::new(),
            module: Vec::new(),
            percent: Vec::new(),
            own: Vec::new(),
            samples: Vec::new(),
        }
    }

    fn push(&mut self, annotated: &Annotated, (index, event): (usize, &str), weight: Weight) {
        self.event.push(event.to_owned());
        self.function.push(annotated.function.name.clone());
        self.module.push(annotated.function.module.clone());
        let percent = weight.percent_of(annotated.total[index]);
        self.percent.push((percent * 100.0).round() / 100.0);
        self.own.push(weight.weight);
        self.samples.push(weight.samples);
    }

    /// Puts the columns together; `places` are between the module and the weights, `others` at the end.
    fn batch(
        self,
        units: &[&str],
        places: Vec<(Field, ArrayRef)>,
        others: Vec<(Field, ArrayRef)>,
    ) -> Result<RecordBatch> {
        let text = |name: &str, values: Vec<String>| -> (Field, ArrayRef) {
            let field = Field::new(name, DataType::Utf8, false);
            (field, Arc::new(StringArray::from(values)))
        };
        let own = totals::unsigned(self.own);
        let mut field = Field::new("self", own.data_type().clone(), false);
        if units.iter().all(|unit| *unit == DURATION) {
            let unit = HashMap::from([(UNIT.to_owned(), DURATION.to_owned())]);
            field = field.with_metadata(unit);
        }
        let mut columns = vec![
            text("event", self.event),
            text("function", self.function),
            text("module", self.module),
        ];
        columns.extend(places);
        columns.push((
            Field::new("percent", DataType::Float64, false),
            Arc::new(Float64Array::from(self.percent)),
        ));
        columns.push((field, own));
        columns.push((
            Field::new("samples", DataType::UInt64, false),
            Arc::new(UInt64Array::from(self.samples)),
        ));
        columns.extend(others);
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns.into_iter().unzip();
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
    }
}

fn texts(name: &str, values: Vec<Option<String>>) -> (Field, ArrayRef) {
    let field = Field::new(name, DataType::Utf8, true);
    (field, Arc::new(StringArray::from(values)))
}

fn numbers(name: &str, values: Vec<Option<i32>>) -> (Field, ArrayRef) {
    let field = Field::new(name, DataType::Int32, true);
    (field, Arc::new(Int32Array::from(values)))
}

fn number(line: Option<u32>) -> Option<i32> {
    line.and_then(|line| i32::try_from(line).ok())
}

/// Rows for each event and instruction.
pub(super) fn instruction_rows(
    events: &[&str],
    units: &[&str],
    shown: &[Annotated],
) -> Result<RecordBatch> {
    let mut common = Common::new();
    let (mut addresses, mut codes) = (Vec::new(), Vec::new());
    let (mut inlined, mut files, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    for annotated in shown {
        for (index, event) in events.iter().enumerate() {
            for one in &annotated.instructions {
                common.push(annotated, (index, event), one.weights[index]);
                addresses.push(one.instruction.address);
                codes.push(Some(one.instruction.text.clone()));
                let place = one.places.last();
                let text = |text: Option<&Arc<str>>| text.map(|text| text.to_string());
                inlined.push(text(place.and_then(|place| place.inlined.as_ref())));
                files.push(text(place.and_then(|place| place.file.as_ref())));
                lines.push(place.and_then(|place| number(place.line)));
            }
        }
    }
    let unit = HashMap::from([(UNIT.to_owned(), "address".to_owned())]);
    let address = Field::new("address", DataType::UInt64, false).with_metadata(unit);
    let places: Vec<(Field, ArrayRef)> = vec![
        (address, Arc::new(UInt64Array::from(addresses))),
        texts("instruction", codes),
    ];
    let others = vec![
        texts("inlined", inlined),
        texts("file", files),
        numbers("line", lines),
    ];
    common.batch(units, places, others)
}

/// Weights of lines: by file and line, per event.
type ByLine = BTreeMap<(Arc<str>, u32), Vec<Weight>>;

fn by_line(annotated: &Annotated) -> ByLine {
    let mut lines = ByLine::new();
    let nothing = vec![Weight::default(); annotated.total.len()];
    for one in &annotated.instructions {
        let place = one.innermost();
        let place = place.and_then(|place| Some((Arc::clone(place.file.as_ref()?), place.line?)));
        let place = place.unwrap_or_else(|| (Arc::from(""), 0));
        let sums = lines.entry(place).or_insert_with(|| nothing.clone());
        for (sum, weight) in sums.iter_mut().zip(&one.weights) {
            sum.add(*weight);
        }
    }
    lines.retain(|_, sums| sums.iter().any(|sum| sum.samples > 0));
    lines
}

/// Rows for each event and sampled source line.
pub(super) fn line_rows(
    events: &[&str],
    units: &[&str],
    shown: &[Annotated],
    source: &mut SourceText,
) -> Result<RecordBatch> {
    let mut common = Common::new();
    let (mut files, mut lines, mut codes) = (Vec::new(), Vec::new(), Vec::new());
    for annotated in shown {
        let by_line = by_line(annotated);
        for (index, event) in events.iter().enumerate() {
            for ((file, line), sums) in &by_line {
                common.push(annotated, (index, event), sums[index]);
                let is_known = *line > 0;
                files.push(is_known.then(|| file.to_string()));
                lines.push(number(Some(*line).filter(|_| is_known)));
                codes.push(source.line(file, *line).map(|text| text.trim().to_owned()));
            }
        }
    }
    let places = vec![texts("file", files), numbers("line", lines)];
    common.batch(units, places, vec![texts("source", codes)])
}

/// A function's source lines for people: the sampled ones and those around them, the hottest file first.
pub(super) fn lines(
    annotated: &Annotated,
    events: &[&str],
    source: &mut SourceText,
) -> ListedFunction {
    let by_line = by_line(annotated);
    let mut files: BTreeMap<&str, Vec<(u32, &Vec<Weight>)>> = BTreeMap::new();
    for ((file, line), sums) in &by_line {
        files.entry(file).or_default().push((*line, sums));
    }
    let mut files: Vec<_> = files.into_iter().collect();
    files.sort_by_key(|(_, lines)| {
        let weights = lines.iter().filter_map(|(_, sums)| sums.first());
        std::cmp::Reverse(weights.map(|sum| sum.weight).sum::<u128>())
    });
    let mut listed = Vec::new();
    for (file, lines) in files {
        listed.push(ListedLine::Heading(match file {
            "" => "no source line".to_owned(),
            file => file.to_owned(),
        }));
        let mut next = 1;
        for (at, &(line, sums)) in lines.iter().enumerate() {
            let first = line.saturating_sub(LINES_AROUND).max(next);
            if next > 1 && first > next {
                listed.push(ListedLine::Heading("…".to_owned()));
            }
            let after = lines.get(at + 1).map_or(u32::MAX, |(line, _)| *line);
            let last = line.saturating_add(LINES_AROUND).min(after - 1);
            for number in first..=last.max(line) {
                let text = source.line(file, number);
                let percents = match number == line {
                    true => annotated.percents(sums),
                    // Lines around it are for orientation.
                    false if text.is_some() => vec![0.0; sums.len()],
                    false => continue,
                };
                listed.push(ListedLine::Source {
                    number: (number > 0).then_some(number),
                    percents,
                    text: text.unwrap_or_default(),
                });
            }
            next = last.max(line).saturating_add(1);
        }
    }
    ListedFunction {
        heading: annotated.heading(events),
        events: events.iter().map(|event| (*event).to_owned()).collect(),
        lines: listed,
    }
}

/// A function's instructions for people, each after its source line.
pub(super) fn instructions(
    annotated: &Annotated,
    events: &[&str],
    source: &mut SourceText,
    with_all: bool,
) -> ListedFunction {
    let all = &annotated.instructions;
    let percents: Vec<Vec<f64>> = all
        .iter()
        .map(|one| annotated.percents(&one.weights))
        .collect();
    let mut is_shown = vec![with_all || all.len() <= SHORT; all.len()];
    for (at, percents) in percents.iter().enumerate() {
        if percents.iter().any(|percent| *percent >= SHOWN_PERCENT) {
            let end = (at + AROUND + 1).min(all.len());
            is_shown[at.saturating_sub(AROUND)..end].fill(true);
        }
    }
    let mut listed = Vec::new();
    let mut last: Option<&SourcePlace> = None;
    let mut at = 0;
    while at < all.len() {
        if !is_shown[at] {
            let end = (at..all.len())
                .find(|&next| is_shown[next])
                .unwrap_or(all.len());
            let mut sums = vec![Weight::default(); events.len()];
            for one in &all[at..end] {
                for (sum, weight) in sums.iter_mut().zip(&one.weights) {
                    sum.add(*weight);
                }
            }
            listed.push(ListedLine::Gap {
                percents: annotated.percents(&sums),
                text: format!("{} more instructions", grouped((end - at) as u64)),
            });
            at = end;
            last = None;
            continue;
        }
        let one = &all[at];
        let place = one.innermost();
        let mut comment = None;
        if let Some(place) = place.filter(|place| last != Some(*place)) {
            let is_same = last
                .is_some_and(|last| (&last.inlined, &last.file) == (&place.inlined, &place.file));
            if !is_same {
                listed.push(ListedLine::Heading(heading_of(place)));
            }
            let text = place
                .line
                .and_then(|line| source.line(place.file.as_ref()?, line));
            match text {
                Some(text) => listed.push(ListedLine::Source {
                    number: place.line,
                    percents: Vec::new(),
                    text,
                }),
                // Numbers on lines of their own would double the listing.
                None => comment = place.line.map(|line| format!("  ; line {line}")),
            }
        }
        last = place;
        listed.push(ListedLine::Instruction {
            address: one.instruction.address,
            percents: percents[at].clone(),
            text: one.instruction.text.clone() + &comment.unwrap_or_default(),
            jump: one.instruction.jump,
        });
        at += 1;
    }
    ListedFunction {
        heading: annotated.heading(events),
        events: events.iter().map(|event| (*event).to_owned()).collect(),
        lines: listed,
    }
}

/// Width of the name of an inlined function.
const INLINED: usize = 60;

fn heading_of(place: &SourcePlace) -> String {
    let file = place.file.as_deref().unwrap_or_default();
    match &place.inlined {
        Some(name) => format!("{}, inlined, {file}", shortened(name, INLINED)),
        None => file.to_owned(),
    }
}
