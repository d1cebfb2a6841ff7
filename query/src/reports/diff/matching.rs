//! Matches functions that have different names on the two sides, where the evidence is clear.
//!
//! ```text
//! parse (old)   + parse (new)      →   parse, module "old → new"     the only functions of that name without a partner
//! read_all      + read_whole       →   read_all → read_whole         same module, same main callers and callees
//! hash, inlined into find          →   find (with hash)              its only caller; its callees are now the caller's
//! ```
//! Anything else stays apart: a function that is on one side only is a row with nothing on the other. So do functions of a file that
//! both sides have, by its build ID: the same code has no renamed and no newly inlined functions.

use std::collections::{BTreeMap, HashMap};

use super::measured::{Key, Links, Measured, Values};
use super::same_files::SameFiles;

/// Minimum share of a function's weight that its main caller accounts for, to count as its only caller.
const ONLY: f64 = 0.99;
/// Maximum ratio between the weights of a function before and after a rename.
const FACTOR: f64 = 4.0;

/// The number of merged keys.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct United {
    pub(super) modules: usize,
    pub(super) renamed: usize,
    pub(super) inlined: usize,
}

/// Merges matching keys, and removes those without values.
pub(super) fn unite(measured: &mut Measured, same: &SameFiles) -> United {
    let mut united = United::default();
    let modules = unite_modules(measured, same, &mut united.modules);
    if let Some(mut links) = measured.links.take() {
        united.renamed = unite_renamed(measured, &mut links, &modules, same);
        united.inlined = unite_inlined(measured, &links, &modules, same);
    }
    let is_kept: Vec<bool> = measured
        .values
        .iter()
        .map(|values| values.iter().any(|side| !side.is_empty()))
        .collect();
    let mut kept = is_kept.iter();
    measured.keys.retain(|_| *kept.next().unwrap_or(&true));
    let mut kept = is_kept.iter();
    measured.values.retain(|_| *kept.next().unwrap_or(&true));
    united
}

/// Returns the side that has values of this key, if the other has none.
fn only_side(values: &[Values; 2]) -> Option<usize> {
    match values.each_ref().map(Values::is_empty) {
        [false, true] => Some(0),
        [true, false] => Some(1),
        _ => None,
    }
}

/// Returns the keys of each side without a partner, in files that are not the same.
fn unmatched(measured: &Measured, same: &SameFiles) -> [Vec<usize>; 2] {
    let mut found = [Vec::new(), Vec::new()];
    for (number, values) in measured.values.iter().enumerate() {
        if same.have(&measured.keys[number]) {
            continue;
        }
        if let Some(side) = only_side(values) {
            found[side].push(number);
        }
    }
    found
}

/// Moves the values of `from` to `into`, and renames `into`.
fn merge(measured: &mut Measured, into: usize, from: usize, key: Key) {
    let taken = std::mem::take(&mut measured.values[from]);
    for (mine, other) in measured.values[into].iter_mut().zip(&taken) {
        mine.add(other);
    }
    measured.keys[into] = key;
}

/// The common names of modules that were merged.
type Modules = HashMap<String, String>;

/// Returns the common name of a key's module.
fn module_of(key: &Key, modules: &Modules) -> Option<String> {
    let module = key.module.as_ref()?;
    Some(modules.get(module).unwrap_or(module).clone())
}

/// Merges functions with one name in two modules, one on each side: two builds of a program with different file names.
fn unite_modules(measured: &mut Measured, same: &SameFiles, united: &mut usize) -> Modules {
    let mut by_name: BTreeMap<(String, bool), [Vec<usize>; 2]> = BTreeMap::new();
    for (side, numbers) in unmatched(measured, same).into_iter().enumerate() {
        for number in numbers {
            let key = &measured.keys[number];
            if key.module.is_some() {
                let place = (key.name.clone(), key.is_kernel);
                by_name.entry(place).or_default()[side].push(number);
            }
        }
    }
    let pairs: Vec<[usize; 2]> = by_name
        .into_values()
        .filter_map(|[before, after]| match (&before[..], &after[..]) {
            (&[before], &[after]) => Some([before, after]),
            _ => None,
        })
        .collect();
    *united = pairs.len();
    let mut modules = Modules::new();
    for [before, after] in pairs {
        let mut key = measured.keys[before].clone();
        let [old, new] =
            [before, after].map(|key| measured.keys[key].module.clone().unwrap_or_default());
        let both = format!("{old} → {new}");
        // A module with two candidates is matched with neither.
        for name in [old, new] {
            let known = modules.entry(name.clone()).or_insert_with(|| both.clone());
            if *known != both {
                known.clone_from(&name);
            }
        }
        key.module = Some(both);
        merge(measured, before, after, key);
        if let Some(links) = &mut measured.links {
            links.rename(1, after, before);
        }
    }
    modules
}

impl Links {
    /// Replaces the number of a key on one side.
    fn rename(&mut self, side: usize, from: usize, to: usize) {
        let other = |key: usize| if key == from { to } else { key };
        let links = std::mem::take(&mut self.sides[side]);
        for ((caller, callee), weight) in links {
            *self.sides[side]
                .entry((other(caller), other(callee)))
                .or_default() += weight;
        }
    }
}

/// Callers and callees by key.
#[derive(Default, Clone)]
struct Neighbors {
    callers: BTreeMap<usize, f64>,
    callees: BTreeMap<usize, f64>,
}

fn neighbors(links: &HashMap<(usize, usize), f64>) -> HashMap<usize, Neighbors> {
    let mut found: HashMap<usize, Neighbors> = HashMap::new();
    for (&(caller, callee), &weight) in links {
        found
            .entry(callee)
            .or_default()
            .callers
            .insert(caller, weight);
        found
            .entry(caller)
            .or_default()
            .callees
            .insert(callee, weight);
    }
    found
}

/// A neighbor with a smaller share of a function's calls may be missing on the other side: in the first instructions of
/// a function, before it sets up its frame, a stack by frame pointers skips the caller.
const MAIN_NEIGHBOR: f64 = 0.1;
/// Maximum number of functions without a partner that are compared with each other, by weight.
const RENAMED: usize = 200;

/// Merges renamed functions: one on each side with the same module, callers and callees, each the only candidate for
/// the other.
fn unite_renamed(
    measured: &mut Measured,
    links: &mut Links,
    modules: &Modules,
    same: &SameFiles,
) -> usize {
    let mut united = 0;
    // A renamed caller changes the callers of its callees: repeat until no pair is found.
    loop {
        let around = links.sides.each_ref().map(neighbors);
        let mut sides = unmatched(measured, same);
        for (side, numbers) in sides.iter_mut().enumerate() {
            let weight = |number: &usize| total(measured, *number, side);
            // Names of unresolved code are in brackets.
            numbers.retain(|number| !measured.keys[*number].name.starts_with('['));
            numbers.sort_by(|a, b| weight(b).total_cmp(&weight(a)).then(a.cmp(b)));
            numbers.truncate(RENAMED);
        }
        let is_pair = |before: usize, after: usize| {
            let keys = [before, after].map(|number| &measured.keys[number]);
            let is_same_code = keys[0].is_kernel == keys[1].is_kernel
                && module_of(keys[0], modules) == module_of(keys[1], modules);
            let (old, new) = (total(measured, before, 0), total(measured, after, 1));
            let is_alike = old <= new * FACTOR && new <= old * FACTOR;
            let sides = (around[0].get(&before), around[1].get(&after));
            let (Some(old), Some(new)) = sides else {
                return false;
            };
            is_same_code && is_alike && old.is_like(new)
        };
        let pair = sides[0].iter().find_map(|&before| {
            let mut partners = sides[1].iter().filter(|&&after| is_pair(before, after));
            let (Some(&after), None) = (partners.next(), partners.next()) else {
                return None;
            };
            let rivals = sides[0].iter().filter(|&&other| is_pair(other, after));
            (rivals.count() == 1).then_some([before, after])
        });
        let Some([before, after]) = pair else {
            return united;
        };
        let mut key = measured.keys[before].clone();
        key.name = format!("{} → {}", key.name, measured.keys[after].name);
        merge(measured, before, after, key);
        links.rename(1, after, before);
        united += 1;
    }
}

fn total(measured: &Measured, number: usize, side: usize) -> f64 {
    measured.values[number][side].total.sum()
}

impl Neighbors {
    /// Returns whether each side's main callers and callees are among the other's. A function without callers or
    /// callees is like every other.
    fn is_like(&self, other: &Neighbors) -> bool {
        let is_within = |small: &BTreeMap<usize, f64>, large: &BTreeMap<usize, f64>| {
            let all: f64 = small.values().sum();
            let mut main = small
                .iter()
                .filter(|&(_, &weight)| weight >= all * MAIN_NEIGHBOR);
            !small.is_empty() && main.all(|(key, _)| large.contains_key(key))
        };
        is_within(&self.callers, &other.callers)
            && is_within(&other.callers, &self.callers)
            && is_within(&self.callees, &other.callees)
            && is_within(&other.callees, &self.callees)
    }
}

/// Merges functions that one side has inlined into their only caller, which both sides have.
fn unite_inlined(
    measured: &mut Measured,
    links: &Links,
    modules: &Modules,
    same: &SameFiles,
) -> usize {
    let around = links.sides.each_ref().map(neighbors);
    let mut united = 0;
    for (side, numbers) in unmatched(measured, same).into_iter().enumerate() {
        for number in numbers {
            let Some(own) = around[side].get(&number) else {
                continue;
            };
            let all: f64 = own.callers.values().sum();
            let caller = own
                .callers
                .iter()
                .find(|&(_, &weight)| weight >= ONLY * all);
            let Some((&caller, _)) = caller else {
                continue;
            };
            let (key, into) = (&measured.keys[number], &measured.keys[caller]);
            let is_same_code =
                module_of(key, modules) == into.module && key.is_kernel == into.is_kernel;
            let is_on_both = only_side(&measured.values[caller]).is_none();
            let nothing = BTreeMap::new();
            let now = around[1 - side]
                .get(&caller)
                .map_or(&nothing, |around| &around.callees);
            let keeps_callees = own.callees.keys().all(|callee| now.contains_key(callee));
            // The inlined work moves to the caller: its self weight is larger where the function is missing.
            let share =
                |side: usize, weight: f64| weight / measured.weights[side].iter().sum::<f64>();
            let own_weight = |number: usize, side: usize| -> f64 {
                share(side, measured.values[number][side].own.sum())
            };
            let moved = own_weight(number, side);
            let grows = own_weight(caller, 1 - side) >= own_weight(caller, side) + moved / 2.0;
            if !(is_same_code && is_on_both && keeps_callees && grows) || key.name.starts_with('[')
            {
                continue;
            }
            let mut united_key = into.clone();
            united_key.name = match united_key.name.strip_suffix(')') {
                Some(start) if start.contains(" (with ") => format!("{start}, {})", key.name),
                _ => format!("{} (with {})", into.name, key.name),
            };
            // The caller's total already includes the function.
            for values in &mut measured.values[number] {
                values.total.clear();
            }
            merge(measured, caller, number, united_key);
            united += 1;
        }
    }
    united
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, module: &str) -> Key {
        Key {
            name: name.to_owned(),
            module: Some(module.to_owned()),
            is_kernel: false,
        }
    }

    fn one(own: f64, total: f64) -> Values {
        let mut values = Values::default();
        values.own.add(0, own);
        values.total.add(0, total);
        values
    }

    /// Self and total of each side of a key.
    fn sums(measured: &Measured, key: usize) -> [(f64, f64); 2] {
        let values = measured.values[key].each_ref();
        values.map(|side| (side.own.sum(), side.total.sum()))
    }

    /// Name, module, and self and total of each side.
    type Row = (&'static str, &'static str, [(f64, f64); 2]);

    fn measured(rows: &[Row]) -> Measured {
        Measured {
            keys: rows
                .iter()
                .map(|(name, module, _)| key(name, module))
                .collect(),
            values: rows
                .iter()
                .map(|(_, _, sides)| sides.map(|(own, total)| one(own, total)))
                .collect(),
            weights: [vec![100.0], vec![100.0]],
            links: Some(Links::default()),
            ..Measured::default()
        }
    }

    fn linked(measured: &mut Measured, side: usize, links: &[(usize, usize, f64)]) {
        let all = measured.links.as_mut().unwrap();
        all.sides[side] = links
            .iter()
            .map(|&(caller, callee, weight)| ((caller, callee), weight))
            .collect();
    }

    #[test]
    fn two_builds_with_other_file_names_match() {
        let mut measured = measured(&[
            ("work", "slow", [(9.0, 9.0), (0.0, 0.0)]),
            ("work", "fast", [(0.0, 0.0), (3.0, 3.0)]),
            ("read", "libc", [(1.0, 1.0), (1.0, 1.0)]),
            ("only", "slow", [(1.0, 1.0), (0.0, 0.0)]),
        ]);
        assert_eq!(unite(&mut measured, &SameFiles::None).modules, 1);
        assert_eq!(measured.keys[0], key("work", "slow → fast"));
        assert_eq!(sums(&measured, 0), [(9.0, 9.0), (3.0, 3.0)]);
        assert_eq!(measured.keys.len(), 3);
    }

    #[test]
    fn a_renamed_function_keeps_its_neighbors() {
        let mut found = measured(&[
            ("main", "a", [(0.0, 100.0), (0.0, 100.0)]),
            ("old", "a", [(50.0, 100.0), (0.0, 0.0)]),
            ("new", "a", [(0.0, 0.0), (60.0, 100.0)]),
            ("leaf", "a", [(50.0, 50.0), (40.0, 40.0)]),
        ]);
        linked(&mut found, 0, &[(0, 1, 100.0), (1, 3, 50.0)]);
        linked(&mut found, 1, &[(0, 2, 100.0), (2, 3, 40.0)]);
        assert_eq!(unite(&mut found, &SameFiles::None).renamed, 1);
        assert_eq!(found.keys[1].name, "old → new");
        assert_eq!(sums(&found, 1), [(50.0, 100.0), (60.0, 100.0)]);
        // A function with a different callee is a different function.
        let mut other = measured(&[
            ("main", "a", [(0.0, 100.0), (0.0, 100.0)]),
            ("old", "a", [(50.0, 100.0), (0.0, 0.0)]),
            ("new", "a", [(0.0, 0.0), (60.0, 100.0)]),
            ("leaf", "a", [(50.0, 50.0), (0.0, 0.0)]),
        ]);
        linked(&mut other, 0, &[(0, 1, 100.0), (1, 3, 50.0)]);
        linked(&mut other, 1, &[(0, 2, 100.0)]);
        assert_eq!(unite(&mut other, &SameFiles::None).renamed, 0);
    }

    #[test]
    fn an_inlined_function_is_its_caller() {
        let mut found = measured(&[
            ("find", "a", [(20.0, 100.0), (100.0, 100.0)]),
            ("hash", "a", [(80.0, 80.0), (0.0, 0.0)]),
        ]);
        linked(&mut found, 0, &[(0, 1, 80.0)]);
        assert_eq!(unite(&mut found, &SameFiles::None).inlined, 1);
        assert_eq!(found.keys[0].name, "find (with hash)");
        assert_eq!(sums(&found, 0), [(100.0, 100.0), (100.0, 100.0)]);
        // If the caller's weight does not increase, the function was removed.
        let mut gone = measured(&[
            ("find", "a", [(20.0, 100.0), (20.0, 20.0)]),
            ("hash", "a", [(80.0, 80.0), (0.0, 0.0)]),
        ]);
        linked(&mut gone, 0, &[(0, 1, 80.0)]);
        assert_eq!(unite(&mut gone, &SameFiles::None).inlined, 0);
    }

    #[test]
    fn functions_of_the_same_file_stay_apart() {
        let rows: [Row; 4] = [
            ("find", "a", [(20.0, 100.0), (100.0, 100.0)]),
            ("hash", "a", [(80.0, 80.0), (0.0, 0.0)]),
            ("work", "slow", [(9.0, 9.0), (0.0, 0.0)]),
            ("work", "fast", [(0.0, 0.0), (3.0, 3.0)]),
        ];
        let united = |same: SameFiles| {
            let mut found = measured(&rows);
            linked(&mut found, 0, &[(0, 1, 80.0)]);
            let united = unite(&mut found, &same);
            (united.modules, united.inlined)
        };
        let some = |modules: &[&str]| SameFiles::Some {
            modules: modules.iter().map(|&module| module.to_owned()).collect(),
            has_kernel: true,
        };
        assert_eq!(united(SameFiles::None), (1, 1));
        assert_eq!(united(SameFiles::All), (0, 0));
        assert_eq!(united(some(&["a"])), (1, 0));
        assert_eq!(united(some(&["slow"])), (0, 1));
    }
}
