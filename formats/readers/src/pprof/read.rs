//! Samples → rows, after the tables that they refer to.

use hashbrown::HashMap;
use perfquet_events::event::{
    Event, EventId, EventKind, EventType, Fact, NamedFrame, Place, Progress, Sample, Sink,
};
use perfquet_events::{Error, Input};

use super::profile::{Profile, field};
use crate::printout::Stacks;
use crate::problems::{Problems, report_totals};
use crate::protobuf::{Message, Value};

/// Far more frames than any stack has.
const FRAMES_MAX: usize = 1 << 16;
/// Names of labels that are counted.
const LABELS_MAX: usize = 100;
const PROGRESS_BYTES: u64 = 1 << 20;

/// Reads a whole profile.
pub(super) fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let Some(map) = input.whole()? else {
        return Ok(());
    };
    let profile = Profile::of(&map);
    if profile.types.is_empty() && profile.samples == 0 {
        let message = match profile.damage {
            Some(damage) => damage.message.to_owned(),
            None => "expected a profile with samples".to_owned(),
        };
        return Err(Error::Damaged {
            input: input.name().to_owned(),
            place: Place::Offset(profile.damage.map_or(0, |damage| damage.offset)),
            message,
        });
    }
    let mut reader = Reader {
        types: types(&profile),
        frames: Vec::new(),
        labels: HashMap::new(),
        problems: Problems::default(),
        profile,
    };
    reader.facts(sink)?;
    reader.declare(sink)?;
    reader.samples(&map, sink)?;
    reader.finish(sink)
}

/// A sample type: its event, and its place among the values.
struct Type {
    name: String,
    unit: String,
    value: usize,
}

/// The sample types, the default first.
fn types(profile: &Profile<'_>) -> Vec<Type> {
    let text = |index| String::from_utf8_lossy(profile.string(index)).into_owned();
    let mut types: Vec<Type> = Vec::new();
    for (value, found) in profile.types.iter().enumerate() {
        let (mut name, unit) = (text(found.kind), text(found.unit));
        if types.iter().any(|other| other.name == name) {
            name = format!("{name}/{unit}");
        }
        if name.is_empty() || types.iter().any(|other| other.name == name) {
            name = format!("value_{}", value + 1);
        }
        types.push(Type { name, unit, value });
    }
    let wanted = profile.numbers.get(&field::DEFAULT_TYPE).copied();
    let default = profile
        .types
        .iter()
        .position(|found| found.kind != 0 && Some(found.kind) == wanted);
    let default = default.unwrap_or(types.len().saturating_sub(1));
    if default < types.len() {
        types
            .get_mut(..=default)
            .unwrap_or_default()
            .rotate_right(1);
    }
    types
}

struct Reader<'a> {
    profile: Profile<'a>,
    types: Vec<Type>,
    /// Of the current sample, leaf first.
    frames: Vec<NamedFrame<'a>>,
    /// Samples with a label that is not kept, by its name.
    labels: HashMap<&'a [u8], u64>,
    problems: Problems,
}

impl<'a> Reader<'a> {
    fn facts(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        let mut fact =
            |name: &str, value: &str| sink.event(Event::Fact(Fact::Other { name, value }));
        let number = |number| self.profile.numbers.get(&number).copied();
        let text = |index| String::from_utf8_lossy(self.profile.string(index)).into_owned();
        for (name, place) in [
            ("pprof.time_ns", field::TIME),
            ("pprof.duration_ns", field::DURATION),
            ("pprof.period", field::PERIOD),
        ] {
            if let Some(value) = number(place).filter(|value| *value != 0) {
                fact(name, &value.cast_signed().to_string())?;
            }
        }
        for (name, place) in [
            ("pprof.drop_frames", field::DROP_FRAMES),
            ("pprof.keep_frames", field::KEEP_FRAMES),
            ("pprof.doc_url", field::DOC_URL),
        ] {
            if let Some(index) = number(place).filter(|index| *index != 0) {
                fact(name, &text(index))?;
            }
        }
        for (index, comment) in (1..).zip(&self.profile.comments) {
            fact(&format!("pprof.comment.{index}"), &text(*comment))?;
        }
        for Type { name, unit, .. } in self.types.iter().filter(|found| !found.unit.is_empty()) {
            fact(&format!("pprof.unit.{name}"), unit)?;
        }
        Ok(())
    }

    fn declare(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        let period = self.profile.numbers.get(&field::PERIOD).copied();
        for found in &self.types {
            let is_period = self.profile.types.get(found.value) == Some(&self.profile.period_type);
            sink.event(Event::Type(&EventType {
                system: "pprof".into(),
                name: found.name.clone(),
                kind: EventKind::Counter,
                period: period.filter(|period| is_period && *period != 0),
                ..EventType::default()
            }))?;
        }
        Ok(())
    }

    fn samples(&mut self, bytes: &'a [u8], sink: &mut dyn Sink) -> Result<(), Error> {
        let mut fields = Message::new(bytes, 0);
        let mut reported = 0;
        while let Some(found) = fields.next() {
            let found = match found {
                Ok(found) => found,
                Err(damage) => {
                    let place = Place::Offset(damage.offset);
                    let message = || damage.message.to_owned();
                    self.problems.report(sink, place, "profile", message)?;
                    break;
                }
            };
            if let (field::SAMPLE, Value::Bytes(body)) = (found.number, found.value) {
                self.sample(body, found.offset, sink)?;
            }
            let done = fields.place() as u64;
            if done - reported >= PROGRESS_BYTES {
                reported = done;
                let total = Some(bytes.len() as u64);
                sink.event(Event::Progress(Progress { done, total }))?;
            }
        }
        Ok(())
    }

    fn sample(&mut self, body: &'a [u8], offset: u64, sink: &mut dyn Sink) -> Result<(), Error> {
        self.frames.clear();
        let mut values: Vec<i64> = Vec::with_capacity(self.types.len());
        let mut sample = Sample::of(EventId(0));
        let (mut missing, mut is_long) = (0u64, false);
        for found in Message::new(body, offset) {
            let found = match found {
                Ok(found) => found,
                Err(damage) => {
                    let message = || damage.message.to_owned();
                    self.problems
                        .report(sink, Place::Offset(damage.offset), "sample", message)?;
                    break;
                }
            };
            match (found.number, found.value) {
                (1, value) => {
                    for id in value.numbers() {
                        if self.frames.len() >= FRAMES_MAX {
                            is_long = true;
                            break;
                        }
                        match self.profile.frames(id) {
                            Some(frames) => self.frames.extend(frames),
                            None => {
                                missing += 1;
                                self.frames.push(NamedFrame::default());
                            }
                        }
                    }
                }
                (2, value) => {
                    let left = self.types.len() + 1 - values.len().min(self.types.len() + 1);
                    values.extend(value.numbers().take(left).map(u64::cast_signed));
                }
                (3, Value::Bytes(label)) => self.label(label, &mut sample),
                _ => {}
            }
        }
        let place = Place::Offset(offset);
        if missing > 0 {
            let message = || format!("{missing} locations of a sample are not in the profile");
            self.problems.report(sink, place, "location", message)?;
        }
        if is_long {
            let message = || format!("a stack has more than {FRAMES_MAX} frames");
            self.problems.report(sink, place, "frames", message)?;
        }
        if values.len() != self.types.len() {
            let (found, wanted) = (values.len(), self.types.len());
            let message = || format!("expected {wanted} values of a sample, found {found}");
            self.problems.report(sink, place, "values", message)?;
        }
        self.emit(sample, &values, place, sink)
    }

    /// A row for each type with a value; without any, a row of the default type.
    fn emit(
        &mut self,
        sample: Sample<'_>,
        values: &[i64],
        place: Place,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let stacks = Stacks::of(&self.frames);
        let sample = match self.frames.as_slice() {
            [] => sample,
            _ => Sample {
                kernel_stack: stacks.kernel(),
                user_stack: stacks.user(),
                ..sample
            },
        };
        let is_empty = values.iter().all(|value| *value == 0);
        let mut negative = 0;
        for (event, found) in (0..).zip(&self.types) {
            let value = values.get(found.value).copied().unwrap_or(0);
            if value == 0 && !(is_empty && event == 0) {
                continue;
            }
            let Ok(period) = u64::try_from(value) else {
                negative += 1;
                continue;
            };
            sink.event(Event::Sample(&Sample {
                event: EventId(event),
                period: Some(period),
                ..sample
            }))?;
        }
        if negative > 0 {
            let message = || "a value below 0, as in a difference of profiles".to_owned();
            self.problems.report(sink, place, "negative", message)?;
        }
        Ok(())
    }

    fn label(&mut self, label: &[u8], sample: &mut Sample<'a>) {
        let (mut key, mut text, mut number) = (0, 0, 0);
        for found in Message::new(label, 0).map_while(Result::ok) {
            match (found.number, found.value) {
                (1, Value::Number(value)) => key = value,
                (2, Value::Number(value)) => text = value,
                (3, Value::Number(value)) => number = value,
                _ => {}
            }
        }
        let (name, text) = (self.profile.string(key), self.profile.string(text));
        let id = || i32::try_from(number.cast_signed()).ok();
        match (name, text) {
            (b"thread" | b"thread_name" | b"comm", [_, ..]) => sample.comm = Some(text),
            (b"tid" | b"thread_id", b"") => sample.tid = id(),
            (b"pid" | b"process_id", b"") => sample.pid = id(),
            (b"cpu", b"") => sample.cpu = u32::try_from(number).ok(),
            _ if self.labels.len() < LABELS_MAX || self.labels.contains_key(name) => {
                *self.labels.entry(name).or_default() += 1;
            }
            _ => *self.labels.entry(b"others").or_default() += 1,
        }
    }

    fn finish(mut self, sink: &mut dyn Sink) -> Result<(), Error> {
        self.problems.finish(sink)?;
        let mut labels: Vec<_> = self.labels.iter().collect();
        labels.sort();
        let dropped = (self.profile.dropped > 0).then(|| {
            let message = "entries beyond 4194304 of a table".to_owned();
            (self.profile.dropped, message)
        });
        let lost = labels.into_iter().map(|(name, count)| {
            let name = String::from_utf8_lossy(name);
            (
                *count,
                format!("no column holds the label {name:?} of samples"),
            )
        });
        report_totals(sink, lost.chain(dropped))
    }
}
