//! Keys of the terminal, without Enter.

#![expect(unsafe_code, reason = "settings of a terminal")]

use std::mem::MaybeUninit;

/// A terminal whose keys are read one by one; restored when this is dropped.
pub(crate) struct Keyboard {
    before: libc::termios,
}

impl Keyboard {
    /// Takes the keys of stdin; `None` if it is no terminal, or that of a job in the background.
    pub(crate) fn open() -> Option<Keyboard> {
        if !is_ours() {
            return None;
        }
        let mut before = MaybeUninit::<libc::termios>::uninit();
        // SAFETY: the kernel writes the settings of stdin.
        if unsafe { libc::tcgetattr(libc::STDIN_FILENO, before.as_mut_ptr()) } != 0 {
            return None;
        }
        // SAFETY: the call succeeded.
        let before = unsafe { before.assume_init() };
        let mut settings = before;
        // Signals (Ctrl-C, Ctrl-Z) stay.
        settings.c_lflag &= !(libc::ICANON | libc::ECHO);
        settings.c_cc[libc::VMIN] = 0;
        settings.c_cc[libc::VTIME] = 0;
        set(&settings).then_some(Keyboard { before })
    }

    /// Whether one of these keys was pressed since the last call.
    pub(crate) fn is_pressed(&self, keys: &[u8]) -> bool {
        // A job in the background would be stopped by reading.
        if !is_ours() {
            return false;
        }
        let mut typed = [0u8; 64];
        // SAFETY: the kernel writes at most as many bytes as there are. With VMIN 0 it does not wait.
        let count =
            unsafe { libc::read(libc::STDIN_FILENO, typed.as_mut_ptr().cast(), typed.len()) };
        let count = usize::try_from(count).unwrap_or(0);
        typed[..count].iter().any(|key| keys.contains(key))
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        if is_ours() {
            set(&self.before);
        }
    }
}

fn set(settings: &libc::termios) -> bool {
    // SAFETY: reads the settings.
    unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, settings) == 0 }
}

/// Whether stdin is a terminal whose foreground job this process belongs to.
fn is_ours() -> bool {
    // SAFETY: no addresses are passed.
    unsafe { libc::tcgetpgrp(libc::STDIN_FILENO) == libc::getpgrp() }
}
