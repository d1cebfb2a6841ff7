//! The share of a damaged recording that is kept, and checks that no data is lost silently or invented.
//!
//! Each recording is imported undamaged and with each damage at each of 24 places; the rows of both imports are
//! compared. `cargo xtask salvage` runs all of it and prints the table of docs/dev/salvage.md (`PERFQUET_SALVAGE=all`); the
//! test in the normal suite takes fewer places. `PERFQUET_SALVAGE_ONLY` selects one recording, `PERFQUET_SALVAGE_SHOW`
//! prints every damage.
//!
//! | word | meaning |
//! | --- | --- |
//! | kept | share of the undamaged import's rows that are present |
//! | altered | rows that differ from all undamaged ones, at most one per missing row |
//! | invented | events beyond those of the undamaged import, except raw ones of events whose description is lost |
//! | silent | damages that lost rows without a row in `problems` or `losses` |

#[path = "salvage/damage.rs"]
mod damage;
#[path = "salvage/exports.rs"]
mod exports;
#[path = "salvage/grown.rs"]
mod grown;
#[path = "salvage/packed.rs"]
mod packed;
#[path = "salvage/recordings.rs"]
mod recordings;
#[path = "salvage/rows.rs"]
mod rows;
#[path = "../formats/readers/src/trace_dat/test_file.rs"]
mod test_file;

use std::collections::BTreeSet;

use damage::{Damage, PLACES, SIZES};
use recordings::{Family, Recording, recordings};
use rows::Outcome;

/// Figures of one recording under one kind of damage.
#[derive(Debug, Clone, Copy, Default)]
struct Figures {
    damages: u64,
    rows: u64,
    kept: u64,
    /// Sum of the shares.
    share: f64,
    worst: f64,
    altered: u64,
    invented: u64,
    silent: u64,
    /// Damages that touch no packed section of a trace.dat, and the sum of their shares.
    unpacked: u64,
    unpacked_share: f64,
}

impl Figures {
    fn new() -> Figures {
        Figures {
            worst: 1.0,
            ..Figures::default()
        }
    }

    fn add(&mut self, whole: &Outcome, damaged: &Outcome) -> f64 {
        let total = whole.total();
        let kept: u64 = whole
            .rows
            .iter()
            .map(|(row, count)| (*count).min(damaged.rows.get(row).copied().unwrap_or(0)))
            .sum();
        let extra = damaged.total() - kept;
        let missing = total - kept;
        // An event with a damaged description keeps its bytes, in a table that the undamaged trace lacks.
        let table = |row: &str| row.split(' ').next().unwrap_or_default().to_owned();
        let known: BTreeSet<String> = whole.rows.keys().map(|row| table(row)).collect();
        let undescribed: u64 = (damaged.rows.iter())
            .filter(|(row, _)| !known.contains(&table(row)))
            .map(|(_, count)| count)
            .sum();
        let share = kept as f64 / total.max(1) as f64;
        self.damages += 1;
        self.rows += total;
        self.kept += kept;
        self.share += share;
        self.worst = self.worst.min(share);
        self.altered += extra.min(missing);
        let is_told = damaged.error.is_some()
            || (damaged.messages.iter()).any(|message| !whole.messages.contains(message));
        let events = |outcome: &Outcome| -> u64 {
            let rows = outcome.rows.iter();
            rows.map(|(row, count)| count * events_of(row)).sum()
        };
        self.invented +=
            (events(damaged).saturating_sub(undescribed)).saturating_sub(events(whole));
        if missing > extra && events(whole) > events(damaged) && !is_told {
            self.silent += 1;
        }
        share
    }

    fn merge(&mut self, other: &Figures) {
        self.damages += other.damages;
        self.rows += other.rows;
        self.kept += other.kept;
        self.share += other.share;
        self.worst = self.worst.min(other.worst);
        self.altered += other.altered;
        self.invented += other.invented;
        self.silent += other.silent;
        self.unpacked += other.unpacked;
        self.unpacked_share += other.unpacked_share;
    }

    fn mean(&self) -> f64 {
        self.share / self.damages.max(1) as f64
    }
}

fn measure(recording: &Recording, places: usize, show: bool) -> Vec<Figures> {
    let whole = Outcome::of(&recording.bytes);
    assert!(
        whole.total() > 0,
        "{}: no rows without damage: {:?}",
        recording.name,
        whole.error
    );
    let packed = packed::packed_sections(&recording.bytes);
    Damage::all()
        .iter()
        .map(|damage| {
            let mut figures = Figures::new();
            let mut last = None;
            for place in 0..places {
                let offset = damage.offset(recording.bytes.len(), place, places);
                let is_left_out = places < PLACES && !damage.is_usual();
                if !damage.fits(recording.bytes.len()) || is_left_out {
                    break;
                }
                // A small file has fewer pages than places.
                if last == Some(offset) {
                    continue;
                }
                last = Some(offset);
                let bytes = damage.apply(&recording.bytes, offset, place);
                let outcome = Outcome::of(&bytes);
                let before = figures;
                let share = figures.add(&whole, &outcome);
                let end = offset + damage.size();
                if !(packed.iter()).any(|block| offset < block.end && end > block.start) {
                    figures.unpacked += 1;
                    figures.unpacked_share += share;
                }
                if show {
                    println!(
                        "{} {} at {offset}: {:.1} % altered {} invented {} silent {}",
                        recording.name,
                        damage.name(),
                        100.0 * share,
                        figures.altered - before.altered,
                        figures.invented - before.invented,
                        figures.silent - before.silent,
                    );
                    if figures.silent > before.silent || share < 0.95 {
                        show_rows("missing", &whole, &outcome);
                        show_rows("extra", &outcome, &whole);
                    }
                    if share < 0.95 || figures.invented > before.invented {
                        let error = outcome.error.iter();
                        let new = outcome
                            .messages
                            .iter()
                            .filter(|line| !whole.messages.contains(line));
                        error
                            .chain(new.take(6))
                            .for_each(|line| println!("    {line}"));
                    }
                }
            }
            figures
        })
        .collect()
}

/// Number of events in a row. A changed thread splits one call into two halves: that is altered, not lost.
fn events_of(row: &str) -> u64 {
    match row.starts_with("calls ") {
        true => row.matches("_seen=true").count().max(1) as u64,
        false => 1,
    }
}

/// Prints some of the rows that only one of the imports has.
fn show_rows(what: &str, has: &Outcome, lacks: &Outcome) {
    const SHOWN: usize = 6;
    let rows = has.rows.keys().filter(|row| !lacks.rows.contains_key(*row));
    rows.take(SHOWN)
        .for_each(|row| println!("    {what}: {row}"));
}

fn percent(figures: &Figures) -> String {
    match figures.damages {
        0 => "–".to_owned(),
        _ => format!("{:.1}%", 100.0 * figures.mean()),
    }
}

/// The sum of the figures whose damage is one of these.
fn sum_where(by_kind: &[Figures], is_wanted: impl Fn(Damage) -> bool) -> Figures {
    let mut sum = Figures::new();
    let wanted = Damage::all().into_iter().zip(by_kind);
    wanted
        .filter(|(damage, _)| is_wanted(*damage))
        .for_each(|(_, figures)| sum.merge(figures));
    sum
}

type IsKind = fn(Damage) -> bool;

/// A row per recording with the shares by size, and a row per family and kind of damage.
fn table(all: &[(&Recording, Vec<Figures>)]) -> String {
    let sizes: Vec<String> = SIZES.iter().map(ToString::to_string).collect();
    let sizes = sizes.join(" | ");
    let line = |name: &str, by_kind: &[Figures], of: &dyn Fn(Damage) -> bool| {
        let mut shares: Vec<String> = Vec::new();
        for size in SIZES {
            let is_it =
                |damage: Damage| damage != Damage::Zeros && damage.size() == size && of(damage);
            shares.push(percent(&sum_where(by_kind, is_it)));
        }
        let whole = sum_where(by_kind, of);
        format!(
            "| {name} | {} | {} | {} | {} | {} |\n",
            shares.join(" | "),
            percent(&whole),
            whole.altered,
            whole.invented,
            whole.silent
        )
    };
    let mut text = format!(
        "| recording | bytes | rows | {sizes} | kept | altered | invented | silent |\n\
         | --- | ---: | ---: |{} ---: | ---: | ---: | ---: |\n",
        " ---: |".repeat(SIZES.len())
    );
    for (recording, by_kind) in all {
        let rows = by_kind
            .first()
            .map_or(0, |figures| figures.rows / figures.damages.max(1));
        let name = format!("{} | {} | {rows}", recording.name, recording.bytes.len());
        text += &line(&name, by_kind, &|_| true);
    }
    text += &format!(
        "\n| recordings, damage | {sizes} | kept | altered | invented | silent |\n\
         | --- |{} ---: | ---: | ---: | ---: |\n",
        " ---: |".repeat(SIZES.len())
    );
    for family in Family::ALL {
        let sums = sums_of(all, family);
        if sums.iter().all(|figures| figures.damages == 0) {
            continue;
        }
        let kinds: [(&str, IsKind); 3] = [
            ("lost", |damage| matches!(damage, Damage::Lost(_))),
            ("doubled", |damage| matches!(damage, Damage::Doubled(_))),
            ("overwritten", |damage| matches!(damage, Damage::Garbage(_))),
        ];
        for (kind, is_kind) in kinds {
            text += &line(&format!("{}, {kind}", family.name()), &sums, &is_kind);
        }
    }
    text += &table_of_packed(all);
    text
}

/// For each trace.dat with packed sections: the share of the damages that touch them, and the rows kept under these and others.
fn table_of_packed(all: &[(&Recording, Vec<Figures>)]) -> String {
    let mut text = "\n| recording | damages of packed sections | rows kept under these | rows kept under others |\n\
                    | --- | ---: | ---: | ---: |\n"
        .to_owned();
    for (recording, by_kind) in all {
        if packed::packed_sections(&recording.bytes).is_empty() {
            continue;
        }
        let sum = sum_where(by_kind, |_| true);
        let packed = sum.damages - sum.unpacked;
        let share = |share: f64, count: u64| format!("{:.1}%", 100.0 * share / count.max(1) as f64);
        text += &format!(
            "| {} | {packed} of {} | {} | {} |\n",
            recording.name,
            sum.damages,
            share(sum.share - sum.unpacked_share, packed),
            share(sum.unpacked_share, sum.unpacked)
        );
    }
    text
}

/// Figures of a family, by kind of damage.
fn sums_of(all: &[(&Recording, Vec<Figures>)], family: Family) -> Vec<Figures> {
    let mut sums = vec![Figures::new(); Damage::all().len()];
    let family = all
        .iter()
        .filter(|(recording, _)| recording.family() == family);
    for (_, by_kind) in family {
        sums.iter_mut()
            .zip(by_kind)
            .for_each(|(sum, figures)| sum.merge(figures));
    }
    sums
}

/// Damages among all that nothing shows: bytes of a pipe that are missing from one record to the next, another time of an event.
const SILENT_MAX: u64 = 1;
/// Rows with damaged numbers beside those that repeat them.
const INVENTED_MAX: u64 = 16;

#[test]
fn damage_loses_only_what_is_damaged() {
    let all = std::env::var_os("PERFQUET_SALVAGE").is_some();
    let only = std::env::var("PERFQUET_SALVAGE_ONLY").ok();
    let show = std::env::var_os("PERFQUET_SALVAGE_SHOW").is_some();
    let mut recordings = recordings(all);
    recordings.retain(|recording| {
        only.as_ref()
            .is_none_or(|only| recording.name.contains(only))
    });
    let places = match all {
        true => PLACES,
        false => 5,
    };
    let measured: Vec<_> = recordings
        .iter()
        .map(|recording| (recording, measure(recording, places, show)))
        .collect();
    println!("{}", table(&measured));
    for family in Family::ALL {
        let mut whole = Figures::new();
        let sums = sums_of(&measured, family);
        sums.iter().for_each(|figures| whole.merge(figures));
        let name = family.name();
        // Whole records, and pages, that are there twice look like others of the same time.
        let may_repeat = |damage: Damage| matches!(damage, Damage::Doubled(size) if size > 9);
        let invented = sum_where(&sums, |damage| !may_repeat(damage)).invented;
        assert!(
            invented <= u64::from(all) * INVENTED_MAX,
            "{name}: {invented} rows that the recording does not have"
        );
        assert!(
            whole.silent <= u64::from(all) * SILENT_MAX,
            "{name}: {} damages cost rows without a word",
            whole.silent
        );
        assert!(
            whole.damages == 0 || whole.mean() >= family.kept_min(),
            "{name}: {:.1} % kept",
            100.0 * whole.mean()
        );
    }
}
