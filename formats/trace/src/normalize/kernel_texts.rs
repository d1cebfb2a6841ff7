//! Resolves fields that are addresses of strings in the kernel.
//!
//! ```text
//! field:const char * s; … print fmt: "%s", REC->s      0xffffffff8281a88f ─► "End RCU core"
//! ```
//! Applies only to fields that `print fmt` uses in `%s` alone: others (`const char * filename` of a system call) are
//! user addresses. An unknown string is shown as its address, as in perf.

use std::borrow::Cow;
use std::sync::Arc;

use hashbrown::HashMap;

use perfquet_events::event::{EventType, Field, FieldType, KernelText};
use perfquet_events::event_format::print::PrintFormat;

/// Strings by address; cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct KernelTexts {
    texts: Arc<HashMap<u64, Box<[u8]>>>,
}

impl KernelTexts {
    /// Adds a string. Strings that follow the declaration of a type with such fields are ignored.
    pub(crate) fn add(&mut self, text: KernelText<'_>) {
        if let Some(texts) = Arc::get_mut(&mut self.texts) {
            texts.insert(text.address, text.text.into());
        }
    }

    /// The fields of a type that are such addresses; none if no string was recorded.
    pub(crate) fn fields(&self, event: &EventType) -> Vec<usize> {
        let format = event.print_format.as_deref().unwrap_or_default();
        let is_pointer = |field: &Field| {
            matches!(field.kind, FieldType::UInt(4 | 8))
                && field.declaration.contains("char")
                && field.declaration.contains('*')
        };
        if self.texts.is_empty() || !event.fields.iter().any(is_pointer) {
            return Vec::new();
        }
        let uses = uses(format);
        let mut shown = PrintFormat::new(format, &event.fields).texts();
        shown.retain(|&index| {
            let field = event.fields.get(index).filter(|field| is_pointer(field));
            field.is_some_and(|field| uses.get(field.name.as_str()) == Some(&1))
        });
        shown
    }

    /// The string at an address, or the address.
    pub(crate) fn at(&self, address: u64) -> Cow<'_, [u8]> {
        match self.texts.get(&address) {
            Some(text) => Cow::Borrowed(text),
            None => Cow::Owned(format!("{address:x}").into_bytes()),
        }
    }
}

/// Number of uses of each field.
fn uses(format: &str) -> HashMap<&str, u32> {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut uses = HashMap::new();
    for rest in format.split("REC->").skip(1) {
        let end = rest.find(|letter| !is_of_name(letter));
        let name = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        *uses.entry(name).or_insert(0) += 1;
    }
    uses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_formatted_as_a_string() {
        let field = |name: &str, declaration: &str| Field {
            name: name.to_owned(),
            kind: FieldType::UInt(8),
            layout: None,
            declaration: declaration.to_owned(),
        };
        let mut texts = KernelTexts::default();
        let event = |format: &str| EventType {
            print_format: Some(format.to_owned()),
            fields: vec![
                field("s", "const char * s"),
                field("st", "const char *st"),
                field("filename", "const char * filename"),
                field("node", "void * node"),
            ],
            ..EventType::default()
        };
        let all =
            r#""%s %*d %s %p %s", REC->s, 3, REC->node, (char *)REC->st, REC->filename, REC->node"#;
        assert_eq!(texts.fields(&event(all)), Vec::<usize>::new());
        texts.add(KernelText {
            address: 0xff,
            text: b"End RCU core",
        });
        assert_eq!(texts.fields(&event(all)), [0, 1]);
        let twice = r#""%s", REC->s ? REC->s : "none""#;
        assert_eq!(texts.fields(&event(twice)), Vec::<usize>::new());
        let twice = r#""%s %d", REC->s, REC->s == 0"#;
        assert_eq!(texts.fields(&event(twice)), Vec::<usize>::new());
        assert_eq!(&*texts.at(0xff), b"End RCU core");
        assert_eq!(&*texts.at(0xfe), b"fe");
    }
}
