//! Checks walks: each stack walked in the kernel is compared with the frames of a copy, recorded at the same moment and unwound in
//! user space with the rules of the file itself, not with the tables that the kernel has.

use perfquet_events::bytes::{Cursor, Endian};
use perfquet_trace::count::{counted, grouped};
use perfquet_trace::symbols::Unwound;

use super::sample::{self, WalkHead};
use super::spaces::Spaces;

/// Stacks with differences that are logged.
const LOGGED: u64 = 20;

/// Numbers of compared stacks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CheckCounts {
    /// With the same frames.
    equal: u64,
    /// With the same frames, as far as the copy goes.
    copy_ended: u64,
    /// With the same frames, as far as the walk goes.
    walk_ended: u64,
    differing: u64,
}

/// How the frames of a walk and of a copy compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compared {
    Equal,
    CopyEnded,
    WalkEnded,
    /// From this frame on, counted from the innermost one.
    Different(usize),
}

impl CheckCounts {
    /// Number of compared stacks.
    pub(super) fn all(&self) -> u64 {
        self.equal + self.copy_ended + self.walk_ended + self.differing
    }

    /// Compares the addresses of a walk with those of a copy.
    pub(super) fn compare(
        &mut self,
        (walk, is_complete): (&[u64], bool),
        copy: &[u8],
        pid: i32,
        spaces: &mut Spaces,
    ) {
        let mut addresses = Vec::new();
        let Some(unwound) = unwind(copy, pid, spaces, &mut addresses) else {
            return;
        };
        let ends = (is_complete, unwound == Unwound::Complete);
        match compared(walk, &addresses, ends) {
            Compared::Equal => self.equal += 1,
            Compared::CopyEnded => self.copy_ended += 1,
            Compared::WalkEnded => self.walk_ended += 1,
            Compared::Different(frame) => {
                self.differing += 1;
                if self.differing <= LOGGED {
                    log::info!(
                        "a stack of process {pid} differs at frame {frame}: walked {walk:x?}, copied {addresses:x?} ({unwound:?})"
                    );
                }
            }
        }
    }

    /// Formats the counts for the trace; empty without any.
    pub(super) fn text(&self) -> String {
        match self.all() {
            0 => String::new(),
            all => format!(
                "; compared with copies {all}: {} equal, {} equal as far as the copy goes, {} as far as the walk goes, {} different",
                self.equal, self.copy_ended, self.walk_ended, self.differing
            ),
        }
    }

    /// Returns a message about the result.
    pub(super) fn sentence(&self) -> Option<String> {
        let as_far = self.copy_ended + self.walk_ended;
        let mut text = format!(
            "{} compared with copies: {} different",
            counted(self.all(), "stack"),
            grouped(self.differing)
        );
        if as_far > 0 {
            text += &format!(
                ", {} equal up to where one of the two ends",
                grouped(as_far)
            );
        }
        (self.all() > 0).then_some(text)
    }
}

/// Unwinds a copy; `None` if its record is damaged.
fn unwind(copy: &[u8], pid: i32, spaces: &mut Spaces, addresses: &mut Vec<u64>) -> Option<Unwound> {
    let mut cursor = Cursor::new(copy, 0, Endian::Little);
    let head = WalkHead::read(&mut cursor)?;
    let copy = sample::copy_of_walk(&mut cursor, head.count)?;
    let registers = copy.registers();
    Some(spaces.unwind_parts(pid, &registers, copy.memory, addresses))
}

/// `is_whole` says of the walk and of the copy whether they reached the start of the thread.
fn compared(walk: &[u64], copy: &[u64], is_whole: (bool, bool)) -> Compared {
    let same = walk
        .iter()
        .zip(copy)
        .take_while(|(one, other)| one == other);
    let same = same.count();
    match (walk.len() == same, copy.len() == same, is_whole) {
        (true, true, _) => Compared::Equal,
        (false, true, (_, false)) => Compared::CopyEnded,
        (true, false, (false, _)) => Compared::WalkEnded,
        _ => Compared::Different(same),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_that_ended_early_is_compared_up_to_there() {
        use Compared::{CopyEnded, Different, Equal, WalkEnded};
        assert_eq!(compared(&[1, 2, 3], &[1, 2, 3], (true, true)), Equal);
        assert_eq!(compared(&[1, 2, 3], &[1, 2], (true, false)), CopyEnded);
        assert_eq!(compared(&[1, 2], &[1, 2, 3], (false, true)), WalkEnded);
        assert_eq!(compared(&[1, 2, 3], &[1, 2], (true, true)), Different(2));
        assert_eq!(compared(&[1, 2], &[1, 2, 3], (true, true)), Different(2));
        assert_eq!(compared(&[1, 5, 3], &[1, 2], (true, false)), Different(1));
        assert_eq!(compared(&[], &[1], (true, true)), Different(0));
    }

    #[test]
    fn the_sentence_counts_what_was_compared() {
        assert_eq!(CheckCounts::default().sentence(), None);
        let counts = CheckCounts {
            equal: 1200,
            copy_ended: 3,
            walk_ended: 1,
            differing: 2,
        };
        assert_eq!(
            counts.sentence().as_deref(),
            Some(
                "1,206 stacks compared with copies: 2 different, 4 equal up to where one of the two ends"
            )
        );
    }
}
