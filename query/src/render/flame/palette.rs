//! Colors of flame graphs, light and dark. Neighbors differ in lightness too, for the color-blind and for paper.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::tree::Kind;

/// Light and dark color of a class of boxes.
pub(super) struct Color {
    pub(super) class: &'static str,
    light: &'static str,
    dark: &'static str,
}

const fn color(class: &'static str, light: &'static str, dark: &'static str) -> Color {
    Color { class, light, dark }
}

/// Colors of kinds in pictures of time on a CPU and of events.
const ON_CPU: [Color; 9] = [
    color("g", "#dde3ea", "#2f3741"),
    color("i", "url(#hatch)", "url(#hatch)"),
    color("k", "#ee9672", "#a34b30"),
    color("p", "#f8dc8c", "#7d641a"),
    color("l", "#93d0b3", "#2b735a"),
    color("n", "#d7b2ec", "#7a4b90"),
    color("j", "#c5d489", "#5f6b22"),
    color("u", "#c9cfd6", "#4a525c"),
    color("f", "#f8cf86", "#7f5c1c"),
];

/// In pictures of time off the CPU: blue, as in other tools.
const OFF_CPU: [Color; 9] = [
    color("g", "#dde3ea", "#2f3741"),
    color("i", "url(#hatch)", "url(#hatch)"),
    color("k", "#84aede", "#2a5c99"),
    color("p", "#c4dbf5", "#3f6d92"),
    color("l", "#98d2e4", "#256f84"),
    color("n", "#c0bdf0", "#5b559b"),
    color("j", "#a9d8cd", "#2d7468"),
    color("u", "#c9cfd6", "#4a525c"),
    color("f", "#b5d3f2", "#35679a"),
];

/// Colors of the heaviest modules, and of all others.
const MODULES: [Color; 9] = [
    color("m0", "#8fb8e8", "#2d5f9a"),
    color("m1", "#f3b27a", "#955421"),
    color("m2", "#97d3a8", "#2c7348"),
    color("m3", "#eba4b8", "#94405c"),
    color("m4", "#f3dc87", "#75601c"),
    color("m5", "#c3aee9", "#65489a"),
    color("m6", "#94d4d6", "#246e72"),
    color("m7", "#d8b99c", "#715338"),
    color("m8", "#d0d5db", "#454d57"),
];

/// Number of modules with a separate color.
pub(super) const OWN_MODULES: usize = MODULES.len() - 1;

/// Colors of differences, from much less to much more. Blue and orange remain distinct for all kinds of color blindness.
const CHANGES: [Color; 9] = [
    color("d0", "#4b96c9", "#1f76b4"),
    color("d1", "#7db5da", "#245f8a"),
    color("d2", "#abd0e7", "#2a4d68"),
    color("d3", "#d5e6f2", "#2d4050"),
    color("d4", "#e3e6ea", "#383f48"),
    color("d5", "#fbe2d3", "#553f33"),
    color("d6", "#f8c4a6", "#75462e"),
    color("d7", "#f2a077", "#9a5029"),
    color("d8", "#e77c4a", "#c25b20"),
];

/// The color of no change.
pub(super) const UNCHANGED: usize = CHANGES.len() / 2;
/// Number of colors of differences.
pub(super) const STEPS: usize = CHANGES.len();

/// Classes of kinds, in the order of [`Kind::ALL`].
pub(super) fn kind_class(kind: Kind) -> &'static str {
    let place = Kind::ALL.iter().position(|&other| other == kind);
    ON_CPU[place.unwrap_or_default()].class
}

pub(super) fn module_class(place: usize) -> &'static str {
    MODULES[place.min(OWN_MODULES)].class
}

pub(super) fn change_class(step: usize) -> &'static str {
    CHANGES[step.min(STEPS - 1)].class
}

/// All colors for a script, light and dark, kinds in the order of [`Kind::ALL`].
pub(crate) fn table() -> Value {
    let pairs = |colors: &[Color]| -> Vec<[&str; 2]> {
        colors
            .iter()
            .map(|color| [color.light, color.dark])
            .collect()
    };
    json!({
        "kinds": pairs(&ON_CPU),
        "off_cpu": pairs(&OFF_CPU),
        "modules": pairs(&MODULES),
        "changes": pairs(&CHANGES),
        "names": Kind::ALL.map(Kind::name),
    })
}

/// Number of shades of a color, which distinguish adjacent boxes.
const SHADES: u32 = 4;

/// The shade of a name, the same everywhere.
pub(super) fn shade(name: &str) -> u32 {
    // FNV-1a.
    let hash = name.bytes().fold(0x811c_9dc5u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    (hash ^ hash >> 16) % SHADES
}

/// Styles for light and dark mode.
pub(super) fn styles(is_off_cpu: bool, is_difference: bool) -> [String; 2] {
    let kinds = if is_off_cpu { &OFF_CPU } else { &ON_CPU };
    let mut light = String::from(
        ".s1{fill-opacity:.88}.s2{fill-opacity:.76}.s3{fill-opacity:.64}.root{fill:#eef1f4}.hatch{fill:#eef0f2}.stripe{stroke:#c2c8d0}\
         text.words{fill:#1f2328}.hit{fill:#b04fd0!important;fill-opacity:1}.up{opacity:.55}.by-kind .modules,.by-module .kinds{display:none}\
         rect.b:hover{stroke:#24292f;stroke-width:1}.words{pointer-events:none}\n",
    );
    let mut dark = String::from(
        ".root{fill:#21262d}.hatch{fill:#262c34}.stripe{stroke:#444c56}text.words{fill:#f0f3f6}.hit{fill:#c65be8!important}rect.b:hover{stroke:#e6edf3}\n",
    );
    let mut add = |scope: &str, colors: &[Color]| {
        for color in colors {
            let _ = write!(light, "{scope}.{}{{fill:{}}}", color.class, color.light);
            if color.light != color.dark {
                let _ = write!(dark, "{scope}.{}{{fill:{}}}", color.class, color.dark);
            }
        }
    };
    match is_difference {
        true => add("", &CHANGES),
        false => {
            add(".by-kind ", kinds);
            add(".by-module ", &MODULES);
        }
    }
    [light, dark]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_class() {
        let classes: std::collections::HashSet<&str> = Kind::ALL.map(kind_class).into();
        assert_eq!(classes.len(), Kind::ALL.len());
        assert_eq!(kind_class(Kind::Kernel), "k");
        assert_eq!(kind_class(Kind::Function), "f");
    }

    #[test]
    fn names_have_different_shades() {
        let shades: std::collections::HashSet<u32> =
            ["read", "write", "main", "open", "close", "poll"]
                .map(shade)
                .into();
        assert!(shades.len() > 2);
    }
}
