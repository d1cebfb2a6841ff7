//! Zip archives of all forms, and hostile ones.

use std::io::{Read, Write};

use proptest::prelude::*;

use super::*;

/// A file to be written.
struct Content {
    name: &'static str,
    method: u16,
    flags: u16,
    bytes: Vec<u8>,
    /// External attributes.
    attributes: u32,
    is_64: bool,
}

impl Content {
    fn of(name: &'static str, method: u16, bytes: &[u8]) -> Content {
        Content {
            name,
            method,
            flags: 0,
            bytes: bytes.to_vec(),
            attributes: 0,
            is_64: false,
        }
    }
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn crc_of(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// An archive with 64-bit fields where wanted.
fn archive(contents: &[Content]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for content in contents {
        let offset = out.len() as u32;
        let stored = match content.method {
            8 => deflate(&content.bytes),
            93 => zstd::encode_all(&content.bytes[..], 1).unwrap(),
            _ => content.bytes.clone(),
        };
        let crc = crc_of(&content.bytes);
        let described = content.flags & 8 != 0;
        let sizes = [stored.len() as u32, content.bytes.len() as u32];
        let head = |sizes: [u32; 2], crc: u32, is_64: bool| {
            let sizes = if is_64 { [u32::MAX; 2] } else { sizes };
            let extra = if is_64 { 20u16 } else { 0 };
            [
                &content.flags.to_le_bytes()[..],
                &content.method.to_le_bytes(),
                &[0; 4],
                &crc.to_le_bytes(),
                &sizes[0].to_le_bytes(),
                &sizes[1].to_le_bytes(),
                &(content.name.len() as u16).to_le_bytes(),
                &extra.to_le_bytes(),
            ]
            .concat()
        };
        let mut extra = Vec::new();
        if content.is_64 {
            extra.extend([1, 0, 16, 0]);
            extra.extend((content.bytes.len() as u64).to_le_bytes());
            extra.extend((stored.len() as u64).to_le_bytes());
        }
        let local = match described {
            true => head([0; 2], 0, false),
            false => head(sizes, crc, content.is_64),
        };
        out.extend([b"PK\x03\x04\x14\x00", &local[..], content.name.as_bytes()].concat());
        if !described {
            out.extend(&extra);
        }
        out.extend(&stored);
        if described {
            out.extend(b"PK\x07\x08");
            out.extend([crc, sizes[0], sizes[1]].map(u32::to_le_bytes).concat());
        }
        let central = head(sizes, crc, content.is_64);
        directory.extend([b"PK\x01\x02\x14\x03\x14\x00", &central[..], &[0; 6]].concat());
        directory.extend(content.attributes.to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(content.name.as_bytes());
        directory.extend(&extra);
    }
    let (offset, size) = (out.len() as u64, directory.len() as u64);
    let count = contents.len() as u64;
    out.extend(directory);
    let mut numbers = (count as u16, size as u32, offset as u32);
    if contents.iter().any(|content| content.is_64) {
        let record = out.len() as u64;
        out.extend(b"PK\x06\x06");
        out.extend(44u64.to_le_bytes());
        out.extend([0; 12]);
        out.extend([count, count, size, offset].map(u64::to_le_bytes).concat());
        out.extend(b"PK\x06\x07\0\0\0\0");
        out.extend(record.to_le_bytes());
        out.extend(1u32.to_le_bytes());
        numbers = (u16::MAX, u32::MAX, u32::MAX);
    }
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend([numbers.0.to_le_bytes(), numbers.0.to_le_bytes()].concat());
    out.extend([numbers.1.to_le_bytes(), numbers.2.to_le_bytes()].concat());
    out.extend([0; 2]);
    out
}

/// Files with their content or the error at its end, then what cannot be read.
fn listed(bytes: &[u8]) -> String {
    let archive = Archive::of(bytes);
    let mut text = String::new();
    for member in archive.members() {
        let mut content = Vec::new();
        let read = member.read(bytes[member.bytes.clone()].to_vec());
        let error = read.and_then(|mut reader| reader.read_to_end(&mut content));
        let content = String::from_utf8_lossy(&content);
        text += &format!("{} {content:?}", member.name);
        if let Err(error) = error {
            text += &format!(" {error}");
        }
        text += "\n";
    }
    for problem in archive.problems() {
        text += &format!("{}: {}\n", problem.offset, problem.message);
    }
    text
}

fn usual() -> Vec<Content> {
    let mut described = Content::of("d/streamed", 8, b"streamed");
    described.flags = 8;
    let mut large = Content::of("d/large", 8, b"large");
    large.is_64 = true;
    vec![
        Content::of("d/", 0, b""),
        Content::of("d/stored", 0, b"stored"),
        Content::of("./d/deflated", 8, b"deflated"),
        Content::of("d/zstd", 93, b"zstd"),
        described,
        large,
        Content::of("d\\windows", 8, b"windows"),
        Content::of("d/empty", 0, b""),
    ]
}

const USUAL: &str = "d/deflated \"deflated\"\nd/empty \"\"\nd/large \"large\"\nd/stored \"stored\"\n\
                     d/streamed \"streamed\"\nd/windows \"windows\"\nd/zstd \"zstd\"\n";

#[test]
fn all_forms() {
    let bytes = archive(&usual());
    assert!(is_archive(&bytes));
    assert_eq!(listed(&bytes), USUAL);
    // A self-extracting archive, and one with a comment.
    let program = [b"#!/bin/sh\nexit\n", &bytes[..]].concat();
    assert_eq!(zip::members(&program).0.len(), 7);
    let mut small = archive(&usual()[..3]);
    let end = small.len();
    small[end - 2..].copy_from_slice(&[3, 0]);
    small.extend(b"abc");
    assert_eq!(
        listed(&small),
        "d/deflated \"deflated\"\nd/stored \"stored\"\n"
    );
    assert_eq!(listed(&archive(&[])), "");
}

#[test]
fn names_links_and_methods_that_are_not_read() {
    let mut link = Content::of("link", 0, b"/etc/passwd");
    link.attributes = 0o120_777 << 16;
    let mut secret = Content::of("secret", 8, b"secret");
    secret.flags = 1;
    let found = listed(&archive(&[
        Content::of("../outside", 0, b"a"),
        Content::of("/etc/passwd", 0, b"b"),
        link,
        secret,
        Content::of("bzip2", 12, b"c"),
        Content::of("twice", 0, b"first"),
        Content::of("twice", 0, b"second"),
    ]));
    assert_eq!(
        found,
        "etc/passwd \"b\"\ntwice \"first\"\n\
         128: \"secret\" is encrypted\n172: \"bzip2\" is compressed by an unsupported method (12)\n\
         40: \"../outside\" is outside of the archive\n283: \"twice\" is twice in the archive\n"
    );
}

/// Wrong sizes: the content is read up to the stated size.
#[test]
fn wrong_sizes_and_checksums() {
    let bytes = archive(&[Content::of("a", 8, b"aaaa")]);
    let directory = bytes
        .windows(4)
        .position(|window| window == b"PK\x01\x02")
        .unwrap();
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[directory + at] = byte;
        listed(&bytes)
    };
    assert_eq!(
        with(24, 3),
        "a \"aaa\" expected 3 bytes by the archive, found more\n"
    );
    assert_eq!(
        with(24, 9),
        "a \"aaaa\" expected 9 bytes by the archive, found 4\n"
    );
    assert_eq!(
        with(16, 0),
        "a \"aaaa\" its checksum is not that of the archive\n"
    );
    let place = format!("{directory}: \"a\" is not where the archive says\n");
    assert_eq!(with(23, 1), place);
    // A stored file has one size.
    let mut stored = archive(&[Content::of("a", 0, b"aaaa")]);
    let directory = stored
        .windows(4)
        .position(|window| window == b"PK\x01\x02")
        .unwrap();
    stored[directory + 24] = 200;
    assert_eq!(listed(&stored), "0: \"a\" has two sizes\n");
}

/// Two files of the directory with the same bytes: an archive with n of them would have n times its size.
#[test]
fn overlapping_files_are_refused() {
    let mut bytes = archive(&[Content::of("a", 0, b"aaaa"), Content::of("b", 0, b"bbbb")]);
    let second = bytes
        .windows(4)
        .rposition(|window| window == b"PK\x01\x02")
        .unwrap();
    bytes[second + 42..second + 46].fill(0);
    assert_eq!(
        listed(&bytes),
        "a \"aaaa\"\n0: \"b\" overlaps another file of the archive\n"
    );
}

/// Of a cut archive, the files before the cut are read, and part of the one with the cut.
#[test]
fn cut_archives() {
    let bytes = archive(&usual());
    let directory = bytes
        .windows(4)
        .position(|window| window == b"PK\x01\x02")
        .unwrap();
    let whole =
        format!("{USUAL}{directory}: the directory of the archive is cut: its files are read\n");
    assert_eq!(listed(&bytes[..bytes.len() - 50]), whole);
    let mut most = 0;
    for length in 0..directory {
        let found = listed(&bytes[..length]);
        let count = found.lines().filter(|line| line.contains(" \"")).count();
        assert!(count >= most || length < 40, "{length}: {found}");
        most = most.max(count.saturating_sub(1));
        assert!(
            length < 4 || found.contains("ends too early") || found.contains("no size"),
            "{length}: {found}"
        );
    }
    assert!(most >= 5);
}

proptest! {
    #[test]
    fn damaged_archives(at in 0..900_usize, byte: u8, more in 0..900_usize, number: u32, length in 0..1200_usize) {
        let mut bytes = archive(&usual());
        let most = bytes.len() - 4;
        bytes[at % most] = byte;
        bytes[more % most..more % most + 4].copy_from_slice(&number.to_le_bytes());
        bytes.truncate(length);
        listed(&bytes);
    }
}
