//! The metadata of CTF 2, in JSON → schema.
//!
//! ```text
//! {"type":"preamble","version":2} {"type":"clock-class","name":"monotonic","frequency":1000000000, …}
//! {"type":"event-record-class","name":"shop:order","id":26,"payload-field-class":{"type":"structure","member-classes":[…]}}
//! ```
//! Fragments follow each other, each after a byte 1E or not. What members of packets mean is stated by roles; those get the names that they have in 1.8.
//! Read are the form of 2024, which LTTng writes, and the earlier one with `fixed-length-unsigned-enumeration`.

use std::sync::Arc;

use perfquet_events::bytes::Endian;
use serde_json::Value;

use super::lexer::Flaw;
use super::schema::{Clock, EventClass, Integer, Labels, Metadata, Stream, Type};

/// Parses all fragments.
pub(super) fn parse(text: &str) -> Result<Metadata, Flaw> {
    let text = text.replace('\x1e', " ");
    let mut reader = Reader::default();
    let fragments = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    for fragment in fragments {
        let fragment = fragment.map_err(|error| Flaw {
            line: error.line() as u64,
            message: error.to_string(),
        })?;
        reader
            .fragment(&fragment)
            .map_err(|message| Flaw { line: 0, message })?;
    }
    Ok(reader.metadata)
}

#[derive(Default)]
struct Reader {
    metadata: Metadata,
    aliases: Vec<(String, Arc<Type>)>,
}

/// The structure that has a member.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scope {
    PacketHeader,
    PacketContext,
    EventHeader,
    Other,
}

type Read<T> = Result<T, String>;

impl Reader {
    fn fragment(&mut self, fragment: &Value) -> Read<()> {
        let text = |key: &str| text(fragment, key).map(str::to_owned);
        let number = |key: &str| fragment.get(key).and_then(Value::as_u64);
        match text("type").as_deref() {
            Some("preamble") => {
                if number("version") != Some(2) {
                    return Err("expected version 2 of the format".to_owned());
                }
                self.metadata.uuid = uuid(fragment).or(self.metadata.uuid);
            }
            Some("field-class-alias") => {
                let name = text("name").unwrap_or_default();
                if let Some(of) = self.scope(fragment, "field-class", Scope::Other)? {
                    self.aliases.push((name, of));
                }
            }
            Some("trace-class") => {
                self.metadata.uuid = uuid(fragment).or(self.metadata.uuid);
                let environment = fragment.get("environment").and_then(Value::as_object);
                for (name, value) in environment.into_iter().flatten() {
                    let value = value.as_str().map_or(value.to_string(), str::to_owned);
                    self.metadata.env.push((name.clone(), value));
                }
                self.metadata.packet_header =
                    self.scope(fragment, "packet-header-field-class", Scope::PacketHeader)?;
            }
            Some("clock-class") => {
                let offset = fragment.get("offset-from-origin");
                let offset = offset.or_else(|| fragment.get("offset"));
                let part = |key: &str| {
                    let part = offset.and_then(|offset| offset.get(key));
                    part.and_then(Value::as_i64).unwrap_or(0)
                };
                let uid = fragment.get("uid").or_else(|| fragment.get("uuid"));
                self.metadata.clocks.push(Clock {
                    name: text("name").or(text("id")).unwrap_or_default(),
                    uuid: uid.map(Value::to_string),
                    frequency: match number("frequency") {
                        Some(frequency @ 1..) => frequency,
                        _ => return Err("clock-class: expected a positive frequency".to_owned()),
                    },
                    offset_seconds: part("seconds"),
                    offset_cycles: part("cycles"),
                    is_absolute: text("origin").as_deref() == Some("unix-epoch"),
                });
            }
            Some("data-stream-class") => {
                let stream = Stream {
                    id: number("id").unwrap_or(0),
                    packet_context: self.scope(
                        fragment,
                        "packet-context-field-class",
                        Scope::PacketContext,
                    )?,
                    event_header: self.scope(
                        fragment,
                        "event-record-header-field-class",
                        Scope::EventHeader,
                    )?,
                    event_context: self.scope(
                        fragment,
                        "event-record-common-context-field-class",
                        Scope::Other,
                    )?,
                };
                let mut streams = self.metadata.streams.iter();
                if streams.any(|known| known.id == stream.id) {
                    return Err(format!(
                        "a second data-stream-class has the ID {}",
                        stream.id
                    ));
                }
                self.metadata.streams.push(stream);
            }
            Some("event-record-class") => {
                let event = EventClass {
                    id: number("id").unwrap_or(0),
                    stream: number("data-stream-class-id").unwrap_or(0),
                    name: text("name").unwrap_or_default(),
                    context: self.scope(fragment, "specific-context-field-class", Scope::Other)?,
                    fields: self.scope(fragment, "payload-field-class", Scope::Other)?,
                };
                self.metadata.events.push(event);
            }
            other => {
                let message = format!("the fragment {} is not supported", other.unwrap_or(""));
                self.metadata.skipped.push((0, message));
            }
        }
        Ok(())
    }

    fn scope(&mut self, fragment: &Value, key: &str, scope: Scope) -> Read<Option<Arc<Type>>> {
        match fragment.get(key) {
            Some(class) => Ok(Some(self.class(class, scope)?)),
            None => Ok(None),
        }
    }

    /// A field class, or the name of an alias. One function, because each arm of it is a class of the specification.
    fn class(&mut self, class: &Value, scope: Scope) -> Read<Arc<Type>> {
        if let Some(name) = class.as_str() {
            let found = self.aliases.iter().find(|(known, _)| known == name);
            return match found {
                Some((_, of)) => Ok(Arc::clone(of)),
                None => Err(format!("unknown field class {name}")),
            };
        }
        let kind = text(class, "type").unwrap_or_default();
        let element = |reader: &mut Reader| match class.get("element-field-class") {
            Some(element) => reader.class(element, scope),
            None => Err(format!("{kind}: expected element-field-class")),
        };
        if !matches!(kind, "structure")
            && class
                .get("minimum-alignment")
                .is_some_and(|bits| bits.as_u64() != Some(1))
        {
            return Err(format!("{kind}: minimum-alignment is not supported"));
        }
        let length = || match class.get("length").and_then(Value::as_u64) {
            Some(length) => Ok(length),
            None => Err(format!("{kind}: expected length")),
        };
        Ok(match kind {
            "fixed-length-bit-array"
            | "fixed-length-bit-map"
            | "fixed-length-boolean"
            | "fixed-length-unsigned-integer"
            | "fixed-length-signed-integer"
            | "fixed-length-unsigned-enumeration"
            | "fixed-length-signed-enumeration" => {
                let integer = self.integer(class, kind, length()?, scope)?;
                labelled(class, kind, integer)?
            }
            "variable-length-unsigned-integer"
            | "variable-length-signed-integer"
            | "variable-length-unsigned-enumeration"
            | "variable-length-signed-enumeration" => {
                let integer = self.integer(class, kind, 0, scope)?;
                labelled(class, kind, integer)?
            }
            "fixed-length-floating-point-number" => Type::Float {
                size: match length()? {
                    size @ (32 | 64) => size as u32,
                    size => return Err(format!("{kind}: expected 32 or 64 bits, found {size}")),
                },
                align: align(class)?,
                endian: Some(endian(class, kind)?),
            },
            "null-terminated-string" => {
                check_encoding(class, kind)?;
                Type::Text
            }
            "static-length-string" => {
                check_encoding(class, kind)?;
                Type::Array {
                    element: byte(true),
                    length: length()?,
                }
            }
            "dynamic-length-string" => {
                check_encoding(class, kind)?;
                Type::Sequence {
                    element: byte(true),
                    length: location(class, "length-field-location")?,
                }
            }
            "static-length-blob" => Type::Array {
                element: byte(false),
                length: length()?,
            },
            "dynamic-length-blob" => Type::Sequence {
                element: byte(false),
                length: location(class, "length-field-location")?,
            },
            "static-length-array" => Type::Array {
                element: element(self)?,
                length: length()?,
            },
            "dynamic-length-array" => Type::Sequence {
                element: element(self)?,
                length: location(class, "length-field-location")?,
            },
            "structure" => {
                let mut fields = Vec::new();
                for member in list(class, "member-classes") {
                    let name = name_of(member, scope);
                    let Some(of) = member.get("field-class") else {
                        return Err(format!("{name}: expected field-class"));
                    };
                    fields.push((name, self.class(of, scope)?));
                }
                let align = match class.get("minimum-alignment") {
                    Some(bits) => power_of_two(bits)?,
                    None => 1,
                };
                Type::Struct { fields, align }
            }
            "optional" => {
                let of = match class.get("field-class") {
                    Some(of) => self.class(of, scope)?,
                    None => return Err("optional: expected field-class".to_owned()),
                };
                let nothing = Arc::new(Type::Struct {
                    fields: Vec::new(),
                    align: 1,
                });
                let selected = match class.get("selector-field-ranges") {
                    Some(_) => ranges(class, "selector-field-ranges"),
                    None => vec![(i128::MIN, -1), (1, i128::MAX)],
                };
                let choices = selected.into_iter().map(|(low, high)| (low, high, 0));
                let choices = choices.chain([(i128::MIN, i128::MAX, 1)]).collect();
                Type::Variant {
                    selector: Some(location(class, "selector-field-location")?),
                    options: vec![(String::new(), of), (String::new(), nothing)],
                    choices: Some(choices),
                }
            }
            "variant" => {
                let (mut options, mut choices) = (Vec::new(), Vec::new());
                for (place, option) in list(class, "options").iter().enumerate() {
                    let Some(of) = option.get("field-class") else {
                        return Err("variant: expected field-class".to_owned());
                    };
                    let name = match text(option, "name") {
                        Some(name) => underlined(name),
                        None => format!("option_{place}"),
                    };
                    options.push((name, self.class(of, scope)?));
                    let selected = ranges(option, "selector-field-ranges").into_iter();
                    choices.extend(selected.map(|(low, high)| (low, high, place)));
                }
                Type::Variant {
                    selector: Some(location(class, "selector-field-location")?),
                    options,
                    choices: Some(choices),
                }
            }
            other => return Err(format!("the field class {other:?} is not supported")),
        }
        .into())
    }

    fn integer(&mut self, class: &Value, kind: &str, length: u64, scope: Scope) -> Read<Integer> {
        let is_variable = kind.starts_with("variable");
        let size = match length {
            0 if is_variable => 0,
            size @ 1..=64 => size as u32,
            size => return Err(format!("{kind}: expected 1 to 64 bits, found {size}")),
        };
        let endian = match is_variable {
            true => Endian::Little,
            false => endian(class, kind)?,
        };
        // The first one is most often the magic number.
        self.metadata.endian = self.metadata.endian.or(Some(endian));
        let has_clock = scope == Scope::EventHeader && has_role(class, "default-clock-timestamp");
        Ok(Integer {
            size,
            align: match is_variable {
                true => 8,
                false => align(class)?,
            },
            is_signed: kind.contains("-signed-"),
            endian: Some(endian),
            is_text: false,
            is_hexadecimal: false,
            clock: has_clock.then(String::new),
        })
    }
}

fn text<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    value.get(key).and_then(Value::as_str)
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn has_role(class: &Value, role: &str) -> bool {
    list(class, "roles")
        .iter()
        .any(|known| known.as_str() == Some(role))
}

/// In 1.8, one leading underscore is no part of a name.
fn underlined(name: &str) -> String {
    match name.starts_with('_') {
        true => format!("_{name}"),
        false => name.to_owned(),
    }
}

/// The name of a member, in 1.8 if it has a role.
fn name_of(member: &Value, scope: Scope) -> String {
    const ROLES: [(&str, Scope, &str); 10] = [
        ("packet-magic-number", Scope::PacketHeader, "magic"),
        ("data-stream-class-id", Scope::PacketHeader, "stream_id"),
        ("data-stream-id", Scope::PacketHeader, "stream_instance_id"),
        ("packet-total-length", Scope::PacketContext, "packet_size"),
        (
            "packet-content-length",
            Scope::PacketContext,
            "content_size",
        ),
        (
            "default-clock-timestamp",
            Scope::PacketContext,
            "timestamp_begin",
        ),
        (
            "packet-end-default-clock-timestamp",
            Scope::PacketContext,
            "timestamp_end",
        ),
        (
            "discarded-event-record-counter-snapshot",
            Scope::PacketContext,
            "events_discarded",
        ),
        (
            "packet-sequence-number",
            Scope::PacketContext,
            "packet_seq_num",
        ),
        ("event-record-class-id", Scope::EventHeader, "id"),
    ];
    let class = member.get("field-class");
    let role = ROLES
        .iter()
        .find(|(role, of, _)| *of == scope && class.is_some_and(|class| has_role(class, role)));
    match role {
        Some((.., name)) => (*name).to_owned(),
        None => underlined(text(member, "name").unwrap_or_default()),
    }
}

fn endian(class: &Value, kind: &str) -> Read<Endian> {
    let endian = match text(class, "byte-order") {
        Some("little-endian") => Endian::Little,
        Some("big-endian") => Endian::Big,
        other => {
            return Err(format!(
                "{kind}: expected byte-order little-endian or big-endian, found {other:?}"
            ));
        }
    };
    match (text(class, "bit-order"), endian) {
        (None, _)
        | (Some("first-to-last"), Endian::Little)
        | (Some("last-to-first"), Endian::Big) => Ok(endian),
        (Some(order), _) => Err(format!("{kind}: bit-order {order} is not supported")),
    }
}

fn align(class: &Value) -> Read<u64> {
    match class.get("alignment") {
        Some(bits) => power_of_two(bits),
        None => Ok(1),
    }
}

fn power_of_two(bits: &Value) -> Read<u64> {
    match bits.as_u64() {
        Some(bits) if bits.is_power_of_two() && bits <= 1 << 16 => Ok(bits),
        _ => Err(format!("alignment: expected a power of two, found {bits}")),
    }
}

fn check_encoding(class: &Value, kind: &str) -> Read<()> {
    match text(class, "encoding") {
        None | Some("utf-8") => Ok(()),
        Some(encoding) => Err(format!("{kind}: encoding {encoding} is not supported")),
    }
}

/// An element of texts or binary.
fn byte(is_text: bool) -> Arc<Type> {
    Arc::new(Type::Integer(Integer {
        size: 8,
        align: 8,
        is_signed: false,
        endian: None,
        is_text,
        is_hexadecimal: !is_text,
        clock: None,
    }))
}

/// An integer with its labels: `{"RED": [[0, 0]]}`.
fn labelled(class: &Value, kind: &str, integer: Integer) -> Read<Type> {
    let Some(mappings) = class.get("mappings").and_then(Value::as_object) else {
        return Ok(Type::Integer(integer));
    };
    let mut labels = Labels::default();
    for label in mappings.keys() {
        for (low, high) in ranges_of(mappings.get(label)) {
            if low > high {
                return Err(format!(
                    "{kind}: {label}: the range {low} ... {high} is empty"
                ));
            }
            labels.0.push((label.clone(), low, high));
        }
    }
    Ok(Type::Enum {
        integer,
        labels: Arc::new(labels),
    })
}

fn ranges(value: &Value, key: &str) -> Vec<(i128, i128)> {
    ranges_of(value.get(key))
}

/// `[[0, 3], [7, 7]]`
fn ranges_of(value: Option<&Value>) -> Vec<(i128, i128)> {
    let number = |value: &Value| {
        let signed = value.as_i64().map(i128::from);
        signed.or_else(|| value.as_u64().map(i128::from))
    };
    let pairs = value
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let pairs = pairs
        .iter()
        .filter_map(|pair| match pair.as_array()?.as_slice() {
            [low, high] => Some((number(low)?, number(high)?)),
            _ => None,
        });
    pairs.collect()
}

/// A path from the top, as in 1.8: `{"origin": "event-record-payload", "path": ["n"]}`, earlier `["event-record-payload", "n"]`.
fn location(class: &Value, key: &str) -> Read<String> {
    let location = class.get(key).unwrap_or(&Value::Null);
    let (origin, path) = match location.as_array() {
        Some(path) => match path.split_first() {
            Some((origin, path)) => (origin.as_str(), path),
            None => (None, &[][..]),
        },
        None => (text(location, "origin"), list(location, "path")),
    };
    let origin = match origin {
        Some("packet-header") => Some("trace.packet.header"),
        Some("packet-context") => Some("stream.packet.context"),
        Some("event-record-header") => Some("stream.event.header"),
        Some("event-record-common-context") => Some("stream.event.context"),
        Some("event-record-specific-context") => Some("event.context"),
        Some("event-record-payload") => Some("event.fields"),
        None => None,
        Some(other) => return Err(format!("{key}: expected an origin, found {other}")),
    };
    // `null` is the structure around, in which names are looked up anyway.
    let names = path.iter().filter_map(Value::as_str).map(underlined);
    let parts: Vec<String> = origin.map(str::to_owned).into_iter().chain(names).collect();
    match parts.is_empty() {
        true => Err(format!("expected {key}")),
        false => Ok(parts.join(".")),
    }
}

/// An array of 16 numbers.
fn uuid(fragment: &Value) -> Option<[u8; 16]> {
    let numbers = list(fragment, "uuid").iter();
    let bytes: Option<Vec<u8>> = numbers
        .map(|number| u8::try_from(number.as_u64()?).ok())
        .collect();
    bytes?.try_into().ok()
}
