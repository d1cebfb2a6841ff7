//! Files of interpreters, and what was found in them: many processes run the same one, and its symbols take longer to read than
//! all else that is read of a process.

use std::collections::HashMap;
use std::fs::Metadata;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use perfquet_trace::symbols::Object;

/// Files that are kept open.
const FILES_MAX: usize = 8;
/// Longer lists are not kept: node has 1,900 builtins and 600 variables.
const ITEMS_MAX: usize = 1 << 14;

/// The files by their identity: one that was written to is another.
#[derive(Default)]
pub(super) struct KnownObjects(HashMap<Identity, Arc<KnownObject>>);

/// Device, inode, size, and the times of the last changes to the content and to the inode.
type Identity = (u64, u64, u64, (i64, i64), (i64, i64));

/// A file, with the answers to earlier questions.
pub(in crate::user_stacks) struct KnownObject {
    object: Object,
    answers: Mutex<Answers>,
}

#[derive(Default)]
struct Answers {
    /// Offset and size of functions, by what is asked for.
    functions: HashMap<&'static str, Arc<[(u64, u64)]>>,
    offsets: HashMap<&'static str, Option<u64>>,
    /// Names and addresses, by prefix.
    symbols: HashMap<&'static str, Arc<[(String, u64)]>>,
}

impl KnownObjects {
    /// Opens a file.
    pub(super) fn open(&mut self, path: &Path) -> Result<Arc<KnownObject>, String> {
        let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
        let identity = identity_of(&metadata);
        if let Some(known) = self.0.get(&identity) {
            return Ok(Arc::clone(known));
        }
        let opened = Arc::new(KnownObject::open(path)?);
        if self.0.len() >= FILES_MAX {
            self.0.clear();
        }
        self.0.insert(identity, Arc::clone(&opened));
        Ok(opened)
    }
}

fn identity_of(metadata: &Metadata) -> Identity {
    (
        metadata.dev(),
        metadata.ino(),
        metadata.size(),
        (metadata.mtime(), metadata.mtime_nsec()),
        (metadata.ctime(), metadata.ctime_nsec()),
    )
}

impl KnownObject {
    /// Opens a file.
    pub(in crate::user_stacks) fn open(path: &Path) -> Result<KnownObject, String> {
        let object = Object::open_foreign(path).map_err(|error| error.to_string())?;
        Ok(KnownObject {
            object,
            answers: Mutex::default(),
        })
    }

    /// Offset and size of the functions whose names are wanted; `question` stands for `is_wanted`.
    pub(super) fn functions_of(
        &self,
        question: &'static str,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Arc<[(u64, u64)]> {
        if let Some(known) = self.answers().functions.get(question) {
            return Arc::clone(known);
        }
        let functions = self.object.functions_where(is_wanted);
        let functions = functions.iter().map(|found| (found.offset, found.bytes));
        let functions: Arc<[(u64, u64)]> = functions.collect();
        self.object.release();
        if functions.len() <= ITEMS_MAX {
            let kept = Arc::clone(&functions);
            self.answers().functions.insert(question, kept);
        }
        functions
    }

    /// As [`Object::offset_of_symbol`].
    pub(super) fn offset_of_symbol(&self, name: &'static str) -> Option<u64> {
        if let Some(known) = self.answers().offsets.get(name) {
            return *known;
        }
        let offset = self.object.offset_of_symbol(name);
        self.answers().offsets.insert(name, offset);
        offset
    }

    /// As [`Object::symbols_with_prefix`].
    pub(super) fn symbols_with_prefix(&self, prefix: &'static str) -> Arc<[(String, u64)]> {
        if let Some(known) = self.answers().symbols.get(prefix) {
            return Arc::clone(known);
        }
        let symbols: Arc<[(String, u64)]> = self.object.symbols_with_prefix(prefix).into();
        if symbols.len() <= ITEMS_MAX {
            let kept = Arc::clone(&symbols);
            self.answers().symbols.insert(prefix, kept);
        }
        symbols
    }

    /// Answers are added whole, so a panic while the lock is held leaves them valid.
    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for KnownObject {
    type Target = Object;

    fn deref(&self) -> &Object {
        &self.object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_once_until_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let own = std::env::current_exe().unwrap();
        let path = folder.path().join("node");
        std::fs::copy(&own, &path).unwrap();
        let other = folder.path().join("python");
        std::fs::hard_link(&path, &other).unwrap();
        let mut known = KnownObjects::default();
        let first = known.open(&path).unwrap();
        let functions = first.functions_of("main", |name| name == b"main");
        assert_eq!(functions.len(), 1);
        // Under another name, and the question is not asked again.
        let second = known.open(&other).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        let again = second.functions_of("main", |_| unreachable!("the answer is known"));
        assert_eq!(again.len(), 1);
        assert_eq!(second.offset_of_symbol("no such symbol"), None);
        assert_eq!(second.offset_of_symbol("no such symbol"), None);
        let none = second.symbols_with_prefix("no such prefix");
        assert!(none.is_empty());
        // Another file at that path.
        std::fs::remove_file(&path).unwrap();
        std::fs::copy(&own, &path).unwrap();
        assert!(!Arc::ptr_eq(&known.open(&path).unwrap(), &second));
        assert!(known.open(&folder.path().join("none")).is_err());
    }

    #[test]
    fn few_files_are_kept_open() {
        let folder = tempfile::tempdir().unwrap();
        let mut known = KnownObjects::default();
        for number in 0..3 * FILES_MAX {
            let path = folder.path().join(number.to_string());
            std::fs::copy("/bin/true", &path).unwrap();
            known.open(&path).unwrap();
            assert!(known.0.len() <= FILES_MAX);
        }
    }
}
