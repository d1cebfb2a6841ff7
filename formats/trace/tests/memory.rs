//! Hundreds of open tables take little memory, and so do the symbols of many programs. A separate program, so that no
//! other test's allocations count.

use std::sync::{Mutex, PoisonError};

use perfquet_events::event::Space;
use perfquet_trace::store::{
    ColumnSchema, ColumnType, Encoding, Facts, TableSchema, Writer, WriterOptions,
};
use perfquet_trace::symbols::{KernelFacts, KernelSource, Options, Origin, Request, Symbolizer};
use perfquet_trace::tables;

/// Columns of sched_switch after the common ones.
fn sched_switch(number: usize) -> TableSchema {
    let column = |name: &str, kind: ColumnType| ColumnSchema {
        name: name.to_owned(),
        kind,
        nullable: false,
        unit: String::new(),
        doc: "Of the event.".to_owned(),
        encoding: Encoding::Dictionary,
    };
    let fields = vec![
        column("prev_comm", ColumnType::Text),
        column("prev_pid", ColumnType::Int32),
        column("prev_prio", ColumnType::Int32),
        column("prev_state", ColumnType::Int64),
        column("next_comm", ColumnType::Text),
        column("next_pid", ColumnType::Int32),
        column("next_prio", ColumnType::Int32),
    ];
    TableSchema {
        name: format!("events/test/sched_switch_{number}"),
        doc: "One hit.".to_owned(),
        columns: [tables::common::columns(), fields].concat(),
        sort: vec!["time".to_owned()],
    }
}

/// One test at a time: each measures the memory of the whole process.
static ALONE: Mutex<()> = Mutex::new(());

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

fn write_row(writer: &mut Writer, table: perfquet_trace::store::TableId, number: usize) {
    let comm = format!("worker/{}", number % 20);
    let rows = writer.rows(table);
    tables::common::Row {
        time: Some(number as i64 * 1000),
        cpu: Some(number as i32 % 8),
        pid: Some(100 + number as i32 % 20),
        tid: Some(100 + number as i32 % 20),
        comm: Some(comm.as_bytes()),
        ..Default::default()
    }
    .push(rows);
    let fields = &mut rows.columns_mut()[7..];
    let [
        prev_comm,
        prev_pid,
        prev_prio,
        prev_state,
        next_comm,
        next_pid,
        next_prio,
    ] = fields
    else {
        panic!("expected 7 fields");
    };
    prev_comm.push_bytes(comm.as_bytes());
    prev_pid.push_i64(100);
    prev_prio.push_i64(120);
    prev_state.push_i64(1);
    next_comm.push_bytes(b"swapper/0");
    next_pid.push_i64(0);
    next_prio.push_i64(120);
    writer.end_row(table).unwrap();
}

#[test]
fn many_tables_are_open_at_once() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pqt");
    let mut writer = Writer::create(
        &path,
        WriterOptions {
            sync: false,
            ..Default::default()
        },
    )
    .unwrap();
    let before = resident_bytes();
    let ids: Vec<_> = (0..500)
        .map(|number| writer.add_table(sched_switch(number)).unwrap())
        .collect();
    for number in 0..1000 {
        for &id in &ids {
            write_row(&mut writer, id, number);
        }
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(
        grown <= 64 << 20,
        "500 tables of 1000 rows use {} MB",
        grown >> 20
    );
    let summary = writer.finish(Facts::default()).unwrap();
    assert_eq!(summary.rows["events/test/sched_switch_499"], 1000);
    println!(
        "500 tables of 1000 rows took {} MB, {} MB as files",
        grown >> 20,
        summary.bytes >> 20
    );
}

#[test]
fn the_budget_holds_for_any_rows() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pqt");
    let options = WriterOptions {
        sync: false,
        memory_bytes: 16 << 20,
        ..Default::default()
    };
    let mut writer = Writer::create(&path, options).unwrap();
    let ids: Vec<_> = (0..100)
        .map(|number| writer.add_table(sched_switch(number)).unwrap())
        .collect();
    let before = resident_bytes();
    let mut most = 0;
    for number in 0..8000 {
        for &id in &ids {
            write_row(&mut writer, id, number);
        }
        if number % 100 == 0 {
            most = most.max(resident_bytes().saturating_sub(before));
        }
    }
    let summary = writer.finish(Facts::default()).unwrap();
    assert_eq!(summary.rows.values().sum::<u64>(), 800_000);
    // The budget counts rows; allocators round up, and the encoder has its buffers.
    assert!(
        most <= 40 << 20,
        "with a budget of 16 MB, {} MB were used",
        most >> 20
    );
}

/// Programs of about 10 MB each: this one, under many paths.
#[test]
fn symbol_tables_are_released_between_programs() {
    const PROGRAMS: usize = 12;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let own = std::env::current_exe().unwrap();
    let paths: Vec<String> = (0..PROGRAMS)
        .map(|number| {
            let path = folder.path().join(format!("program{number}"));
            std::fs::copy(&own, &path).unwrap();
            path.to_str().unwrap().to_owned()
        })
        .collect();
    let options = Options {
        directories: vec![folder.path().to_owned()],
        kernel: KernelSource::None,
        system: false,
        ..Options::default()
    };
    let code = code_offset();
    let request = |path: &'static str| Request {
        module: Some(path),
        offset: Some(code),
        space: Space::User,
        ..Request::default()
    };
    let paths: Vec<Request<'_>> = paths.into_iter().map(|path| request(path.leak())).collect();
    let mut symbolizer =
        Symbolizer::new(options, KernelFacts::default(), Origin::default()).unwrap();
    let before = resident_bytes();
    let (first, others) = paths.split_first().unwrap();
    let expected = symbolizer.names(std::slice::from_ref(first));
    assert!(expected[0][0].function.contains("code_offset"));
    let of_one = resident_bytes().saturating_sub(before);
    for names in symbolizer.names(others) {
        assert_eq!(names, expected[0]);
    }
    // A released one is read again when it is requested.
    assert_eq!(symbolizer.names(std::slice::from_ref(first)), expected);
    let of_all = resident_bytes().saturating_sub(before);
    println!(
        "one program: {} KiB, {PROGRAMS}: {} KiB",
        of_one >> 10,
        of_all >> 10
    );
    let most = (of_one * 4).max(24 << 20);
    assert!(
        of_all < most,
        "{} KiB after one, {} KiB after all",
        of_one >> 10,
        of_all >> 10
    );
}

/// The offset of this very function in its file.
#[inline(never)]
fn code_offset() -> u64 {
    let address = code_offset as fn() -> u64 as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let numbers = |line: &str| -> Option<(usize, usize, u64)> {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let offset = words.nth(1)?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        Some((number(start)?, number(end)?, number(offset)? as u64))
    };
    let mut ranges = maps.lines().filter_map(numbers);
    let (start, _, offset) = ranges
        .find(|(start, end, _)| (*start..*end).contains(&address))
        .unwrap();
    (address - start) as u64 + offset
}
