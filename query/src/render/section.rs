//! What a report answers, before it has a form.

use arrow::array::RecordBatch;

use super::Calls;
use super::distribution::Distributions;
use super::flame::Flame;
use super::heat::Heat;
use super::violins::Durations;
use crate::session::Answer;

/// What a report answers.
pub(crate) struct Answered<'s> {
    /// Totals in one line, printed to stderr: `cpu-clock: 1,417 samples`.
    pub(crate) summary: Option<String>,
    /// What the result lacks, printed after the summary: `3 below 0 omitted`.
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

    /// Adds what the result lacks.
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
    Distributions(Distributions),
    Flame(Flame),
    Heat(Heat),
    /// Rows and a shape per function.
    Durations(Durations),
    /// Text in another tool's layout, which has no rows.
    Text(Vec<u8>),
}
