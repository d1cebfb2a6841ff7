//! `serve`: the explorer, a page in the browser that shows every event of a trace.
//!
//! ```text
//! browser ─► http.rs ─► access.rs ─► routes.rs ─► tracks, tiles, details, grid, panels ─► engine.rs ─► Session
//! ```
//! It listens on the loopback interface alone, and nothing is answered without the token of the printed address. Each
//! connection has a thread; a request whose connection was closed by the browser ends its queries.

mod access;
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
mod panels;
mod reach;
mod routes;
mod shared;
mod states;
mod store;
mod tiles;
mod tracks;

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use clap::{ArgMatches, Args};
use perfquet::{Options, Session, Trace};

use super::{Subcommand, arguments};
use crate::limits::Limits;
use crate::render;
use crate::settings::Traces;

pub(super) const COMMAND: Subcommand = Subcommand::new::<Serve>("serve", run);

/// Connections at one time; a browser opens six.
const MOST_CONNECTIONS: usize = 64;

/// Explore traces in the browser: timeline, details and SQL
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Open a trace in the browser
  perfquet-query serve a.pqt
  # Explore two traces, print the address alone
  perfquet-query serve before.pqt after.pqt --no-browser
  # Explore a trace of another host
  ssh -L 7000:localhost:7000 HOST perfquet-query serve --port 7000 --no-browser a.pqt

Only this host can connect, with the token of the address. Ctrl-C ends it.")]
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
    /// Print the address without opening it in the browser
    #[arg(long)]
    no_browser: bool,
    #[command(flatten)]
    limits: Limits,
}

/// What all connections share.
struct Server {
    /// All traces together, for SQL.
    session: Arc<Session>,
    /// One for each trace: their clocks differ.
    each: Vec<Served>,
    access: access::Access,
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
    index: shared::Once<store::Store>,
    progress: Arc<index::Progress>,
    /// Cache files of the trace.
    place: Option<store::cache::Place>,
    reach: shared::Once<reach::Reach>,
}

impl Served {
    fn trace(&self) -> &Trace {
        &self.session.traces()[0]
    }
}

fn run(matches: &ArgMatches) -> Result<()> {
    let serve: Serve = arguments(matches)?;
    let options = Options {
        queries_only: true,
        progress: false,
        ..serve.limits.options()
    };
    let session = Arc::new(Session::open(&serve.traces.traces, &options)?);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, serve.port))
        .with_context(|| format!("cannot listen on port {}", serve.port))?;
    let port = listener.local_addr()?.port();
    let access = access::Access::new(port)?;
    let address = access.address();
    let mut out = render::stdout();
    writeln!(out, "{address}")?;
    out.flush()?;
    if !serve.no_browser
        && let Err(error) = browser::open(&address)
    {
        say!("no browser was opened: {error:#}");
    }
    let server = Arc::new(Server {
        each: each(&session)?,
        session,
        access,
        program: std::env::current_exe()?,
        limits: serve.limits.arguments(),
        tiles: shared::Cache::default(),
    });
    accept(&listener, &server)
}

fn each(session: &Arc<Session>) -> Result<Vec<Served>> {
    let traces = session.traces();
    let alone = |trace: &Trace| -> Result<Arc<Session>> {
        Ok(match traces.len() {
            1 => Arc::clone(session),
            _ => Arc::new(session.alone(trace)?),
        })
    };
    let served = |trace: &Trace| -> Result<Served> {
        let session = alone(trace)?;
        let counts = counters::time_range(&session)?;
        let (start, end) = trace.time_range().or(counts).unwrap_or((0, 0));
        // Times are relative to the first event, as in `--time`.
        let end = end.max(counts.map_or(end, |(_, end)| end));
        Ok(Served {
            session,
            start,
            end,
            index: shared::Once::default(),
            progress: Arc::default(),
            place: store::cache::Place::of(trace),
            reach: shared::Once::default(),
        })
    };
    traces.iter().map(served).collect()
}

fn accept(listener: &TcpListener, server: &Arc<Server>) -> Result<()> {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        // The peer may be gone already, or the process out of descriptors for a moment.
        let Ok(stream) = stream else {
            std::thread::sleep(std::time::Duration::from_millis(10));
            continue;
        };
        if open.load(Ordering::Relaxed) >= MOST_CONNECTIONS {
            continue;
        }
        open.fetch_add(1, Ordering::Relaxed);
        let (server, of_thread) = (Arc::clone(server), Arc::clone(&open));
        let started = std::thread::Builder::new()
            .name("connection".to_owned())
            .spawn(move || {
                http::serve(&stream, |request, peer| {
                    routes::answer(&server, request, peer)
                });
                of_thread.fetch_sub(1, Ordering::Relaxed);
            });
        if started.is_err() {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
    Ok(())
}
