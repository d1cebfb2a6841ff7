//! XML of FreeBSD's dtrace, converted to the objects of its JSON.
//!
//! ```text
//! <dtrace><probes><cpu>0</cpu><name>END</name><output><aggregation-data><keys>csh</keys><count>3</count>…
//! ```

use perfquet_events::Error;
use perfquet_events::event::{Event, Fact, Place, Sink, Space};
use quick_xml::Reader;
use quick_xml::events::Event as Xml;
use serde_json::{Map, Value as Json};

use super::emit::Output;
use super::structured;

/// Elements that are lists, even if they occur once.
const LISTS: [&str; 6] = [
    "output",
    "aggregation-data",
    "keys",
    "buckets",
    "stack-frames",
    "ustack-frames",
];
/// Deeper than any document of dtrace.
const DEPTH_MAX: usize = 64;

/// An open element.
#[derive(Default)]
struct Element {
    name: String,
    children: Map<String, Json>,
    text: String,
}

/// Reads a document up to the first error.
pub(super) fn read(text: &[u8], sink: &mut dyn Sink) -> Result<(), Error> {
    sink.event(Event::Fact(Fact::Recorder("dtrace")))?;
    let mut out = Output::new(sink, Space::Unknown);
    let mut reader = Reader::from_reader(text);
    let mut open: Vec<Element> = Vec::new();
    let mut is_whole = false;
    let problem = loop {
        match reader.read_event() {
            Ok(Xml::Start(start)) if open.len() < DEPTH_MAX => open.push(Element {
                name: String::from_utf8_lossy(start.name().as_ref()).into_owned(),
                ..Element::default()
            }),
            Ok(Xml::Start(_)) => break Some("elements of at most 64 levels".to_owned()),
            Ok(Xml::Text(part)) => add(&mut open, &part.decode().unwrap_or_default()),
            Ok(Xml::CData(part)) => add(&mut open, &part.decode().unwrap_or_default()),
            Ok(Xml::GeneralRef(reference)) => {
                let name = reference.decode().unwrap_or_default();
                match reference.resolve_char_ref() {
                    Ok(Some(character)) => add(&mut open, character.encode_utf8(&mut [0; 4])),
                    _ => add(&mut open, named(&name)),
                }
            }
            Ok(Xml::End(_)) => {
                let Some(element) = open.pop() else {
                    continue;
                };
                is_whole |= open.is_empty();
                close(element, &mut open, &mut out)?;
            }
            Ok(Xml::Eof) => break None,
            Ok(_) => {}
            Err(error) => break Some(format!("XML, found: {error}")),
        }
    };
    let place = Place::Offset(reader.buffer_position());
    match problem {
        Some(expected) => out.problem_at(place, &format!("expected {expected}"))?,
        None if !is_whole => out.problem_at(place, "expected the end of the document")?,
        None => {}
    }
    out.finish()
}

fn add(open: &mut [Element], text: &str) {
    if let Some(element) = open.last_mut() {
        element.text.push_str(text);
    }
}

fn named(name: &str) -> &'static str {
    match name {
        "lt" => "<",
        "gt" => ">",
        "amp" => "&",
        "quot" => "\"",
        "apos" => "'",
        _ => "\u{fffd}",
    }
}

/// Closes an element: a probe goes to the output, anything else into its parent.
fn close(element: Element, open: &mut [Element], out: &mut Output<'_>) -> Result<(), Error> {
    let Element {
        name,
        children,
        text,
    } = element;
    let value = match children.is_empty() {
        true => scalar(&text),
        false => Json::Object(children),
    };
    if name == "probes" && open.len() == 1 {
        return structured::probe(&value, out);
    }
    let Some(parent) = open.last_mut() else {
        return Ok(());
    };
    if LISTS.contains(&name.as_str()) {
        let list = parent
            .children
            .entry(name)
            .or_insert_with(|| Json::Array(Vec::new()));
        if let Json::Array(list) = list {
            list.push(value);
        }
    } else {
        parent.children.insert(name, value);
    }
    Ok(())
}

fn scalar(text: &str) -> Json {
    match text.trim().parse::<i64>() {
        Ok(number) => Json::from(number),
        Err(_) => Json::from(text),
    }
}
