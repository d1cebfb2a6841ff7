//! The page encoder compared with a tuned ArrowWriter, on tables of sched_switch and sys_enter, and the memory of 500
//! open tables. Prints one JSON object: `cargo run --release -p perfquet-tests --example encode`.
//!
//! ```text
//! {"sched_switch":{"rows":4000000,"push_ns":80.2,"encode_ns":61.5,"arrow_ns":178.0,"time_ratio":0.34,…},…}
//! ```
//! Both write the same rows, in alternation, from columns in memory; measured is CPU time, the smallest of the rounds.
//! The ratio is that of encoding alone: ArrowWriter gets its batches (strings as dictionary arrays) for free; the cost
//! of pushing every value (range checks, string IDs) is listed separately.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use arrow::array::{ArrayRef, DictionaryArray, Int32Array, Int64Array, StringArray, UInt64Array};
use arrow::datatypes::Int32Type;
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, Encoding as PageEncoding, ZstdLevel};
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;
use perfquet_trace::store::{
    ColumnSchema, ColumnType, Directory, Encoding, Facts, TableSchema, Writer, WriterOptions,
};
use serde_json::json;

const BATCH: usize = 8192;

/// A column in memory.
enum Values {
    Time(Vec<i64>),
    Narrow(Vec<i32>),
    Wide(Vec<u64>),
    /// Keys, and the strings that they stand for.
    Text(Vec<i32>, Vec<String>),
}

struct Table {
    name: &'static str,
    rows: usize,
    columns: Vec<(&'static str, Values)>,
}

/// SplitMix64: the same rows every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Small numbers often, up to `count`.
    fn skewed(&mut self, count: u64) -> u64 {
        let bits = 64 - count.leading_zeros();
        self.next() % (1 << (self.next() % u64::from(bits + 1))).min(count)
    }
}

/// Threads wake each other on two CPUs; a third of the time a CPU idles.
fn sched_switch(rows: usize) -> Table {
    let mut random = Random(1);
    let comms: Vec<String> = (0..150)
        .map(|at| format!("worker/{at}:{}", at % 7))
        .collect();
    let mut columns: [Vec<i32>; 9] = Default::default();
    let mut time = Vec::new();
    let mut state = Vec::new();
    let mut now = 50_000_000_000;
    let mut running = [0, 0];
    for _ in 0..rows {
        now += 1500 + (random.skewed(60_000) as i64);
        let cpu = (random.next() % 2) as usize;
        let last = running[cpu];
        let next = match last {
            0 => random.skewed(149) as i32 + 1,
            _ if random.next().is_multiple_of(3) => 0,
            _ => random.skewed(149) as i32 + 1,
        };
        running[cpu] = next;
        time.push(now);
        let pid = |thread: i32| if thread == 0 { 0 } else { 1000 + thread * 3 };
        let prio = |thread: i32| if thread % 40 == 7 { 100 } else { 120 };
        let row = [
            cpu as i32,
            pid(last) / 4,
            pid(last),
            last,
            last,
            pid(last),
            prio(last),
            next,
            pid(next),
        ];
        for (column, value) in columns.iter_mut().zip(row) {
            column.push(value);
        }
        state.push([0, 1, 1, 2, 256][(random.next() % 5) as usize]);
    }
    let prio = columns[8]
        .iter()
        .map(|&pid| if pid % 120 == 1 { 100 } else { 120 })
        .collect();
    let [
        cpu,
        pid,
        tid,
        comm,
        prev_comm,
        prev_pid,
        prev_prio,
        next_comm,
        next_pid,
    ] = columns;
    Table {
        name: "sched_switch",
        rows,
        columns: vec![
            ("time", Values::Time(time)),
            ("cpu", Values::Narrow(cpu)),
            ("pid", Values::Narrow(pid)),
            ("tid", Values::Narrow(tid)),
            ("comm", Values::Text(comm, comms.clone())),
            ("prev_comm", Values::Text(prev_comm, comms.clone())),
            ("prev_pid", Values::Narrow(prev_pid)),
            ("prev_prio", Values::Narrow(prev_prio)),
            ("prev_state", Values::Time(state)),
            ("next_comm", Values::Text(next_comm, comms)),
            ("next_pid", Values::Narrow(next_pid)),
            ("next_prio", Values::Narrow(prio)),
        ],
    }
}

/// Calls with descriptors, buffers, sizes, and leftover register values.
fn sys_enter(rows: usize) -> Table {
    let mut random = Random(2);
    let comms: Vec<String> = (0..60).map(|at| format!("program-{at}")).collect();
    let heap: Vec<u64> = (0..4000)
        .map(|_| 0x5500_0000_0000 + (random.next() & 0xff_ffff_fff0))
        .collect();
    let mut time = Vec::new();
    let mut narrow: [Vec<i32>; 4] = Default::default();
    let mut id = Vec::new();
    let mut args: [Vec<u64>; 6] = Default::default();
    let mut now = 50_000_000_000;
    for _ in 0..rows {
        now += 200 + (random.skewed(9000) as i64);
        let thread = random.skewed(59) as i32;
        time.push(now);
        let row = [
            (random.next() % 2) as i32,
            800 + thread,
            800 + thread * 2,
            thread,
        ];
        for (column, value) in narrow.iter_mut().zip(row) {
            column.push(value);
        }
        let call = random.skewed(40) as i64;
        id.push(call);
        let stack = 0x7ffd_0000_0000 + thread as u64 * 0x10_0000 + (random.skewed(300) << 4);
        let left = heap[random.skewed(3999) as usize];
        let values = [
            if call % 3 == 0 {
                heap[random.skewed(3999) as usize]
            } else {
                random.skewed(90)
            },
            if call % 2 == 0 {
                heap[random.skewed(3999) as usize]
            } else {
                stack
            },
            [1, 8, 4096, 0x20000, u64::MAX, random.next() >> 52][(random.next() % 6) as usize],
            if call % 4 == 0 { 0 } else { left },
            if call % 5 == 0 { random.next() >> 8 } else { 0 },
            if call % 7 == 0 {
                stack
            } else {
                u64::from(call as u32)
            },
        ];
        for (column, value) in args.iter_mut().zip(values) {
            column.push(value);
        }
    }
    let [cpu, pid, tid, comm] = narrow;
    let [a, b, c, d, e, f] = args;
    Table {
        name: "sys_enter",
        rows,
        columns: vec![
            ("time", Values::Time(time)),
            ("cpu", Values::Narrow(cpu)),
            ("pid", Values::Narrow(pid)),
            ("tid", Values::Narrow(tid)),
            ("comm", Values::Text(comm, comms)),
            ("id", Values::Time(id)),
            ("arg0", Values::Wide(a)),
            ("arg1", Values::Wide(b)),
            ("arg2", Values::Wide(c)),
            ("arg3", Values::Wide(d)),
            ("arg4", Values::Wide(e)),
            ("arg5", Values::Wide(f)),
        ],
    }
}

fn schema(table: &Table) -> TableSchema {
    let column = |(name, values): &(&str, Values)| ColumnSchema {
        name: (*name).to_owned(),
        kind: match values {
            Values::Time(_) => ColumnType::Int64,
            Values::Narrow(_) => ColumnType::Int32,
            Values::Wide(_) => ColumnType::UInt64,
            Values::Text(..) => ColumnType::Text,
        },
        nullable: false,
        unit: String::new(),
        doc: String::new(),
        encoding: if *name == "time" {
            Encoding::Delta
        } else {
            Encoding::Dictionary
        },
    };
    TableSchema {
        name: format!("events/bench/{}", table.name),
        doc: String::new(),
        columns: table.columns.iter().map(column).collect(),
        sort: vec!["time".to_owned()],
    }
}

/// Writes the table; returns its size in bytes.
fn ours(table: &Table, folder: &Path) -> Result<u64> {
    let path = folder.join("ours.pqt");
    let options = WriterOptions {
        force: true,
        sync: false,
        ..Default::default()
    };
    let mut writer = Writer::create(&path, options)?;
    let id = writer.add_table(schema(table))?;
    for row in 0..table.rows {
        let columns = writer.rows(id).columns_mut();
        for (column, (_, values)) in columns.iter_mut().zip(&table.columns) {
            match values {
                Values::Time(values) => column.push_i64(values[row]),
                Values::Narrow(values) => column.push_i64(values[row].into()),
                Values::Wide(values) => column.push_u64(values[row]),
                Values::Text(keys, texts) => {
                    column.push_bytes(texts[keys[row] as usize].as_bytes())
                }
            }
        }
        writer.end_row(id)?;
    }
    writer.finish(Facts::default())?;
    let trace = Directory::open(&path)?;
    let written = trace
        .table(&schema(table).name)
        .context("the table is missing")?;
    Ok(written.bytes())
}

fn batches(table: &Table) -> Result<Vec<RecordBatch>> {
    (0..table.rows)
        .step_by(BATCH)
        .map(|start| {
            let rows = start..(start + BATCH).min(table.rows);
            let array = |values: &Values| -> Result<ArrayRef> {
                Ok(match values {
                    Values::Time(values) => {
                        Arc::new(Int64Array::from(values[rows.clone()].to_vec()))
                    }
                    Values::Narrow(values) => {
                        Arc::new(Int32Array::from(values[rows.clone()].to_vec()))
                    }
                    Values::Wide(values) => {
                        Arc::new(UInt64Array::from(values[rows.clone()].to_vec()))
                    }
                    Values::Text(keys, texts) => Arc::new(DictionaryArray::<Int32Type>::try_new(
                        Int32Array::from(keys[rows.clone()].to_vec()),
                        Arc::new(StringArray::from_iter_values(texts)),
                    )?),
                })
            };
            let columns = table
                .columns
                .iter()
                .map(|(name, values)| Ok((*name, array(values)?, false)));
            Ok(RecordBatch::try_from_iter_with_nullable(
                columns.collect::<Result<Vec<_>>>()?,
            )?)
        })
        .collect()
}

/// Writes the batches with ArrowWriter's best settings; returns their size in bytes.
fn arrow(table: &Table, batches: &[RecordBatch], folder: &Path) -> Result<u64> {
    let path = folder.join("arrow.parquet");
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_data_page_row_count_limit(1 << 16)
        .set_write_batch_size(BATCH)
        .set_max_row_group_row_count(Some(1 << 20));
    for (name, values) in &table.columns {
        let path = ColumnPath::from(*name);
        properties = match values {
            _ if *name == "time" => properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, PageEncoding::DELTA_BINARY_PACKED),
            Values::Wide(_) => properties.set_column_dictionary_enabled(path, false),
            _ => properties,
        };
    }
    let options = ArrowWriterOptions::new()
        .with_properties(properties.build())
        .with_skip_arrow_metadata(true);
    let file = std::fs::File::create(&path)?;
    let mut writer = ArrowWriter::try_new_with_options(file, batches[0].schema(), options)?;
    for batch in batches {
        writer.write(batch)?;
    }
    writer.close()?;
    Ok(std::fs::metadata(&path)?.len())
}

/// CPU time of this process and all its threads, in nanoseconds, counted in hundredths of a second.
fn process_ns() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after = stat
        .rsplit(')')
        .next()
        .context("no name in /proc/self/stat")?;
    let fields: Vec<&str> = after.split_whitespace().collect();
    // utime and stime (proc_pid_stat(5), 14 and 15).
    let ticks = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    Ok(ticks * 1e7)
}

/// CPU time of this thread, in nanoseconds.
fn thread_ns() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(stat
        .split(' ')
        .next()
        .context("no time in schedstat")?
        .parse()?)
}

fn compare(table: &Table, rounds: usize) -> Result<serde_json::Value> {
    let folder = tempfile::tempdir()?;
    let batches = batches(table)?;
    let (mut push_ns, mut encode_ns, mut arrow_ns) = (f64::MAX, f64::MAX, f64::MAX);
    let (mut ours_bytes, mut arrow_bytes) = (0, 0);
    let rows = table.rows as f64;
    for _ in 0..rounds {
        let (process, thread) = (process_ns()?, thread_ns()?);
        ours_bytes = ours(table, folder.path())?;
        let push = thread_ns()? - thread;
        encode_ns = encode_ns.min((process_ns()? - process - push) / rows);
        push_ns = push_ns.min(push / rows);
        let thread = thread_ns()?;
        arrow_bytes = arrow(table, &batches, folder.path())?;
        arrow_ns = arrow_ns.min((thread_ns()? - thread) / rows);
    }
    Ok(json!({
        "rows": table.rows,
        "push_ns": push_ns,
        "encode_ns": encode_ns,
        "arrow_ns": arrow_ns,
        "time_ratio": encode_ns / arrow_ns,
        "ours_bytes": ours_bytes as f64 / rows,
        "arrow_bytes": arrow_bytes as f64 / rows,
        "size_ratio": ours_bytes as f64 / arrow_bytes as f64,
    }))
}

fn resident_bytes() -> Result<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm
        .split(' ')
        .nth(1)
        .context("no size in /proc/self/statm")?;
    Ok(pages.parse::<usize>()? * 4096)
}

/// Growth of this process with 500 tables of 1000 rows, in bytes.
fn many_tables() -> Result<usize> {
    let folder = tempfile::tempdir()?;
    let rows = sched_switch(1000);
    let options = WriterOptions {
        sync: false,
        ..Default::default()
    };
    let before = resident_bytes()?;
    let mut writer = Writer::create(&folder.path().join("many.pqt"), options)?;
    let schema = schema(&rows);
    let ids = (0..500)
        .map(|number| {
            let name = format!("{}_{number}", schema.name);
            Ok(writer.add_table(TableSchema {
                name,
                ..schema.clone()
            })?)
        })
        .collect::<Result<Vec<_>>>()?;
    for row in 0..rows.rows {
        for &id in &ids {
            let columns = writer.rows(id).columns_mut();
            for (column, (_, values)) in columns.iter_mut().zip(&rows.columns) {
                match values {
                    Values::Time(values) => column.push_i64(values[row]),
                    Values::Narrow(values) => column.push_i64(values[row].into()),
                    Values::Wide(values) => column.push_u64(values[row]),
                    Values::Text(keys, texts) => {
                        column.push_bytes(texts[keys[row] as usize].as_bytes());
                    }
                }
            }
            writer.end_row(id)?;
        }
    }
    let grown = resident_bytes()?.saturating_sub(before);
    writer.finish(Facts::default())?;
    Ok(grown)
}

fn main() -> Result<()> {
    let rows = match std::env::args().nth(1) {
        Some(rows) => rows.parse().context("usage: encode [ROWS]")?,
        None => 4_000_000,
    };
    let many = many_tables()?;
    let result = json!({
        "sched_switch": compare(&sched_switch(rows), 5)?,
        "sys_enter": compare(&sys_enter(rows), 5)?,
        "many_tables_bytes": many,
    });
    println!("{result:#}");
    Ok(())
}
