//! Updates a complete trace: symbolizes its frames again, with the manifest's facts about host and kernel.

use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int32Type, Int64Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::event::Space;

use crate::normalize::Counts;
use crate::normalize::facts::{ESTIMATED_WALL_OFFSET, KERNEL_REFERENCE};
use crate::normalize::texts::{TextId, Texts};
use crate::store::{Directory, Facts, TableId, Writer, WriterOptions};
use crate::symbols::{FRAMES_AT_ONCE, KernelFacts, Name, Options, Origin, Request, Symbolizer};
use crate::{Report, tables};

/// Symbolizes all frames of a complete trace again. A frame without a new name keeps its old one.
pub fn name_again(directory: &Path, options: Options) -> Result<Report, Error> {
    let trace = Directory::open(directory)?;
    let facts = &trace.manifest().facts;
    let origin = origin(facts, first_time(&trace));
    let mut symbolizer = Symbolizer::new(options, kernel_facts(facts), origin)?;
    let frames = Frames::read(&trace)?;
    let names = frames.look_up(&mut symbolizer);
    let mut writer = Writer::open(directory, WriterOptions::default())?;
    let table = writer.add_table(tables::frames::schema())?;
    let counts = frames.write(&names, &mut writer, table)?;
    let summary = writer.finish_replacing()?;
    Ok(Report {
        rows: summary.rows,
        output_bytes: summary.bytes,
        counts,
        symbols: vec![symbolizer.report().clone()],
        ..Report::default()
    })
}

/// Host and time of a recording.
fn origin(facts: &Facts, first: Option<i64>) -> Origin {
    let mut origin = Origin::of_facts(facts, first);
    let estimated = facts.other.get(ESTIMATED_WALL_OFFSET);
    if let (None, Some(offset)) = (origin.wall_offset, estimated) {
        origin.wall_offset = offset.parse().ok();
        origin.is_estimated = true;
    }
    origin
}

/// The first time in a trace.
fn first_time(trace: &Directory) -> Option<i64> {
    let tables = trace.manifest().tables.values();
    tables.filter_map(|table| Some(table.time_range()?.0)).min()
}

/// Kernel facts in the manifest.
pub fn kernel_facts(facts: &Facts) -> KernelFacts {
    let reference = facts.other.get(KERNEL_REFERENCE).and_then(|text| {
        let (name, address) = text.split_once(' ')?;
        let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).ok()?;
        Some((name.to_owned(), address))
    });
    KernelFacts {
        os_release: facts.os_release.clone(),
        build_id: facts.kernel_build_id.as_deref().and_then(bytes_of),
        reference,
    }
}

/// The frames of a trace.
#[derive(Default)]
struct Frames {
    rows: Vec<FrameRow>,
    texts: Texts,
}

/// A row of `frames`.
#[derive(Clone, Copy)]
struct FrameRow {
    id: i32,
    module: Option<TextId>,
    build_id: Option<TextId>,
    offset: Option<u64>,
    address: Option<u64>,
    function: Option<TextId>,
    function_offset: Option<i64>,
    file: Option<TextId>,
    line: Option<i32>,
    inlined_into: Option<i32>,
    space: Space,
    return_address: bool,
    unverified: Option<bool>,
}

impl Frames {
    fn read(trace: &Directory) -> Result<Frames, Error> {
        let mut frames = Frames::default();
        for batch in trace.read(tables::frames::NAME)? {
            frames.add(&batch?);
        }
        Ok(frames)
    }

    fn add(&mut self, batch: &RecordBatch) {
        for row in 0..batch.num_rows() {
            let Some(id) = number::<Int32Type>(batch, "frame_id", row) else {
                continue;
            };
            let mut text = |name| text(batch, name, row).map(|text| self.texts.intern(text));
            let row = FrameRow {
                id,
                module: text("module"),
                build_id: text("build_id"),
                function: text("function"),
                file: text("file"),
                offset: number::<UInt64Type>(batch, "module_offset", row),
                address: number::<UInt64Type>(batch, "address", row),
                function_offset: number::<Int64Type>(batch, "function_offset", row),
                line: number::<Int32Type>(batch, "line", row),
                inlined_into: number::<Int32Type>(batch, "inlined_into", row),
                space: space_of(self::text(batch, "space", row)),
                return_address: truth(batch, "return_address", row) == Some(true),
                unverified: truth(batch, "unverified", row),
            };
            self.rows.push(row);
        }
    }

    /// Frames referenced by stacks: all but the inlined ones.
    fn outer(&self) -> impl Iterator<Item = &FrameRow> {
        self.rows.iter().filter(|row| row.inlined_into.is_none())
    }

    fn text(&self, id: Option<TextId>) -> Option<&[u8]> {
        id.map(|id| self.texts.get(id))
    }

    /// Names of the outer frames, in order; empty if none were found.
    fn look_up(&self, symbolizer: &mut Symbolizer) -> Vec<Vec<Name>> {
        let mut outer: Vec<(usize, &FrameRow)> = self.outer().enumerate().collect();
        // Module by module, so that one symbol table is in memory at a time; the kernel's, which is large, comes last.
        outer.sort_by_key(|(_, row)| (row.space == Space::Kernel, row.module, row.build_id));
        let mut all = vec![Vec::new(); outer.len()];
        for chunk in outer.chunks(FRAMES_AT_ONCE) {
            let build_ids: Vec<Option<Vec<u8>>> = chunk
                .iter()
                .map(|(_, row)| {
                    str::from_utf8(self.text(row.build_id)?)
                        .ok()
                        .and_then(bytes_of)
                })
                .collect();
            let requests: Vec<Request<'_>> = chunk
                .iter()
                .zip(&build_ids)
                .map(|((_, row), build_id)| Request {
                    module: self
                        .text(row.module)
                        .and_then(|module| str::from_utf8(module).ok()),
                    build_id: build_id.as_deref(),
                    offset: row.offset,
                    address: row.address,
                    space: row.space,
                    return_address: row.return_address,
                    ..Request::default()
                })
                .collect();
            for (&(index, _), names) in chunk.iter().zip(symbolizer.names(&requests)) {
                if let Some(slot) = all.get_mut(index) {
                    *slot = names;
                }
            }
        }
        all
    }

    fn write(
        &self,
        names: &[Vec<Name>],
        writer: &mut Writer,
        table: TableId,
    ) -> Result<Counts, Error> {
        let mut counts = Counts::default();
        let mut put = |row: tables::frames::Row<'_>| {
            counts.frames += 1;
            counts.named_frames += u64::from(row.function.is_some());
            row.push(writer.rows(table));
            writer.end_row(table)
        };
        let mut next = 1;
        for (row, names) in self.outer().zip(names) {
            next = next.max(row.id.saturating_add(1));
            let known = self.as_written(row);
            match names.first() {
                Some(name) => put(named(known, name))?,
                None => put(known)?,
            }
        }
        let inlined = self.inlined();
        for (row, names) in self.outer().zip(names) {
            let mut into = row.id;
            if names.is_empty() {
                // Earlier inlined frames stay, under another ID.
                let mut former = row.id;
                while let Some(row) = inlined.get(&former) {
                    former = row.id;
                    put(tables::frames::Row {
                        frame_id: next,
                        inlined_into: Some(into),
                        ..self.as_written(row)
                    })?;
                    into = next;
                    next = next.saturating_add(1);
                }
            }
            for name in names.iter().skip(1) {
                put(tables::frames::Row {
                    frame_id: next,
                    inlined_into: Some(into),
                    ..named(self.as_written(row), name)
                })?;
                into = next;
                next = next.saturating_add(1);
            }
        }
        Ok(counts)
    }

    /// Inlined frames by their outer frame. IDs grow along such a chain, so following it ends.
    fn inlined(&self) -> HashMap<i32, &FrameRow> {
        self.rows
            .iter()
            .filter_map(|row| Some((row.inlined_into?, row)))
            .filter(|(into, row)| *into < row.id)
            .collect()
    }

    fn as_written(&self, row: &FrameRow) -> tables::frames::Row<'_> {
        tables::frames::Row {
            frame_id: row.id,
            module: self.text(row.module),
            build_id: self.text(row.build_id),
            module_offset: row.offset,
            address: row.address,
            function: self.text(row.function),
            function_offset: row.function_offset,
            file: self.text(row.file),
            line: row.line,
            inlined_into: None,
            space: row.space.as_str().map(str::as_bytes),
            return_address: row.return_address,
            unverified: row.unverified,
        }
    }
}

fn named<'a>(row: tables::frames::Row<'a>, name: &'a Name) -> tables::frames::Row<'a> {
    tables::frames::Row {
        function: Some(name.function.as_bytes()),
        function_offset: name
            .function_offset
            .and_then(|offset| offset.try_into().ok()),
        file: name.file.as_deref().map(str::as_bytes),
        line: name.line.and_then(|line| line.try_into().ok()),
        unverified: Some(name.is_unverified),
        ..row
    }
}

fn number<T: ArrowPrimitiveType>(batch: &RecordBatch, name: &str, row: usize) -> Option<T::Native> {
    let values = batch.column_by_name(name)?.as_primitive_opt::<T>()?;
    values.is_valid(row).then(|| values.value(row))
}

fn text<'b>(batch: &'b RecordBatch, name: &str, row: usize) -> Option<&'b [u8]> {
    let values = batch.column_by_name(name)?.as_string_opt::<i32>()?;
    values.is_valid(row).then(|| values.value(row).as_bytes())
}

fn truth(batch: &RecordBatch, name: &str, row: usize) -> Option<bool> {
    let values = batch.column_by_name(name)?.as_boolean_opt()?;
    values.is_valid(row).then(|| values.value(row))
}

fn space_of(text: Option<&[u8]>) -> Space {
    const SPACES: [Space; 5] = [
        Space::Kernel,
        Space::User,
        Space::Hypervisor,
        Space::GuestKernel,
        Space::GuestUser,
    ];
    let is = |space: &Space| space.as_str().map(str::as_bytes) == text;
    SPACES.into_iter().find(is).unwrap_or_default()
}

/// Parses pairs of hexadecimal digits into bytes.
fn bytes_of(text: &str) -> Option<Vec<u8>> {
    text.as_bytes()
        .chunks(2)
        .map(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_ids_come_back() {
        assert_eq!(bytes_of("0af9"), Some(vec![0x0a, 0xf9]));
        assert_eq!(bytes_of("xy"), None);
    }

    #[test]
    fn spaces_come_back() {
        for space in [Space::Unknown, Space::Kernel, Space::GuestUser] {
            assert_eq!(space_of(space.as_str().map(str::as_bytes)), space);
        }
    }
}
