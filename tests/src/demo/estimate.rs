//! How long a build takes: by the size of the sources, since packages take from a tenth of a second to minutes.
//!
//! A package weighs as much as its Rust sources, times what a byte of it takes of a clean build on two cores: those of DataFusion,
//! which are generic, 2.5; the query tool's own, which are optimized most, 8. For that build, the estimates after one to eleven
//! minutes are 0.83 to 1.03 of the 714 s that it took (`the_estimate_of_a_known_build`).

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::place;

/// Estimates before this part of the build is done would be guesses.
const LEAST_DONE: f64 = 0.05;

/// The packages of a build, and those that are finished.
#[derive(Debug, Default)]
pub(super) struct Estimate {
    /// Weight of each package that is not finished, by cargo's ID.
    waiting: HashMap<String, f64>,
    all: f64,
    done: f64,
}

impl Estimate {
    /// Weighs the packages of a program; without any if cargo does not list them.
    pub(super) fn of(program: &str) -> Estimate {
        let waiting = weights(program).unwrap_or_default();
        Estimate {
            all: waiting.values().sum(),
            waiting,
            done: 0.0,
        }
    }

    /// A package is finished; `is_fresh`: it was before.
    pub(super) fn finish(&mut self, id: &str, is_fresh: bool) {
        let weight = self.waiting.remove(id).unwrap_or(0.0);
        match is_fresh {
            true => self.all -= weight,
            false => self.done += weight,
        }
    }

    /// Returns about how long the rest takes.
    pub(super) fn rest(&self, elapsed: Duration) -> Option<Duration> {
        let part = self.done / self.all;
        let is_known = self.all > 0.0 && part >= LEAST_DONE;
        let left = (self.all - self.done).max(0.0);
        is_known.then(|| elapsed.mul_f64(left / self.done))
    }
}

/// Returns the weights of a program's packages, by cargo's ID.
fn weights(program: &str) -> Option<HashMap<String, f64>> {
    let tree = [
        "tree",
        "--package",
        program,
        "--edges",
        "normal,build",
        "--prefix",
        "none",
    ];
    let tree = output(&tree)?;
    let names: Vec<(&str, &str)> = tree
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, words.next()?.trim_start_matches('v')))
        })
        .collect();
    let metadata = output(&["metadata", "--format-version", "1", "--locked"])?;
    let metadata: Value = serde_json::from_str(&metadata).ok()?;
    let packages = metadata["packages"]
        .as_array()?
        .iter()
        .filter_map(|package| {
            let name = (package["name"].as_str()?, package["version"].as_str()?);
            let manifest = Path::new(package["manifest_path"].as_str()?);
            let sources = manifest.with_file_name("src");
            let weight = source_bytes(&sources) as f64 * factor(name.0);
            names
                .contains(&name)
                .then(|| Some((package["id"].as_str()?.to_owned(), weight)))?
        });
    Some(packages.collect())
}

/// What a byte of a package takes, in a byte of the others.
fn factor(name: &str) -> f64 {
    match name {
        "perfquet" | "perfquet-query" => 8.0,
        name if name.starts_with("datafusion") => 2.5,
        _ => 1.0,
    }
}

/// Number of bytes of the Rust sources below a directory.
fn source_bytes(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => source_bytes(&entry.path()),
        Ok(_)
            if entry
                .path()
                .extension()
                .is_some_and(|ending| ending == "rs") =>
        {
            entry.metadata().map_or(0, |metadata| metadata.len())
        }
        _ => 0,
    };
    entries.map(size).sum()
}

fn output(arguments: &[&str]) -> Option<String> {
    let output = place::cargo()
        .args(arguments)
        .stderr(Stdio::null())
        .output();
    let output = output.ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When packages of a clean build of the query tool were finished, and the part of all weights that was finished then: on two idle
    /// cores, which took 714 s.
    const KNOWN: [(u64, f64); 10] = [
        (60, 0.084),
        (134, 0.224),
        (194, 0.321),
        (241, 0.407),
        (308, 0.503),
        (360, 0.564),
        (440, 0.684),
        (487, 0.737),
        (562, 0.800),
        (668, 0.913),
    ];

    #[test]
    fn the_estimate_of_a_known_build() {
        for (elapsed, done) in KNOWN {
            let estimate = Estimate {
                waiting: HashMap::new(),
                all: 1.0,
                done,
            };
            let rest = estimate.rest(Duration::from_secs(elapsed)).unwrap();
            let total = (elapsed as f64 + rest.as_secs_f64()) / 714.0;
            assert!((0.8..=1.05).contains(&total), "after {elapsed} s: {total}");
        }
    }

    #[test]
    fn finished_packages_count_once_and_fresh_ones_never() {
        let waiting = [("a", 60.0), ("b", 20.0), ("c", 20.0)];
        let waiting = waiting.map(|(id, weight)| (id.to_owned(), weight));
        let mut estimate = Estimate {
            waiting: waiting.into(),
            all: 100.0,
            done: 0.0,
        };
        assert_eq!(estimate.rest(Duration::from_secs(9)), None);
        estimate.finish("a", true);
        estimate.finish("b", false);
        estimate.finish("b", false);
        estimate.finish("none", false);
        assert_eq!(
            estimate.rest(Duration::from_secs(9)),
            Some(Duration::from_secs(9))
        );
        estimate.finish("c", false);
        assert_eq!(estimate.rest(Duration::from_secs(9)), Some(Duration::ZERO));
    }

    #[test]
    fn packages_of_the_query_tool_have_weights() {
        let weights = weights("perfquet-query").expect("cargo lists them");
        assert!(weights.len() > 200, "{}", weights.len());
        let own = weights.iter().find(|(id, _)| id.contains("/query#"));
        assert!(own.is_some_and(|(_, weight)| *weight > 1e6), "{own:?}");
    }
}
