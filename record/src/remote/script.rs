//! Scripts for the shell of another host, which arrive on its stdin.
//!
//! ```text
//! ssh HOST "exec sh -c 'eval \"$(dd bs=1 count=1234 2>/dev/null)\"'"      stdin: 1234 bytes of script, then its input
//! ```
//! sshd gives a command line to the user's login shell, which may be any: fish and csh read quotes differently. So the command line is
//! the same for all scripts, and has only what every shell reads the same way. `dd` takes single bytes, so that it leaves the rest of stdin.

use std::ffi::OsStr;

use perfquet_cli::push_shell_word;

/// A script of POSIX sh.
pub(super) struct Script(Vec<u8>);

impl Script {
    /// Creates a script that begins with these variables and positional parameters.
    pub(super) fn new<'w>(
        variables: &[(&str, &OsStr)],
        words: impl IntoIterator<Item = &'w OsStr>,
        body: &str,
    ) -> Script {
        let mut text = Vec::new();
        for (name, value) in variables {
            text.extend_from_slice(name.as_bytes());
            text.push(b'=');
            push_shell_word(&mut text, value);
            text.push(b'\n');
        }
        text.extend_from_slice(b"set --");
        for word in words {
            text.push(b' ');
            push_shell_word(&mut text, word);
        }
        text.push(b'\n');
        text.extend_from_slice(body.as_bytes());
        Script(text)
    }

    /// Returns the command line that runs the script.
    pub(super) fn command_line(&self) -> String {
        let bytes = self.0.len();
        format!("exec sh -c 'eval \"$(dd bs=1 count={bytes} 2>/dev/null)\"'")
    }

    /// Returns the bytes to write to stdin first.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::io::Write;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::ffi::OsStringExt;
    use std::process::{Command, Stdio};

    use super::*;

    /// What the script prints if `shell` is the login shell, and `input` follows the script.
    fn output(shell: &str, script: &Script, input: &[u8]) -> Vec<u8> {
        let mut child = Command::new(shell)
            .args(["-c", &script.command_line()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut stdin = child.stdin.take().expect("piped");
        stdin.write_all(script.bytes()).expect("it reads");
        stdin.write_all(input).expect("it reads");
        drop(stdin);
        child.wait_with_output().expect("it ends").stdout
    }

    #[test]
    fn every_word_arrives_as_it_is() {
        let every_byte = OsString::from_vec((1..=255).collect());
        let words: Vec<&OsStr> = [
            "",
            " ",
            "a b",
            "a'b''",
            "\"$HOME\"",
            "`id`",
            "$(id)",
            "\\",
            "\\'",
            "a\nb\n",
            "*",
            "~",
            "!!",
            "%s",
            "-n",
            "é",
        ]
        .map(OsStr::new)
        .into_iter()
        .chain([every_byte.as_os_str()])
        .collect();
        let body = "printf '%s\\0' \"$first\" \"$@\"; cat";
        let script = Script::new(&[("first", &every_byte)], words.iter().copied(), body);
        let mut expected = Vec::new();
        for word in [&every_byte.as_os_str()].into_iter().chain(&words) {
            expected.extend_from_slice(word.as_bytes());
            expected.push(0);
        }
        expected.extend_from_slice(b"the rest");
        for shell in ["sh", "bash"] {
            let output = output(shell, &script, b"the rest");
            assert_eq!(
                output.escape_ascii().to_string(),
                expected.escape_ascii().to_string(),
                "{shell}"
            );
        }
    }
}
