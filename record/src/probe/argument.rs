//! Parser of probe arguments on the command line: the place, and the values to record. The grammar is that of perf
//! probe and of the kernel.
//!
//! ```text
//! tcp_sendmsg size                          a parameter by its name
//! vfs_read+4 buf=%si:x64 $comm              a place in a function, registers, the kernel's variables
//! libc.so.6:malloc bytes=%di:u64            a function of a library
//! ./prog:work:12 i total                    a line of a function, counted from its first
//! ./prog:ns::list<int>::push item           a function of C++ or Rust, as one writes it
//! vmwgfx:vmw_driver_load                    a function of a module of the kernel
//! ```

use super::place;
use super::register;
use crate::failure::{Failure, misuse};

/// A parsed probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProbeSpec {
    /// Name of the event, if given (`NAME=FUNC`).
    pub(crate) event: Option<String>,
    /// Program or library, for probes in user code; module, for probes in the kernel.
    pub(crate) object: Option<String>,
    /// Name of the function, possibly with wildcards.
    pub(crate) function: String,
    /// Offset in bytes.
    pub(crate) offset: u64,
    /// Line relative to the first line of the function.
    pub(crate) line: Option<u32>,
    /// The arguments to record.
    pub(crate) arguments: Vec<Argument>,
}

/// One argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Argument {
    /// Name of the field, if given.
    pub(crate) name: Option<String>,
    /// The value.
    pub(crate) value: Value,
    /// Type that the user requested: `u64`, `string`, `x8[4]`.
    pub(crate) kind: Option<String>,
}

/// The value of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// A fetch argument of the kernel: a register, memory, `$comm`, `$retval`, a constant.
    Raw(String),
    /// A parameter or local variable by name, with members.
    Variable(Variable),
}

/// `skb->len`, `*buf`, `list[3].next`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    /// Name of the variable.
    pub(crate) name: String,
    /// Steps from the variable to the value, in order.
    pub(crate) steps: Vec<Step>,
}

/// A step from one value to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// `.member`, or `->member` through a pointer.
    Member(String),
    /// `[index]`, or `*` for 0.
    Element(i64),
}

/// Parses `[NAME=][MODULE:]FUNC[+OFFSET|:LINE] ARG...`; for programs, OBJECT replaces MODULE.
pub(crate) fn parse(text: &str, has_object: bool) -> Result<ProbeSpec, Failure> {
    let (place, arguments) = place::split(text);
    if place.is_empty() {
        return Err(misuse("expected a function, an offset or a line"));
    }
    let (event, place) = match place.split_once('=') {
        Some((event, place)) if place::is_identifier(event) => (Some(event.to_owned()), place),
        _ => (None, place),
    };
    let (object, place) = match place::object(place) {
        Some((object, place)) if has_object || !place::is_line(place) => {
            (Some(object.to_owned()), place)
        }
        _ if has_object => {
            return Err(misuse(format!("{text}: expected OBJECT:FUNC")).hint(
                "for example libc.so.6:malloc, ./prog:work, or 1234:work for the program of PID 1234",
            ));
        }
        _ => (None, place),
    };
    let (place, line) = match place::line(place) {
        Some((place, line)) => {
            let number = line
                .parse()
                .map_err(|_| misuse(format!("{text}: expected a line number, found {line:?}")))?;
            (place, Some(number))
        }
        None => (place, None),
    };
    let (function, offset) = match place::offset(place) {
        Some((function, offset)) => (function, number(text, offset)?),
        None => (place, 0),
    };
    if function.is_empty() {
        return Err(misuse(format!("{text}: expected a function")));
    }
    Ok(ProbeSpec {
        event,
        object,
        function: function.to_owned(),
        offset,
        line,
        arguments: arguments
            .split_whitespace()
            .map(|word| argument(text, word))
            .collect::<Result<_, _>>()?,
    })
}

fn number(text: &str, digits: &str) -> Result<u64, Failure> {
    let number = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    number.map_err(|_| {
        misuse(format!(
            "{text}: expected an offset in bytes, found {digits:?}"
        ))
    })
}

/// `[NAME=]VALUE[:TYPE]`
fn argument(text: &str, word: &str) -> Result<Argument, Failure> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (Some(name.to_owned()), value),
        None => (None, word),
    };
    let is_raw = value.starts_with(['%', '$', '@', '+', '-', '\\']);
    // Types follow the last colon; `$retval:string`, `+0(%si):u32`.
    let (value, kind) = match value.rsplit_once(':') {
        Some((value, kind)) if !kind.is_empty() => (value, Some(kind.to_owned())),
        _ => (value, None),
    };
    let value = match is_raw {
        true => Value::Raw(register::renamed(text, value)?),
        false => Value::Variable(variable(text, value)?),
    };
    Ok(Argument { name, value, kind })
}

fn variable(text: &str, value: &str) -> Result<Variable, Failure> {
    let bad = || {
        misuse(format!("{text}: expected an argument, found {value:?}")).hint(
            "write [NAME=]ARG[:TYPE], where ARG is a variable (skb->len, *buf, list[0].x), a register (%di), $retval, $comm, or \
             memory (+8(%di))",
        )
    };
    let dereferences = value.bytes().take_while(|&byte| byte == b'*').count();
    let mut rest = &value[dereferences..];
    let name_end = |text: &str| {
        let ends = |letter: char| !letter.is_alphanumeric() && letter != '_';
        text.find(ends).unwrap_or(text.len())
    };
    let name = &rest[..name_end(rest)];
    rest = &rest[name.len()..];
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(bad());
    }
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let member = rest.strip_prefix("->").or(rest.strip_prefix('.'));
        if let Some(after) = member {
            let member = &after[..name_end(after)];
            if member.is_empty() {
                return Err(bad());
            }
            steps.push(Step::Member(member.to_owned()));
            rest = &after[member.len()..];
        } else if let Some((index, after)) = rest
            .strip_prefix('[')
            .and_then(|inside| inside.split_once(']'))
        {
            steps.push(Step::Element(index.parse().map_err(|_| bad())?));
            rest = after;
        } else {
            return Err(bad());
        }
    }
    steps.extend(std::iter::repeat_n(Step::Element(0), dereferences));
    Ok(Variable {
        name: name.to_owned(),
        steps,
    })
}

impl Variable {
    /// Returns the name of the field; by default the last member, as in perf.
    pub(crate) fn field_name(&self) -> &str {
        let members = self.steps.iter().rev().find_map(|step| match step {
            Step::Member(name) => Some(name.as_str()),
            Step::Element(_) => None,
        });
        members.unwrap_or(&self.name)
    }
}

impl ProbeSpec {
    /// Whether any value is a variable.
    pub(crate) fn has_variables(&self) -> bool {
        let mut values = self.arguments.iter().map(|argument| &argument.value);
        values.any(|value| matches!(value, Value::Variable(_)))
    }
}

impl Argument {
    /// Returns the kernel's form of the argument, if it is written that way.
    pub(crate) fn raw(&self) -> Option<String> {
        let Value::Raw(value) = &self.value else {
            return None;
        };
        Some(in_kernels_words(
            self.name.as_deref(),
            value,
            self.kind.as_deref(),
        ))
    }
}

/// `name=value:kind`
pub(crate) fn in_kernels_words(name: Option<&str>, value: &str, kind: Option<&str>) -> String {
    let name = name.map(|name| format!("{name}=")).unwrap_or_default();
    let kind = kind.map(|kind| format!(":{kind}")).unwrap_or_default();
    format!("{name}{value}{kind}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let spec = parse("libc.so.6:malloc bytes=%di:u64 $comm", true).unwrap();
        assert_eq!(spec.object.as_deref(), Some("libc.so.6"));
        assert_eq!((spec.function.as_str(), spec.offset), ("malloc", 0));
        let words: Vec<String> = spec.arguments.iter().filter_map(Argument::raw).collect();
        assert_eq!(words, ["bytes=%di:u64", "$comm"]);
        let spec = parse("mine=vfs_read+0x10", false).unwrap();
        assert_eq!(spec.event.as_deref(), Some("mine"));
        assert_eq!((spec.function.as_str(), spec.offset), ("vfs_read", 16));
        let spec = parse("./prog:work:12 i total", true).unwrap();
        assert_eq!((spec.function.as_str(), spec.line), ("work", Some(12)));
        assert_eq!(spec.arguments.len(), 2);
        let spec = parse("vmwgfx:vmw_driver_load+4 x=+8(%rdi):u32", false).unwrap();
        assert_eq!(spec.object.as_deref(), Some("vmwgfx"));
        assert_eq!(
            (spec.function.as_str(), spec.offset),
            ("vmw_driver_load", 4)
        );
        assert_eq!(spec.arguments[0].raw().unwrap(), "x=+8(%di):u32");
        let spec = parse("vfs_read:12 count", false).unwrap();
        assert_eq!((spec.object, spec.line), (None, Some(12)));
        for (wrong, has_object) in [
            ("", false),
            ("malloc", true),
            (":malloc", true),
            ("a:b:c", true),
            ("m:f:x", false),
            ("f %edi", false),
            ("f+x", false),
            ("f 9x", false),
            ("f a->", false),
            ("f a[x]", false),
            ("f a!b", false),
        ] {
            assert!(parse(wrong, has_object).is_err(), "{wrong}");
        }
    }

    #[test]
    fn cpp_and_rust_names() {
        for (text, function, line, offset, arguments) in [
            ("./p:ns::over", "ns::over", None, 0, 0),
            (
                "./p:ns::over(int, char*) n",
                "ns::over(int, char*)",
                None,
                0,
                1,
            ),
            ("./p:r::gen<u32>:3 n m", "r::gen<u32>", Some(3), 0, 2),
            (
                "./p:std::map<int, A<B> >::at+0x4",
                "std::map<int, A<B> >::at",
                None,
                4,
                0,
            ),
            (
                "./p:<T as Tr<Out=u32>>::go",
                "<T as Tr<Out=u32>>::go",
                None,
                0,
                0,
            ),
            (
                "./p:(anonymous namespace)::f",
                "(anonymous namespace)::f",
                None,
                0,
                0,
            ),
            ("./p:A::operator<< n", "A::operator<<", None, 0, 1),
            ("./p:A::operator-> n", "A::operator->", None, 0, 1),
            ("./p:A::operator()", "A::operator()", None, 0, 0),
            ("./p:A::operator+", "A::operator+", None, 0, 0),
            (
                "./p:A::operator==(A const&) n",
                "A::operator==(A const&)",
                None,
                0,
                1,
            ),
            ("./p:operator new n", "operator new", None, 0, 1),
            ("./p:main::{closure#0}", "main::{closure#0}", None, 0, 0),
            ("mine=./p:ns::over:7", "ns::over", Some(7), 0, 0),
        ] {
            let spec = parse(text, true).unwrap_or_else(|failure| panic!("{text}: {failure}"));
            assert_eq!(spec.object.as_deref(), Some("./p"), "{text}");
            let found = (spec.function.as_str(), spec.line, spec.offset);
            assert_eq!(found, (function, line, offset), "{text}");
            assert_eq!(spec.arguments.len(), arguments, "{text}");
        }
    }

    #[test]
    fn variables() {
        let steps = |text: &str| {
            let spec = parse(&format!("f {text}"), false).unwrap();
            match spec.arguments[0].value.clone() {
                Value::Variable(variable) => variable,
                Value::Raw(raw) => panic!("{raw}"),
            }
        };
        let member = |name: &str| Step::Member(name.to_owned());
        assert_eq!(steps("skb->len").steps, [member("len")]);
        assert_eq!(steps("skb->len").field_name(), "len");
        assert_eq!(steps("*buf:string").steps, [Step::Element(0)]);
        assert_eq!(steps("*buf").field_name(), "buf");
        assert_eq!(
            steps("a.b[3].c").steps,
            [member("b"), Step::Element(3), member("c")]
        );
    }
}
