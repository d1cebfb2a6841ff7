//! .NET's diagnostics protocol, with which a process is made to write a perf map (.NET 8).
//!
//! ```text
//! /tmp/dotnet-diagnostic-7-93845-socket
//! DOTNET_IPC_V1\0  size (u16)  04 05  0000   03 00 00 00      process, EnablePerfMap: a perf map
//! DOTNET_IPC_V1\0  size (u16)  ff 00  0000                    server, OK
//! ```
//! Enabling writes the functions compiled before, too. Perf maps are then disabled, as they slow down compilation.
//! (dotnet/diagnostics: the design document "ipc-protocol")

use std::io::{self, Read, Write};
use std::time::Instant;

use super::process::{Process, other};

const MAGIC: &[u8; 14] = b"DOTNET_IPC_V1\0";
const HEADER_BYTES: usize = 20;
const PROCESS: u8 = 0x04;
const ENABLE_PERF_MAP: u8 = 0x05;
const DISABLE_PERF_MAP: u8 = 0x06;
const SERVER: u8 = 0xff;
const OK: u8 = 0x00;
/// A perf map without a jitdump.
const ONLY_PERF_MAP: u32 = 3;

/// Makes the process write `/tmp/perf-PID.map`.
pub(super) fn write_map(process: &Process, until: Instant) -> io::Result<()> {
    let folder = process.temporary()?;
    let before = format!("dotnet-diagnostic-{}-", process.inside);
    let is_it = |name: &String| name.starts_with(&before) && name.ends_with("-socket");
    let Some(socket) = folder.names().into_iter().find(is_it) else {
        return Err(other("the process has no diagnostics socket"));
    };
    // Each connection carries one command.
    let command = |command, payload: &[u8]| -> io::Result<bool> {
        let mut stream = process.connect(&folder, &socket, until)?;
        stream.write_all(&message(command, payload))?;
        answer(&mut stream)
    };
    if !command(ENABLE_PERF_MAP, &ONLY_PERF_MAP.to_le_bytes())? {
        return Err(other(".NET 8 or later is required"));
    }
    command(DISABLE_PERF_MAP, &[])?;
    Ok(())
}

fn message(command: u8, payload: &[u8]) -> Vec<u8> {
    let mut message = MAGIC.to_vec();
    message.extend(((HEADER_BYTES + payload.len()) as u16).to_le_bytes());
    message.extend([PROCESS, command, 0, 0]);
    message.extend(payload);
    message
}

/// Whether the process carried out the command.
fn answer(stream: &mut impl Read) -> io::Result<bool> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header)?;
    match header.starts_with(MAGIC) && header[16] == SERVER {
        true => Ok(header[17] == OK),
        false => Err(other("the answer is not of the diagnostics protocol")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_the_protocol() {
        let enable = message(ENABLE_PERF_MAP, &ONLY_PERF_MAP.to_le_bytes());
        let expected = b"DOTNET_IPC_V1\0\x18\x00\x04\x05\x00\x00\x03\x00\x00\x00";
        assert_eq!(enable, expected);
        let disable = message(DISABLE_PERF_MAP, &[]);
        assert_eq!(disable, b"DOTNET_IPC_V1\0\x14\x00\x04\x06\x00\x00");
    }

    #[test]
    fn answers() {
        let read = |bytes: &[u8]| answer(&mut &bytes[..]).ok();
        let ok = b"DOTNET_IPC_V1\0\x18\x00\xff\x00\x00\x00\x00\x00\x00\x00";
        assert_eq!(read(ok), Some(true));
        // An error has a number: 0x80131385, unknown command.
        let failed = b"DOTNET_IPC_V1\0\x18\x00\xff\xff\x00\x00\x85\x13\x13\x80";
        assert_eq!(read(failed), Some(false));
        assert_eq!(read(b"HTTP/1.1 400 Bad Request\r\n"), None);
        assert_eq!(read(&ok[..10]), None);
    }
}
