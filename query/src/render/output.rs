//! Writes the result of a report: rows in any format, the text layout of another tool, or an image.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, bail};
use arrow::array::RecordBatch;

use perfquet::failure::Misuse;

use super::destination::Destination;
use super::section::{Answered, Rows, Section};
use super::{Format, begin, fail_on_terminal, is_colored, is_terminal, people, stream, width};

/// The form of a report's output, and its destination.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    pub(crate) shape: Shape,
    /// The path; `None` for stdout.
    pub(crate) path: Option<PathBuf>,
    /// Whether to overwrite an existing file.
    pub(crate) force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Rows(Format),
    Svg,
    /// A report page.
    Html,
    /// Characters that draw the same, as wide as the terminal.
    Drawing,
    /// A drawing of characters on a terminal, an image elsewhere.
    SvgOrDrawing,
    /// `main;read 12`, one stack per line.
    Folded,
}

impl Form {
    /// Rows on stdout.
    pub(crate) fn rows(format: Format) -> Form {
        Form {
            shape: Shape::Rows(format),
            path: None,
            force: false,
        }
    }
}

/// A report's output while it is written.
pub(crate) struct Output {
    form: Form,
    destination: Destination,
    terminal: bool,
}

impl Output {
    /// Opens the file, if any. Fails if it exists already, or if stdout is a terminal and the output is binary or an
    /// image.
    pub(crate) fn open(mut form: Form) -> Result<Output> {
        let terminal = form.path.is_none() && is_terminal();
        if form.shape == Shape::SvgOrDrawing {
            form.shape = if terminal { Shape::Drawing } else { Shape::Svg };
        }
        match form.shape {
            Shape::Svg if terminal => bail!(Misuse(
                "cannot write an image to a terminal\nhint: use -o PATH.svg".to_owned()
            )),
            Shape::Html if terminal => bail!(Misuse(
                "cannot write a page to a terminal\nhint: use -o PATH.html".to_owned()
            )),
            Shape::Rows(format) if terminal => fail_on_terminal(format)?,
            Shape::Svg
            | Shape::Html
            | Shape::Drawing
            | Shape::SvgOrDrawing
            | Shape::Rows(_)
            | Shape::Folded => {}
        }
        let destination = Destination::open(form.path.as_deref(), form.force)?;
        Ok(Output {
            form,
            destination,
            terminal,
        })
    }

    /// Writes the summary to stderr and the result to its destination.
    pub(crate) fn write(mut self, answered: Answered<'_>) -> Result<()> {
        let Answered {
            summary,
            omitted,
            section,
        } = answered;
        let omitted = omitted.map_or_else(String::new, |omitted| format!("; {omitted}"));
        if matches!(self.form.shape, Shape::Svg | Shape::Html) {
            let path = self.form.path.take();
            let drawn = self.draw(&section);
            let written = drawn.and_then(|()| self.destination.finish());
            written?;
            let place = path.map(|path| format!(" to {}", path.display()));
            if let Some(summary) = summary {
                let verb = match self.form.shape {
                    Shape::Html => "written",
                    _ => "drawn",
                };
                say!("{summary} {verb}{}{omitted}", place.unwrap_or_default());
            }
            print_notes(&section);
            return Ok(());
        }
        if let (Some(summary), Shape::Rows(_) | Shape::Drawing) = (summary, self.form.shape) {
            say!("{summary}{omitted}");
        }
        match self.form.shape {
            Shape::Rows(format @ (Format::Table | Format::Records)) => {
                self.text(format, section)?
            }
            Shape::Rows(format) => self.rows(format, section)?,
            Shape::Folded => self.folded(&section)?,
            Shape::Drawing | Shape::SvgOrDrawing => {
                print_notes(&section);
                self.characters(&section)?;
            }
            Shape::Svg | Shape::Html => {}
        }
        self.destination.finish()
    }

    fn draw(&mut self, section: &Section<'_>) -> Result<()> {
        match section {
            Section::Flame(flame) => flame.draw(&mut self.destination),
            Section::Heat(heat) => heat.draw(&mut self.destination),
            Section::Grid(grid) => grid.draw(&mut self.destination),
            Section::Page(page) => page.write(&mut self.destination),
            Section::Plot(plot) => plot.draw(&mut self.destination),
            Section::Durations(durations) => durations.draw(&mut self.destination),
            Section::Stream(_)
            | Section::Table(_)
            | Section::Calls(_)
            | Section::Listing(_)
            | Section::Notes(_)
            | Section::Distributions(_)
            | Section::Text(_) => bail!("this result has no image"),
        }
    }

    fn characters(&mut self, section: &Section<'_>) -> Result<()> {
        let columns = self.terminal.then(width).flatten().unwrap_or(PLAIN_COLUMNS);
        match section {
            Section::Flame(flame) => {
                let is_colored = self.terminal && is_colored();
                flame.write_text(&mut self.destination, columns, is_colored)
            }
            Section::Plot(plot) => {
                let is_colored = self.terminal && is_colored();
                plot.write_text(&mut self.destination, columns, is_colored)
            }
            _ => bail!("this result has no drawing"),
        }
    }

    fn folded(&mut self, section: &Section<'_>) -> Result<()> {
        match section {
            Section::Flame(flame) => flame.write_folded(&mut self.destination),
            _ => bail!("this result has no stacks"),
        }
    }

    fn text(&mut self, format: Format, section: Section<'_>) -> Result<()> {
        match section {
            Section::Calls(calls) => calls.write(&mut self.destination),
            Section::Notes(notes) if format == Format::Table => notes.write(&mut self.destination),
            Section::Listing(listing) if format == Format::Table => {
                listing.write(&mut self.destination)
            }
            Section::Distributions(distributions) => distributions.write(&mut self.destination),
            Section::Table(batch) => self.batch(format, &people::shaped(&batch)?),
            Section::Durations(durations) => self.batch(format, &people::shaped(&durations.rows)?),
            Section::Stream(_)
            | Section::Listing(_)
            | Section::Notes(_)
            | Section::Text(_)
            | Section::Page(_)
            | Section::Flame(_)
            | Section::Heat(_)
            | Section::Grid(_)
            | Section::Plot(_) => self.rows(format, section),
        }
    }

    fn rows(&mut self, format: Format, section: Section<'_>) -> Result<()> {
        let mut answer = match section.rows()? {
            Rows::Answer(answer) => answer,
            Rows::Batch(batch) => return self.batch(format, &batch),
            Rows::Page(page) => return page.write(&mut self.destination),
            // Another tool's layout is the same in every format.
            Rows::Text(text) => return Ok(self.destination.write_all(&text)?),
        };
        let count = stream(format, &mut answer, &mut self.destination, self.terminal)?;
        report_if_empty(count);
        Ok(())
    }

    fn batch(&mut self, format: Format, batch: &RecordBatch) -> Result<()> {
        let out = &mut self.destination;
        let mut rows = begin(format, batch.schema(), out, self.terminal)?;
        rows.rows(batch)?;
        rows.finish()?;
        report_if_empty(batch.num_rows() as u64);
        Ok(())
    }
}

/// Width of a drawing that is not for a terminal.
const PLAIN_COLUMNS: usize = 120;

/// Prints the notes of a picture, such as the number of incomplete stacks.
fn print_notes(section: &Section<'_>) {
    if let Section::Flame(flame) = section {
        flame.notes.iter().for_each(|note| say!("{note}"));
    }
}

fn report_if_empty(count: u64) {
    if count == 0 {
        say!("no rows");
    }
}
