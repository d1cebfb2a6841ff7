//! Pictures of a large trace before its index is there: from a part of the time, marked, and near the exact ones.

use std::time::{Duration, Instant};

use perfquet_tests::needs;
use serde_json::Value;

use super::browsed;
use super::index::{column, switches};
use super::server::{Server, converted};

/// Events of which the index takes a while.
const MANY: u64 = 2_200_000;

/// A window of whole steps.
fn tile(server: &Server, kind: &str, ids: &str, (from, to, step): (i64, i64, i64)) -> Value {
    server.get(&format!(
        "/api/tile?trace=0&kind={kind}&from={from}&to={to}&step={step}&ids={ids}"
    ))
}

fn wait_for_index(server: &Server) {
    let begin = Instant::now();
    while server.get("/api/progress?trace=0")["is_done"] != true {
        assert!(begin.elapsed() < Duration::from_secs(300));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The numbers of periods of all rows, and the sums of the shares of a state in 32nds of steps; of CPUs, of all threads.
fn sums(tile: &Value, state: &str) -> (i64, i64) {
    let rows = tile["rows"].as_array().unwrap();
    let sum = |row: &Value, name: &str| column(row, name).iter().sum::<i64>();
    let mut found = (0, 0);
    for row in rows {
        found.0 += sum(row, "n") + column(row, "t").len() as i64;
        found.1 += match row["shares"].is_object() {
            true if row["shares"][state].is_null() => 0,
            true => sum(&row["shares"], state),
            false => sum(row, "share"),
        };
    }
    found
}

fn is_near(found: i64, expected: i64, what: &str) {
    let most = expected / 10 + 20;
    assert!(
        (found - expected).abs() <= most,
        "{what}: {found} of {expected}"
    );
}

/// The first picture says of how much it is made; a window of few events has the periods of SQL; the exact picture replaces it.
#[test]
fn first_pictures_are_near_and_marked() {
    let directory = tempfile::tempdir().unwrap();
    let trace = converted(directory.path(), "large.trace", &switches(5, MANY));
    let server = Server::of(&[&trace]);
    let length = server.get("/api/meta")["traces"][0]["length"]
        .as_i64()
        .unwrap();
    let step = 1_i64 << (length as u64 / 1000).ilog2();
    let whole = (-step, (length / step + 2) * step, step);
    let threads: Vec<String> = (10..22).map(|tid| tid.to_string()).collect();
    let kinds = [("states", threads.join(",")), ("cpus", "0,1,2".to_owned())];
    let middle = length / 2 / 1024 * 1024;
    let near = (middle, middle + 1024 * 1024, 1024);
    let tiles = || -> Vec<Value> {
        let windows = [whole, near].into_iter();
        windows
            .flat_map(|window| kinds.iter().map(move |kind| (window, kind)))
            .map(|(window, (kind, ids))| tile(&server, kind, ids, window))
            .collect()
    };
    let first = tiles();
    let about = first[0]["about"].as_i64().unwrap();
    assert!((10..1000).contains(&about), "{about}");
    wait_for_index(&server);
    let exact = tiles();
    assert!(exact.iter().all(|tile| tile["about"].is_null()));
    for (first, exact) in first.iter().zip(&exact).take(2) {
        for state in ["0", "2"] {
            let (found, expected) = (sums(first, state), sums(exact, state));
            assert!(expected.0 > 500_000);
            is_near(found.0, expected.0, "periods");
            is_near(found.1, expected.1, "time");
        }
    }
    for (first, exact) in first.iter().zip(&exact).skip(2) {
        assert!(sums(exact, "0").0 > 100);
        assert_eq!(first["rows"], exact["rows"]);
    }
}

/// The page says that a picture is made of a part, and draws the exact one as soon as there is one.
#[test]
fn the_page_replaces_what_it_sampled() {
    if !needs::met(&["Chromium with puppeteer"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let trace = converted(directory.path(), "large.trace", &switches(6, MANY));
    let server = Server::of(&[&trace]);
    let steps = [
        "text #count",
        "wait html:not([data-about])",
        "text #count",
        "rows",
    ];
    let found = browsed(&server.address, &steps.map(str::to_owned));
    assert!(
        found[0].contains("states from ") && found[0].contains("about "),
        "{found:?}"
    );
    assert!(
        !found[2].contains("about") && !found[2].contains("states from"),
        "{found:?}"
    );
    let running =
        server.rows("SELECT count(*) FROM thread_states WHERE state = 'running' AND cpu = 1");
    let expected = format!("CPU 1: {} periods;", running[0][0]);
    assert!(found[3].contains(&expected), "{expected} {}", found[3]);
    assert_eq!(found[steps.len()..], [""; 0]);
}
