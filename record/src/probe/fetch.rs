//! Translation of variables and their members into fetch arguments of the kernel (Documentation/trace/kprobetrace.rst).
//!
//! ```text
//! sk->data[2]   sk is $arg1, a pointer; data is at offset 8, a pointer to int   →  +8(+8($arg1)):s32
//! ```

use perfquet_trace::symbols::{Location, Member, Scope, Shape};

use super::argument::{Step, Variable};

/// A source of type descriptions.
pub(crate) trait Types {
    /// Returns the shape of a type.
    fn shape(&self, number: u64) -> Shape;
    /// Returns the members of a structure.
    fn members(&self, number: u64) -> Vec<Member>;
}

impl Types for Scope {
    fn shape(&self, number: u64) -> Shape {
        Scope::shape(self, number)
    }

    fn members(&self, number: u64) -> Vec<Member> {
        Scope::members(self, number).to_vec()
    }
}

/// The location of a value: a base that the kernel knows, and steps through memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expression {
    /// "%di", "$arg1"
    base: String,
    /// Offsets, each added to the pointer read before it.
    offsets: Vec<i64>,
}

impl Expression {
    /// A value that the kernel provides itself.
    pub(crate) fn value(base: String) -> Expression {
        Expression {
            base,
            offsets: Vec::new(),
        }
    }

    /// A value at a DWARF location.
    pub(crate) fn at(location: &Location) -> Expression {
        match location {
            Location::Register(register) => Expression::value(format!("%{register}")),
            Location::Memory { register, offset } => Expression {
                base: format!("%{register}"),
                offsets: vec![*offset],
            },
        }
    }

    fn text(&self) -> String {
        let mut text = self.base.clone();
        for offset in &self.offsets {
            text = format!("{offset:+}({text})");
        }
        text
    }
}

/// A value in the kernel's syntax.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fetched {
    /// The location.
    pub(crate) expression: String,
    /// The type, if the kernel has one for it.
    pub(crate) kind: Option<String>,
}

/// Follows the steps from a variable to the requested value. The error states why that is impossible.
pub(crate) fn walk(
    types: &dyn Types,
    mut at: Expression,
    mut number: u64,
    variable: &Variable,
    wanted: Option<&str>,
) -> Result<Fetched, String> {
    let mut so_far = variable.name.clone();
    for step in &variable.steps {
        match step {
            Step::Member(name) => {
                if let Shape::Pointer(target) = types.shape(number) {
                    at.offsets.push(0);
                    number = target;
                }
                if !matches!(types.shape(number), Shape::Structure(_)) {
                    return Err(format!(
                        "{so_far} is not a structure and has no member {name}"
                    ));
                }
                let found = member(types, number, name, 0).ok_or_else(|| {
                    let names = names(types, number);
                    format!("{so_far} has no member {name}; it has {}", names.join(", "))
                })?;
                if found.is_bit_field {
                    return Err(format!(
                        "{so_far}.{name} is a bit field, which cannot be fetched"
                    ));
                }
                advance(&mut at, found.offset as i64, &so_far)?;
                number = found.kind;
                so_far = format!("{so_far}.{name}");
            }
            Step::Element(index) => {
                let element = match types.shape(number) {
                    Shape::Pointer(target) => {
                        at.offsets.push(0);
                        target
                    }
                    Shape::Array(element, _) => element,
                    _ => return Err(format!("{so_far} is neither a pointer nor an array")),
                };
                let bytes = size(types, element).unwrap_or(1) as i64;
                advance(&mut at, index.saturating_mul(bytes), &so_far)?;
                number = element;
                so_far = format!("{so_far}[{index}]");
            }
        }
    }
    // A string is at the address, not in the pointer.
    let is_text = wanted.is_some_and(|kind| kind.starts_with("string") || kind == "ustring");
    match types.shape(number) {
        Shape::Pointer(_) if is_text => {
            at.offsets.push(0);
            Ok(Fetched {
                expression: at.text(),
                kind: None,
            })
        }
        Shape::Structure(_) => {
            let names = names(types, number);
            Err(format!(
                "{so_far} is a structure; use one of its members: {}",
                names.join(", ")
            ))
        }
        _ => Ok(Fetched {
            expression: at.text(),
            kind: kind_of(types, number),
        }),
    }
}

fn advance(at: &mut Expression, bytes: i64, so_far: &str) -> Result<(), String> {
    match at.offsets.last_mut() {
        Some(offset) => {
            *offset = offset.saturating_add(bytes);
            Ok(())
        }
        None => Err(format!(
            "{so_far} is in registers as a whole; its members cannot be fetched"
        )),
    }
}

/// Finds a member, also in anonymous structures.
fn member(types: &dyn Types, number: u64, name: &str, depth: usize) -> Option<Member> {
    let members = types.members(number);
    if let Some(found) = members.iter().find(|member| member.name == name) {
        return Some(found.clone());
    }
    let nameless = members.iter().filter(|member| member.name.is_empty());
    nameless.filter(|_| depth < 16).find_map(|outer| {
        let found = member(types, outer.kind, name, depth + 1)?;
        Some(Member {
            offset: found.offset.saturating_add(outer.offset),
            ..found
        })
    })
}

fn names(types: &dyn Types, number: u64) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut waiting = vec![(number, 0)];
    while let Some((number, depth)) = waiting.pop() {
        for member in types.members(number) {
            if member.name.is_empty() && depth < 16 {
                waiting.push((member.kind, depth + 1));
            } else {
                names.push(member.name);
            }
        }
    }
    names
}

fn size(types: &dyn Types, number: u64) -> Option<u64> {
    match types.shape(number) {
        Shape::Integer { bytes, .. } => Some(bytes.into()),
        Shape::Pointer(_) => Some(size_of::<usize>() as u64),
        Shape::Structure(bytes) => Some(bytes),
        Shape::Array(element, count) => {
            let element = match types.shape(element) {
                Shape::Array(..) => return None,
                _ => size(types, element)?,
            };
            element.checked_mul(count)
        }
        Shape::Other => None,
    }
}

/// Returns the kernel's name of a type: `s32`, `x64` for addresses, `x8[16]`.
pub(crate) fn kind_of(types: &dyn Types, number: u64) -> Option<String> {
    match types.shape(number) {
        Shape::Integer { bytes, signed } => {
            let sign = if signed { 's' } else { 'u' };
            Some(format!("{sign}{}", u32::from(bytes) * 8))
        }
        Shape::Pointer(_) => Some(format!("x{}", usize::BITS)),
        Shape::Array(element, count @ 1..=64) => match types.shape(element) {
            // Mostly strings, for which the user adds :string.
            Shape::Integer { .. } => Some(format!("{}[{count}]", kind_of(types, element)?)),
            _ => None,
        },
        _ => None,
    }
}
