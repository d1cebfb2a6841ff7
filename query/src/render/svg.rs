//! Flame graphs as SVG, by inferno (CDDL-1.0, a port of Brendan Gregg's flamegraph.pl).

use std::io::Write;

use anyhow::Result;
use inferno::flamegraph::color::{MultiPalette, Palette};
use inferno::flamegraph::{self, Options};

/// Width in pixels that a picture begins with.
pub(crate) const USUAL_WIDTH: u32 = 1200;
/// Boxes that are narrower are not drawn.
pub(crate) const NARROWEST_PIXELS: f64 = 0.1;

/// What is written around the boxes.
pub(crate) struct Picture {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    /// What the widths count.
    pub(crate) count_name: String,
    pub(crate) width: Option<u32>,
}

/// Draws folded stacks that are in order. Names that end in `_[k]` are coloured as the kernel's.
pub(crate) fn write(mut out: Box<dyn Write>, lines: &[String], picture: &Picture) -> Result<()> {
    let mut options = Options::default();
    options.title.clone_from(&picture.title);
    options.subtitle = Some(picture.subtitle.clone());
    options.count_name.clone_from(&picture.count_name);
    options.colors = Palette::Multi(MultiPalette::Java);
    options.image_width = picture.width.map(|width| width as usize);
    options.min_width = NARROWEST_PIXELS / f64::from(picture.width.unwrap_or(USUAL_WIDTH)) * 100.0;
    // The same trace gives the same picture.
    options.hash = true;
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut out)?;
    Ok(out.flush()?)
}
