//! Results that requests share: indexes, computed once for each trace, and a cache of tiles.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, anyhow};

use super::engine::Gone;
use super::http::Peer;

/// Time between two checks whether anybody still waits.
const STEP: Duration = Duration::from_millis(50);
/// Bytes of tiles.
const MOST_BYTES: usize = 64 << 20;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A value that is computed once, in a separate thread, so that a canceled request does not cancel it for others.
pub(super) struct Once<T>(Arc<(Mutex<State<T>>, Condvar)>);

enum State<T> {
    Idle,
    Working,
    Done(Result<Arc<T>, String>),
}

impl<T> Default for Once<T> {
    fn default() -> Once<T> {
        Once(Arc::new((Mutex::new(State::Idle), Condvar::new())))
    }
}

impl<T: Send + Sync + 'static> Once<T> {
    /// Starts the work, unless it was started before.
    pub(super) fn start(&self, make: impl FnOnce() -> Result<T> + Send + 'static) -> Result<()> {
        let mut state = locked(&self.0.0);
        if !matches!(*state, State::Idle) {
            return Ok(());
        }
        let shared = Arc::clone(&self.0);
        std::thread::Builder::new()
            .name("index".to_owned())
            .spawn(move || {
                let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(make));
                let made = made.unwrap_or_else(|_| Err(anyhow!("the work ended unexpectedly")));
                let made = made.map(Arc::new).map_err(|error| format!("{error:#}"));
                *locked(&shared.0) = State::Done(made);
                shared.1.notify_all();
            })?;
        *state = State::Working;
        Ok(())
    }

    /// The value or its error, if the work is done.
    pub(super) fn known(&self) -> Option<Result<Arc<T>>> {
        match &*locked(&self.0.0) {
            State::Done(Ok(value)) => Some(Ok(Arc::clone(value))),
            State::Done(Err(error)) => Some(Err(anyhow!(error.clone()))),
            State::Idle | State::Working => None,
        }
    }

    /// Forgets a value that turned out to be wrong, unless another has replaced it.
    pub(super) fn forget(&self, wrong: &Arc<T>) {
        let mut state = locked(&self.0.0);
        if matches!(&*state, State::Done(Ok(value)) if Arc::ptr_eq(value, wrong)) {
            *state = State::Idle;
        }
    }

    /// Waits for the value.
    pub(super) fn get(
        &self,
        peer: &Peer<'_>,
        make: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<Arc<T>> {
        self.start(make)?;
        let mut state = locked(&self.0.0);
        loop {
            match &*state {
                State::Done(Ok(value)) => return Ok(Arc::clone(value)),
                State::Done(Err(error)) => return Err(anyhow!(error.clone())),
                State::Idle | State::Working => {}
            }
            let waited = self.0.1.wait_timeout(state, STEP);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if peer.is_gone() {
                return Err(Gone.into());
            }
        }
    }
}

/// Finished tiles, compressed, by their request; the oldest are dropped.
#[derive(Default)]
pub(super) struct Cache(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    by_key: HashMap<String, Arc<Vec<u8>>>,
    order: VecDeque<String>,
    bytes: usize,
}

impl Cache {
    pub(super) fn get(&self, key: &str) -> Option<Arc<Vec<u8>>> {
        locked(&self.0).by_key.get(key).cloned()
    }

    pub(super) fn put(&self, key: String, tile: Vec<u8>) {
        let mut entries = locked(&self.0);
        let size = |key: &str, tile: usize| 2 * key.len() + tile;
        entries.bytes += size(&key, tile.len());
        if let Some(old) = entries.by_key.insert(key.clone(), Arc::new(tile)) {
            entries.bytes -= size(&key, old.len());
        } else {
            entries.order.push_back(key);
        }
        while entries.bytes > MOST_BYTES
            && let Some(oldest) = entries.order.pop_front()
        {
            if let Some(tile) = entries.by_key.remove(&oldest) {
                entries.bytes -= size(&oldest, tile.len());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_tiles_are_dropped() {
        let cache = Cache::default();
        let tile = || vec![0; MOST_BYTES / 3];
        for key in ["a", "b", "b", "c"] {
            cache.put(key.to_owned(), tile());
        }
        assert!(cache.get("a").is_none());
        assert!(cache.get("b").is_some() && cache.get("c").is_some());
    }

    #[test]
    fn work_is_done_once_and_its_error_is_kept() {
        let once = Once::default();
        assert_eq!(*once.get(&Peer::NONE, || Ok(1)).unwrap(), 1);
        let first = once.get(&Peer::NONE, || Ok(2)).unwrap();
        assert_eq!(*first, 1);
        once.forget(&Arc::new(1));
        assert!(once.known().is_some());
        once.forget(&first);
        assert!(once.known().is_none());
        assert_eq!(*once.get(&Peer::NONE, || Ok(3)).unwrap(), 3);
        let failing: Once<i32> = Once::default();
        for _ in 0..2 {
            let error = failing
                .get(&Peer::NONE, || Err(anyhow!("no table")))
                .unwrap_err();
            assert_eq!(error.to_string(), "no table");
        }
        let panicking: Once<i32> = Once::default();
        assert!(panicking.get(&Peer::NONE, || panic!("on purpose")).is_err());
    }
}
