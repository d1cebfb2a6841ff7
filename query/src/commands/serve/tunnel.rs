//! `--ssh`: the server runs on another host, where the traces are; OpenSSH's client forwards its port.
//!
//! ```text
//! ssh -L 127.0.0.1:41234:127.0.0.1:41234 -- HOST "exec sh -c 'eval …'"      stdin: the script; its end ends the server there
//!     ◄── http://127.0.0.1:41234/?token=8f1c…
//! ```
//! Where the other host cannot listen on the port of this one, as where both are the same host, the second port is another one, and the server there is
//! told which one the browser uses.
//!
//! sshd gives a command line to the login shell, which may be any; so that line has no word of the user, and the traces
//! arrive on stdin, quoted for POSIX sh. `PERFQUET_SSH` replaces the command `ssh`, as for `perfquet-record --ssh`.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result, bail};
use perfquet_cli::push_shell_word;

use super::{Serve, browser};
use crate::render;

/// The variable with the command to use instead of `ssh`; a shell splits it into words.
const COMMAND: &str = "PERFQUET_SSH";
/// Ports that are tried: another program of the other host may use one.
const TRIES: usize = 3;
/// Letters of the first line of the server.
const MOST: u64 = 4096;
/// The server there ends with stdin, which ends with the connection or with this process.
const BODY: &str = "exec 3<&0\n\
    perfquet-query serve --no-browser \"$@\" </dev/null &\n\
    server=$!\n\
    (cat <&3 >/dev/null; kill $server 2>/dev/null) &\n\
    watch=$!\n\
    wait $server\n\
    status=$?\n\
    kill $watch 2>/dev/null\n\
    exit $status\n";

/// Serves the traces of another host until the connection ends.
pub(super) fn run(host: &str, serve: &Serve) -> Result<()> {
    let tries = if serve.port == 0 { TRIES } else { 2 };
    for attempt in 0..tries {
        let port = match serve.port {
            0 => free_port()?,
            port => port,
        };
        // The same port at both ends, unless that is taken there: always, where both are this host.
        let there = match attempt {
            0 if !is_this_host(host) => port,
            _ => free_port()?,
        };
        let (mut ssh, stdin, line) = start(host, (port, there), &serve.words(port, there))?;
        let Some(address) = address(&line, port) else {
            // Its end is that of the server there.
            drop(stdin);
            let status = ssh.wait();
            if !line.is_empty() {
                bail!("{host}: expected an address of perfquet-query, found {line:?}");
            }
            // 255: ssh itself failed, and has said why.
            if status.is_ok_and(|status| status.code() == Some(255)) && serve.port != 0 {
                break;
            }
            continue;
        };
        let mut out = render::stdout();
        writeln!(out, "{address}")?;
        out.flush()?;
        if !serve.no_browser
            && let Err(error) = browser::open(address)
        {
            say!("no browser was opened: {error:#}");
        }
        ssh.wait()?;
        drop(stdin);
        bail!("the connection to {host} ended");
    }
    bail!(
        "{host}: no server was started\nhint: make this command work: ssh {host} perfquet-query --version; or choose another --port"
    )
}

/// Whether a name is certainly that of this host; an alias of ssh_config may be, too.
fn is_this_host(host: &str) -> bool {
    let name = host.rsplit_once('@').map_or(host, |(_, name)| name);
    let own = own_name();
    name == "localhost"
        || name == "::1"
        || name.starts_with("127.")
        || own.is_some_and(|own| own == name)
}

/// The name of this host.
fn own_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim_end().to_owned())
}

/// A port of this host that is free now.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
    Ok(listener.local_addr()?.port())
}

/// Starts the client, and returns the first line that the other host wrote.
fn start(
    host: &str,
    (here, there): (u16, u16),
    words: &[OsString],
) -> Result<(Child, ChildStdin, String)> {
    let script = script(words);
    let mut ssh = Command::new("sh");
    let mut line = OsString::from("exec ");
    let own = std::env::var_os(COMMAND).filter(|command| !command.is_empty());
    line.push(own.unwrap_or_else(|| "ssh".into()));
    line.push(" \"$@\"");
    ssh.arg("-c").arg(line).arg("ssh");
    ssh.args(["-T", "-x", "-o", "ExitOnForwardFailure=yes"]);
    ssh.args(["-o", "RemoteCommand=none", "-o", "ServerAliveInterval=15"]);
    ssh.arg("-L")
        .arg(format!("127.0.0.1:{here}:127.0.0.1:{there}"));
    let count = script.len();
    let remote = format!("exec sh -c 'eval \"$(dd bs=1 count={count} 2>/dev/null)\"'");
    ssh.arg("--").arg(host).arg(remote);
    let mut child = ssh
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run sh")?;
    let mut stdin = child.stdin.take().context("no input of ssh")?;
    // Fails if there is no connection, which the output says, too.
    let _ = stdin.write_all(&script);
    let out = child.stdout.take().context("no output of ssh")?;
    let mut line = String::new();
    let mut out = BufReader::new(std::io::Read::take(out, MOST));
    out.read_line(&mut line)?;
    Ok((child, stdin, line.trim_end().to_owned()))
}

/// The script with its arguments.
fn script(words: &[OsString]) -> Vec<u8> {
    let mut text = b"set --".to_vec();
    for word in words {
        text.push(b' ');
        push_shell_word(&mut text, word);
    }
    text.push(b'\n');
    text.extend_from_slice(BODY.as_bytes());
    text
}

/// The address of a line, if it is that of a server on this port: the other host chooses nothing else that is opened here.
fn address(line: &str, port: u16) -> Option<&str> {
    let token = line.strip_prefix(&format!("http://127.0.0.1:{port}/?token="))?;
    let is_token = token.len() == 32 && token.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_token.then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_port_are_opened() {
        let token = "0123456789abcdef0123456789abcdef";
        let own = format!("http://127.0.0.1:7/?token={token}");
        assert_eq!(address(&own, 7), Some(own.as_str()));
        for other in [
            String::new(),
            format!("http://127.0.0.1:8/?token={token}"),
            format!("http://evil.example:7/?token={token}"),
            format!("http://127.0.0.1:7/?token={}'", &token[1..]),
            format!("{own}&x=y"),
            "file:///etc/passwd".to_owned(),
        ] {
            assert_eq!(address(&other, 7), None, "{other}");
        }
    }

    #[test]
    fn this_host_is_recognized() {
        let own = own_name().unwrap();
        for host in ["localhost", "me@localhost", "127.0.0.2", "::1", &own] {
            assert!(is_this_host(host), "{host}");
        }
        for host in ["localhost.example", "127", "me@other", ""] {
            assert!(!is_this_host(host), "{host}");
        }
    }

    #[test]
    fn words_are_quoted() {
        let words = ["--port=7", "--", "it's $(x).pqt"].map(OsString::from);
        let text = String::from_utf8(script(&words)).unwrap();
        assert!(
            text.starts_with("set -- '--port=7' '--' 'it'\\''s $(x).pqt'\n"),
            "{text}"
        );
    }
}
