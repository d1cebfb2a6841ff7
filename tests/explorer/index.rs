//! The index of the explorer: pictures made of it are those of the rows, also when it is damaged, of another trace, or cannot be kept.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use perfquet_tests::bin;
use perfquet_tests::random::Random;
use serde_json::{Value, json};

use super::server::{Server, converted};

/// Switches of 12 threads on three CPUs: bursts, silence, many at the same time, and threads that are lost from sight.
fn many_switches(seed: u64) -> String {
    switches(seed, 90_000)
}

/// A number of such switches.
pub(crate) fn switches(seed: u64, count: u64) -> String {
    let mut random = Random(seed);
    let mut text = "# tracer: nop\n#\n".to_owned();
    let mut running = [0_u64; 3];
    let mut time = 100_000_000_u64;
    for step in 0..count {
        time += match random.below(1000) {
            0 => random.below(60_000),
            1..300 => 0,
            _ => random.below(if step % 30_000 < 3000 { 400 } else { 6 }),
        };
        let cpu = random.below(3) as usize;
        let next = match random.below(4) {
            0 => 0,
            _ => 10 + 3 * random.below(4) + cpu as u64,
        };
        // Sometimes another thread leaves than the one that was switched in.
        let before = match random.below(500) {
            0 => 10 + 3 * random.below(4) + cpu as u64,
            _ => running[cpu],
        };
        if before == next {
            continue;
        }
        let state = ["S", "R", "D", "S"][random.below(4) as usize];
        let name = |tid: u64| match tid {
            0 => "<idle>".to_owned(),
            tid => format!("w{tid}"),
        };
        let _ = writeln!(
            text,
            "{:>16}-{before} [{cpu:03}] d..2. {}.{:06}: sched_switch: prev_comm=w{before} prev_pid={before} prev_prio=120 prev_state={state} ==> next_comm=w{next} next_pid={next} next_prio=120",
            name(before),
            time / 1_000_000,
            time % 1_000_000,
        );
        running[cpu] = next;
    }
    text
}

/// A period of SQL: begin from the start of the trace, duration, CPU, state.
type Period = (i64, Option<i64>, Option<i64>, String);

/// The rows of a view by a column, of which one query has at most 100,000.
fn periods(server: &Server, by: &str, id: i64, start: i64) -> Vec<Period> {
    let condition = match by {
        "cpu" => " AND state = 'running'",
        _ => "",
    };
    let sql = format!(
        "SELECT time, duration, cpu, state, tid FROM thread_states WHERE {by} = {id}{condition} ORDER BY time, duration"
    );
    let rows = server.rows_up_to(&sql, 100_000);
    assert!(rows.len() < 100_000);
    let number = |cell: &Value| cell.as_i64().or_else(|| cell.as_str()?.parse().ok());
    rows.iter()
        .map(|row| {
            let state = match by {
                "cpu" => row[4].to_string(),
                _ => row[3].as_str().unwrap_or("unknown").to_owned(),
            };
            (
                number(&row[0]).unwrap() - start,
                number(&row[1]),
                number(&row[2]),
                state,
            )
        })
        .collect()
}

pub(crate) fn column(row: &Value, name: &str) -> Vec<i64> {
    let mut values: Vec<i64> = serde_json::from_value(row[name].clone()).unwrap();
    if name == "t" || name == "x" {
        let mut sum = 0;
        for value in &mut values {
            sum += *value;
            *value = sum;
        }
    }
    values
}

/// Time and number of the periods shorter than a step, by step and kind.
type Short = BTreeMap<(i64, String), (i64, i64)>;

/// What a tile must have of periods: those of a step and more, and by step and kind the time and number of the others.
fn expected(periods: &[Period], (from, to, step): (i64, i64, i64)) -> (Vec<(i64, i64)>, Short) {
    let (mut long, mut short) = (Vec::new(), BTreeMap::new());
    for (begin, duration, _, kind) in periods {
        let end = begin + duration.unwrap_or(1);
        if *begin >= to || (end <= from && *begin < from) {
            continue;
        }
        if end - begin >= step {
            long.push((*begin, end - begin));
            continue;
        }
        for bin in begin.div_euclid(step)..=(end - 1).max(*begin).div_euclid(step) {
            if bin * step < from || bin * step >= to {
                continue;
            }
            let sum: &mut (i64, i64) = short.entry((bin - from / step, kind.clone())).or_default();
            sum.0 += end.min((bin + 1) * step) - (*begin).max(bin * step);
            sum.1 += i64::from(begin.div_euclid(step) == bin);
        }
    }
    (long, short)
}

/// A time in 32nds of a step, at least 1 ns and 1.
fn share(time: i64, step: i64) -> i64 {
    let unit = (step / 32).max(1);
    ((time + unit / 2) / unit).max(time.signum())
}

/// What SQL says about the trace, and the names of the states.
struct Truth {
    states: Vec<String>,
    of_thread: Vec<Period>,
    of_cpu: Vec<Period>,
    times: Vec<i64>,
}

/// A range of time at a step, and the row of its tile.
struct Tile {
    from: i64,
    to: i64,
    step: i64,
    row: Value,
}

/// Compares tiles of random windows with the rows of SQL, and returns the number of periods in them.
fn compare(server: &Server, seed: u64, windows: usize) -> usize {
    let meta = server.get("/api/meta");
    let start: i64 = meta["traces"][0]["start"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let length = meta["traces"][0]["length"].as_i64().unwrap();
    let truth = Truth {
        states: serde_json::from_value(server.get("/api/tracks?trace=0")["states"].clone())
            .unwrap(),
        of_thread: periods(server, "tid", 13, start),
        of_cpu: periods(server, "cpu", 1, start),
        times: server
            .rows_up_to("SELECT time FROM sched_switch", 100_000)
            .iter()
            .map(|row| row[0].as_str().unwrap().parse::<i64>().unwrap() - start)
            .collect(),
    };
    let times = &truth.times;
    assert!(truth.of_thread.len() > 5_000 && truth.of_cpu.len() > 5_000 && times.len() > 50_000);
    let mut random = Random(seed);
    let mut seen = 0;
    for window in 0..windows {
        let step = 1_i64 << (window % 32);
        // Some windows begin at an event.
        let near = match window % 3 {
            0 => times[random.below(times.len() as u64) as usize],
            _ => random.below(length as u64 + 2 * step as u64) as i64 - step,
        };
        let from = near.div_euclid(step) * step;
        let to = from + step * (1 + random.below(if window % 5 == 0 { 3 } else { 2000 }) as i64);
        let tile = |kind: &str, id: i64| {
            let tile = server.get(&format!(
                "/api/tile?trace=0&kind={kind}&from={from}&to={to}&step={step}&ids={id}"
            ));
            let row = tile["rows"][0].clone();
            Tile {
                from,
                to,
                step,
                row,
            }
        };
        seen += tile("states", 13).has_states_of(&truth);
        tile("cpus", 1).has_threads_of(&truth);
        tile("events", 0).has_events_of(&truth);
    }
    seen
}

impl Tile {
    fn window(&self) -> String {
        format!("{}..{} by {}", self.from, self.to, self.step)
    }

    /// Compares periods of at least a step.
    fn has_boxes(&self, expected: &[(i64, i64)]) {
        let boxes: Vec<(i64, i64)> = column(&self.row, "t")
            .into_iter()
            .zip(column(&self.row, "d"))
            .collect();
        assert_eq!(boxes, expected, "{}", self.window());
    }

    /// Compares the states of a thread; returns the number of its periods.
    fn has_states_of(&self, truth: &Truth) -> usize {
        /// Count of the periods, and the shares of the states that are drawn.
        type Bin = (i64, BTreeMap<String, i64>);
        const DRAWN: [&str; 5] = [
            "running",
            "runnable",
            "preempted",
            "uninterruptible",
            "unknown",
        ];
        let (long, short) = expected(&truth.of_thread, (self.from, self.to, self.step));
        self.has_boxes(&long);
        let mut steps: BTreeMap<i64, Bin> = BTreeMap::new();
        for ((bin, state), (sum, count)) in &short {
            let is_drawn = DRAWN.contains(&state.as_str()) && *sum > 0;
            if *count > 0 || is_drawn {
                let of_bin = steps.entry(*bin).or_default();
                of_bin.0 += count;
                if is_drawn {
                    of_bin.1.insert(state.clone(), share(*sum, self.step));
                }
            }
        }
        let mut found: BTreeMap<i64, Bin> = BTreeMap::new();
        let bins = column(&self.row, "x");
        for (bin, count) in bins.iter().zip(column(&self.row, "n")) {
            found.entry(*bin).or_default().0 = count;
        }
        for (state, shares) in self.row["shares"].as_object().unwrap() {
            let shares: Vec<i64> = serde_json::from_value(shares.clone()).unwrap();
            assert_eq!(shares.len(), bins.len());
            for (bin, share) in bins.iter().zip(shares).filter(|(_, share)| *share > 0) {
                let state = truth.states[state.parse::<usize>().unwrap()].clone();
                found.entry(*bin).or_default().1.insert(state, share);
            }
        }
        assert_eq!(found, steps, "states, {}", self.window());
        long.len() + short.len()
    }

    /// Compares the threads of a CPU.
    fn has_threads_of(&self, truth: &Truth) {
        let (long, short) = expected(&truth.of_cpu, (self.from, self.to, self.step));
        self.has_boxes(&long);
        let mut by_bin: BTreeMap<i64, (i64, i64, i64, i64)> = BTreeMap::new();
        for ((bin, tid), (sum, count)) in short {
            let of_bin = by_bin.entry(bin).or_insert((0, 0, -1, -1));
            (of_bin.0, of_bin.1) = (of_bin.0 + sum, of_bin.1 + count);
            (of_bin.2, of_bin.3) = (of_bin.2, of_bin.3).max((sum, tid.parse().unwrap()));
        }
        let by_bin: Vec<[i64; 4]> = by_bin
            .into_iter()
            .map(|(bin, (sum, count, _, tid))| [bin, tid, share(sum, self.step), count])
            .collect();
        assert_eq!(
            self.columns(["x", "y", "share", "n"]),
            by_bin,
            "cpus, {}",
            self.window()
        );
    }

    /// Compares the counts of events, and the places of those that are alone.
    fn has_events_of(&self, truth: &Truth) {
        let mut counts: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
        let inside = |time: &&i64| **time >= self.from && **time < self.to;
        for &time in truth.times.iter().filter(inside) {
            let count = counts.entry((time - self.from) / self.step).or_default();
            *count = (count.0 + 1, (time - self.from) % self.step);
        }
        let counts: Vec<[i64; 3]> = counts
            .into_iter()
            .map(|(bin, (count, at))| [bin, count, if count == 1 { at } else { 0 }])
            .collect();
        let found = match self.row.is_null() {
            true => Vec::new(),
            false => self.columns(["x", "n", "at"]),
        };
        assert_eq!(found, counts, "events, {}", self.window());
    }

    /// Returns the rows of some columns of the same length.
    fn columns<const N: usize>(&self, names: [&str; N]) -> Vec<[i64; N]> {
        let columns = names.map(|name| column(&self.row, name));
        let rows = columns.iter().map(Vec::len).min().unwrap_or(0);
        (0..rows)
            .map(|row| std::array::from_fn(|place| columns[place][row]))
            .collect()
    }
}

/// The files below a cache with this ending, once there are any.
fn files(cache: &Path, ending: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(cache.join("perfquet/explorer")) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|found| found == ending))
        .collect()
}

/// A tile for which the whole index is read.
fn whole(server: &Server) -> Value {
    let length = server.get("/api/meta")["traces"][0]["length"]
        .as_i64()
        .unwrap();
    let step = 1_i64 << 20;
    let to = (length / step + 1) * step;
    let tids: Vec<String> = (10..22).map(|tid| tid.to_string()).collect();
    let tile = |kind: &str, ids: &str| {
        server.get(&format!(
            "/api/tile?trace=0&kind={kind}&from=0&to={to}&step={step}&ids={ids}"
        ))
    };
    json!([
        tile("states", &tids.join(",")),
        tile("cpus", "0,1,2"),
        tile("events", "0")
    ])
}

/// Tiles made of blocks and counts are those of the rows; so are those of an index from the cache.
#[test]
fn tiles_of_an_index_are_those_of_the_rows() {
    let directory = tempfile::tempdir().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let trace = converted(directory.path(), "many.trace", &many_switches(5));
    let server = Server::with_cache(&[&trace], cache.path());
    assert!(compare(&server, 3, 96) > 10_000);
    let made = files(cache.path(), "index");
    assert_eq!(made.len(), 1);
    let written = std::fs::metadata(&made[0]).unwrap().len();
    let again = Server::with_cache(&[&trace], cache.path());
    assert!(compare(&again, 4, 64) > 3_000);
    assert_eq!(
        again.get("/api/progress?trace=0")["thousandths"],
        Value::Null
    );
    assert_eq!(whole(&again), whole(&server));
    assert_eq!(files(cache.path(), "index"), made);
    assert_eq!(std::fs::metadata(&made[0]).unwrap().len(), written);
    assert_eq!(
        files(cache.path(), "unfinished"),
        [""; 0].map(PathBuf::from)
    );
}

/// An index that is damaged, of another trace of the same name, or of a program that writes anything, is replaced.
#[test]
fn a_wrong_index_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let trace = converted(directory.path(), "many.trace", &many_switches(5));
    let expected = whole(&Server::with_cache(&[&trace], cache.path()));
    let path = files(cache.path(), "index").remove(0);
    let good = std::fs::read(&path).unwrap();
    let mut random = Random(11);
    let mut rebuilt = 0;
    for case in 0..14 {
        let mut bad = good.clone();
        match case {
            0 => bad.clear(),
            1 => bad.truncate(bad.len() / 2),
            2 => bad.truncate(bad.len() - 1),
            3 => bad.iter_mut().for_each(|byte| *byte = 0xff),
            4 => bad.extend_from_slice(&good),
            _ => {
                let at = match case % 3 {
                    0 => bad.len() - 1 - random.below(40) as usize,
                    _ => random.below(bad.len() as u64) as usize,
                };
                bad[at] ^= 1 << random.below(8);
            }
        }
        std::fs::write(&path, &bad).unwrap();
        let server = Server::with_cache(&[&trace], cache.path());
        assert_eq!(whole(&server), expected, "case {case}");
        rebuilt += i32::from(server.get("/api/progress?trace=0")["thousandths"] != Value::Null);
    }
    assert!(rebuilt >= 10, "{rebuilt}");
    // The same name, the same number of rows.
    let other = converted(directory.path(), "many.trace", &many_switches(6));
    assert_eq!(other, trace);
    let server = Server::with_cache(&[&trace], cache.path());
    assert_ne!(whole(&server), expected);
    assert!(compare(&server, 9, 32) > 500);
    assert_eq!(files(cache.path(), "index").len(), 1);
}

/// Where nothing can be written, and with several servers at once, the pictures are the same; also of an archive and of a lake.
#[test]
fn pictures_need_no_cache() {
    let directory = tempfile::tempdir().unwrap();
    let trace = converted(directory.path(), "many.trace", &many_switches(7));
    let file = directory.path().join("no-directory");
    std::fs::write(&file, "").unwrap();
    let expected = whole(&Server::with_cache(&[&trace], &file));
    let before: HashMap<PathBuf, u64> = listed(&trace);
    let cache = tempfile::tempdir().unwrap();
    let full = Server::without_space(&[&trace], cache.path());
    assert_eq!(whole(&full), expected);
    for ending in ["index", "unfinished"] {
        assert_eq!(files(cache.path(), ending), [""; 0].map(PathBuf::from));
    }
    let servers: Vec<Server> = (0..3)
        .map(|_| Server::with_cache(&[&trace], cache.path()))
        .collect();
    std::thread::scope(|scope| {
        for server in &servers {
            scope.spawn(|| assert_eq!(whole(server), expected));
        }
    });
    assert_eq!(files(cache.path(), "index").len(), 1);
    let run = |arguments: &[&str]| {
        let output = Command::new(bin("perfquet-convert"))
            .arg(&trace)
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let archive = directory.path().join("many.pqtz");
    run(&["--to", "pqtz", "-o", archive.to_str().unwrap()]);
    let lake = directory.path().join("lake");
    run(&[
        "--to",
        "lake",
        "-o",
        lake.to_str().unwrap(),
        "--partition",
        "date=2026-11-22,host=a",
    ]);
    let of_lake = format!("lake:{}", lake.display());
    for (count, path) in [(2, archive.as_path()), (3, Path::new(&of_lake))] {
        for _ in 0..2 {
            let server = Server::with_cache(&[path], cache.path());
            assert_eq!(whole(&server), expected, "{}", path.display());
            assert_eq!(files(cache.path(), "index").len(), count);
        }
    }
    // Nothing is written into a trace.
    assert_eq!(listed(&trace), before);
}

fn listed(directory: &Path) -> HashMap<PathBuf, u64> {
    let mut all = HashMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        match entry.metadata().unwrap() {
            found if found.is_dir() => all.extend(listed(&entry.path())),
            found => {
                all.insert(entry.path(), found.len());
            }
        }
    }
    all
}
