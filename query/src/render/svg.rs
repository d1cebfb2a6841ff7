//! Flame graphs as SVG, by inferno (CDDL-1.0, a port of Brendan Gregg's flamegraph.pl).

use std::borrow::Cow;
use std::io::Write;

use anyhow::Result;
use inferno::flamegraph::color::{MultiPalette, Palette};
use inferno::flamegraph::{self, Options};

use super::text::harmless;

/// Width in pixels that a picture begins with.
pub(crate) const USUAL_WIDTH: u32 = 1200;
/// Boxes that are narrower are not drawn.
pub(crate) const NARROWEST_PIXELS: f64 = 0.1;

/// Labels of a flame graph.
pub(crate) struct Picture {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    /// What the widths count.
    pub(crate) count_name: String,
    pub(crate) width: Option<u32>,
}

/// Draws folded stacks that are in order. Names that end in `_[k]` are coloured as the kernel's.
pub(crate) fn write(mut out: &mut dyn Write, lines: &[String], picture: &Picture) -> Result<()> {
    let mut options = Options::default();
    options.title = harmless(&picture.title).into_owned();
    options.subtitle = Some(harmless(&picture.subtitle).into_owned());
    options.count_name = harmless(&picture.count_name).into_owned();
    options.colors = Palette::Multi(MultiPalette::Java);
    options.image_width = picture.width.map(|width| width as usize);
    options.min_width = NARROWEST_PIXELS / f64::from(picture.width.unwrap_or(USUAL_WIDTH)) * 100.0;
    // The same trace gives the same picture.
    options.hash = true;
    let lines: Vec<_> = lines.iter().map(|line| with_one_count(line)).collect();
    flamegraph::from_lines(&mut options, lines.iter().map(AsRef::as_ref), &mut out)?;
    Ok(out.flush()?)
}

/// inferno takes two numbers at the end of a line for a difference: where a name ends in a number, the blank before
/// it becomes one that does not divide words.
fn with_one_count(line: &str) -> Cow<'_, str> {
    let parts = line
        .rsplit_once(' ')
        .and_then(|(stack, count)| Some((stack.rsplit_once(' ')?, count)));
    match parts {
        Some(((stack, last), count)) if last.parse::<f64>().is_ok() => {
            Cow::Owned(format!("{stack}\u{a0}{last} {count}"))
        }
        _ => Cow::Borrowed(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_end_in_a_number() {
        assert_eq!(with_one_count("a;worker 12 5"), "a;worker\u{a0}12 5");
        assert_eq!(with_one_count("a;f(int, int) 5"), "a;f(int, int) 5");
        assert_eq!(with_one_count("a 5"), "a 5");
        let picture = Picture {
            title: "a\u{1}".to_owned(),
            subtitle: String::new(),
            count_name: "samples".to_owned(),
            width: None,
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.svg");
        let lines = ["a;worker 12 5".to_owned(), "a;worker 13 7".to_owned()];
        write(&mut std::fs::File::create(&path).unwrap(), &lines, &picture).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.contains("worker\u{a0}12 (5 samples, 41.67%)"),
            "{text}"
        );
        assert!(!text.contains('\u{1}') && text.contains("a\\x01"));
    }
}
