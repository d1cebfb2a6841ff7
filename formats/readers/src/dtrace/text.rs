//! Text → events, block by block.

use perfquet_events::Error;
use perfquet_events::event::{
    AggregateValue, Common, Enter, Event, EventId, Fact, Fields, Function, Leave, NamedFrame,
    Place, Sample, Sink, Space,
};

use super::emit::{Hit, Key, Output};
use super::flow::{self, Edge};
use super::notice::{Notice, notice};
use super::record::Head;
use super::script::{Aggregation, Follow, Script, Side};
use super::{cells, ktap, stack};
use crate::columns::{self as table, Below};
use crate::distribution::{self, Bar};
use crate::lines::{Line, Lines, Meter, signed};

/// Far more frames than any stack has.
const FRAMES_MAX: usize = 1 << 16;
/// Maximum number of remembered title lines.
const TITLED_MAX: usize = 256;
/// More bars than any distribution has.
const BARS_MAX: usize = 1 << 16;
/// Maximum size in bytes of one hit's text, over all its lines.
const MESSAGE_BYTES: usize = 1 << 16;

/// Reads a whole text.
pub(super) fn read<'a>(
    text: &'a [u8],
    script: Option<&'a Script>,
    sink: &mut dyn Sink,
) -> Result<(), Error> {
    sink.event(Event::Fact(Fact::Recorder("dtrace")))?;
    let mut reader = Text {
        lines: Lines::of(text),
        out: Output::new(sink, stack::space_of_all(text)),
        head: Head::USUAL,
        is_flow: false,
        columns: None,
        keys: Vec::new(),
        hit: None,
        title: None,
        tables: 0,
        titled: Vec::new(),
        titled_in_vain: 0,
        has_stacks: false,
        has_loose_stacks: false,
        script: script.map(|script| (script, Follow::new(script))),
        follows_blank: true,
    };
    let mut meter = Meter::default();
    while let Some(line) = reader.next() {
        reader.line(line)?;
        reader.follows_blank = line.text.trim_ascii().is_empty();
        let progress = reader.lines.progress();
        meter.report(progress, reader.out.sink())?;
    }
    reader.flush()?;
    reader.out.finish()
}

struct Text<'a, 's> {
    lines: Lines<'a>,
    out: Output<'s>,
    head: Head,
    /// The heading of `-F` was seen.
    is_flow: bool,
    /// The heading of a script's table of entries and returns.
    columns: Option<flow::Columns<'a>>,
    /// Keys above a distribution or a stack.
    keys: Vec<&'a [u8]>,
    /// A hit whose text may continue.
    hit: Option<Hit<'a>>,
    /// A framed title above a table.
    title: Option<&'a str>,
    tables: u32,
    /// Tables without a ruler, by their titles.
    titled: Vec<(&'a [u8], table::Columns, EventId)>,
    /// Number of lines that looked like titles but had no rows below.
    titled_in_vain: usize,
    /// Stacks with values were seen.
    has_stacks: bool,
    /// A stack without a value has come.
    has_loose_stacks: bool,
    script: Option<(&'a Script, Follow)>,
    /// The preceding line is blank.
    follows_blank: bool,
}

impl<'a> Text<'a, '_> {
    fn next(&mut self) -> Option<Line<'a>> {
        self.lines.next().map(Line::without_interrupt)
    }

    fn peek(&self) -> Option<Line<'a>> {
        self.lines.clone().next().map(Line::without_interrupt)
    }

    fn line(&mut self, line: Line<'a>) -> Result<(), Error> {
        let text = line.text;
        if text.trim_ascii().is_empty() {
            return self.flush();
        }
        if let Some(notice_text) = text.strip_prefix(b"dtrace: ") {
            return self.notice(line, notice_text);
        }
        if let Some(head) = distribution::head(text) {
            self.flush()?;
            let key = self.key(Vec::new());
            return self.distribution(line, head, key);
        }
        if let Some(head) = Head::of(text) {
            self.flush()?;
            self.head = head;
            return Ok(());
        }
        if flow::is_head(text) {
            self.flush()?;
            self.is_flow = true;
            return Ok(());
        }
        if let Some(columns) = flow::Columns::of(text) {
            self.flush()?;
            self.columns = Some(columns);
            return self.out.event(Event::Fact(Fact::Clock("dtrace timestamp")));
        }
        self.data(line)
    }

    fn data(&mut self, line: Line<'a>) -> Result<(), Error> {
        let text = line.text;
        if self.flow(text)? {
            return Ok(());
        }
        if let Some(hit) = self.head.hit(text) {
            self.flush()?;
            self.hit = Some(hit);
            return Ok(());
        }
        if stack::is_frame(text) {
            return self.stack(line);
        }
        if let Some(row) = cells::row(text) {
            self.flush()?;
            let mut key = self.key(Vec::new());
            key.keys.extend(row.keys);
            self.name(&mut key, false, self.follows_blank);
            return self
                .out
                .aggregate(&mut key, Some(AggregateValue::Int(row.value)), &[]);
        }
        let next = self.peek().map_or(&b""[..], |line| line.text);
        if distribution::head(next).is_some() {
            self.flush()?;
            self.keys = cells::keys(text).unwrap_or_else(|| table::parts(text));
            return Ok(());
        }
        if stack::is_frame(next)
            && let Some(keys) = cells::keys(text)
        {
            self.flush()?;
            self.keys = keys;
            return Ok(());
        }
        if table::is_ruler(next) && !table::is_ruler(text) {
            self.flush()?;
            return self.table(line);
        }
        let may_be_titled = self.hit.is_none() && self.titled_in_vain < TITLED_MAX;
        if may_be_titled && table::is_titles(text) && self.titled_table(line)? {
            return Ok(());
        }
        self.other(line)
    }

    /// Handles text of no other kind: output of a hit, a title, a message.
    fn other(&mut self, line: Line<'a>) -> Result<(), Error> {
        let text = line.text;
        if table::is_elision(text) {
            return self.out.problem(line, "the omitted lines");
        }
        if text.starts_with(b"-- @@") {
            return self.flush();
        }
        if self.printed(line)? {
            return Ok(());
        }
        if let Some(hit) = &mut self.hit {
            if hit.message.len() + text.len() >= MESSAGE_BYTES {
                return self.out.problem(line, "at most 64 KiB of text for a hit");
            }
            hit.message.push(b'\n');
            hit.message.extend_from_slice(text.trim_ascii_end());
            hit.values.clear();
            hit.strings.clear();
            return Ok(());
        }
        if let Some(title) = table::framed(text)
            && self.is_table_ahead()
        {
            self.title = Some(title);
            return Ok(());
        }
        let text = text.trim_ascii_end();
        self.out.message(Line { text, ..line }, &mut [])
    }

    /// Whether the next line that is not blank has a ruler below it.
    fn is_table_ahead(&self) -> bool {
        let mut ahead = self
            .lines
            .clone()
            .take(4)
            .skip_while(|line| line.text.trim_ascii().is_empty());
        ahead.next();
        ahead.next().is_some_and(|line| table::is_ruler(line.text))
    }

    fn notice(&mut self, line: Line<'a>, text: &[u8]) -> Result<(), Error> {
        let text = String::from_utf8_lossy(text);
        match notice(&text) {
            Notice::Info(text) => self.out.note(text),
            Notice::Lost { count, cpu, reason } => self.out.loss(count, cpu, &reason),
            Notice::Failed(text) => self.out.problem_at(Place::Line(line.number), text),
        }
    }

    /// Emits the pending hit.
    fn flush(&mut self) -> Result<(), Error> {
        let Some(mut hit) = self.hit.take() else {
            return Ok(());
        };
        if let Some((script, _)) = &self.script
            && let Some((provider, module)) = script.provider(hit.function, hit.name)
        {
            hit.provider = provider.as_bytes();
            hit.module = module.as_bytes();
        }
        self.out.hit(&mut hit)
    }

    /// Adds the script's data on the aggregation that a key belongs to.
    fn name(&mut self, key: &mut Key<'a>, is_distribution: bool, is_new_block: bool) {
        let Some((script, follow)) = &mut self.script else {
            return;
        };
        let Some((one, printing)) = follow.find(script, key, is_distribution, is_new_block) else {
            return;
        };
        key.name = one.name.as_bytes();
        key.action = one.action;
        key.snapshot = Some(printing);
        for (frames, side) in key.stacks.iter_mut().zip(&one.stacks) {
            for frame in frames {
                frame.space = match side {
                    Side::Kernel => Space::Kernel,
                    Side::User => Space::User,
                };
            }
        }
    }

    /// Whether a `printa` of the script printed the line; if so, its values are emitted.
    fn printed(&mut self, line: Line<'a>) -> Result<bool, Error> {
        let Some((script, follow)) = &mut self.script else {
            return Ok(false);
        };
        let script = *script;
        let mut fitting = script
            .printings
            .iter()
            .enumerate()
            .filter_map(|(number, printing)| {
                let printed = printing.format.as_ref()?.read(line.text)?;
                Some((number, printing, printed))
            });
        let Some((number, printing, printed)) = fitting.next() else {
            return Ok(false);
        };
        // Several `printa` calls share the format. The line does not show which of them printed it, but they may agree.
        let others: Vec<_> = fitting.map(|(_, printing, _)| printing).collect();
        follow.formatted(script, number, &printed.keys);
        for (place, (index, value)) in printing.of.iter().zip(printed.values).enumerate() {
            let of = |index: &usize| script.aggregations.get(*index);
            let Some(one) = of(index) else {
                continue;
            };
            let agree = |same: &dyn Fn(&Aggregation) -> bool| {
                let others = others.iter().map(|other| other.of.get(place).and_then(of));
                others.into_iter().all(|other| other.is_some_and(same))
            };
            let mut key = Key {
                keys: printed.keys.clone(),
                ..Key::default()
            };
            if agree(&|other| other.name == one.name) {
                key.name = one.name.as_bytes();
                key.snapshot = Some(follow.printing(*index));
            }
            if agree(&|other| other.action == one.action) {
                key.action = one.action;
            }
            self.out
                .aggregate(&mut key, Some(AggregateValue::Int(value)), &[])?;
        }
        Ok(true)
    }

    fn key(&mut self, stacks: Vec<Vec<NamedFrame<'a>>>) -> Key<'a> {
        Key {
            keys: std::mem::take(&mut self.keys),
            stacks,
            ..Key::default()
        }
    }

    /// An entry or a return, if the line is one.
    fn flow(&mut self, text: &'a [u8]) -> Result<bool, Error> {
        if let Some(row) = self.columns.as_ref().and_then(|columns| columns.row(text)) {
            self.timed(&row)?;
            return Ok(true);
        }
        let Some(flow) = flow::flow(text, self.is_flow) else {
            return Ok(false);
        };
        self.flush()?;
        let common = Common {
            cpu: flow.cpu,
            ..Common::default()
        };
        let function = Function::named(flow.function);
        match flow.edge {
            Edge::Enter => self.out.event(Event::Enter(&Enter {
                common,
                function,
                ..Enter::default()
            }))?,
            Edge::Leave => self.out.event(Event::Leave(&Leave {
                common,
                function,
                ..Leave::default()
            }))?,
            Edge::Other => {}
        }
        if flow.edge == Edge::Other || !flow.data.is_empty() {
            let colon = flow.function.iter().rposition(|&byte| byte == b':');
            let colon = colon.filter(|_| flow.edge == Edge::Other);
            let mut hit = Hit {
                cpu: flow.cpu,
                function: colon.map_or(flow.function, |colon| {
                    flow.function.get(..colon).unwrap_or_default()
                }),
                name: colon.map_or(b"", |colon| {
                    flow.function.get(colon + 1..).unwrap_or_default()
                }),
                ..Hit::default()
            };
            hit.add(flow.data);
            self.out.hit(&mut hit)?;
        }
        Ok(true)
    }

    fn timed(&mut self, row: &flow::Timed<'_>) -> Result<(), Error> {
        self.flush()?;
        let common = Common {
            time: row.time,
            cpu: row.cpu,
            pid: row.pid,
            ..Common::default()
        };
        let function = Function::named(row.function);
        let args: Vec<&[u8]> = row.args.iter().map(Vec::as_slice).collect();
        match row.edge {
            Edge::Enter => self.out.event(Event::Enter(&Enter {
                common,
                function,
                args: &args,
                ..Enter::default()
            })),
            Edge::Leave | Edge::Other => self.out.event(Event::Leave(&Leave {
                common,
                function,
                ..Leave::default()
            })),
        }
    }

    /// The bars below a head.
    fn distribution(
        &mut self,
        line: Line<'a>,
        head: distribution::Head,
        mut key: Key<'a>,
    ) -> Result<(), Error> {
        match head {
            distribution::Head::Distribution
                if self.peek().is_some_and(|line| ktap::is_count(line.text)) =>
            {
                self.ktap(key)
            }
            distribution::Head::Distribution => {
                let mut bars: Vec<Bar> = Vec::new();
                while let Some(bar) = self.peek().and_then(|line| distribution::bar(line.text)) {
                    self.next();
                    if bars.len() < BARS_MAX {
                        bars.push(bar);
                    }
                }
                if bars.is_empty() {
                    self.out.problem(line, "bars below this head")?;
                }
                self.name(&mut key, true, false);
                let buckets = distribution::buckets(&bars, key.action);
                self.out.aggregate(&mut key, None, &buckets)
            }
            distribution::Head::Keys => {
                while let Some((label, count)) = self
                    .peek()
                    .and_then(|line| distribution::bar_parts(line.text))
                {
                    self.next();
                    let mut of_key = key.clone();
                    of_key.keys.extend(table::parts(label));
                    self.name(&mut of_key, false, false);
                    self.out
                        .aggregate(&mut of_key, Some(AggregateValue::Int(count)), &[])?;
                }
                Ok(())
            }
            distribution::Head::Packed => {
                while let Some(packed) =
                    self.peek().and_then(|line| distribution::packed(line.text))
                {
                    self.next();
                    let mut of_key = key.clone();
                    of_key.keys.extend(table::parts(packed.key));
                    self.out.aggregate(&mut of_key, None, &[packed.range])?;
                }
                Ok(())
            }
        }
    }

    /// The counts of ktap's `print_hist`.
    fn ktap(&mut self, key: Key<'a>) -> Result<(), Error> {
        self.out.event(Event::Fact(Fact::Recorder("ktap")))?;
        while let Some(row) = self.peek().and_then(|line| ktap::row(line.text)) {
            self.next();
            match row {
                ktap::Row::Cut => self.out.event(ktap::CUT)?,
                ktap::Row::Count(label, count) => {
                    let mut of_key = key.clone();
                    of_key.keys.push(label);
                    let value = Some(AggregateValue::Int(count));
                    self.out.aggregate(&mut of_key, value, &[])?;
                }
            }
        }
        Ok(())
    }

    /// Reads a stack, an optional second one, and their value.
    fn stack(&mut self, first: Line<'a>) -> Result<(), Error> {
        let mut frames = Vec::new();
        let mut stacks = Vec::new();
        stack::add(first.text, Space::Unknown, &mut frames);
        loop {
            let next = self.peek();
            let text = next.map_or(&b""[..], |line| line.text);
            if let Some(value) = signed(text.trim_ascii()) {
                self.next();
                stacks.push(frames);
                return self.stack_value(stacks, &[], value);
            }
            if let Some(head) = distribution::head(text) {
                self.next();
                stacks.push(frames);
                let key = self.key(stacks);
                self.has_stacks = true;
                return self.distribution(first, head, key);
            }
            if stack::is_frame(text) {
                self.next();
                self.frame(first, text, &mut frames)?;
                continue;
            }
            if let Some(row) = cells::row(text) {
                self.next();
                stacks.push(frames);
                return self.stack_value(stacks, &row.keys, row.value);
            }
            if let Some(keys) = self.keys_between(text) {
                self.next();
                self.keys.extend(keys);
                stacks.push(std::mem::take(&mut frames));
                continue;
            }
            let is_text = stack::indented(text).is_some()
                && self.head.hit(text).is_none()
                && flow::flow(text, self.is_flow).is_none();
            if is_text {
                self.next();
                self.frame(first, text, &mut frames)?;
                continue;
            }
            let is_second = self.hit.is_none()
                && stacks.is_empty()
                && (self.is_stack_ahead() || self.is_value_ahead());
            if text.trim_ascii().is_empty() && is_second {
                while self
                    .peek()
                    .is_some_and(|line| line.text.trim_ascii().is_empty())
                {
                    self.next();
                }
                stacks.push(std::mem::take(&mut frames));
                continue;
            }
            stacks.push(frames);
            return self.loose_stack(first, stacks);
        }
    }

    fn frame(
        &mut self,
        first: Line<'a>,
        text: &'a [u8],
        frames: &mut Vec<NamedFrame<'a>>,
    ) -> Result<(), Error> {
        if frames.len() == FRAMES_MAX {
            self.out.problem(first, "at most 65536 frames below")?;
        }
        if frames.len() < FRAMES_MAX {
            stack::add(text, Space::Unknown, frames);
        } else if frames.len() == FRAMES_MAX {
            // Keep one frame above the limit, so that the problem is reported once.
            frames.push(NamedFrame::default());
        }
        Ok(())
    }

    /// Keys on a line that separates two stacks of the same key.
    fn keys_between(&self, text: &'a [u8]) -> Option<Vec<&'a [u8]>> {
        let next = self.lines.clone().nth(1)?;
        match stack::is_frame(next.text) {
            true => cells::keys(text),
            false => None,
        }
    }

    /// Whether the next block is a stack followed by a value: the second stack of a key.
    fn is_stack_ahead(&self) -> bool {
        let mut ahead = self
            .lines
            .clone()
            .map(Line::without_interrupt)
            .skip_while(|line| line.text.trim_ascii().is_empty());
        if !ahead.next().is_some_and(|line| stack::is_frame(line.text)) {
            return false;
        }
        ahead
            .take(FRAMES_MAX)
            .find(|line| {
                stack::indented(line.text).is_none() || signed(line.text.trim_ascii()).is_some()
            })
            .is_some_and(|line| signed(line.text.trim_ascii()).is_some())
    }

    /// Whether the next block is a value alone: the second stack of a key, `ustack()`, is empty for a kernel thread. In
    /// a text whose stacks have no values, the number belongs to an aggregation without keys.
    fn is_value_ahead(&self) -> bool {
        if self.has_loose_stacks {
            return false;
        }
        let mut ahead = self.lines.clone().map(Line::without_interrupt);
        let next = ahead.find(|line| !line.text.trim_ascii().is_empty());
        next.is_some_and(|line| {
            let is_value = stack::indented(line.text).is_some_and(|text| signed(text).is_some());
            is_value || distribution::head(line.text).is_some()
        })
    }

    fn stack_value(
        &mut self,
        stacks: Vec<Vec<NamedFrame<'a>>>,
        keys: &[&'a [u8]],
        value: i64,
    ) -> Result<(), Error> {
        self.has_stacks = true;
        let mut key = self.key(stacks);
        key.keys.extend(keys);
        self.flush()?;
        self.name(&mut key, false, false);
        self.out
            .aggregate(&mut key, Some(AggregateValue::Int(value)), &[])
    }

    /// A stack without a value: printed by the action `stack()`, or the last one of a truncated text.
    fn loose_stack(
        &mut self,
        first: Line<'a>,
        mut stacks: Vec<Vec<NamedFrame<'a>>>,
    ) -> Result<(), Error> {
        if let Some(hit) = &mut self.hit {
            hit.stacks.append(&mut stacks);
            return Ok(());
        }
        self.has_loose_stacks = true;
        let mut rest = self.lines.clone();
        let is_end = rest
            .by_ref()
            .take(3)
            .all(|line| line.text.trim_ascii().is_empty())
            && rest.next().is_none();
        if is_end && self.has_stacks {
            self.out.problem(first, "a number after the frames below")?;
        }
        let keys = std::mem::take(&mut self.keys).join(&b", "[..]);
        let line = Line {
            text: &keys,
            ..first
        };
        self.out.message(line, &mut stacks)
    }

    /// Reads a table: titles, then a ruler, then rows up to a blank line or the next titles.
    fn table(&mut self, titles: Line<'a>) -> Result<(), Error> {
        self.tables += 1;
        let Some(ruler) = self.next() else {
            return Ok(());
        };
        let rows = Rows {
            lines: self.lines.clone(),
        };
        let Some(columns) = table::Columns::of(titles.text, ruler.text, rows.map(|line| line.text))
        else {
            return self.out.problem(ruler, "a ruler of dashes");
        };
        let title = self.title.take().map(table::plain).unwrap_or_default();
        let name = match title.as_str() {
            "" => format!("table_{}", self.tables),
            title => title.to_owned(),
        };
        let event = self.out.declare(&columns.event_type("dtrace", &name))?;
        let mut rows = Rows {
            lines: self.lines.clone(),
        };
        while let Some(line) = rows.next() {
            self.lines = rows.lines.clone();
            self.printed(line)?;
            match columns.cells(line.text) {
                Some(cells) if columns.fits(&cells) => {
                    let values = columns.values(&cells);
                    let fields = Fields::Values(&values);
                    let sample = Sample {
                        fields,
                        ..Sample::of(event)
                    };
                    self.out.event(Event::Sample(&sample))?;
                }
                _ => self.out.problem(line, "a row of the table above")?,
            }
        }
        Ok(())
    }
}

impl<'a> Text<'a, '_> {
    /// Reads a table without a ruler: rows up to a blank line or a line that is not a row. Repeated titles continue the
    /// same table. Returns `false` if no row follows.
    fn titled_table(&mut self, titles: Line<'a>) -> Result<bool, Error> {
        let title = titles.text.trim_ascii_end();
        let known = self.titled.iter().position(|(known, ..)| *known == title);
        let place = match known {
            Some(place) => place,
            None => {
                let rows =
                    table::RowsUnder::new(self.lines.clone(), title, |text| match is_row(text) {
                        false => Below::End,
                        true if table::is_elision(text) => Below::Other,
                        true => Below::Row,
                    });
                let Some(columns) = table::Columns::under(title, rows)
                    .filter(|columns| columns.has_numbers() && self.titled.len() < TITLED_MAX)
                else {
                    self.titled_in_vain += 1;
                    return Ok(false);
                };
                self.tables += 1;
                let name = format!("table_{}", self.tables);
                let event = self.out.declare(&columns.event_type("dtrace", &name))?;
                self.titled.push((title, columns, event));
                self.titled.len() - 1
            }
        };
        while let Some(line) = self.peek().filter(|line| is_row(line.text)) {
            if table::is_elision(line.text) {
                self.next();
                self.out.problem(line, "the omitted lines")?;
                continue;
            }
            let Some((_, columns, event)) = self.titled.get(place) else {
                break;
            };
            let cells = columns.cells(line.text);
            let Some(cells) = cells.filter(|cells| columns.fits(cells)) else {
                break;
            };
            let values = columns.values(&cells);
            let sample = Sample {
                fields: Fields::Values(&values),
                ..Sample::of(*event)
            };
            self.next();
            self.out.event(Event::Sample(&sample))?;
        }
        Ok(true)
    }
}

/// Whether a line below titles may be a row of their table.
fn is_row(text: &[u8]) -> bool {
    !text.trim_ascii().is_empty()
        && !text.starts_with(b"dtrace: ")
        && !table::is_ruler(text)
        && !table::is_titles(text)
        && !stack::is_frame(text)
        && distribution::head(text).is_none()
}

/// The rows of a table.
#[derive(Clone)]
struct Rows<'a> {
    lines: Lines<'a>,
}

impl<'a> Iterator for Rows<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        let mut ahead = self.lines.clone();
        let line = ahead.next()?.without_interrupt();
        let is_end = line.text.trim_ascii().is_empty()
            || line.text.starts_with(b"dtrace: ")
            || table::is_ruler(line.text)
            || table::framed(line.text).is_some()
            || ahead
                .clone()
                .next()
                .is_some_and(|line| table::is_ruler(line.text));
        if is_end {
            return None;
        }
        self.lines = ahead;
        Some(line)
    }
}
