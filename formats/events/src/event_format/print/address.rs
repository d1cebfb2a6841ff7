//! The kernel's extensions of `%p` that print bytes: network addresses, UUIDs, bitmaps
//! (Documentation/core-api/printk-formats.rst).
//!
//! ```text
//! %pI4 192.168.0.1   %pI6c fe80::1   %pISpc [fe80::1]:80   %pM 00:11:22:33:44:55   %*ph 00 11 22
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};

use super::printf::Pointer;
use crate::bytes::Endian;

/// Prints `bytes` in the format of `pointer`; if there are too few, prints them as plain bytes.
pub(super) fn print(
    pointer: Pointer,
    bytes: &[u8],
    width: Option<usize>,
    big_endian: bool,
    out: &mut Vec<u8>,
) {
    let printed = match pointer {
        Pointer::Mac { between, reverse } => mac(bytes, between, reverse, out),
        Pointer::Ip4 { zeros, reverse } => ip4(bytes, zeros, reverse && !big_endian, out),
        Pointer::Ip6 { colons, short } => ip6(bytes, colons, short, out),
        Pointer::Socket { port, short } => socket(bytes, port, short, big_endian, out),
        Pointer::Uuid { swapped, upper } => uuid(bytes, swapped, upper, out),
        Pointer::Bytes { between } => {
            let shown = width.unwrap_or(1).min(64).min(bytes.len());
            hex(bytes.get(..shown).unwrap_or_default(), between, out);
            Some(())
        }
        Pointer::Bitmap { list } => {
            let shown = width
                .map_or(bytes.len(), |bits| bits.div_ceil(8))
                .min(bytes.len());
            let bytes = bytes.get(..shown).unwrap_or_default();
            if list {
                ranges(bytes, big_endian, out);
            } else {
                bitmask(bytes, big_endian, out);
            }
            Some(())
        }
        Pointer::Plain | Pointer::Symbol { .. } => None,
    };
    if printed.is_none() {
        hex(bytes, " ", out);
    }
}

/// Prints two hexadecimal digits per byte.
pub(super) fn hex(bytes: &[u8], between: &str, out: &mut Vec<u8>) {
    for (index, byte) in bytes.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(between.as_bytes());
        }
        out.extend_from_slice(format!("{byte:02x}").as_bytes());
    }
}

fn mac(bytes: &[u8], between: &str, reverse: bool, out: &mut Vec<u8>) -> Option<()> {
    let mut address: [u8; 6] = *bytes.first_chunk()?;
    if reverse {
        address.reverse();
    }
    hex(&address, between, out);
    Some(())
}

fn ip4(bytes: &[u8], zeros: bool, reverse: bool, out: &mut Vec<u8>) -> Option<()> {
    let mut address: [u8; 4] = *bytes.first_chunk()?;
    if reverse {
        address.reverse();
    }
    let [a, b, c, d] = address;
    let text = if zeros {
        format!("{a:03}.{b:03}.{c:03}.{d:03}")
    } else {
        format!("{a}.{b}.{c}.{d}")
    };
    out.extend_from_slice(text.as_bytes());
    Some(())
}

fn ip6(bytes: &[u8], colons: bool, short: bool, out: &mut Vec<u8>) -> Option<()> {
    let address: [u8; 16] = *bytes.first_chunk()?;
    let words = Ipv6Addr::from(address).segments();
    let text = match (short, colons) {
        (true, _) => shortened(words),
        (false, true) => words.map(|word| format!("{word:04x}")).join(":"),
        (false, false) => words.map(|word| format!("{word:04x}")).concat(),
    };
    out.extend_from_slice(text.as_bytes());
    Some(())
}

/// Shortens an IPv6 address like `ip6_compressed_string` of lib/vsprintf.c: the longest run of at least two zeros is
/// omitted, the first one among equals; mapped and ISATAP addresses end in IPv4 notation.
fn shortened(words: [u16; 8]) -> String {
    let [.., high, low] = words;
    let mapped = words.starts_with(&[0, 0, 0, 0, 0, 0xffff]);
    let isatap = matches!(words, [_, _, _, _, 0 | 0x0200, 0x5efe, _, _]);
    let shown = words
        .get(..if mapped || isatap { 6 } else { 8 })
        .unwrap_or_default();
    let (mut run_start, mut run_length) = (0, 1);
    for start in 0..shown.len() {
        let zeros = shown
            .iter()
            .skip(start)
            .take_while(|word| **word == 0)
            .count();
        if zeros > run_length {
            (run_start, run_length) = (start, zeros);
        }
    }
    let hex = |words: &[u16]| {
        let words: Vec<String> = words.iter().map(|word| format!("{word:x}")).collect();
        words.join(":")
    };
    let mut text = if run_length > 1 {
        let before = shown.get(..run_start).unwrap_or_default();
        let after = shown.get(run_start + run_length..).unwrap_or_default();
        format!("{}::{}", hex(before), hex(after))
    } else {
        hex(shown)
    };
    if mapped || isatap {
        if !text.ends_with(':') {
            text.push(':');
        }
        let bits = (u32::from(high) << 16) | u32::from(low);
        text.push_str(&Ipv4Addr::from(bits).to_string());
    }
    text
}

/// Prints a `struct sockaddr_in` or `sockaddr_in6`. The family has the recorder's byte order, the port has network
/// order.
fn socket(
    bytes: &[u8],
    port: bool,
    short: bool,
    big_endian: bool,
    out: &mut Vec<u8>,
) -> Option<()> {
    const AF_INET: u16 = 2;
    const AF_INET6: u16 = 10;
    let family = Endian::of(big_endian).u16_at(bytes, 0)?;
    let number = Endian::Big.u16_at(bytes, 2)?;
    match family {
        AF_INET => {
            ip4(bytes.get(4..)?, false, false, out)?;
            if port {
                out.extend_from_slice(format!(":{number}").as_bytes());
            }
        }
        AF_INET6 => {
            let address = bytes.get(8..).filter(|rest| rest.len() >= 16)?;
            if port {
                out.push(b'[');
            }
            ip6(address, true, short, out)?;
            if port {
                out.extend_from_slice(format!("]:{number}").as_bytes());
            }
        }
        // Other families print nothing, as in perf.
        _ => {}
    }
    Some(())
}

fn uuid(bytes: &[u8], swapped: bool, upper: bool, out: &mut Vec<u8>) -> Option<()> {
    let mut id: [u8; 16] = *bytes.first_chunk()?;
    if swapped {
        let [a, b, c, d, e, f, g, h, ..] = id;
        for (to, from) in id.iter_mut().zip([d, c, b, a, f, e, h, g]) {
            *to = from;
        }
    }
    for (index, byte) in id.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        let digits = if upper {
            format!("{byte:02X}")
        } else {
            format!("{byte:02x}")
        };
        out.extend_from_slice(digits.as_bytes());
    }
    Some(())
}

/// Prints a bitmap in hexadecimal, highest bit first, with a comma every 32 bits.
pub(super) fn bitmask(bytes: &[u8], big_endian: bool, out: &mut Vec<u8>) {
    let count = bytes.len();
    for index in 0..count {
        // Most significant byte first.
        let weight = count - 1 - index;
        let place = if big_endian { index } else { weight };
        let byte = bytes.get(place).copied().unwrap_or_default();
        out.extend_from_slice(format!("{byte:02x}").as_bytes());
        if weight > 0 && weight.is_multiple_of(4) {
            out.push(b',');
        }
    }
}

/// `0-3,5`
pub(super) fn ranges(bytes: &[u8], big_endian: bool, out: &mut Vec<u8>) {
    let count = bytes.len();
    let bit = |number: usize| {
        let place = if big_endian {
            count - 1 - number / 8
        } else {
            number / 8
        };
        bytes
            .get(place)
            .is_some_and(|byte| byte >> (number % 8) & 1 == 1)
    };
    let mut first = true;
    let mut number = 0;
    while number < count * 8 {
        if !bit(number) {
            number += 1;
            continue;
        }
        let start = number;
        while number < count * 8 && bit(number) {
            number += 1;
        }
        let text = match number - start {
            1 => format!("{start}"),
            _ => format!("{start}-{}", number - 1),
        };
        if !first {
            out.push(b',');
        }
        first = false;
        out.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pointer: Pointer, bytes: &[u8], expected: &str) {
        let mut out = Vec::new();
        print(pointer, bytes, None, false, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn addresses() {
        let mut link_local = [0; 16];
        (link_local[0], link_local[1], link_local[15]) = (0xfe, 0x80, 1);
        let mut mapped = [0; 16];
        mapped[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 1]);
        let short = Pointer::Ip6 {
            colons: true,
            short: true,
        };
        check(short, &link_local, "fe80::1");
        check(short, &mapped, "::ffff:10.0.0.1");
        check(short, &[0; 16], "::");
        check(
            Pointer::Ip6 {
                colons: true,
                short: false,
            },
            &link_local,
            "fe80:0000:0000:0000:0000:0000:0000:0001",
        );
        let plain = Pointer::Ip4 {
            zeros: false,
            reverse: false,
        };
        check(plain, &[192, 168, 0, 1], "192.168.0.1");
        check(plain, &[192, 168], "c0 a8");
        let socket = Pointer::Socket {
            port: true,
            short: true,
        };
        check(socket, &[2, 0, 0, 80, 127, 0, 0, 1, 0, 0], "127.0.0.1:80");
        let mut socket6 = vec![10, 0, 1, 187, 0, 0, 0, 0];
        socket6.extend(link_local);
        check(socket, &socket6, "[fe80::1]:443");
        check(
            Pointer::Mac {
                between: ":",
                reverse: false,
            },
            &[0, 1, 2, 3, 4, 255],
            "00:01:02:03:04:ff",
        );
        let id: Vec<u8> = (0..16).collect();
        check(
            Pointer::Uuid {
                swapped: false,
                upper: false,
            },
            &id,
            "00010203-0405-0607-0809-0a0b0c0d0e0f",
        );
        check(
            Pointer::Uuid {
                swapped: true,
                upper: true,
            },
            &id,
            "03020100-0504-0706-0809-0A0B0C0D0E0F",
        );
    }

    #[test]
    fn bitmaps() {
        check(
            Pointer::Bitmap { list: true },
            &[0b0010_1111, 0, 0x80],
            "0-3,5,23",
        );
        check(
            Pointer::Bitmap { list: false },
            &[1, 2, 3, 4, 5, 6, 7, 8],
            "08070605,04030201",
        );
        let mut out = Vec::new();
        ranges(&[0x80, 1], true, &mut out);
        assert_eq!(out, b"0,15");
    }
}
