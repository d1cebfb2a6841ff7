//! Names for aggregations of calls: arguments at entry, the return value, the duration.

use perfquet_ebpf::layout::{Saved, Value};

use super::fetch::{self, Fetched};
use super::names::{Fields, Found, Saver};
use crate::failure::{Failure, misuse};
use crate::probe::definition::Definition;
use crate::probe::edges::Both;

/// The measured values of every call.
const MEASURED: &[(&str, Value)] = &[
    ("duration", Value::Duration),
    ("self", Value::SelfTime),
    ("runqueue", Value::Runqueue),
];
/// The return value, whichever name the user gave it.
const RETVAL: &str = "retval";

/// The names of one function.
#[derive(Clone)]
pub(in crate::bpf) struct CallFields {
    function: String,
    /// In the order of the command line; `None` if programs cannot read the argument.
    at_entry: Vec<(String, Option<Fetched>)>,
    at_return: Vec<(String, Option<Fetched>)>,
    saver: Saver,
}

impl CallFields {
    /// Collects the arguments that were requested with a function.
    pub(in crate::bpf) fn of(both: &Both) -> CallFields {
        CallFields {
            function: both.function.clone(),
            at_entry: values(&both.entry),
            at_return: values(&both.exit),
            saver: Saver::default(),
        }
    }

    fn unknown(&self, option: &str, name: &str) -> Failure {
        let known = MEASURED.iter().map(|(name, _)| *name).chain([RETVAL]);
        let known = known.chain(self.at_entry.iter().map(|(name, _)| name.as_str()));
        let known: Vec<&str> = known.collect();
        misuse(format!("{option}: {} has no {name}", self.function)).hint(format!(
            "name a parameter after the function, as in --call '{} {name}', or choose from {}; keys can also be comm, \
             pid, tid, cpu, function, stack, kstack, ustack",
            self.function,
            known.join(", ")
        ))
    }
}

impl Fields for CallFields {
    fn find(&mut self, option: &str, name: &str) -> Result<Found, Failure> {
        if let Some((_, value)) = MEASURED.iter().find(|(known, _)| *known == name) {
            return Ok(Found::measured(*value));
        }
        let unreadable = || {
            misuse(format!(
                "{option}: BPF programs cannot read {name} of {}",
                self.function
            ))
            .hint("use a number or string in a register or reached through at most six pointers; not a list")
        };
        let at_return = self.at_return.iter().find(|(known, _)| known == name);
        // There is at most one return value.
        let at_return = at_return.or(self.at_return.first().filter(|_| name == RETVAL));
        if let Some((_, value)) = at_return {
            return value.map(Found::fetched).ok_or_else(unreadable);
        }
        if name == RETVAL {
            let plain = fetch::returned("s64").map(Fetched::Number);
            return plain.map(Found::fetched).ok_or_else(unreadable);
        }
        match self.at_entry.iter().find(|(known, _)| known == name) {
            Some((_, value)) => {
                let value = value.ok_or_else(unreadable)?;
                self.saver.save(option, value)
            }
            None => Err(self.unknown(option, name)),
        }
    }

    fn saved(&self) -> Vec<Saved> {
        vec![self.saver.saved()]
    }
}

/// Returns the values that a definition fetches.
fn values(definition: &Definition) -> Vec<(String, Option<Fetched>)> {
    // All forms fetch the same values; the last one is a plain probe, whose syntax this module can parse.
    let Some(form) = definition.forms.last() else {
        return Vec::new();
    };
    let words = form.body.split_whitespace().skip(1);
    (1..)
        .zip(words)
        .map(|(number, word)| match word.split_once('=') {
            Some((name, _)) => {
                let value = fetch::of_word(word, definition.place, form);
                (name.to_owned(), value.map(|(_, value)| value))
            }
            // Named as the kernel names it.
            None => {
                let word = format!("arg{number}={word}");
                let value = fetch::of_word(&word, definition.place, form);
                (format!("arg{number}"), value.map(|(_, value)| value))
            }
        })
        .collect()
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use super::*;
    use crate::bpf::plan::Located;
    use crate::probe::form::{Form, Place};

    fn definition(head: &str, body: &str) -> Definition {
        Definition {
            text: String::new(),
            place: Place::Kernel,
            system: String::new(),
            name: String::new(),
            forms: vec![Form::new(head, body)],
        }
    }

    #[test]
    fn names_of_a_call() {
        let mut fields = CallFields::of(&Both {
            function: "vfs_read".to_owned(),
            module: String::new(),
            entry: definition("p", "vfs_read count=$arg3:u64 %di list=+0(%si):x8[4]"),
            exit: definition("r", "vfs_read ret=$retval:s32"),
        });
        let mut find = |name: &str| {
            fields
                .find("--agg", name)
                .map_err(|error| error.to_string())
        };
        assert_eq!(find("duration"), Ok(Found::measured(Value::Duration)));
        let at = |found| match found {
            Ok(Found::Number(at, _)) => Some(at),
            _ => None,
        };
        assert_eq!(at(find("arg2")), Some(Located::Saved(0)));
        assert_eq!(at(find("count")), Some(Located::Saved(1)));
        let returned = Found::fetched(Fetched::Number(fetch::returned("s32").unwrap()));
        assert_eq!(find("ret"), Ok(returned));
        assert_eq!(find("retval"), Ok(returned));
        assert!(find("list").unwrap_err().contains("cannot read list"));
        assert_eq!(find("pos"), Err("--agg: vfs_read has no pos".to_owned()));
    }
}
