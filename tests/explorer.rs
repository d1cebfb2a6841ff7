//! `perfquet-query serve`: who is answered, that tiles have the counts of SQL, and the page in headless Chromium.

#[path = "explorer/active.rs"]
mod active;
#[path = "explorer/index.rs"]
mod index;
#[path = "explorer/lines.rs"]
mod lines;
#[path = "explorer/live.rs"]
mod live;
#[path = "explorer/panels.rs"]
mod panels;
#[path = "explorer/sample.rs"]
mod sample;
#[path = "explorer/server.rs"]
mod server;
#[path = "explorer/sql.rs"]
mod sql;

use std::fmt::Write as _;
use std::io::Write;
use std::net::TcpStream;
use std::process::Command;

use perfquet_tests::{needs, root};
use serde_json::Value;

use server::{Server, converted};

/// Switches of threads on two CPUs, at odd distances.
fn switches() -> String {
    let mut text = "# tracer: nop\n#\n".to_owned();
    let mut running = [0_u64; 2];
    let mut time = 100_000_000_u64;
    for step in 0..900_u64 {
        let cpu = (step % 2) as usize;
        time += 1 + step * 7 % 41 + if step % 100 == 99 { 5_000 } else { 0 };
        let (before, next) = (
            running[cpu],
            [0, 10, 12, 14, 16][(step % 5) as usize] + cpu as u64,
        );
        let state = ["S", "R", "D"][(step % 3) as usize];
        let _ = writeln!(
            text,
            "{:>16}-{before} [{cpu:03}] d..2. {}.{:06}: sched_switch: prev_comm=w{before} prev_pid={before} prev_prio=120 prev_state={state} ==> next_comm=w{next} next_pid={next} next_prio=120",
            if before == 0 {
                "<idle>".to_owned()
            } else {
                format!("w{before}")
            },
            time / 1_000_000,
            time % 1_000_000,
        );
        running[cpu] = next;
    }
    text
}

/// A graph of calls: one around all others.
fn calls() -> String {
    let mut text = "# tracer: function_graph\n#\n".to_owned();
    let mut time = 100_000_000_u64;
    let mut add = |wait: u64, duration: &str, call: &str| {
        time += wait;
        let (seconds, micros) = (time / 1_000_000, time % 1_000_000);
        let _ = writeln!(
            text,
            " {seconds}.{micros:06} |  0) {duration:>13} |  {call}"
        );
    };
    add(0, "", "outer() {");
    for step in 0..400 {
        let duration = format!("{}.{:03} us", step * 37 % 90, step % 1000);
        add(
            100 + step % 7,
            &duration,
            &format!("  inner{}();", step % 7),
        );
    }
    add(200, "41400.250 us", "}");
    text
}

/// Nothing is answered without the token, to another host, or to another site.
#[test]
fn only_the_own_page_is_answered() {
    let directory = tempfile::tempdir().unwrap();
    let trace = converted(directory.path(), "switches.trace", &switches());
    let server = Server::of(&[&trace]);
    let (port, token) = (server.port, server.token().to_owned());
    let host = format!("Host: 127.0.0.1:{port}\r\n");
    let cookie = |token: &str| format!("Cookie: perfquet-{port}={token}\r\n");
    let status = |line: &str, headers: &str| server.request(line, headers, "").0;
    for path in ["/", "/explorer.js", "/explorer.css", "/api/meta", "/none"] {
        let line = format!("GET {path}");
        assert_eq!(status(&line, &host), 403, "{path}");
        assert_eq!(
            status(&line, &format!("{host}{}", cookie(&token[1..]))),
            403,
            "{path}"
        );
        assert_eq!(
            status(&line, &format!("{host}{}", cookie(&"0".repeat(32)))),
            403,
            "{path}"
        );
        assert_eq!(
            status(&line, &format!("{host}Authorization: Bearer {token}\r\n")),
            403,
            "{path}"
        );
    }
    let (opened, head, _) = server.request(&format!("GET /?token={token}"), &host, "");
    assert_eq!(opened, 303);
    assert!(
        head.contains("Location: /\r\n") && head.contains("HttpOnly; SameSite=Lax"),
        "{head}"
    );
    assert_eq!(status("GET /?token=0", &host), 403);
    assert_eq!(status(&format!("GET /api/meta?token={token}"), &host), 403);
    let own = server.own();
    assert_eq!(status("GET /api/meta", &own), 200);
    for wrong in [
        "evil.example",
        &format!("evil.example:{port}"),
        "127.0.0.1",
        "127.0.0.1:1",
        &format!("127.0.0.1.:{port}"),
        &format!("[::1]:{port}"),
    ] {
        let headers = format!("Host: {wrong}\r\n{}", cookie(&token));
        assert_eq!(status("GET /api/meta", &headers), 403, "{wrong}");
    }
    assert_eq!(status("GET /api/meta", &cookie(&token)), 400);
    assert_eq!(
        status("GET /api/meta", &format!("{own}Host: evil.example\r\n")),
        400
    );
    for foreign in [
        "Origin: http://evil.example\r\n",
        "Origin: null\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
    ] {
        assert_eq!(
            status("GET /api/meta", &format!("{own}{foreign}")),
            403,
            "{foreign}"
        );
    }
    assert_eq!(
        status(
            "GET /api/meta",
            &format!("{own}Origin: http://127.0.0.1:{port}\r\nSec-Fetch-Site: same-origin\r\n")
        ),
        200
    );
    let (_, head, _) = server.request("GET /", &own, "");
    for header in [
        "Content-Security-Policy: default-src 'none'; script-src 'self'",
        "nosniff",
        "Referrer-Policy: no-referrer",
        "Cache-Control: no-store",
    ] {
        assert!(head.contains(header), "{header}: {head}");
    }
    assert!(!head.contains("Access-Control"), "{head}");
}

/// Paths name no files, bodies have a limit, SQL neither writes nor reads files.
#[test]
fn nothing_but_the_traces_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let trace = converted(directory.path(), "switches.trace", &switches());
    let server = Server::of(&[&trace]);
    let own = server.own();
    for path in [
        "/../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/api/../explorer.js",
        "/api/detail/../../manifest.json",
    ] {
        assert_eq!(
            server.request(&format!("GET {path}"), &own, "").0,
            404,
            "{path}"
        );
    }
    let json = format!("{own}Content-Type: application/json\r\n");
    let body = format!("{{\"sql\": \"SELECT 1 -- {}\"}}", "x".repeat(1 << 20));
    assert_eq!(server.request("POST /api/sql", &json, &body).0, 413);
    assert_eq!(
        server
            .request("POST /api/sql", &own, "{\"sql\": \"SELECT 1\"}")
            .0,
        400
    );
    assert_eq!(
        server
            .request(
                "POST /api/sql",
                &format!("{own}Content-Type: text/plain\r\n"),
                "{\"sql\": \"SELECT 1\"}"
            )
            .0,
        400
    );
    assert_eq!(server.request("POST /api/sql", &json, "{").0, 400);
    assert_eq!(server.request("GET /api/sql", &own, "").0, 405);
    assert_eq!(server.request("DELETE /api/meta", &own, "").0, 405);
    assert_eq!(
        server
            .raw(&format!(
                "POST /api/sql HTTP/1.1\r\n{json}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            ))
            .0,
        501
    );
    let file = directory.path().join("written.csv");
    for sql in [
        format!("COPY (SELECT 1) TO '{}'", file.display()),
        format!(
            "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{}'",
            directory.path().display()
        ),
        format!("SELECT * FROM '{}'", trace.join("manifest.json").display()),
        "CREATE TABLE t AS SELECT 1".to_owned(),
        "SET datafusion.execution.batch_size = 1".to_owned(),
        "SELECT 1; SELECT 2".to_owned(),
        "SELEC 1".to_owned(),
    ] {
        assert_eq!(server.sql(&sql).0, 422, "{sql}");
    }
    assert!(!file.exists());
    for query in ["trace=1", "trace=-1", "trace=x", ""] {
        assert_eq!(
            server
                .request(&format!("GET /api/tracks?{query}"), &own, "")
                .0,
            400,
            "{query}"
        );
    }
    for query in [
        "kind=x&from=0&to=8&step=1",
        "kind=events&from=0&to=8&step=1&ids=99",
        "kind=samples&from=0&to=8&step=1&ids=1)--",
        "kind=calls&from=8&to=0&step=1",
    ] {
        assert_eq!(
            server
                .request(&format!("GET /api/tile?trace=0&{query}"), &own, "")
                .0,
            400,
            "{query}"
        );
    }
}

/// A closed connection ends its query: the server answers others, and its threads are free again.
#[test]
fn canceled_queries_end() {
    let directory = tempfile::tempdir().unwrap();
    let trace = converted(directory.path(), "switches.trace", &switches());
    let server = Server::of(&[&trace]);
    let sql = "SELECT count(*) FROM sched_switch a, sched_switch b, sched_switch c, sched_switch d WHERE a.cpu + b.cpu + c.cpu + d.cpu = 77";
    let body = serde_json::json!({ "sql": sql }).to_string();
    for _ in 0..8 {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        let request = format!(
            "POST /api/sql HTTP/1.1\r\n{}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            server.own(),
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
    }
    assert_eq!(server.rows("SELECT 6 * 7"), [[Value::from(42)]]);
    // Each of them alone would run for much longer.
    let threads = || std::fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap();
    let connections = || {
        let names = threads()
            .flatten()
            .filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.trim() == "connection").count()
    };
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while connections() > 0 {
        assert!(
            std::time::Instant::now() < end,
            "{} connections",
            connections()
        );
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// Sum of what begins in the steps of a tile's rows: number, and those that are listed one by one.
fn counted(tile: &Value, from: i64, to: i64) -> i64 {
    let mut sum = 0;
    for row in tile["rows"].as_array().unwrap() {
        let counts: Vec<i64> = serde_json::from_value(row["n"].clone()).unwrap();
        sum += counts.iter().sum::<i64>();
        if row.get("d").is_some() {
            // Of what is sorted, the differences.
            let begins: Vec<i64> = serde_json::from_value(row["t"].clone()).unwrap();
            let mut begin = 0;
            for difference in begins {
                begin += difference;
                sum += i64::from((from..to).contains(&begin));
            }
        }
    }
    sum
}

/// The counts of tiles are those of SQL, at every zoom, and at ends that are times of events.
#[test]
fn tiles_have_the_counts_of_sql() {
    let directory = tempfile::tempdir().unwrap();
    let sched = converted(directory.path(), "switches.trace", &switches());
    let graph = converted(directory.path(), "calls.trace", &calls());
    let server = Server::of(&[&sched, &graph]);
    let meta = server.get("/api/meta");
    let names: Vec<&str> = meta["traces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|trace| trace["name"].as_str().unwrap())
        .collect();
    let tids: Vec<String> = server.get("/api/tracks?trace=0")["threads"]
        .as_array()
        .unwrap()
        .iter()
        .map(|thread| thread["tid"].to_string())
        .collect();
    let mut seen = 0;
    for (trace, kind, table, ids) in [
        (0, "events", "sched.sched_switch", "0".to_owned()),
        (0, "states", "thread_states", tids.join(",")),
        (0, "cpus", "thread_states", "0,1".to_owned()),
        (1, "calls", "calls", "-1".to_owned()),
    ] {
        let of = &meta["traces"][trace];
        let start: i64 = of["start"].as_str().unwrap().parse().unwrap();
        let length = of["length"].as_i64().unwrap();
        for zoom in 0..11 {
            let step = 1_i64 << (zoom * 2);
            for part in 0..4 {
                let from = (length * part / 5).div_euclid(step) * step - step * (part % 2);
                let to = from + step * [1, 7, 300, 900][part as usize];
                let tile = server.get(&format!(
                    "/api/tile?trace={trace}&kind={kind}&from={from}&to={to}&step={step}&ids={ids}"
                ));
                let running = if kind == "cpus" {
                    " AND state = 'running'"
                } else {
                    ""
                };
                let sql = format!(
                    "SELECT count(*) FROM {table} WHERE trace = '{}' AND time >= {} AND time < {}{running}",
                    names[trace],
                    start + from,
                    start + to
                );
                let expected = server.rows(&sql)[0][0].as_i64().unwrap();
                assert_eq!(
                    counted(&tile, from, to),
                    expected,
                    "{kind}, step {step}, {from} to {to}: {tile}"
                );
                seen += expected;
            }
        }
    }
    assert!(seen > 5_000, "{seen}");
}

/// A call that began long before the window is drawn, and the details of an event are all of its fields.
#[test]
fn calls_reach_into_later_windows_and_events_have_their_fields() {
    let directory = tempfile::tempdir().unwrap();
    let graph = converted(directory.path(), "calls.trace", &calls());
    let server = Server::of(&[&graph]);
    let length = server.get("/api/meta")["traces"][0]["length"]
        .as_i64()
        .unwrap();
    let from = length / 2 / 4096 * 4096;
    let tile = server.get(&format!(
        "/api/tile?trace=0&kind=calls&from={from}&to={}&step=64&ids=-1",
        from + 4096
    ));
    let outer = tile["rows"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["depth"] == 0)
        .unwrap();
    assert_eq!(outer["d"].as_array().unwrap().len(), 1, "{tile}");
    assert!(outer["t"][0].as_i64().unwrap() < from);
    let details = server.get(&format!(
        "/api/detail?trace=0&kind=calls&id=-1&depth=1&from=0&to={length}"
    ));
    let columns: Vec<&str> = details["events"]["columns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    for name in [
        "time",
        "duration",
        "self_time",
        "function",
        "depth",
        "entry_seen",
    ] {
        assert!(columns.contains(&name), "{columns:?}");
    }
    let panel = server.get(&format!(
        "/api/panel?trace=0&name=calls&from=0&to={length}&ids="
    ));
    assert!(
        panel["command"]
            .as_str()
            .unwrap()
            .starts_with("perfquet-query calls "),
        "{panel}"
    );
    assert_eq!(
        panel["grid"]["rows"].as_array().unwrap().len(),
        200,
        "{panel}"
    );
}

/// Takes steps in the page; one line for each, then what it wrote to the console and requests to others.
fn browsed(address: &str, steps: &[String]) -> Vec<String> {
    let modules = needs::viewers().join("node_modules");
    let output = Command::new("node")
        .env("NODE_PATH", modules)
        .arg(root().join("tests/page/explore.js"))
        .arg(address)
        .args(steps)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect()
}

/// What the page printed for each step of a visit, most of which have an expected answer. Anything else that is printed was written to the
/// console, or requested from another host.
fn visited<C: AsRef<str>, E: AsRef<str>>(server: &Server, steps: &[(C, Option<E>)]) -> Vec<String> {
    let commands: Vec<String> = steps
        .iter()
        .map(|(command, _)| command.as_ref().to_owned())
        .collect();
    let found = browsed(&server.address, &commands);
    for ((command, expected), found) in steps.iter().zip(&found) {
        if let Some(expected) = expected {
            assert_eq!(found, expected.as_ref(), "{}", command.as_ref());
        }
    }
    assert_eq!(found[steps.len()..], [""; 0]);
    found
}

/// Times beyond 2^53 nanoseconds, 104 days, are not exact in JavaScript.
#[test]
fn a_trace_of_years_is_shown() {
    if !needs::met(&["Chromium with puppeteer"]) {
        return;
    }
    let mut text = "# tracer: nop\n#\n".to_owned();
    for step in 0..20_u64 {
        let (before, next) = (10 + step % 2, 10 + (step + 1) % 2);
        let _ = writeln!(
            text,
            "{:>16}-{before} [000] d..2. {}.{:06}: sched_switch: prev_comm=w{before} prev_pid={before} prev_prio=120 prev_state=S ==> next_comm=w{next} next_pid={next} next_prio=120",
            format!("w{before}"),
            100 + step * 4_730_417,
            step * 131 % 1_000_000,
        );
    }
    let directory = tempfile::tempdir().unwrap();
    let trace = converted(directory.path(), "years.trace", &text);
    let server = Server::of(&[&trace]);
    let found = visited(&server, &[("rows", None::<&str>)]);
    assert!(
        found[0].contains("sched.sched_switch: 20 events"),
        "{found:?}"
    );
}

/// Zooming by wheel and keys, details, SQL, links, two traces; and the counts on the screen are those of SQL.
#[test]
fn the_page_zooms_selects_and_asks() {
    if !needs::met(&["Chromium with puppeteer"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let sched = converted(directory.path(), "switches.trace", &switches());
    let graph = converted(directory.path(), "calls.trace", &calls());
    let server = Server::of(&[&sched, &graph]);
    let steps = [
        ("press w", Some("t=11.977125ms..51.900876ms")),
        ("press s", Some("")),
        ("wheel 700 200 -400", None),
        ("press 0", Some("")),
        ("press d", Some("")),
        ("open t=1ms..1.2ms", Some("t=1ms..1.2ms")),
        ("press d", Some("t=1.05ms..1.25ms")),
        ("press a", Some("t=1ms..1.2ms")),
        ("press /", Some("t=1ms..1.2ms")),
        ("type CPU", Some("t=1ms..1.2ms&q=CPU")),
        ("press Escape", Some("t=1ms..1.2ms")),
        ("open ", Some("")),
        (
            "click 248 118",
            Some("tab=details&at=events,0,917504,983040"),
        ),
        ("wait #fields", None),
        ("press Escape", Some("")),
        ("drag 500 700 54", None),
        ("wait #content .grid, #content pre", None),
        ("press Escape", None),
        ("press Escape", Some("")),
        (
            "open tab=sql&sql=SELECT time, comm FROM sched_switch WHERE trace = 'switches' ORDER BY time LIMIT 3",
            None,
        ),
        ("wait #answer .grid", None),
        ("text #answer .note", Some("3 rows CSV")),
        ("push #answer td button", None),
        // Of a later version, or mistyped.
        ("open tab=flames", None),
        (
            "text #states",
            Some("running runnable, preempted uninterruptible interruptible other"),
        ),
        ("press ]", Some("trace=1")),
        ("rows", None),
        ("press [", Some("")),
        ("press ?", Some("")),
        ("text #help h2", Some("Keys")),
    ];
    let found = visited(&server, &steps);
    let rows = &found[steps
        .iter()
        .position(|(command, _)| *command == "rows")
        .unwrap()];
    let calls = server.rows("SELECT count(*) FROM calls WHERE trace = 'calls'");
    assert!(
        rows.ends_with(&format!(": {} calls", calls[0][0])),
        "{rows}"
    );
}

/// What the picture says at ten zooms is what SQL counts in the steps that it shows.
#[test]
fn counts_on_the_screen_are_those_of_sql() {
    if !needs::met(&["Chromium with puppeteer"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let trace = converted(directory.path(), "switches.trace", &switches());
    let server = Server::of(&[&trace]);
    let start: i64 = server.get("/api/meta")["traces"][0]["start"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let ranges: Vec<(i64, i64)> = (0..10)
        .map(|zoom| {
            let wide = 50_000_000_i64 >> (2 * zoom);
            let from = 3_000_001 + 1_234_567 * zoom;
            (from, from + wide.max(64))
        })
        .collect();
    let steps: Vec<String> = ranges
        .iter()
        .flat_map(|(from, to)| [format!("open t={from}ns..{to}ns"), "rows".to_owned()])
        .collect();
    let found = browsed(&server.address, &steps);
    assert_eq!(found.len(), steps.len(), "{found:?}");
    let mut seen = 0;
    for ((from, to), line) in ranges.iter().zip(found.iter().skip(1).step_by(2)) {
        let (step, rows) = line
            .strip_prefix("step ")
            .unwrap()
            .split_once("; ")
            .unwrap();
        let step: i64 = step.parse().unwrap();
        let (from, to) = (
            from.div_euclid(step) * step,
            (to + step - 1).div_euclid(step) * step,
        );
        let inside = format!("time >= {} AND time < {}", start + from, start + to);
        let mut expected = Vec::new();
        for row in rows.split("; ") {
            if row.ends_with("without events in view") {
                continue;
            }
            let (name, counts) = row.rsplit_once(": ").unwrap();
            let sql = match name.split_once(' ') {
                Some(("CPU", cpu)) => format!(
                    "SELECT count(*) FROM thread_states WHERE {inside} AND state = 'running' AND cpu = {cpu}"
                ),
                Some((_, tid)) if tid.starts_with('(') => format!(
                    "SELECT count(*) FROM thread_states WHERE {inside} AND tid = {}",
                    tid.trim_matches(['(', ')'])
                ),
                _ => format!("SELECT count(*) FROM {name} WHERE {inside}"),
            };
            let count = &server.rows(&sql)[0][0];
            seen += count.as_i64().unwrap();
            expected.push(format!(
                "{name}: {count} {}",
                counts.split_once(' ').unwrap().1
            ));
        }
        let is_counted = |row: &&str| !row.ends_with("without events in view");
        let rows: Vec<&str> = rows.split("; ").filter(is_counted).collect();
        assert_eq!(rows, expected, "{from} to {to}, step {step}");
    }
    assert!(seen > 1_000, "{seen}");
}

/// Names with markup, of 4,000 letters and from right to left are text; no window is too narrow.
#[test]
fn hostile_names_are_text() {
    if !needs::met(&["Chromium with puppeteer"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let markup = "</script><script>alert(1)</script><img/src=x>";
    let sample = |name: &str, time: u64| {
        format!(
            "{name} 7/7 [000] {time}.000000: 250 cycles:\n\t    401136 {markup}+0x6 (/bin/{markup})\n\n"
        )
    };
    let text: String = (0..40).map(|time| sample("<b>x</b>", 100 + time)).collect();
    let long = format!("main;{markup};{};\u{202e}gnimusnoc 3\n", "f".repeat(4000));
    let hostile = converted(directory.path(), "hostile.txt", &text);
    let other = converted(directory.path(), "<b>long.folded", &long);
    let server = Server::of(&[&hostile, &other]);
    let mut steps = Vec::new();
    for trace in [0, 1] {
        steps.push(format!("open trace={trace}&tab=selection"));
        steps.push("wait #content .grid, #content pre".to_owned());
        for (width, theme) in [(1400, "light"), (1000, "dark"), (700, "light")] {
            steps.push(format!("size {width} {theme}"));
        }
    }
    steps.push("text #trace".to_owned());
    let found = browsed(&server.address, &steps);
    assert_eq!(found.len(), steps.len(), "{found:?}");
    let widths: Vec<&String> = found
        .iter()
        .filter(|line| line.starts_with("overflow"))
        .collect();
    assert_eq!(widths, ["overflow 0"; 6]);
    assert!(found.last().unwrap().contains("<b>long"), "{found:?}");
}
