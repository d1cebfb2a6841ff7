//! Where the code of a function is from: the recorded file, or what the recorder kept of it.
//!
//! ```text
//! code   time 1.23 s, /tmp/perf-4711.map, 0x7f2c4a3b1000, 420 bytes      →  code kept by the recorder at 1.230 s
//! ```
//! A file that is proven to be the recorded one is preferred, since it has source lines and the names of called functions.

use anyhow::{Context, Result};
use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use perfquet::Session;
use perfquet::sql::names::literal;
use perfquet::unit::in_fitting_unit;
use perfquet_trace::count::counted;
use perfquet_trace::symbols::{Code, CodePlace, CodeReader, Machine};

use super::sampled::{Function, Hits, Sampled};
use super::{WeightedEvent, bytes_of, origin};

/// The table of kept code.
const TABLE: &str = "code";

/// The code of functions, and notes about where it came from.
pub(super) struct Codes<'s> {
    session: &'s Session,
    subjects: &'s [WeightedEvent],
    /// Condition of the samples.
    condition: &'s str,
    pub(super) reader: CodeReader,
    has_kept: bool,
}

/// A version that the recorder kept.
struct Version {
    /// Trace, and time on the timeline.
    trace: String,
    time: Option<i64>,
    code: Code,
}

impl<'s> Codes<'s> {
    pub(super) fn new(
        session: &'s Session,
        subjects: &'s [WeightedEvent],
        condition: &'s str,
        options: &perfquet_trace::symbols::Options,
    ) -> Codes<'s> {
        Codes {
            session,
            subjects,
            condition,
            reader: CodeReader::new(options, origin(session)),
            has_kept: session.has_rows(TABLE),
        }
    }

    /// Returns the code of a function with notes on its origin; or the reason why there is none.
    pub(super) fn of(
        &mut self,
        function: &Function,
        hits: &Hits,
    ) -> Result<Result<(Code, Vec<String>), String>> {
        let build_id = function.build_id.as_deref().and_then(bytes_of);
        // Any sampled place is in the function; its start may be that of another name.
        let place = hits.places.keys().next().copied();
        let found = self.reader.function(&CodePlace {
            module: &function.module,
            build_id: build_id.as_deref(),
            file: None,
            first_mapped: None,
            offset: place.unwrap_or(function.start),
            function: (&function.name, function.start),
        });
        let is_proven = found.as_ref().is_ok_and(|code| code.is_verified);
        if self.has_kept && !is_proven {
            let mut versions = self.versions(function)?;
            if let Some(last) = versions.pop() {
                let notes = self.notes(function, &last, &versions)?;
                return Ok(Ok((last.code, notes)));
            }
        }
        Ok(found.map(|code| (code, Vec::new())))
    }

    /// The versions of a function, the last one at the end. Neighbors differ.
    fn versions(&self, function: &Function) -> Result<Vec<Version>> {
        let trace = match self.session.traces().len() {
            1 => "''",
            _ => "CAST(trace AS TEXT)",
        };
        let build_id = match &function.build_id {
            Some(id) => format!("= {}", literal(id)),
            None => "IS NULL".to_owned(),
        };
        let sql = format!(
            "SELECT {trace}, CAST(time AS BIGINT), address, size, machine, code FROM {TABLE} \
             WHERE module = {} AND build_id {build_id} AND function_start = {} ORDER BY 2 NULLS FIRST, 1",
            literal(&function.module),
            function.start,
        );
        let mut versions: Vec<Version> = Vec::new();
        for batch in self.session.collect(&sql)? {
            let column = |index: usize, kind: &DataType| cast(batch.column(index), kind);
            let (traces, machines) = (column(0, &DataType::Utf8)?, column(4, &DataType::Utf8)?);
            let (times, sizes) = (column(1, &DataType::Int64)?, column(3, &DataType::Int64)?);
            let (addresses, codes) = (column(2, &DataType::UInt64)?, column(5, &DataType::Binary)?);
            let (traces, machines) = (traces.as_string::<i32>(), machines.as_string::<i32>());
            let times = times.as_primitive::<Int64Type>();
            let sizes = sizes.as_primitive::<Int64Type>();
            let addresses = addresses.as_primitive::<UInt64Type>();
            let codes = codes.as_binary::<i32>();
            for row in 0..batch.num_rows() {
                let machine = Machine::of_name(machines.value(row))
                    .with_context(|| format!("{TABLE}: machine: unknown name"))?;
                let code = Code::kept(
                    (function.name.clone(), function.start),
                    addresses.value(row),
                    machine,
                    codes.value(row).to_vec(),
                    u64::try_from(sizes.value(row)).unwrap_or_default(),
                );
                if versions
                    .last()
                    .is_some_and(|last| last.code.bytes == code.bytes)
                {
                    continue;
                }
                versions.push(Version {
                    trace: traces.value(row).to_owned(),
                    time: times.is_valid(row).then(|| times.value(row)),
                    code,
                });
            }
        }
        Ok(versions)
    }

    /// Says where the code is from, and which samples may be of other code.
    fn notes(
        &self,
        function: &Function,
        last: &Version,
        earlier: &[Version],
    ) -> Result<Vec<String>> {
        let begin = self
            .session
            .traces()
            .first()
            .and_then(|trace| trace.time_range());
        let at = last.time.zip(begin).map(|(time, (begin, _))| {
            format!(" at {}", in_fitting_unit(time.saturating_sub(begin) as f64))
        });
        let of_trace = match last.trace.as_str() {
            "" => String::new(),
            trace => format!(" of {trace}"),
        };
        let mut notes = vec![format!(
            "code kept by the recorder{of_trace}{}",
            at.unwrap_or_default()
        )];
        let (Some(time), false) = (last.time, earlier.is_empty()) else {
            return Ok(notes);
        };
        let before = format!("({}) AND time < {time}", self.condition);
        let before = Sampled::query(self.session, self.subjects, &before)?;
        let samples = before.functions.get(function).map_or(0, |hits| {
            hits.total.iter().map(|weight| weight.samples).sum::<u64>()
        });
        notes.push(format!(
            "the code changed while it was recorded ({}): {} before then may be of earlier code",
            counted(earlier.len() as u64 + 1, "version"),
            counted(samples, "sample"),
        ));
        Ok(notes)
    }
}
