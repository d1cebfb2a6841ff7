//! Recognizes uftrace's directories, archives of them, and the texts of its commands.

use perfquet_events::Guess;
use perfquet_events::bytes::Endian;

use super::info::MAGIC;
use super::record::Record;
use super::{dump, replay};
use crate::lines::unsigned;
use crate::tar;

/// The file `info`, an archive with it or with files named like those of uftrace, or a text.
pub(super) fn sniff(head: &[u8]) -> Guess {
    if head.starts_with(MAGIC) || dump::is_dump(head) || replay::is_replay(head) {
        return Guess::Certain;
    }
    if replay::other_text(head).is_some() {
        return Guess::Likely;
    }
    if !tar::is_tar(head) {
        return Guess::No;
    }
    let (members, _) = tar::members(head);
    let is_ours = |member: &tar::Member| {
        let base = member.name.rsplit('/').next().unwrap_or_default();
        let bytes = head.get(member.bytes.clone()).unwrap_or_default();
        match base {
            "info" => bytes.starts_with(MAGIC),
            "task.txt" => bytes.starts_with(b"SESS timestamp="),
            "default.opts" => true,
            _ if base.starts_with("sid-") => base.ends_with(".map"),
            // A task's file, named after its thread.
            _ => {
                let orders = [Endian::Little, Endian::Big];
                let is_record = |endian| Record::at(bytes, 0, endian).is_some();
                let tid = base.strip_suffix(".dat");
                tid.is_some_and(|tid| unsigned(tid.as_bytes()).is_some())
                    && orders.into_iter().any(is_record)
            }
        }
    };
    match members.iter().any(is_ours) {
        true => Guess::Certain,
        false => Guess::No,
    }
}
