//! `serve`: the explorer, a page in the browser that shows every event of a trace.
//!
//! ```text
//! browser ─► http.rs ─► access.rs ─► routes.rs ─► tracks, tiles, details, grid, panels ─► engine.rs ─► Session
//! ```
//! It listens on the loopback interface alone, and nothing is answered without the token of the printed address. Each
//! connection has a thread; a request whose connection was closed by the browser ends its queries.

mod access;
mod active;
mod browser;
mod calls;
mod code;
mod columns;
mod compare;
mod counters;
mod details;
mod engine;
mod flame;
mod grid;
mod http;
mod index;
mod library;
mod live;
mod pages;
mod panels;
mod parallel;
mod periods;
mod reach;
mod routes;
mod sample;
mod shared;
mod states;
mod store;
mod tabs;
mod tiles;
mod tracks;
mod tunnel;

use std::ffi::OsString;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{ArgMatches, Args};
use perfquet::{Options, Session, Trace, interrupt};

use super::{Subcommand, arguments};
use crate::limits::Limits;
use crate::render;
use crate::settings::Traces;

pub(super) const COMMAND: Subcommand = Subcommand::new::<Serve>("serve", run);

/// Connections at one time; a browser opens six.
const MOST_CONNECTIONS: usize = 64;
/// Time after the last tab was closed in which it may come back.
const GRACE: Duration = Duration::from_secs(15);

/// Explore traces in the browser: timeline, details and SQL
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Open a trace in the browser
  perfquet-query serve a.pqt
  # Explore two traces, print the address alone
  perfquet-query serve before.pqt after.pqt --no-browser
  # Explore a trace of another host, which stays there
  perfquet-query serve --ssh HOST a.pqt

Only this host can connect, with the token of the address. Ctrl-C ends it, and so does
closing the last tab of the browser that it opened, unless --keep is given.")]
struct Serve {
    #[command(flatten)]
    traces: Traces,
    /// Port to listen on [default: a free one]
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true
    )]
    port: u16,
    /// Port of the browser's host that leads here, if it is another one
    #[arg(long, value_name = "PORT", hide = true)]
    public_port: Option<u16>,
    /// Print the address without opening it in the browser
    #[arg(long)]
    no_browser: bool,
    /// Keep serving after the last tab was closed
    #[arg(long)]
    keep: bool,
    /// Serve traces of another host, which needs perfquet-query, through SSH
    ///
    /// The trace stays there; a picture takes some kilobytes. HOST, keys and jump hosts are those of ssh_config(5).
    #[arg(long, value_name = "HOST")]
    ssh: Option<String>,
    #[command(flatten)]
    limits: Limits,
}

/// What all connections share.
struct Server {
    /// All traces together, for SQL.
    session: Arc<Session>,
    /// One for each trace: their clocks differ.
    each: Vec<Arc<Served>>,
    access: Arc<access::Access>,
    tabs: Arc<tabs::Tabs>,
    /// Of the processes that compute panels.
    program: PathBuf,
    limits: Vec<String>,
    tiles: shared::Cache,
}

/// A trace with its indexes, which are computed once.
struct Served {
    session: Arc<Session>,
    /// Time of its first event.
    start: i64,
    end: i64,
    /// Number of recorded events.
    events: u64,
    index: shared::Once<store::Store>,
    progress: Arc<index::Progress>,
    counted: Arc<index::Counted>,
    /// Cache files of the trace.
    place: Option<store::cache::Place>,
    reach: shared::Once<reach::Reach>,
    samples: sample::Samples,
    pages: Arc<pages::KnownPages>,
}

impl Served {
    fn trace(&self) -> &Trace {
        &self.session.traces()[0]
    }
}

fn run(matches: &ArgMatches) -> Result<()> {
    let serve: Serve = arguments(matches)?;
    if let Some(host) = &serve.ssh {
        return tunnel::run(host, &serve);
    }
    let options = Options {
        queries_only: true,
        progress: false,
        ..serve.limits.options()
    };
    let session = Arc::new(Session::open(&serve.traces.traces, &options)?);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, serve.port))
        .with_context(|| format!("cannot listen on port {}", serve.port))?;
    let port = listener.local_addr()?.port();
    let access = Arc::new(access::Access::new(serve.public_port.unwrap_or(port))?);
    let address = access.address();
    let mut out = render::stdout();
    writeln!(out, "{address}")?;
    out.flush()?;
    let tabs: Arc<tabs::Tabs> = Arc::default();
    let current = Arc::new(live::Current::new(Server {
        each: each(&session)?,
        session,
        access,
        tabs: Arc::clone(&tabs),
        program: std::env::current_exe()?,
        limits: serve.limits.arguments(),
        tiles: shared::Cache::default(),
    }));
    current.follow(options)?;
    if !serve.no_browser {
        match browser::open(&address) {
            Ok(()) if !serve.keep => end_with_tabs(tabs)?,
            Ok(()) => {}
            Err(error) => say!("no browser was opened: {error:#}"),
        }
    }
    accept(&listener, &current)
}

/// Ends the program after the last tab was closed.
fn end_with_tabs(tabs: Arc<tabs::Tabs>) -> Result<()> {
    std::thread::Builder::new()
        .name("tabs".to_owned())
        .spawn(move || {
            while !tabs.are_closed_for(GRACE) {
                std::thread::sleep(Duration::from_millis(500));
            }
            say!("the last tab was closed; --keep keeps serving");
            interrupt::end();
            std::process::exit(0);
        })?;
    Ok(())
}

impl Serve {
    /// The arguments of the server of another host, which listens on a port of that host, and is reached by one of this host.
    fn words(&self, here: u16, there: u16) -> Vec<OsString> {
        let mut words = vec![OsString::from(format!("--port={there}"))];
        if here != there {
            // Older servers do not know this option, nor need it.
            words.push(OsString::from(format!("--public-port={here}")));
        }
        words.extend(self.limits.arguments().into_iter().map(OsString::from));
        words.push("--".into());
        words.extend(self.traces.traces.iter().map(|trace| trace.into()));
        words
    }
}

fn each(session: &Arc<Session>) -> Result<Vec<Arc<Served>>> {
    let traces = session.traces();
    let alone = |trace: &Trace| -> Result<Arc<Session>> {
        Ok(match traces.len() {
            1 => Arc::clone(session),
            _ => Arc::new(session.alone(trace)?),
        })
    };
    let served = |trace: &Trace| -> Result<Arc<Served>> {
        let session = alone(trace)?;
        let ask = |sql: &str| {
            Ok(engine::rows(&session, sql, engine::Limit::OWN, &http::Peer::NONE)?.batches)
        };
        let counts = crate::counters::time_range(&session, &ask)?;
        let (start, end) = trace.time_range().or(counts).unwrap_or((0, 0));
        let events = super::info::recorded_events(&session)?;
        // Times are relative to the first event, as in `--time`.
        let end = end.max(counts.map_or(end, |(_, end)| end));
        Ok(Arc::new(Served {
            session,
            start,
            end,
            events,
            index: shared::Once::default(),
            progress: Arc::default(),
            counted: Arc::default(),
            place: store::cache::Place::of(trace),
            reach: shared::Once::default(),
            samples: sample::Samples::default(),
            pages: Arc::default(),
        }))
    };
    traces.iter().map(served).collect()
}

fn accept(listener: &TcpListener, current: &Arc<live::Current>) -> Result<()> {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        // The peer may be gone already, or the process out of descriptors for a moment.
        let Ok(stream) = stream else {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        if open.load(Ordering::Relaxed) >= MOST_CONNECTIONS {
            continue;
        }
        open.fetch_add(1, Ordering::Relaxed);
        let (current, of_thread) = (Arc::clone(current), Arc::clone(&open));
        let started = std::thread::Builder::new()
            .name("connection".to_owned())
            .spawn(move || {
                http::serve(&stream, |request, peer| {
                    routes::answer(&current.get(), request, peer)
                });
                of_thread.fetch_sub(1, Ordering::Relaxed);
            });
        if started.is_err() {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
    Ok(())
}
