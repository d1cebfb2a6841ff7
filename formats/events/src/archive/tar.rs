//! Files of a tar archive, without unpacking it.
//!
//! ```text
//! name[100] mode[8] uid[8] gid[8] size[12] mtime[12] checksum[8] type link[100] "ustar\0" … prefix[155], then the bytes, in blocks of 512
//! ```
//! Read are POSIX' ustar and pax, and GNU's long names.

use std::ops::Range;

use super::{MEMBERS_MAX, Member, Method, name_of};

const BLOCK: usize = 512;

/// Whether these are the first bytes of an archive.
pub(super) fn is_tar(head: &[u8]) -> bool {
    head.get(257..262) == Some(b"ustar") && head.first() != Some(&0)
}

/// All regular files, and the offset at which the archive ends too early.
pub(super) fn members(archive: &[u8]) -> (Vec<Member>, Option<usize>) {
    let mut members = Vec::new();
    let mut long_name = None;
    let mut at = 0;
    while let Some(head) = archive.get(at..at + BLOCK) {
        if head.iter().all(|&byte| byte == 0) {
            return (members, None);
        }
        if !is_tar(head) {
            return (members, Some(at));
        }
        let field = |range: Range<usize>| head.get(range).unwrap_or_default();
        let start = at + BLOCK;
        let end = number(field(124..136)).and_then(|size| start.checked_add(size));
        let Some(end) = end else {
            return (members, Some(at));
        };
        let bytes = start..end.min(archive.len());
        let content = archive.get(bytes.clone()).unwrap_or_default();
        match head.get(156) {
            Some(b'L') => long_name = Some(before_nul(content).to_vec()),
            Some(b'x') => long_name = pax_path(content).or(long_name),
            Some(b'0' | 0 | b'7') => {
                let name = long_name.take().unwrap_or_else(|| {
                    let (name, prefix) = (before_nul(field(0..100)), before_nul(field(345..500)));
                    match (prefix, field(257..263)) {
                        (b"", _) | (_, b"ustar ") => name.to_vec(),
                        (prefix, _) => [prefix, b"/", name].concat(),
                    }
                });
                if members.len() >= MEMBERS_MAX {
                    return (members, Some(at));
                }
                members.push(Member {
                    name: name_of(&name),
                    bytes,
                    method: Method::Stored,
                    check: None,
                });
            }
            _ => long_name = None,
        }
        if end > archive.len() {
            return (members, Some(at));
        }
        at = end.next_multiple_of(BLOCK);
    }
    // Without the two empty blocks at the end.
    (members, (at < archive.len()).then_some(at))
}

fn before_nul(bytes: &[u8]) -> &[u8] {
    crate::bytes::before_nul(bytes)
}

/// Octal digits, or GNU's binary number after a byte 0x80.
fn number(field: &[u8]) -> Option<usize> {
    if let Some((0x80, rest)) = field.split_first() {
        let bytes = rest.get(rest.len().checked_sub(8)?..)?;
        return usize::try_from(crate::bytes::Endian::Big.unsigned(bytes)).ok();
    }
    let digits = field.iter().filter(|byte| !matches!(byte, 0 | b' '));
    digits.into_iter().try_fold(0_usize, |value, byte| {
        let digit = char::from(*byte).to_digit(8)?;
        value.checked_mul(8)?.checked_add(digit as usize)
    })
}

/// `30 path=long/name\n`
fn pax_path(content: &[u8]) -> Option<Vec<u8>> {
    let mut lines = content.split(|&byte| byte == b'\n');
    lines.find_map(|line| {
        let space = line.iter().position(|&byte| byte == b' ')?;
        line.get(space + 1..)?
            .strip_prefix(b"path=")
            .map(<[u8]>::to_vec)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A head and its content.
    fn member(name: &[u8], kind: u8, content: &[u8]) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        block[..name.len()].copy_from_slice(name);
        let size = format!("{:011o}\0", content.len());
        block[124..136].copy_from_slice(size.as_bytes());
        block[156] = kind;
        block[257..265].copy_from_slice(b"ustar\x0000");
        block.extend_from_slice(content);
        block.resize(block.len().next_multiple_of(BLOCK), 0);
        block
    }

    #[test]
    fn names_of_all_kinds() {
        let long = "d/".repeat(80) + "metadata";
        let pax = format!("{} path={long}\n", long.len() + 10);
        let archive = [
            member(b"a/", b'5', b""),
            member(b"a/metadata", b'0', b"text"),
            member(b"././@LongLink", b'L', long.as_bytes()),
            member(b"cut", b'0', b"1"),
            member(b"pax", b'x', pax.as_bytes()),
            member(b"cut", b'0', b"22"),
            vec![0; 2 * BLOCK],
        ]
        .concat();
        let (found, cut) = members(&archive);
        let found: Vec<_> = found
            .iter()
            .map(|member| (member.name.as_str(), &archive[member.bytes.clone()]))
            .collect();
        let expected: [(&str, &[u8]); 3] = [("a/metadata", b"text"), (&long, b"1"), (&long, b"22")];
        assert_eq!((found.as_slice(), cut), (&expected[..], None));
        for length in 0..archive.len() {
            members(&archive[..length]); // must not panic
        }
        let (found, cut) = members(&archive[..BLOCK * 3 - 1 - 508]);
        assert_eq!((found[0].bytes.len(), cut), (3, Some(BLOCK)));
    }
}
