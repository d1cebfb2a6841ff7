//! Where the members of V8's objects are: variables that V8 has for debuggers (`v8dbg_…`), in Node.js 18 to 26.
//!
//! ```text
//! v8dbg_class_JSFunction__shared__SharedFunctionInfo                               24    20
//! v8dbg_class_SharedFunctionInfo__name_or_scope_info__Tagged_NameOrScopeInfoT_     24    24 to 26
//! v8dbg_scopeinfo_idx_first_vars                                                   3     5: 24 to 26
//! ```
//! (v8/v8: `tools/gen-postmortem-metadata.py`, `src/objects/scope-info.tq`)

/// Prefix of the variables' names.
pub(super) const PREFIX: &str = "v8dbg_";
/// A scope info has its position before its local variables (V8 13), or after its names.
pub(super) const FIRST_LOCAL_AFTER_POSITION: u64 = 5;
pub(super) const POSITION: u64 = 3;
/// In a script, the number of lines before its text comes after its name.
pub(super) const LINE_AFTER_NAME: u32 = 8;
/// Bits of a number that are not its value, without compressed pointers.
const NUMBER_SHIFT: u32 = 31;

/// Offsets in objects, and types of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// In a function: its shared function info.
    pub(super) shared: u32,
    /// In that: name or scope info, and script.
    pub(super) name: u32,
    pub(super) script: u32,
    pub(super) script_name: u32,
    pub(super) script_source: u32,
    /// In a map: the type of its objects.
    pub(super) map_type: u32,
    pub(super) strings: Strings,
    pub(super) shared_type: u16,
    pub(super) script_type: u16,
    pub(super) scope_type: u16,
    /// In a scope info, in words after the first: number of local variables, and the first one.
    pub(super) locals: u64,
    pub(super) first_local: u64,
}

/// Offsets in strings: their length; their characters, another string, two strings, a string and where it starts in it, or an
/// object with the characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Strings {
    pub(super) length: u32,
    pub(super) characters: u32,
    pub(super) thin: u32,
    pub(super) first: u32,
    pub(super) parent: u32,
    pub(super) skipped: u32,
    pub(super) external: u32,
}

impl Layout {
    /// Takes the values of variables by name; `*` stands for the rest of a name. Otherwise returns the reason.
    pub(super) fn of(value: impl Fn(&str) -> Option<u32>) -> Result<Layout, String> {
        let known = |name: &str| {
            let found = value(&format!("{PREFIX}{name}"));
            found.ok_or_else(|| format!("no variable {PREFIX}{name}"))
        };
        let offset = |name: &str| {
            // Objects have fewer members.
            known(name).and_then(|offset| match offset {
                0..4096 => Ok(offset),
                _ => Err(format!("{PREFIX}{name} is {offset}")),
            })
        };
        let kind = |name: &str| {
            known(name).and_then(|kind| u16::try_from(kind).map_err(|error| error.to_string()))
        };
        if known("SmiShiftSize")? != NUMBER_SHIFT {
            return Err("its pointers are compressed".to_owned());
        }
        let script = offset("class_SharedFunctionInfo__script_or_debug_info__*")
            .or_else(|_| offset("class_SharedFunctionInfo__script__*"));
        Ok(Layout {
            shared: offset("class_JSFunction__shared__*")?,
            name: offset("class_SharedFunctionInfo__name_or_scope_info__*")?,
            script: script?,
            script_name: offset("class_Script__name__*")?,
            script_source: offset("class_Script__source__*")?,
            map_type: offset("class_Map__instance_type__*")?,
            strings: Strings {
                length: offset("class_String__length__*")?,
                characters: offset("class_SeqOneByteString__chars__*")?,
                thin: offset("class_ThinString__actual__*")?,
                first: offset("class_ConsString__first__*")?,
                parent: offset("class_SlicedString__parent__*")?,
                skipped: offset("class_SlicedString__offset__*")?,
                external: offset("class_ExternalString__resource__*")?,
            },
            shared_type: kind("type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE")?,
            script_type: kind("type_Script__SCRIPT_TYPE")?,
            scope_type: kind("type_ScopeInfo__SCOPE_INFO_TYPE")?,
            locals: offset("scopeinfo_idx_ncontextlocals")?.into(),
            first_local: offset("scopeinfo_idx_first_vars")?.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE_20: [(&str, u32); 19] = [
        ("SmiShiftSize", 31),
        ("class_JSFunction__shared__SharedFunctionInfo", 24),
        ("class_SharedFunctionInfo__name_or_scope_info__Object", 16),
        (
            "class_SharedFunctionInfo__script_or_debug_info__HeapObject",
            32,
        ),
        ("class_Script__name__Object", 16),
        ("class_Script__source__Object", 8),
        ("class_Map__instance_type__uint16_t", 12),
        ("class_String__length__int32_t", 12),
        ("class_SeqOneByteString__chars__char", 16),
        ("class_ThinString__actual__String", 16),
        ("class_ConsString__first__String", 16),
        ("class_SlicedString__parent__String", 16),
        ("class_SlicedString__offset__SMI", 24),
        ("class_ExternalString__resource__Object", 16),
        ("type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE", 262),
        ("type_Script__SCRIPT_TYPE", 167),
        ("type_ScopeInfo__SCOPE_INFO_TYPE", 261),
        ("scopeinfo_idx_ncontextlocals", 2),
        ("scopeinfo_idx_first_vars", 3),
    ];

    fn layout(known: &[(&str, u32)]) -> Result<Layout, String> {
        Layout::of(|wanted| {
            let wanted = wanted.strip_prefix(PREFIX)?;
            let is_it = |(name, _): &&(&str, u32)| match wanted.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => *name == wanted,
            };
            known.iter().find(is_it).map(|(_, value)| *value)
        })
    }

    #[test]
    fn versions_differ() {
        let old = layout(&NODE_20).expect("all are there");
        assert_eq!((old.shared, old.script, old.first_local), (24, 32, 3));
        // Types of members changed, and a member was renamed.
        let new = NODE_20.map(|(name, value)| match name {
            "class_JSFunction__shared__SharedFunctionInfo" => (name, 32),
            "class_SharedFunctionInfo__script_or_debug_info__HeapObject" => {
                ("class_SharedFunctionInfo__script__Tagged_HeapObject_", 40)
            }
            "class_Script__name__Object" => ("class_Script__name__Tagged_Object_", 16),
            "scopeinfo_idx_first_vars" => (name, 5),
            _ => (name, value),
        });
        let new = layout(&new).expect("all are there");
        assert_eq!((new.shared, new.script, new.first_local), (32, 40, 5));
    }

    #[test]
    fn what_is_missing_or_wild_is_said() {
        for at in 0..NODE_20.len() {
            let mut some = NODE_20.to_vec();
            let (name, _) = some.remove(at);
            let reason = layout(&some).expect_err("one is missing");
            assert!(reason.starts_with("no variable v8dbg_"), "{name}: {reason}");
            let mut wild = NODE_20;
            wild[at].1 = u32::MAX;
            assert!(layout(&wild).is_err(), "{name}");
        }
    }
}
