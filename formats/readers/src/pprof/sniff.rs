//! Recognizes a profile: each field of the head has a number and a form that `profile.proto` knows, and some are messages
//! with members.

use perfquet_events::Guess;
use perfquet_events::input::HEAD_BYTES;

use super::profile::field;
use crate::protobuf::{Field, Message, Value};

/// Fewer fields may be an accident.
const FIELDS_MIN: usize = 3;

/// Certain if all fields fit, up to the end of the head.
pub(super) fn sniff(head: &[u8]) -> Guess {
    // Text may begin with line ends, each the key of a message. The numbers of a profile's fields are control characters.
    if !head.iter().any(|byte| *byte < b'\t') {
        return Guess::No;
    }
    let (mut fields, mut messages) = (0, 0);
    for found in Message::new(head, 0) {
        match found {
            Ok(found) if fits(&found) => {
                fields += 1;
                messages += usize::from(
                    found.number <= field::FUNCTION
                        && found.value.bytes().is_some_and(|body| !body.is_empty()),
                );
            }
            // A field that extends past the head.
            Err(_) if head.len() >= HEAD_BYTES => break,
            Err(_) if fields > FIELDS_MIN => return Guess::Likely,
            _ => return Guess::No,
        }
    }
    match fields >= FIELDS_MIN && messages > 1 {
        true => Guess::Certain,
        false => Guess::No,
    }
}

fn fits(found: &Field<'_>) -> bool {
    let members = |known: &dyn Fn(u64, Value<'_>) -> bool| {
        found.value.bytes().is_some_and(|body| {
            Message::new(body, 0).all(|part| part.is_ok_and(|part| known(part.number, part.value)))
        })
    };
    let is_number = |value: Value<'_>| value.number().is_some();
    match found.number {
        field::SAMPLE_TYPE | field::PERIOD_TYPE => {
            members(&|number, value| number <= 2 && is_number(value))
        }
        field::SAMPLE => {
            members(&|number, value| number <= 2 || (number == 3 && value.bytes().is_some()))
        }
        field::MAPPING => members(&|number, value| number <= 10 && is_number(value)),
        field::LOCATION => members(&|number, value| match number {
            4 => value.bytes().is_some(),
            number => number <= 5 && is_number(value),
        }),
        field::FUNCTION => members(&|number, value| number <= 5 && is_number(value)),
        field::STRING => found
            .value
            .bytes()
            .is_some_and(|text| std::str::from_utf8(text).is_ok()),
        field::COMMENT => is_number(found.value) || found.value.bytes().is_some(),
        field::DROP_FRAMES..=field::DOC_URL => is_number(found.value),
        _ => false,
    }
}
