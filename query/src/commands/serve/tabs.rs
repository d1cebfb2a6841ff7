//! The open tabs: a server that opened the browser ends after the last one was closed.
//!
//! ```text
//! POST /api/tab?id=a7f3&open=1      when a page is shown
//! POST /api/tab?id=a7f3&open=0      when it is closed or left; a page that is loaded again comes back at once
//! ```
//! Only a page that says so counts as closed: browsers freeze and discard tabs without a word, and these come back.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use perfquet::failure::Misuse;

use super::http::Request;

/// Tabs that are counted; with more, the server stays.
const MOST: usize = 1000;
const LONGEST: usize = 64;

#[derive(Default)]
pub(super) struct Tabs(Mutex<State>);

#[derive(Default)]
struct State {
    open: BTreeSet<String>,
    /// Time at which the last one was closed.
    closed: Option<Instant>,
}

impl Tabs {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a tab that was opened or closed.
    pub(super) fn take(&self, request: &Request) -> Result<()> {
        let id = request.parameter("id").unwrap_or_default();
        let is_id = !id.is_empty() && id.len() <= LONGEST;
        let open = match request.parameter("open").as_deref() {
            Some("1") => true,
            Some("0") => false,
            _ => bail!(Misuse("open: expected 1 or 0".to_owned())),
        };
        if !is_id {
            bail!(Misuse(format!("id: expected at most {LONGEST} letters")));
        }
        let mut state = self.state();
        if open && state.open.len() < MOST {
            state.open.insert(id);
            state.closed = None;
        } else if !open && state.open.remove(&id) && state.open.is_empty() {
            state.closed = Some(Instant::now());
        }
        Ok(())
    }

    /// Whether there were tabs, and the last one has been closed for this long.
    pub(super) fn are_closed_for(&self, time: Duration) -> bool {
        let state = self.state();
        state.open.is_empty() && state.closed.is_some_and(|closed| closed.elapsed() >= time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_tab_counts() {
        let tabs = Tabs::default();
        let take = |query: &str| {
            tabs.take(&Request {
                query: query.to_owned(),
                ..Request::default()
            })
        };
        let are_closed = || tabs.are_closed_for(Duration::ZERO);
        assert!(!are_closed(), "none was opened yet");
        take("id=a&open=0").unwrap();
        assert!(!are_closed());
        take("id=a&open=1").unwrap();
        take("id=b&open=1").unwrap();
        take("id=a&open=0").unwrap();
        assert!(!are_closed());
        take("id=b&open=0").unwrap();
        assert!(are_closed() && !tabs.are_closed_for(Duration::from_secs(60)));
        take("id=b&open=1").unwrap();
        assert!(!are_closed());
        for wrong in [
            "id=&open=1",
            "id=a",
            "open=1",
            &format!("id={}&open=1", "x".repeat(65)),
        ] {
            assert!(take(wrong).is_err(), "{wrong}");
        }
    }
}
