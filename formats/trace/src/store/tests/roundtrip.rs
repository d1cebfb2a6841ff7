//! Written data is read back: random tables, and the known traps.

use parquet::file::reader::{FileReader, SerializedFileReader};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::model::*;
use crate::store::*;

fn value(kind: ColumnType) -> BoxedStrategy<Cell> {
    use ColumnType::*;
    // Few distinct values or many, so that dictionaries are kept and abandoned.
    fn signed(low: i64, high: i64) -> BoxedStrategy<i64> {
        let few = (low.max(-3)..=high.min(3)).boxed();
        prop_oneof![few, low..=high, Just(low), Just(high)].boxed()
    }
    fn unsigned(high: u64) -> BoxedStrategy<u64> {
        prop_oneof![0..=high.min(5), 0..=high, Just(high)].boxed()
    }
    let text = || prop_oneof![4 => "[a-c]{0,2}", 1 => "\\PC{0,90}"].prop_map(String::into_bytes);
    match kind {
        Bool => any::<bool>().prop_map(Cell::Truth).boxed(),
        Int8 => signed(i8::MIN.into(), i8::MAX.into())
            .prop_map(Cell::Signed)
            .boxed(),
        Int16 => signed(i16::MIN.into(), i16::MAX.into())
            .prop_map(Cell::Signed)
            .boxed(),
        Int32 => signed(i32::MIN.into(), i32::MAX.into())
            .prop_map(Cell::Signed)
            .boxed(),
        Int64 | Int128 => signed(i64::MIN, i64::MAX).prop_map(Cell::Signed).boxed(),
        UInt8 => unsigned(u8::MAX.into()).prop_map(Cell::Unsigned).boxed(),
        UInt16 => unsigned(u16::MAX.into()).prop_map(Cell::Unsigned).boxed(),
        UInt32 => unsigned(u32::MAX.into()).prop_map(Cell::Unsigned).boxed(),
        UInt64 | Bits => unsigned(u64::MAX).prop_map(Cell::Unsigned).boxed(),
        Float64 => prop_oneof![Just(0.0), Just(-0.0), Just(f64::NAN), any::<f64>()]
            .prop_map(Cell::Float)
            .boxed(),
        Text => text().prop_map(Cell::Text).boxed(),
        Binary => prop::collection::vec(any::<u8>(), 0..80)
            .prop_map(Cell::Text)
            .boxed(),
        Int64List => prop::collection::vec(any::<i64>(), 0..4)
            .prop_map(Cell::SignedList)
            .boxed(),
        UInt64List | BitsList => prop::collection::vec(any::<u64>(), 0..4)
            .prop_map(Cell::UnsignedList)
            .boxed(),
        TextList => prop::collection::vec(text(), 0..4)
            .prop_map(Cell::TextList)
            .boxed(),
    }
}

fn any_column() -> impl Strategy<Value = ColumnSchema> {
    let encoding = prop_oneof![
        3 => Just(Encoding::Dictionary),
        1 => Just(Encoding::Delta),
        1 => Just(Encoding::Plain),
    ];
    (prop::sample::select(&KINDS[..]), any::<bool>(), encoding)
        .prop_map(|(kind, nullable, encoding)| column("", kind, nullable, encoding))
}

fn any_table() -> impl Strategy<Value = (Vec<ColumnSchema>, Vec<Vec<Cell>>)> {
    prop::collection::vec(any_column(), 1..6).prop_flat_map(|mut columns| {
        for (index, column) in columns.iter_mut().enumerate() {
            column.name = format!("c{index}");
        }
        let row: Vec<BoxedStrategy<Cell>> = columns
            .iter()
            .map(|column| match column.nullable {
                true => prop_oneof![1 => Just(Cell::Null), 3 => value(column.kind)].boxed(),
                false => value(column.kind),
            })
            .collect();
        (Just(columns), prop::collection::vec(row, 0..300))
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        rng_seed: RngSeed::Fixed(5),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_table_is_read_back(
        (columns, rows) in any_table(),
        rows_per_page in 1..200usize,
        pages_per_group in 1..4u64,
        memory_bytes in prop_oneof![Just(0usize), Just(4096), Just(1 << 20)],
        pieces in prop::collection::vec(1..80usize, 1..5),
    ) {
        let options = WriterOptions {
            rows_per_page,
            rows_per_group: pages_per_group * rows_per_page as u64,
            rows_per_part: 200,
            memory_bytes,
            ..WriterOptions::default()
        };
        check_mixed(&options, columns, &rows, &pieces);
    }
}

fn check_column(kind: ColumnType, nullable: bool, encoding: Encoding, cells: Vec<Cell>) {
    let rows: Vec<Vec<Cell>> = cells.into_iter().map(|cell| vec![cell]).collect();
    let columns = vec![column("c", kind, nullable, encoding)];
    check(&WriterOptions::default(), columns, &rows);
}

/// Returns a value of each kind.
fn example(kind: ColumnType, at: usize) -> Cell {
    use ColumnType::*;
    match kind {
        Bool => Cell::Truth(at.is_multiple_of(2)),
        Int8 | Int16 | Int32 | Int64 | Int128 => Cell::Signed(-(at as i64 % 128)),
        UInt8 | UInt16 | UInt32 | UInt64 | Bits => Cell::Unsigned(at as u64 % 256),
        Float64 => Cell::Float(at as f64 / 3.0),
        Text | Binary => Cell::Text(at.to_string().into_bytes()),
        Int64List => Cell::SignedList(vec![at as i64; at % 3]),
        UInt64List | BitsList => Cell::UnsignedList(vec![at as u64; at % 3]),
        TextList => Cell::TextList(vec![at.to_string().into_bytes(); at % 3]),
    }
}

#[test]
fn every_type_with_no_row_one_row_one_value_and_only_null() {
    for kind in KINDS {
        for encoding in [Encoding::Dictionary, Encoding::Delta, Encoding::Plain] {
            for nullable in [false, true] {
                check_column(kind, nullable, encoding, Vec::new());
                check_column(kind, nullable, encoding, vec![example(kind, 2)]);
                check_column(kind, nullable, encoding, vec![example(kind, 2); 1000]);
            }
            check_column(kind, true, encoding, vec![Cell::Null]);
            check_column(kind, true, encoding, vec![Cell::Null; 1000]);
            let mixed = (0..1000).map(|at| match at % 5 {
                0 => Cell::Null,
                _ => example(kind, at),
            });
            check_column(kind, true, encoding, mixed.collect());
        }
    }
}

#[test]
fn dictionaries_are_abandoned_in_the_middle() {
    // Few distinct values in the first page, more than a dictionary's limit in the next ones.
    let number = |at: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let integers = (0..200_000u64).map(|at| number(if at < 70_000 { at % 7 } else { at }));
    let texts = integers
        .clone()
        .map(|value| Cell::Text(format!("{value:x}").into_bytes()));
    check_column(
        ColumnType::Text,
        false,
        Encoding::Dictionary,
        texts.collect(),
    );
    let integers = integers.map(Cell::Unsigned).collect();
    check_column(ColumnType::UInt64, false, Encoding::Dictionary, integers);
}

#[test]
fn strings_that_rarely_repeat_come_in_both_kinds_of_pieces() {
    // More than an interner keeps, on both sides.
    let text = |at: usize| Cell::Text((at % 150_000).to_string().into_bytes());
    let rows: Vec<Vec<Cell>> = (0..400_000)
        .map(|at| vec![text(at), Cell::TextList(vec![b"a".to_vec(); at % 2])])
        .collect();
    let columns = vec![
        column("t", ColumnType::Text, false, Encoding::Dictionary),
        column("l", ColumnType::TextList, true, Encoding::Dictionary),
    ];
    check_mixed(
        &WriterOptions::default(),
        columns,
        &rows,
        &[1000, 50_000, 70_000, 3],
    );
}

#[test]
fn long_strings_go_to_separate_pages() {
    let text = |at: usize| Cell::Text(at.to_string().repeat(at % 70 * 2000).into_bytes());
    let rows: Vec<Cell> = (0..140).map(text).collect();
    check_column(ColumnType::Text, false, Encoding::Dictionary, rows);
    let list = |at: usize| match (text(at), text(at + 1)) {
        (Cell::Text(a), Cell::Text(b)) if !at.is_multiple_of(3) => Cell::TextList(vec![a, b]),
        _ => Cell::Null,
    };
    let rows: Vec<Cell> = (0..100).map(list).collect();
    check_column(ColumnType::TextList, true, Encoding::Dictionary, rows);
}

/// Writes one column, and opens its only part.
fn part_of(column: ColumnSchema, cells: Vec<Cell>) -> SerializedFileReader<std::fs::File> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pqt");
    let rows: Vec<Vec<Cell>> = cells.into_iter().map(|cell| vec![cell]).collect();
    let mut schema = table("t", vec![column]);
    schema.sort = vec![schema.columns[0].name.clone()];
    write(&path, WriterOptions::default(), schema, &rows);
    let trace = Directory::open(&path).unwrap();
    let parts = trace.parts("t");
    assert_eq!(parts.len(), 1);
    SerializedFileReader::new(std::fs::File::open(&parts[0]).unwrap()).unwrap()
}

#[test]
fn statistics_of_unsigned_are_ordered_unsigned() {
    let kernel = 0xffff_ffff_8100_0000;
    let cells = [kernel, 5, u64::MAX, 1 << 63].map(Cell::Unsigned).to_vec();
    let reader = part_of(
        column("c", ColumnType::UInt64, false, Encoding::Plain),
        cells,
    );
    let chunk = reader.metadata().row_group(0).column(0);
    let statistics = chunk.statistics().unwrap();
    assert_eq!(statistics.min_bytes_opt(), Some(&5u64.to_le_bytes()[..]));
    assert_eq!(
        statistics.max_bytes_opt(),
        Some(&u64::MAX.to_le_bytes()[..])
    );
    let narrow = [u32::MAX, 7]
        .map(|value| Cell::Unsigned(value.into()))
        .to_vec();
    let reader = part_of(
        column("c", ColumnType::UInt32, false, Encoding::Dictionary),
        narrow,
    );
    let statistics = reader
        .metadata()
        .row_group(0)
        .column(0)
        .statistics()
        .unwrap();
    assert_eq!(
        statistics.max_bytes_opt(),
        Some(&u32::MAX.to_le_bytes()[..])
    );
}

#[test]
fn dictionaries_contain_only_values_of_their_chunk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pqt");
    let options = WriterOptions {
        rows_per_page: 1000,
        rows_per_group: 1000,
        ..WriterOptions::default()
    };
    let rows: Vec<Vec<Cell>> = (0..4000)
        .map(|at| {
            vec![Cell::Text(
                format!("name {}", at / 1000 * 50 + at % 50).into_bytes(),
            )]
        })
        .collect();
    let columns = vec![column("c", ColumnType::Text, false, Encoding::Dictionary)];
    write(&path, options, table("t", columns), &rows);
    assert_eq!(read(&path, "t"), rows);
    let trace = Directory::open(&path).unwrap();
    let file = std::fs::File::open(&trace.parts("t")[0]).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    assert_eq!(reader.num_row_groups(), 4);
    for group in 0..4 {
        let group = reader.get_row_group(group).unwrap();
        let mut pages = group.get_column_page_reader(0).unwrap();
        let dictionary = pages.get_next_page().unwrap().unwrap();
        assert_eq!(
            dictionary.page_type(),
            parquet::basic::PageType::DICTIONARY_PAGE
        );
        assert_eq!(dictionary.num_values(), 50);
    }
}

#[test]
fn order_is_declared_only_if_it_is_true() {
    let time = || column("time", ColumnType::Int64, true, Encoding::Delta);
    let cells = |times: &[i64]| times.iter().map(|&time| Cell::Signed(time)).collect();
    let sorted = part_of(time(), cells(&[-5, 0, 0, 9]));
    let group = sorted.metadata().row_group(0);
    let columns = group.sorting_columns().unwrap();
    assert_eq!((columns[0].column_idx, columns[0].nulls_first), (0, true));
    let unsorted = part_of(time(), cells(&[-5, 9, 0]));
    assert_eq!(unsorted.metadata().row_group(0).sorting_columns(), None);
}

#[test]
fn footers_have_no_entry_without_a_value_and_an_index_of_pages() {
    use parquet::file::metadata::{KeyValue, PageIndexPolicy, ParquetMetaDataReader};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pqt");
    let rows: Vec<Vec<Cell>> = (0..100).map(|at| vec![Cell::Signed(at)]).collect();
    let options = WriterOptions {
        rows_per_page: 10,
        ..WriterOptions::default()
    };
    let columns = vec![column("time", ColumnType::Int64, false, Encoding::Delta)];
    write(&path, options, table("t", columns), &rows);
    let trace = Directory::open(&path).unwrap();
    assert_eq!(trace.table("t").unwrap().time_range(), Some((0, 99)));
    let file = std::fs::File::open(&trace.parts("t")[0]).unwrap();
    let metadata = ParquetMetaDataReader::new()
        .with_page_index_policy(PageIndexPolicy::Required)
        .parse_and_finish(&file)
        .unwrap();
    let pairs = metadata.file_metadata().key_value_metadata().unwrap();
    let has_value = |pair: &KeyValue| pair.value.as_ref().is_some_and(|value| !value.is_empty());
    assert!(pairs.iter().all(has_value), "{pairs:?}");
    let offsets = &metadata.offset_index().unwrap()[0][0];
    let rows: Vec<i64> = offsets
        .page_locations()
        .iter()
        .map(|page| page.first_row_index)
        .collect();
    assert_eq!(rows, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]);
    let columns = &metadata.column_index().unwrap()[0][0];
    assert_eq!(
        columns.get_boundary_order(),
        Some(parquet::basic::BoundaryOrder::ASCENDING)
    );
}

/// Equal columns share their bytes, unless these have another meaning: without NULL, they have no levels.
#[test]
fn equal_chunks_are_stored_once() {
    use parquet::file::metadata::{PageIndexPolicy, ParquetMetaDataReader};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pqt");
    let number = |at: i64| Cell::Signed(at * at % 1009);
    let rows: Vec<Vec<Cell>> = (0..3000)
        .map(|at| {
            let other = number(if at == 2500 { at + 1 } else { at });
            vec![number(at), number(at), number(at), other]
        })
        .collect();
    let options = WriterOptions {
        rows_per_page: 1000,
        ..WriterOptions::default()
    };
    let columns = [("a", true), ("b", true), ("never_null", false), ("c", true)]
        .map(|(name, nullable)| column(name, ColumnType::Int64, nullable, Encoding::Plain));
    write(&path, options, table("t", columns.to_vec()), &rows);
    assert_eq!(read(&path, "t"), rows);
    let trace = Directory::open(&path).unwrap();
    let file = std::fs::File::open(&trace.parts("t")[0]).unwrap();
    let metadata = ParquetMetaDataReader::new()
        .with_page_index_policy(PageIndexPolicy::Required)
        .parse_and_finish(&file)
        .unwrap();
    let starts: Vec<i64> = (0..4)
        .map(|index| metadata.row_group(0).column(index).data_page_offset())
        .collect();
    assert_eq!(starts[0], starts[1]);
    assert!(starts[1] < starts[2] && starts[2] < starts[3]);
    let pages = &metadata.offset_index().unwrap()[0];
    assert_eq!(pages[0].page_locations(), pages[1].page_locations());
    assert_eq!(pages[3].page_locations()[0].offset, starts[3]);
}

/// So little memory that the distinct strings are forgotten repeatedly.
#[test]
fn dictionaries_contain_no_string_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pqt");
    let options = WriterOptions {
        memory_bytes: 4096,
        ..WriterOptions::default()
    };
    let rows: Vec<Vec<Cell>> = (0..2000)
        .map(|at| {
            vec![Cell::Text(
                format!("a long name, number {}", at % 30).into_bytes(),
            )]
        })
        .collect();
    let columns = vec![column("c", ColumnType::Text, false, Encoding::Dictionary)];
    write(&path, options, table("t", columns), &rows);
    assert_eq!(read(&path, "t"), rows);
    let trace = Directory::open(&path).unwrap();
    let file = std::fs::File::open(&trace.parts("t")[0]).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group).unwrap();
        let mut pages = group.get_column_page_reader(0).unwrap();
        let first = pages.get_next_page().unwrap().unwrap();
        if first.page_type() == parquet::basic::PageType::DICTIONARY_PAGE {
            assert!(first.num_values() <= 30, "{} texts", first.num_values());
        }
    }
}

/// Row groups outside of a range are not read, and none inside is left out; times may be unsorted or missing.
#[test]
fn ranges_of_time_skip_parts_and_row_groups() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pqt");
    let options = WriterOptions {
        rows_per_page: 10,
        rows_per_group: 100,
        rows_per_part: 400,
        ..WriterOptions::default()
    };
    let time = |at: i64| match at % 97 {
        13 => Cell::Null,
        _ => Cell::Signed(1_000 + at / 100 * 100 + (at * 37) % 100),
    };
    let rows: Vec<Vec<Cell>> = (0..1000).map(|at| vec![time(at)]).collect();
    let columns = vec![column("time", ColumnType::Int64, true, Encoding::Delta)];
    write(&path, options, table("t", columns), &rows);
    let trace = Directory::open(&path).unwrap();
    assert_eq!(trace.parts("t").len(), 3);
    let forms = trace.forms("t");
    for (range, read) in [
        ((i64::MIN, i64::MAX), 1000),
        ((1_250, 1_320), 200),
        ((1_300, 1_301), 100),
        ((1_200, 1_300), 100),
        ((1_999, 2_500), 100),
        ((2_000, 2_500), 0),
        ((0, 1_000), 0),
    ] {
        for wanted in [None, Some(&["time"][..])] {
            let (batches, skipped) = trace.read_form_between(&forms[0], wanted, range).unwrap();
            let batches: Vec<_> = batches.map(Result::unwrap).collect();
            let count: usize = batches.iter().map(|batch| batch.num_rows()).sum();
            assert_eq!((count, skipped), (read, 1000 - read as u64), "{range:?}");
            let inside = |time: &Option<i64>| time.is_some_and(|t| t >= range.0 && t < range.1);
            let found = batches.iter().flat_map(|batch| {
                use arrow_array::cast::AsArray;
                let times = batch
                    .column(0)
                    .as_primitive::<arrow_array::types::Int64Type>();
                times.iter().collect::<Vec<_>>()
            });
            let expected = rows.iter().map(|row| match &row[0] {
                Cell::Signed(time) => Some(*time),
                _ => None,
            });
            assert_eq!(
                found.filter(inside).collect::<Vec<_>>(),
                expected.filter(inside).collect::<Vec<_>>()
            );
        }
    }
}
