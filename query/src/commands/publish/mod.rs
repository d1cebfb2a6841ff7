//! `publish`: copies the traces of a lake to an object store, and removes outdated traces and leftover files.
//!
//! `perfquet-convert --to lake -o s3://bucket/lake` starts it as a child, which reads commands from stdin, one per line.

mod conversation;
mod store;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{ArgMatches, Args};
use perfquet::failure::Misuse;
use perfquet_trace::count::counted;
use perfquet_trace::lake::Lake;
use perfquet_trace::remote::is_url;

use super::{Subcommand, arguments};
use crate::text::bytes;
use store::{Change, Store};

pub(super) const COMMAND: Subcommand = Subcommand::new::<Publish>("publish", run);

/// Copy a lake to an object store, incrementally
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Copy the traces that the bucket lacks, or has without their latest symbols
  perfquet-query publish /srv/lake s3://bucket/lake
  # Remove traces recorded more than 30 days ago
  perfquet-query publish s3://bucket/lake --retain 30d
  # Remove files that killed writers left more than a day ago
  perfquet-query publish s3://bucket/lake --clean

perfquet-convert TRACE... --to lake -o s3://bucket/lake publishes traces without a lake in a directory.
Credentials come from the environment, as for queries.")]
struct Publish {
    /// Directory of a lake, if traces are to be copied; then the URL: s3://, gs:// or az://
    #[arg(value_name = "[LAKE] URL", required = true, num_args = 1..=2)]
    places: Vec<PathBuf>,
    /// Remove traces that were recorded more than DAYS ago, such as 30d
    #[arg(long, value_name = "DAYS", value_parser = days)]
    retain: Option<u64>,
    /// Remove files that belong to no trace and are older than a day
    ///
    /// Killed writers leave them. Publishing the same trace again removes them, too.
    #[arg(long)]
    clean: bool,
    /// Read requests from stdin, as perfquet-convert sends them
    #[arg(long, hide = true)]
    converse: bool,
}

fn days(text: &str) -> Result<u64, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse().ok());
    days.filter(|days| *days < 100_000)
        .ok_or_else(|| "expected a number of days such as 30d".to_owned())
}

fn run(matches: &ArgMatches) -> Result<()> {
    let publish: Publish = arguments(matches)?;
    let (lake, url) = match publish.places.as_slice() {
        [url] => (None, url),
        [lake, url] => (Some(lake.as_path()), url),
        _ => unreachable!("clap demands one or two"),
    };
    let shown = url.display();
    let Some(url) = url.to_str().filter(|url| is_url(url)) else {
        bail!(Misuse(format!(
            "{shown}: expected the URL of an object store\nhint: for a lake in a directory: perfquet-convert TRACE... --to lake -o DIR"
        )));
    };
    if publish.converse {
        return conversation::hold(url);
    }
    if lake.is_none() && publish.retain.is_none() && !publish.clean {
        bail!(Misuse(
            "expected a lake to copy, --retain or --clean\nhint: perfquet-query publish LAKE URL"
                .to_owned()
        ));
    }
    let mut store = Store::open(url)?;
    let mut change = Change::default();
    if let Some(lake) = lake {
        copy(lake, &mut store, &mut change)?;
    }
    if let Some(days) = publish.retain {
        store.retain(&first_date(days), &mut change)?;
    }
    if publish.clean {
        store.clean(&mut change)?;
    }
    say!("{url}: {}", sentence(&change));
    Ok(())
}

/// Copies the traces of a lake in a directory.
fn copy(root: &Path, store: &mut Store, change: &mut Change) -> Result<()> {
    let root = match root.to_str().and_then(|text| text.strip_prefix("lake:")) {
        Some(path) if !root.exists() => Path::new(path),
        _ => root,
    };
    if root.to_str().is_some_and(is_url) {
        bail!(Misuse(format!(
            "{}: expected the directory of a lake\nhint: between buckets, copy with the tool of the store",
            root.display()
        )));
    }
    // Writers wait while it is open: only for its records.
    let lake = Lake::open(root)?;
    let (root, records) = (lake.root().to_owned(), lake.records()?);
    let changing = lake.changing().len();
    drop(lake);
    if changing > 0 {
        say!(
            "{}: {} left out, half published\nhint: the next perfquet-convert --to lake completes it",
            root.display(),
            counted(changing as u64, "trace")
        );
    }
    let traces: Vec<(String, String)> = records
        .iter()
        .map(|record| (record.trace.clone(), record.content.clone()))
        .collect();
    let needed = store.needed(&traces)?;
    change.unchanged += needed.iter().filter(|needed| !**needed).count() as u64;
    let records = records
        .into_iter()
        .zip(needed)
        .filter(|(_, needed)| *needed);
    store.publish(&root, records.map(|(record, _)| record).collect(), change)
}

/// The first date of the last days.
fn first_date(days: u64) -> String {
    let today = store::now_s() / 86_400;
    date(today.saturating_sub(days))
}

/// The date of a number of days since 1970, counted in years that begin on 1 March.
fn date(days: u64) -> String {
    let days = days + 719_468; // since 0000-03-01
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = match month < 10 {
        true => (era * 400 + year, month + 3),
        false => (era * 400 + year + 1, month - 9),
    };
    format!("{year:04}-{month:02}-{day:02}")
}

/// `2 traces published, 1 trace unchanged, 52 files, 1.2 MiB; 70 requests`
fn sentence(change: &Change) -> String {
    let mut parts = vec![format!("{} published", counted(change.published, "trace"))];
    let mut add = |count: u64, noun: &str, what: &str| {
        if count > 0 {
            parts.push(format!("{}{what}", counted(count, noun)));
        }
    };
    add(change.unchanged, "trace", " unchanged");
    add(change.removed, "trace", " removed");
    add(
        change.kept,
        "trace",
        " kept, merged or changed by another process",
    );
    add(change.abandoned, "file", " of killed writers removed");
    add(
        change.young,
        "file",
        " without a trace kept, less than a day old",
    );
    add(change.foreign, "other file", " kept");
    add(change.files, "file", " uploaded");
    if change.bytes > 0 {
        parts.push(bytes(change.bytes));
    }
    format!(
        "{}; {}",
        parts.join(", "),
        counted(perfquet_remote::requests(), "request")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_787, "2026-11-30"),
        ] {
            assert_eq!(date(days), expected);
        }
    }

    #[test]
    fn a_change_is_a_sentence() {
        let mut change = Change {
            published: 1,
            files: 24,
            bytes: 2048,
            ..Change::default()
        };
        let text = sentence(&change);
        assert!(
            text.starts_with("1 trace published, 24 files uploaded, 2.0 KiB; "),
            "{text}"
        );
        change = Change {
            unchanged: 2,
            abandoned: 3,
            ..Change::default()
        };
        let text = sentence(&change);
        assert!(
            text.starts_with(
                "0 traces published, 2 traces unchanged, 3 files of killed writers removed; "
            ),
            "{text}"
        );
    }
}
