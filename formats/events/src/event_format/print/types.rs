//! C type names, as far as they affect a value.
//!
//! ```text
//! unsigned long → 8 bytes, unsigned      s16 → 2 bytes, signed      u8 * → pointer to 1 byte
//! ```

/// A type, as far as it affects a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Type {
    /// Size in bytes; 0 if unknown, which leaves the value unchanged.
    pub(super) bytes: u8,
    /// Whether it is signed.
    pub(super) signed: bool,
    /// Whether it is a pointer; `bytes` and `signed` then describe its target.
    pub(super) pointer: bool,
}

/// Whether `word` occurs only in types.
pub(super) fn is_type_word(word: &str) -> bool {
    matches!(
        word,
        "unsigned"
            | "signed"
            | "int"
            | "long"
            | "short"
            | "char"
            | "void"
            | "const"
            | "volatile"
            | "struct"
            | "union"
            | "enum"
            | "bool"
            | "_Bool"
            | "typeof"
    ) || sized(word).is_some()
        || word.ends_with("_t")
}

/// Parses `u8`, `__s64`, `uint32_t` into size and sign.
fn sized(word: &str) -> Option<(u8, bool)> {
    let word = word.trim_start_matches('_');
    let (signed, rest) = match word.strip_suffix("_t") {
        Some(word) => match word.strip_prefix("uint") {
            Some(bits) => (false, bits),
            None => (true, word.strip_prefix("int")?),
        },
        None => match word.strip_prefix(['u', 's']) {
            Some(bits) => (word.starts_with('s'), bits),
            None => (false, word.strip_prefix("be").or(word.strip_prefix("le"))?),
        },
    };
    let bytes = match rest {
        "8" => 1,
        "16" => 2,
        "32" => 4,
        "64" => 8,
        _ => return None,
    };
    Some((bytes, signed))
}

/// Returns the type named by `words` and this many `*`.
pub(super) fn type_of(words: &[&str], stars: u32) -> Type {
    let mut bytes = 0;
    let mut signed = true;
    for &word in words {
        if let Some((of_word, sign)) = sized(word) {
            (bytes, signed) = (of_word, sign);
            continue;
        }
        match word {
            "unsigned" => {
                signed = false;
                bytes = bytes.max(4);
            }
            "long" | "size_t" | "ssize_t" | "loff_t" | "ino_t" | "sector_t" | "uintptr_t"
            | "intptr_t" | "ktime_t" | "phys_addr_t" | "dma_addr_t" | "resource_size_t" => {
                bytes = 8;
                signed &= matches!(word, "long" | "ssize_t" | "loff_t" | "intptr_t" | "ktime_t");
            }
            "int" | "signed" | "enum" | "pid_t" => bytes = bytes.max(4),
            "dev_t" | "gfp_t" | "uid_t" | "gid_t" => (bytes, signed) = (4, false),
            "short" => bytes = 2,
            "umode_t" => (bytes, signed) = (2, false),
            "char" => bytes = 1,
            "bool" | "_Bool" => (bytes, signed) = (1, false),
            _ => {}
        }
    }
    // In `unsigned char` and `unsigned short`, the match of `unsigned` gave the size of an int.
    if words.contains(&"char") {
        bytes = 1;
    } else if words.contains(&"short") {
        bytes = 2;
    }
    Type {
        // The target of a pointer to a pointer is a pointer.
        bytes: if stars > 1 { 8 } else { bytes },
        signed,
        pointer: stars > 0,
    }
}
