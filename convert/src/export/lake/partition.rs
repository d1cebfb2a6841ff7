//! Partitions of a lake: folders by host and date, as Hive names them.
//!
//! ```text
//! --partition date,host               samples/date=2026-11-22/host=h001/…        from the trace
//! --partition date=2026-11-22,host=x  samples/date=2026-11-22/host=x/…           as given
//! ```
//! Host names come from foreign files: anything but letters, digits and `_-.+@` is `%XX`, which engines decode.

use anyhow::{Result, bail};
use perfquet_trace::store::Manifest;

use super::columns::{DATE, HOST};
use crate::misuse::misuse;

/// A directory name has at most 255 bytes.
const LONGEST: usize = 200;
const NANOSECONDS_PER_DAY: i64 = 86_400_000_000_000;

/// Keys of the folders, outermost first, each with its value if it is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Partition(Vec<(String, Option<String>)>);

impl Default for Partition {
    fn default() -> Partition {
        Partition(vec![(DATE.to_owned(), None), (HOST.to_owned(), None)])
    }
}

/// The values of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// `date=2026-11-22/host=h001`
    pub(super) folder: String,
    /// `None` if unknown.
    pub(super) host: Option<String>,
    /// `None` if unknown.
    pub(super) date: Option<String>,
}

impl Partition {
    /// Parses the value of `--partition`.
    pub(crate) fn parse(text: &str) -> Result<Partition, String> {
        let mut keys: Vec<(String, Option<String>)> = Vec::new();
        for key in text.split(',') {
            let (name, value) = match key.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (key, None),
            };
            if ![DATE, HOST].contains(&name) {
                return Err(format!("expected date or host, found {name:?}"));
            }
            if keys.iter().any(|(other, _)| other == name) {
                return Err(format!("{name} is given twice"));
            }
            match &value {
                Some(value) if name == DATE && days_of(value).is_none() => {
                    return Err(format!(
                        "expected a date such as 2026-11-22, found {value:?}"
                    ));
                }
                Some(value) => {
                    folder(name, value)?;
                }
                None => {}
            }
            keys.push((name.to_owned(), value));
        }
        Ok(Partition(keys))
    }

    /// Names of the keys, in order.
    pub(super) fn keys(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Whether this key is part of the path.
    pub(super) fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(name, _)| name == key)
    }

    /// Returns where a trace belongs.
    pub(super) fn place(&self, trace: &str, manifest: &Manifest) -> Result<Place> {
        let given = |key: &str| {
            let mut keys = self.0.iter();
            keys.find(|(name, _)| name == key)
                .and_then(|(_, value)| value.clone())
        };
        let host = manifest.facts.host.clone().filter(|host| !host.is_empty());
        let host = given(HOST).or(host);
        let date = given(DATE).or_else(|| recorded_date(manifest));
        let mut folders = Vec::new();
        for key in self.keys() {
            let (value, missing) = match key == DATE {
                true => (&date, "the date of the recording is unknown"),
                false => (&host, "the host of the recording is unknown"),
            };
            let Some(value) = value else {
                return Err(misuse(
                    format!("{trace}: {missing}"),
                    "give it: --partition date=2026-11-22,host=NAME; or leave the key out",
                ));
            };
            match folder(&key, value) {
                Ok(folder) => folders.push(folder),
                Err(message) => bail!("{trace}: {message}"),
            }
        }
        Ok(Place {
            folder: folders.join("/"),
            host,
            date,
        })
    }
}

/// The date of the first event in UTC.
fn recorded_date(manifest: &Manifest) -> Option<String> {
    let tables = manifest.tables.values();
    let first = tables
        .filter_map(|table| Some(table.time_range()?.0))
        .min()?;
    let wall = first.checked_add(manifest.facts.wall_offset?)?;
    Some(date_of(wall.div_euclid(NANOSECONDS_PER_DAY)))
}

/// `host=a%2fb`
fn folder(key: &str, value: &str) -> Result<String, String> {
    if value.is_empty() {
        return Err(format!("expected a value of {key}, found none"));
    }
    let mut folder = format!("{key}=");
    for byte in value.bytes() {
        match byte.is_ascii_alphanumeric() || b"_-.+@".contains(&byte) {
            true => folder.push(char::from(byte)),
            false => folder.push_str(&format!("%{byte:02X}")),
        }
    }
    match folder.len() > LONGEST {
        true => Err(format!(
            "expected a shorter value of {key}, found {} bytes",
            value.len()
        )),
        false => Ok(folder),
    }
}

/// The date that many days after 1970-01-01: an era has 400 years, which begin in March.
pub(super) fn date_of(days: i64) -> String {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day = days.rem_euclid(146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Days from 1970-01-01 to a date; `None` if it is none.
fn days_of(date: &str) -> Option<i64> {
    let mut parts = date.split('-');
    let mut number = |digits: usize| -> Option<i64> {
        let part = parts.next()?;
        let is_number = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| part.parse().ok())?
    };
    let (year, month, day) = (number(4)?, number(2)?, number(2)?);
    let from_march = (month + 9) % 12;
    let year = year - i64::from(month <= 2);
    let in_era = year.rem_euclid(400);
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    let of_era = in_era * 365 + in_era / 4 - in_era / 100 + of_year;
    let days = year.div_euclid(400) * 146_097 + of_era - 719_468;
    // A date that does not exist is another one.
    (parts.next().is_none() && date_of(days) == date).then_some(days)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (days, date) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (11_016, "2000-02-29"),
            (20_779, "2026-11-22"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
        ] {
            assert_eq!(date_of(days), date);
            assert_eq!(days_of(date), Some(days));
        }
        for wrong in [
            "2026-02-29",
            "2026-13-01",
            "2026-1-01",
            "2026-01-01-",
            "x",
            "",
            "+026-01-01",
        ] {
            assert_eq!(days_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn values_stay_inside_of_their_folder() {
        let check = |value: &str, expected: &str| {
            assert_eq!(folder(HOST, value).unwrap(), expected);
        };
        check("h001", "host=h001");
        check("../../etc", "host=..%2F..%2Fetc");
        check("a=b c%\n\0", "host=a%3Db%20c%25%0A%00");
        check("ü*[", "host=%C3%BC%2A%5B");
        assert!(folder(HOST, "").is_err());
        assert!(folder(HOST, &"x".repeat(300)).is_err());
    }

    #[test]
    fn keys_are_known_and_unique() {
        let parse = |text: &str| Partition::parse(text).map(|partition| partition.keys());
        assert_eq!(parse("host=a,date").unwrap(), ["host", "date"]);
        assert_eq!(parse("date").unwrap(), ["date"]);
        for wrong in ["", "rack=1", "host,host=a", "date=yesterday", "host="] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
