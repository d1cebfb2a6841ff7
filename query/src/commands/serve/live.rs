//! Recordings that still run: their traces are opened again whenever they have grown.
//!
//! ```text
//! manifest.json changes ─► a new Session, a new Server with the same token ─► the page, which asks for the traces again, follows
//! ```
//! A request is answered by the server that is current when it comes; it keeps that one to its end.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use perfquet::{Options, Session};

use super::{Server, each};

/// Time between two looks at the manifests.
const STEP: Duration = Duration::from_secs(1);
/// Opening takes at most this part of the time.
const LEAST_REST: u32 = 10;

/// The server of the traces as they are now.
pub(super) struct Current(RwLock<Arc<Server>>);

impl Current {
    pub(super) fn new(server: Server) -> Current {
        Current(RwLock::new(Arc::new(server)))
    }

    pub(super) fn get(&self) -> Arc<Server> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace(&self, server: Server) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(server);
    }

    /// Follows the traces on a thread until all of them are complete.
    pub(super) fn follow(self: &Arc<Current>, options: Options) -> Result<()> {
        if self.get().session.is_complete() {
            return Ok(());
        }
        // That a trace is incomplete was said when it was opened; each look would say it again.
        log::set_max_level(log::LevelFilter::Error);
        let current = Arc::clone(self);
        std::thread::Builder::new()
            .name("follow".to_owned())
            .spawn(move || current.watch(&options))?;
        Ok(())
    }

    fn watch(&self, options: &Options) {
        let mut seen = self.get().versions();
        let mut rest = STEP;
        while !self.get().session.is_complete() {
            std::thread::sleep(rest);
            let server = self.get();
            let now = server.versions();
            if now == seen {
                continue;
            }
            let begin = Instant::now();
            // What is just being replaced cannot be opened; the next look finds it.
            if let Ok(grown) = server.reopened(options) {
                self.replace(grown);
                seen = now;
            }
            rest = STEP.max(begin.elapsed() * LEAST_REST);
        }
    }
}

impl Server {
    fn paths(&self) -> Vec<PathBuf> {
        let traces = self.session.traces().iter();
        traces.map(|trace| trace.path.clone()).collect()
    }

    /// Time and size of each manifest.
    fn versions(&self) -> Vec<Option<(SystemTime, u64)>> {
        let version = |path: &Path| {
            let metadata = std::fs::metadata(path.join("manifest.json")).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        };
        self.paths().iter().map(|path| version(path)).collect()
    }

    /// The same server with the traces as they are now. Those that were complete keep their indexes.
    fn reopened(&self, options: &Options) -> Result<Server> {
        let session = Arc::new(Session::open(&self.paths(), options)?);
        let mut all = each(&session)?;
        for (now, before) in all.iter_mut().zip(&self.each) {
            if before.trace().is_complete() && before.trace().path == now.trace().path {
                *now = Arc::clone(before);
            }
        }
        Ok(Server {
            each: all,
            session,
            access: Arc::clone(&self.access),
            tabs: Arc::clone(&self.tabs),
            program: self.program.clone(),
            limits: self.limits.clone(),
            tiles: super::shared::Cache::default(),
        })
    }
}
