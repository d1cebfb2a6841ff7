//! Tiles as JSON: rows with columns of integers.
//!
//! ```text
//! {"rows":[{"id":7,"t":[100,20,5],"d":[20,5,1]}]}      t is 100, 120, 125: sorted columns are written as differences
//! ```

use anyhow::Result;

/// Columns of numbers and their names.
pub(super) type Columns<'a> = &'a [(&'a str, &'a [i64])];

/// The columns that are sorted.
const SORTED: [&str; 2] = ["t", "x"];

#[derive(Default)]
pub(super) struct Rows {
    text: Vec<u8>,
}

impl Rows {
    /// Adds a row with numbers and columns.
    pub(super) fn add(&mut self, numbers: &[(&str, i64)], columns: Columns<'_>) -> Result<()> {
        self.add_with(numbers, columns, &[])
    }

    /// Adds a row that also has columns within columns.
    pub(super) fn add_with(
        &mut self,
        numbers: &[(&str, i64)],
        columns: Columns<'_>,
        more: &[(&str, Columns<'_>)],
    ) -> Result<()> {
        let text = &mut self.text;
        let mut separator = if text.is_empty() { "{" } else { ",{" };
        for (name, value) in numbers {
            text.extend_from_slice(separator.as_bytes());
            text.extend_from_slice(format!("\"{name}\":{value}").as_bytes());
            separator = ",";
        }
        for (name, column) in columns {
            text.extend_from_slice(format!(",\"{name}\":").as_bytes());
            if SORTED.contains(name) {
                let mut before = 0;
                let differences: Vec<i64> = (column.iter())
                    .map(|&value| value.wrapping_sub(std::mem::replace(&mut before, value)))
                    .collect();
                serde_json::to_writer(&mut *text, &differences)?;
            } else {
                serde_json::to_writer(&mut *text, column)?;
            }
        }
        for (name, columns) in more {
            text.extend_from_slice(format!(",\"{name}\":{{").as_bytes());
            for (place, (name, column)) in columns.iter().enumerate() {
                let comma = if place > 0 { "," } else { "" };
                text.extend_from_slice(format!("{comma}\"{name}\":").as_bytes());
                serde_json::to_writer(&mut *text, column)?;
            }
            text.push(b'}');
        }
        text.push(b'}');
        Ok(())
    }

    pub(super) fn append(&mut self, other: Rows) {
        if !self.text.is_empty() && !other.text.is_empty() {
            self.text.push(b',');
        }
        self.text.extend_from_slice(&other.text);
    }

    /// The tile; `more` are its other members, as `,"name":…`.
    pub(super) fn finish(self, more: &str) -> Vec<u8> {
        let mut tile = b"{\"rows\":[".to_vec();
        tile.extend_from_slice(&self.text);
        tile.extend_from_slice(format!("]{more}}}").as_bytes());
        tile
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_json() {
        let row = |id| {
            let mut rows = Rows::default();
            rows.add(&[("id", id)], &[("t", &[5, 7, 7]), ("n", &[1, -2])])
                .unwrap();
            rows
        };
        let mut rows = row(1);
        rows.append(Rows::default());
        rows.append(row(2));
        assert_eq!(
            String::from_utf8(rows.finish(",\"a\":[]")).unwrap(),
            r#"{"rows":[{"id":1,"t":[5,2,0],"n":[1,-2]},{"id":2,"t":[5,2,0],"n":[1,-2]}],"a":[]}"#
        );
        let mut rows = Rows::default();
        rows.add_with(&[("id", 1)], &[], &[("a", &[("b", &[1]), ("c", &[])])])
            .unwrap();
        assert_eq!(
            rows.finish(""),
            br#"{"rows":[{"id":1,"a":{"b":[1],"c":[]}}]}"#
        );
        assert_eq!(Rows::default().finish(""), b"{\"rows\":[]}");
    }
}
