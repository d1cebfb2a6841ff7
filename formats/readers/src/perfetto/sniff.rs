//! Recognizes a trace: it has only packets, whose fields have the form that `trace_packet.proto` gives them.

use perfquet_events::Guess;
use perfquet_events::input::HEAD_BYTES;

use super::names::{Form, form};
use crate::protobuf::{Field, Message, Value};

const EXTENSIONS: std::ops::RangeInclusive<u64> = 56..=1999;

/// Certain if all packets fit, up to the end of the head.
pub(super) fn sniff(head: &[u8]) -> Guess {
    // Text may begin with line ends, each the key of a packet.
    if !head.iter().any(|byte| *byte < b'\t') {
        return Guess::No;
    }
    let mut fields = 0;
    for found in Message::new(head, 0) {
        match found {
            Ok(Field {
                number: 1,
                value: Value::Bytes(body),
                ..
            }) => match packet(body, false) {
                Some(count) => fields += count,
                None => return Guess::No,
            },
            Ok(_) => return Guess::No,
            Err(damage) => {
                // A packet that extends past the head.
                let start = usize::try_from(damage.offset).unwrap_or(usize::MAX);
                let rest = head.get(start..).unwrap_or_default();
                let is_long = head.len() >= HEAD_BYTES || fields > 1;
                return match first_of_cut(rest).filter(|_| is_long) {
                    Some(count) if fields + count > 1 => Guess::Certain,
                    _ => Guess::No,
                };
            }
        }
    }
    match fields > 1 {
        true => Guess::Certain,
        false => Guess::No,
    }
}

/// The number of fields of a cut packet that are whole.
fn first_of_cut(rest: &[u8]) -> Option<usize> {
    let (key, rest) = rest.split_first()?;
    if *key != 0x0a {
        return None;
    }
    match rest.iter().take(10).position(|byte| byte & 0x80 == 0) {
        Some(length) => packet(rest.get(length + 1..)?, true),
        None => Some(0),
    }
}

/// The number of fields of a packet; `None` if one does not fit.
fn packet(body: &[u8], is_cut: bool) -> Option<usize> {
    let mut count = 0;
    for found in Message::new(body, 0) {
        let found = match found {
            Ok(found) => found,
            Err(damage) if is_cut => {
                return Some(count + usize::from(is_data(body, damage.offset)));
            }
            Err(_) => return None,
        };
        let fits = match (form(found.number), found.value) {
            // Later versions and extensions have more.
            (None, Value::Bytes(_)) if EXTENSIONS.contains(&found.number) => continue,
            (Some(Form::Number), Value::Number(_)) | (Some(Form::Bytes), Value::Bytes(_)) => true,
            (Some(Form::Message), Value::Bytes(inner)) => Message::new(inner, 0)
                .next()
                .is_none_or(|first| first.is_ok()),
            _ => false,
        };
        if !fits {
            return None;
        }
        count += 1;
    }
    Some(count)
}

/// Whether the data of a packet begins at an offset, of which only the beginning is there.
fn is_data(body: &[u8], offset: u64) -> bool {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let number = match body.get(start..) {
        Some([key, ..]) if key & 0x87 == 2 => u64::from(key >> 3),
        Some([low, high, ..]) if low & 0x87 == 0x82 && *high < 0x80 => {
            (u64::from(*high) << 4) | u64::from((low & 0x7f) >> 3)
        }
        _ => return false,
    };
    matches!(form(number), Some(Form::Message | Form::Bytes))
}
