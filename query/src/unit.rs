//! Units of columns, in the metadata of their fields.

use std::collections::HashMap;

/// Key in a field's metadata: the unit of its values. Reports write `ns` as `1.234 ms`, addresses and masks are written
/// in hexadecimal.
pub(crate) const UNIT: &str = "unit";

/// Units whose values are written in hexadecimal.
const HEXADECIMAL: [&str; 2] = ["address", "mask"];

/// Whether values of this unit are written in hexadecimal.
pub(crate) fn is_hexadecimal(unit: &str) -> bool {
    HEXADECIMAL.contains(&unit)
}

/// The metadata of a table's column with this unit, if its values are written in hexadecimal. Durations in tables stay
/// numbers: only reports write them in words.
pub(crate) fn metadata(unit: &str) -> HashMap<String, String> {
    match is_hexadecimal(unit) {
        true => HashMap::from([(UNIT.to_owned(), unit.to_owned())]),
        false => HashMap::new(),
    }
}
