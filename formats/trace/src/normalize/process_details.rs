//! Command lines, cgroups and namespaces of threads.
//!
//! ```text
//! Process { pid: 40, cmdline: "sh -c make" }     40 runs this
//! Fork { pid: 41, parent_pid: 40 }               41 runs it too
//! Comm { pid: 41, exec: true }                   41 runs something else, unknown so far; its cgroup is the same
//! Sample { tid: 42, cgroup: 7 }                  42 is in the cgroup with this ID
//! ```
//! What a process runs is found a moment after it began; until then it may have created others, which run it, too.

use std::sync::Arc;

use hashbrown::HashMap;
use perfquet_events::event::{Cgroup, ProcessState};

/// Maximum length of a command line or path.
const TEXT_BYTES: usize = 4096;
/// Maximum number of cgroups whose paths are kept.
const CGROUPS: usize = 1 << 16;
/// Maximum number of processes that wait for the command line of their creator.
const WAITING: usize = 1 << 16;
/// Maximum size of the texts of threads that have no row yet, before those that have ended get theirs.
const HELD_BYTES: usize = 16 << 20;

/// What is known of a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Details {
    pub(crate) cmdline: Option<Arc<[u8]>>,
    pub(crate) cgroup: Option<Arc<[u8]>>,
    /// As `pid:4026531836`.
    pub(crate) namespaces: Option<Arc<[Box<str>]>>,
    /// ID of the cgroup in the last sample.
    cgroup_id: Option<u64>,
    /// Whether it runs something other than the process that created it.
    has_executed: bool,
}

/// Details of all threads without a row, by the index of their lives.
#[derive(Debug, Default)]
pub(crate) struct DetailsOfThreads {
    known: HashMap<u32, Details>,
    cgroups: HashMap<u64, Arc<[u8]>>,
    /// The namespaces that were added last: most threads have the same.
    last_namespaces: Option<Arc<[Box<str>]>>,
    /// By creator, processes created before its command line was known.
    waiting: HashMap<u32, Vec<u32>>,
    waiting_count: usize,
    /// Size of the texts that were added since threads were last written.
    added_bytes: usize,
}

impl DetailsOfThreads {
    /// Adds what was found about a process, whose first thread is `index`.
    pub(super) fn process(&mut self, index: u32, state: &ProcessState<'_>) {
        if state.cmdline.is_none() && state.cgroup.is_none() {
            return;
        }
        let text = |text: &[u8]| Arc::from(text.get(..TEXT_BYTES).unwrap_or(text));
        let details = self.known.entry(index).or_default();
        if let Some(cmdline) = state.cmdline {
            self.added_bytes += cmdline.len();
            details.cmdline = Some(text(cmdline));
            self.pass_on(index);
        }
        let details = self.known.entry(index).or_default();
        if let Some(cgroup) = state.cgroup
            && details.cgroup.as_deref() != Some(cgroup)
        {
            self.added_bytes += cgroup.len();
            details.cgroup = Some(text(cgroup));
        }
    }

    /// A process was created by another.
    pub(super) fn fork(&mut self, parent: u32, child: u32) {
        let details = self.known.get(&parent).cloned().unwrap_or_default();
        if details.cmdline.is_none() && self.waiting_count < WAITING {
            self.waiting.entry(parent).or_default().push(child);
            self.waiting_count += 1;
        }
        let inherited = Details {
            has_executed: false,
            ..details
        };
        self.known.insert(child, inherited);
    }

    /// Those that a process created before its command line was known, and that have executed nothing else, have it, too.
    fn pass_on(&mut self, index: u32) {
        let mut creators = vec![index];
        while let Some(creator) = creators.pop() {
            let cmdline = self.known.get(&creator);
            let cmdline = cmdline.and_then(|details| details.cmdline.clone());
            for child in self.no_longer_waiting(creator) {
                // Without details, it has a row already.
                if let Some(details) = self.known.get_mut(&child)
                    && details.cmdline.is_none()
                    && !details.has_executed
                {
                    details.cmdline.clone_from(&cmdline);
                    creators.push(child);
                }
            }
        }
    }

    fn no_longer_waiting(&mut self, creator: u32) -> Vec<u32> {
        let children = self.waiting.remove(&creator).unwrap_or_default();
        self.waiting_count -= children.len();
        children
    }

    /// A process has another program.
    pub(super) fn exec(&mut self, index: u32) {
        let details = self.known.entry(index).or_default();
        details.cmdline = None;
        details.has_executed = true;
        // What those that it has created run is not known any more.
        self.no_longer_waiting(index);
    }

    /// Adds the path of a cgroup.
    pub(super) fn cgroup(&mut self, cgroup: &Cgroup<'_>) {
        if self.cgroups.len() < CGROUPS || self.cgroups.contains_key(&cgroup.id) {
            let path = cgroup.path.get(..TEXT_BYTES).unwrap_or(cgroup.path);
            self.cgroups.insert(cgroup.id, path.into());
        }
    }

    /// Adds the namespaces of a thread: names and inodes.
    pub(super) fn namespaces(&mut self, index: u32, inodes: &[(&str, u64)]) {
        let named: Arc<[Box<str>]> = inodes
            .iter()
            .map(|(name, inode)| format!("{name}:{inode}").into_boxed_str())
            .collect();
        let shared = match self.last_namespaces.take() {
            Some(last) if last == named => last,
            _ => {
                self.added_bytes += named.iter().map(|name| name.len()).sum::<usize>();
                named
            }
        };
        self.known.entry(index).or_default().namespaces = Some(Arc::clone(&shared));
        self.last_namespaces = Some(shared);
    }

    /// A sample of a thread has the ID of its cgroup.
    pub(super) fn is_in_cgroup(&mut self, index: u32, id: u64) {
        let details = self.known.entry(index).or_default();
        if details.cgroup_id != Some(id) {
            details.cgroup_id = Some(id);
            details.cgroup = self.cgroups.get(&id).cloned();
        }
    }

    /// Takes the details of a thread whose row is next; what is unknown of it is that of its process, whose first thread is `first`.
    pub(super) fn take(&mut self, index: u32, first: Option<u32>) -> Details {
        let mut details = self.known.remove(&index).unwrap_or_default();
        self.no_longer_waiting(index);
        if let Some(of_process) = first.and_then(|first| self.known.get(&first)) {
            let Details {
                cmdline,
                cgroup,
                namespaces,
                ..
            } = of_process;
            details.cmdline = details.cmdline.or_else(|| cmdline.clone());
            details.cgroup = details.cgroup.or_else(|| cgroup.clone());
            details.namespaces = details.namespaces.or_else(|| namespaces.clone());
        }
        details
    }

    /// Whether rows of ended threads should be written, so that their texts take no memory.
    pub(super) fn is_large(&self) -> bool {
        self.added_bytes > HELD_BYTES
    }

    /// Rows were written.
    pub(super) fn written(&mut self) {
        self.added_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_have_the_command_line_that_is_found_later() {
        let mut details = DetailsOfThreads::default();
        details.exec(1);
        // 3 is created by 2, which 1 has created; 4 executes another program.
        details.fork(1, 2);
        details.fork(2, 3);
        details.fork(1, 4);
        details.exec(4);
        let found = ProcessState {
            cmdline: Some(b"sh -c x"),
            ..ProcessState::default()
        };
        details.process(1, &found);
        details.fork(1, 5);
        let cmdline = |details: &mut DetailsOfThreads, index| details.take(index, None).cmdline;
        for index in [1, 2, 3, 5] {
            assert_eq!(
                cmdline(&mut details, index).as_deref(),
                Some(&b"sh -c x"[..]),
                "{index}"
            );
        }
        assert_eq!(cmdline(&mut details, 4), None);
        assert_eq!((details.waiting.len(), details.waiting_count), (0, 0));
    }

    #[test]
    fn what_a_creator_executes_later_is_not_that_of_its_children() {
        let mut details = DetailsOfThreads::default();
        details.fork(1, 2);
        details.exec(1);
        let found = ProcessState {
            cmdline: Some(b"other"),
            ..ProcessState::default()
        };
        details.process(1, &found);
        assert_eq!(details.take(2, None).cmdline, None);
    }
}
