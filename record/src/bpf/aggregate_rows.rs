//! Converts the cells of a map to rows: merges the values of all CPUs, joins bars to distributions, formats keys as
//! text.

use perfquet_ebpf::layout::{Cell, NO_BAR, NO_BAR_OF_SELF, NarrowKey, WideKey};
use perfquet_ebpf::{Error, Object, PerCpu};
use perfquet_events::event::{Action, AggregateValue, Bucket};

use super::intervals::{Cells, Entry};
use super::plan::{Key, Output, Plan};
use crate::journal::own_records::Row;

const NARROW: &str = "narrow_cells";
const WIDE: &str = "wide_cells";

/// Keys of cells that are not read again.
pub(super) enum Stale {
    Narrow(Vec<NarrowKey>),
    Wide(Vec<WideKey>),
}

/// Reads all cells of an object, whose programs number their probes or functions in the order of `names`. Returns also
/// the keys of those whose interval `is_over`.
pub(super) fn entries(
    object: &Object,
    plan: &Plan,
    names: &[String],
    (is_wide, is_over): (bool, impl Fn(u32) -> bool),
) -> Result<(Vec<Entry>, Stale), Error> {
    fn read<K: AsRef<[u64]>>(
        cells: PerCpu<K, Cell>,
        entry: impl Fn(&[u64], &[Cell]) -> Entry,
        is_over: impl Fn(u32) -> bool,
    ) -> (Vec<Entry>, Vec<K>) {
        let (mut entries, mut stale) = (Vec::new(), Vec::new());
        for (key, cells) in cells {
            let entry = entry(key.as_ref(), &cells);
            if is_over(entry.interval) {
                stale.push(key);
            }
            entries.push(entry);
        }
        (entries, stale)
    }
    let entry = |key: &[u64], cells: &[Cell]| entry(plan, names, key, cells);
    Ok(match is_wide {
        false => {
            let (entries, stale) = read(object.per_cpu(NARROW)?, entry, is_over);
            (entries, Stale::Narrow(stale))
        }
        true => {
            let (entries, stale) = read(object.per_cpu(WIDE)?, entry, is_over);
            (entries, Stale::Wide(stale))
        }
    })
}

/// Removes cells.
pub(super) fn remove(object: &mut Object, stale: &Stale) -> Result<(), Error> {
    match stale {
        Stale::Narrow(keys) => keys
            .iter()
            .try_for_each(|key| object.remove_per_cpu::<NarrowKey, Cell>(NARROW, key)),
        Stale::Wide(keys) => keys
            .iter()
            .try_for_each(|key| object.remove_per_cpu::<WideKey, Cell>(WIDE, key)),
    }
}

/// Returns the interval in the upper half of a key's first word; the lower half is the bar.
fn interval_of(word: u64) -> u32 {
    (word >> 32) as u32
}

fn entry(plan: &Plan, names: &[String], key: &[u64], cells: &[Cell]) -> Entry {
    let (word, rest) = key.split_first().unwrap_or((&0, &[]));
    let mut rest = rest.to_vec();
    let mut probe = String::new();
    // Each object numbers its probes separately.
    if let Some(number) = place_of_probe(&plan.keys).and_then(|place| rest.get_mut(place)) {
        probe = names.get(*number as usize).cloned().unwrap_or_default();
        *number = 0;
    }
    let mut cell = Cell::default();
    cells.iter().for_each(|of_cpu| cell.add(of_cpu));
    Entry {
        interval: interval_of(*word),
        key: (probe, rest),
        bar: *word as i32,
        cell,
    }
}

/// Returns all rows by action, in the order of their keys.
pub(super) fn rows<'a>(plan: &'a Plan, cells: &Cells) -> Vec<(&'a Output, Row)> {
    let mut rows = Vec::new();
    for output in &plan.outputs {
        for ((probe, key), bars) in cells.iter() {
            let mut row = keyed(&plan.keys, probe, key);
            if output.is_distribution() {
                let bars = bars.iter().filter(|(bar, _)| **bar > NO_BAR_OF_SELF);
                row.bars = bars
                    .map(|(&bar, cell)| {
                        let (low, high) = range(plan, output.action, bar.into());
                        Bucket {
                            low,
                            high,
                            count: cell.count as i64,
                        }
                    })
                    .collect();
                if row.bars.is_empty() {
                    continue;
                }
            } else {
                let bar = match output.is_of_self {
                    true => NO_BAR_OF_SELF,
                    false => NO_BAR,
                };
                let Some(cell) = bars.get(&bar) else {
                    continue;
                };
                row.value = value(output.action, cell);
            }
            rows.push((output, row));
        }
    }
    rows
}

/// Returns the position of the word with the probe's number.
fn place_of_probe(keys: &[Key]) -> Option<usize> {
    let place = keys.iter().position(|key| *key == Key::Probe)?;
    Some(keys.iter().take(place).map(|key| key.words()).sum())
}

/// Returns a row with its key.
pub(super) fn keyed(keys: &[Key], probe: &str, words: &[u64]) -> Row {
    let mut row = Row::default();
    let mut words = words;
    for key in keys {
        let Some((own, rest)) = words.split_at_checked(key.words()) else {
            break;
        };
        words = rest;
        let number = own.first().copied().unwrap_or(0);
        match key {
            Key::Comm | Key::Text { .. } => row.keys.push(text(own)),
            Key::Process | Key::Thread | Key::Cpu => row.keys.push(number.to_string().into()),
            Key::Number { is_signed: true } => row.keys.push((number as i64).to_string().into()),
            Key::Number { is_signed: false } => row.keys.push(number.to_string().into()),
            Key::Probe => row.keys.push(probe.into()),
            Key::KernelStack => row.kernel_stack = number,
            Key::UserStack => row.user_stack = number,
        }
    }
    row
}

/// Returns the bytes before the first NUL.
fn text(words: &[u64]) -> Vec<u8> {
    let bytes = words.iter().flat_map(|word| word.to_ne_bytes());
    bytes.take_while(|&byte| byte != 0).collect()
}

fn value(action: Action, cell: &Cell) -> Option<AggregateValue> {
    let count = cell.count as f64;
    let sum = cell.sum as i64;
    if cell.count == 0 {
        return None;
    }
    Some(match action {
        Action::Count => AggregateValue::of_unsigned(cell.count),
        Action::Sum => AggregateValue::Int(sum),
        Action::Avg => AggregateValue::Float(sum as f64 / count),
        Action::Min => AggregateValue::Int(cell.least()),
        Action::Max => AggregateValue::Int(cell.most()),
        Action::Stddev => AggregateValue::Float(deviation(cell.count, sum, cell.squares())),
        Action::Quantize | Action::Lquantize | Action::Llquantize => return None,
    })
}

/// Computes sqrt(count × Σx² − (Σx)²) / count with integers if they are large enough, because the two terms can be
/// nearly equal.
fn deviation(count: u64, sum: i64, squares: u128) -> f64 {
    let square_of_sum = u128::from(sum.unsigned_abs()).pow(2);
    let difference = match squares.checked_mul(count.into()) {
        Some(product) => product.saturating_sub(square_of_sum) as f64,
        None => (squares as f64 * count as f64 - square_of_sum as f64).max(0.0),
    };
    difference.sqrt() / count as f64
}

/// Returns the start of a bar and of the next one; bars are numbered as in aggregate.h and perfquet-query.
pub(super) fn range(plan: &Plan, action: Action, bar: i64) -> (Option<i64>, Option<i64>) {
    let signed = |value: u64| i64::try_from(value).ok();
    // A bar of positive values, or its mirror image for negative ones.
    let mirrored = |low: u64, high: Option<u64>| match bar > 0 {
        true => (signed(low), high.and_then(signed)),
        false => (
            high.and_then(signed).map(|high| 1 - high),
            signed(low).map(|low| 1 - low),
        ),
    };
    let number = bar.unsigned_abs() as usize;
    match action {
        Action::Quantize if bar == 0 => (Some(0), Some(1)),
        Action::Quantize => mirrored(1 << (number - 1), (number < 63).then(|| 1 << number)),
        Action::Lquantize => {
            let settings = &plan.settings;
            let edge = |bar: i64| {
                settings
                    .low
                    .checked_add((bar - 1).checked_mul(settings.step as i64)?)
            };
            (
                (bar > 0).then(|| edge(bar)).flatten(),
                (bar <= settings.levels as i64)
                    .then(|| edge(bar + 1))
                    .flatten(),
            )
        }
        Action::Llquantize if bar == 0 => {
            let first = plan.edges.first().copied().and_then(signed).unwrap_or(1);
            (Some(1 - first), Some(first))
        }
        Action::Llquantize => mirrored(
            plan.edges.get(number - 1).copied().unwrap_or(u64::MAX),
            plan.edges.get(number).copied(),
        ),
        _ => (None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquet_ebpf::layout::AggSettings;

    fn plan(action: Action, settings: AggSettings, edges: &[u64]) -> Plan {
        Plan {
            outputs: vec![Output {
                name: "test".to_owned(),
                action,
                is_of_self: false,
                is_time: false,
            }],
            settings,
            edges: edges.to_vec(),
            keys: vec![Key::Comm, Key::Number { is_signed: true }, Key::UserStack],
            key_names: Vec::new(),
        }
    }

    fn cell(values: &[i64]) -> Cell {
        let mut cell = Cell::default();
        for &value in values {
            let square = u128::from(value.unsigned_abs()).pow(2);
            cell.add(&Cell {
                count: 1,
                sum: value as u64,
                inverted_least: !(value as u64 ^ 1 << 63),
                biased_most: value as u64 ^ 1 << 63,
                squares_low: square as u64,
                squares_high: (square >> 64) as u64,
            });
        }
        cell
    }

    #[test]
    fn values() {
        let cell = cell(&[-5, 3, i64::MAX - 3, 5]);
        assert_eq!((cell.least(), cell.most()), (-5, i64::MAX - 3));
        let cell = self::cell(&[2, 4, 4, 4, 5, 5, 7, 9]);
        for (action, expected) in [
            (Action::Count, 8.0),
            (Action::Sum, 40.0),
            (Action::Avg, 5.0),
            (Action::Min, 2.0),
            (Action::Max, 9.0),
            (Action::Stddev, 2.0),
        ] {
            let value = value(action, &cell).map(AggregateValue::as_f64);
            assert_eq!(value, Some(expected), "{action:?}");
        }
        assert_eq!(value(Action::Min, &Cell::default()), None);
        // With floating-point numbers alone, the result would be 0.
        let cell = self::cell(&[1 << 60, (1 << 60) + 2]);
        assert_eq!(
            value(Action::Stddev, &cell),
            Some(AggregateValue::Float(1.0))
        );
        let cell = self::cell(&[(1 << 53) + 1, 2]);
        assert_eq!(
            value(Action::Sum, &cell),
            Some(AggregateValue::Int((1 << 53) + 3))
        );
    }

    #[test]
    fn ranges() {
        let range = |plan: &Plan, bar| range(plan, plan.outputs[0].action, bar);
        let powers = plan(Action::Quantize, AggSettings::default(), &[]);
        assert_eq!(range(&powers, 0), (Some(0), Some(1)));
        assert_eq!(range(&powers, 1), (Some(1), Some(2)));
        assert_eq!(range(&powers, 4), (Some(8), Some(16)));
        assert_eq!(range(&powers, -1), (Some(-1), Some(0)));
        assert_eq!(range(&powers, -2), (Some(-3), Some(-1)));
        assert_eq!(range(&powers, 63), (Some(1 << 62), None));
        let settings = AggSettings {
            low: -10,
            step: 5,
            levels: 4,
            ..AggSettings::default()
        };
        let steps = plan(Action::Lquantize, settings, &[]);
        assert_eq!(range(&steps, 0), (None, Some(-10)));
        assert_eq!(range(&steps, 1), (Some(-10), Some(-5)));
        assert_eq!(range(&steps, 5), (Some(10), None));
        let edges = plan(Action::Llquantize, AggSettings::default(), &[10, 20, 30]);
        assert_eq!(range(&edges, 0), (Some(-9), Some(10)));
        assert_eq!(range(&edges, 2), (Some(20), Some(30)));
        assert_eq!(range(&edges, 3), (Some(30), None));
        assert_eq!(range(&edges, -3), (None, Some(-29)));
    }

    #[test]
    fn keys_of_all_kinds_and_bars_in_order() {
        let plan = plan(Action::Quantize, AggSettings::default(), &[]);
        let comm = u64::from_ne_bytes(*b"malloc\0\0");
        let key = |bar: i32| [u64::from(bar as u32), comm, 0, -7i64 as u64, 99, 0, 0, 0];
        // The cell of other actions is not a bar.
        let cells = [(3, &[4, 5][..]), (1, &[1]), (NO_BAR, &[4, 5, 1])];
        let cells: Cells = cells
            .into_iter()
            .map(|(bar, values)| entry(&plan, &[], &key(bar), &[cell(values), cell(&[])]))
            .collect();
        let rows: Vec<Row> = rows(&plan, &cells)
            .into_iter()
            .map(|(_, row)| row)
            .collect();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].keys, [&b"malloc"[..], b"-7"]);
        assert_eq!((rows[0].user_stack, rows[0].kernel_stack), (99, 0));
        let bars: Vec<_> = rows[0]
            .bars
            .iter()
            .map(|bar| (bar.low, bar.count))
            .collect();
        assert_eq!(bars, [(Some(1), 1), (Some(4), 2)]);
    }

    #[test]
    fn probes_have_numbers_of_their_objects() {
        let plan = Plan {
            keys: vec![Key::Comm, Key::Probe, Key::Cpu],
            ..plan(Action::Count, AggSettings::default(), &[])
        };
        let comm = u64::from_ne_bytes(*b"dd\0\0\0\0\0\0");
        let names = ["a", "b", "c"].map(str::to_owned);
        let (first, second) = names.split_at(2);
        // In interval 5.
        let word = 5 << 32 | u64::from(NO_BAR as u32);
        let one = entry(&plan, first, &[word, comm, 0, 1, 7], &[cell(&[1])]);
        assert_eq!((one.interval, one.bar), (5, NO_BAR));
        let other = entry(&plan, second, &[word, comm, 0, 0, 7], &[cell(&[1, 1])]);
        let cells: Cells = [one, other].into_iter().collect();
        let rows = rows(&plan, &cells);
        let found: Vec<_> = rows
            .iter()
            .map(|(_, row)| (&row.keys[1][..], row.value))
            .collect();
        let expected: [(&[u8], _); 2] = [
            (b"b", Some(AggregateValue::Int(1))),
            (b"c", Some(AggregateValue::Int(2))),
        ];
        assert_eq!(found, expected);
    }
}
