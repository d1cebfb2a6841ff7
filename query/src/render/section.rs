//! Results of reports, independent of the output format.

use anyhow::{Result, bail};
use arrow::array::RecordBatch;

use perfquet::Answer;
use perfquet::failure::Misuse;

use super::Calls;
use super::distribution::Distributions;
use super::flame::Flame;
use super::grid::Grid;
use super::heat::Heat;
use super::listing::Listing;
use super::notes::Notes;
use super::page::Page;
use super::plot::Plot;
use super::violins::Durations;

/// The result of a report.
pub(crate) struct Answered<'s> {
    /// Totals in one line, printed to stderr: `cpu-clock: 1,417 samples`.
    pub(crate) summary: Option<String>,
    /// A note on omitted data, printed after the summary: `3 below 0 omitted`.
    pub(crate) omitted: Option<String>,
    pub(crate) section: Section<'s>,
}

impl<'s> Answered<'s> {
    /// An answer without a summary.
    pub(crate) fn new(section: Section<'s>) -> Answered<'s> {
        Answered {
            summary: None,
            omitted: None,
            section,
        }
    }

    /// Adds the summary.
    pub(crate) fn with_summary(self, summary: String) -> Answered<'s> {
        Answered {
            summary: Some(summary),
            ..self
        }
    }

    /// Adds a note on omitted data.
    pub(crate) fn with_omitted(self, omitted: Option<String>) -> Answered<'s> {
        Answered { omitted, ..self }
    }
}

/// A kind of result. Every kind has rows; some have a drawing as well.
pub(crate) enum Section<'s> {
    /// Rows while they are computed.
    Stream(Answer<'s>),
    /// Rows. `render::TERMINAL` documents the metadata of fields.
    Table(RecordBatch),
    Calls(Calls<'s>),
    /// Instructions or source lines with their percentages.
    Listing(Listing),
    /// Findings: paragraphs for people.
    Notes(Notes),
    Distributions(Distributions),
    Flame(Flame),
    Heat(Heat),
    Grid(Grid),
    Page(Page),
    Plot(Plot),
    /// Rows and a shape per function.
    Durations(Durations),
    /// Text in the layout of another tool, without rows.
    Text(Vec<u8>),
}

/// What a section is without its shape.
pub(super) enum Rows<'a> {
    Answer(Answer<'a>),
    Batch(RecordBatch),
    /// No rows: the same in every format.
    Page(Page),
    Text(Vec<u8>),
}

impl<'a> Section<'a> {
    /// Returns the rows.
    pub(super) fn rows(self) -> Result<Rows<'a>> {
        Ok(Rows::Batch(match self {
            Section::Stream(answer) => return Ok(Rows::Answer(answer)),
            Section::Calls(calls) => return Ok(Rows::Answer(calls.answer)),
            Section::Page(page) => return Ok(Rows::Page(page)),
            Section::Text(text) => return Ok(Rows::Text(text)),
            Section::Table(batch) => batch,
            Section::Listing(listing) => listing.rows,
            Section::Notes(notes) => notes.rows,
            Section::Distributions(distributions) => distributions.rows,
            Section::Durations(durations) => durations.rows,
            Section::Flame(flame) => flame.rows()?,
            Section::Heat(heat) => heat.rows()?,
            Section::Grid(grid) => grid.rows()?,
            Section::Plot(plot) => plot.rows()?,
        }))
    }

    /// Returns all rows; one empty batch if there are none.
    pub(crate) fn batches(self) -> Result<Vec<RecordBatch>> {
        let mut answer = match self.rows()? {
            Rows::Answer(answer) => answer,
            Rows::Batch(batch) => return Ok(vec![batch]),
            Rows::Page(_) | Rows::Text(_) => {
                bail!(Misuse("expected a report with rows".to_owned()))
            }
        };
        let mut batches = Vec::new();
        while let Some(batch) = answer.next_batch()? {
            batches.push(batch);
        }
        if batches.is_empty() {
            batches.push(RecordBatch::new_empty(answer.schema()));
        }
        Ok(batches)
    }
}
