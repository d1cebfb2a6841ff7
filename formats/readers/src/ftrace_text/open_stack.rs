//! A stack while its lines are read.

use perfquet_events::event::NamedFrame;

use perfquet_events::scan::trim;

use super::head::Head;

/// A stack whose frames are being read.
pub(super) struct OpenStack<'a> {
    pub(super) head: Head<'a>,
    pub(super) is_user: bool,
    pub(super) frames: Vec<NamedFrame<'a>>,
}

/// Whether a stack follows: true for a user stack; and the part after.
pub(super) fn start(payload: &[u8]) -> Option<(bool, &[u8])> {
    const STARTS: [(&[u8], bool); 6] = [
        (b"<stack trace>", false),
        (b"<stack trace >", false),
        (b"<user stack trace>", true),
        (b"<user stack trace >", true),
        (b"kernel_stack:", false),
        (b"user_stack:", true),
    ];
    STARTS.iter().find_map(|(start, is_user)| {
        let rest = payload.strip_prefix(*start)?;
        Some((*is_user, trim(rest)))
    })
}
