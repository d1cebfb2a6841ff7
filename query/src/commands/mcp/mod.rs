//! `mcp`: the Model Context Protocol on stdin and stdout, so that assistants can ask a trace.
//!
//! ```text
//! {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"top","arguments":{"limit":10}}}
//! {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"self_percent …"}],"isError":false}}
//! ```
//! Each call of a tool runs this program with the command line that a person would type (`tools.rs`), in a process of its
//! own: it has limits of time and output, ends with its request, and cannot take the server with it. The traces are
//! those of the command line; no tool reads other files.
//! Specification: modelcontextprotocol.io, versions 2024-11-05 to 2025-06-18.

mod call;
mod protocol;
mod tools;

use std::path::PathBuf;

use anyhow::Result;
use clap::{ArgMatches, Args};
use perfquet::Session;

use super::{Subcommand, arguments};
use crate::limits::Limits;
use crate::settings::Traces;

pub(super) const COMMAND: Subcommand = Subcommand::new::<Mcp>("mcp", run);

/// Serve traces to assistants by the Model Context Protocol
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Serve a trace on stdin and stdout
  perfquet-query mcp a.pqt
  # Configure an assistant
  { \"command\": \"perfquet-query\", \"args\": [\"mcp\", \"/traces/a.pqt\"] }

Tools: info, findings, list_tables, describe, query, top, annotate, flamegraph,
durations, waits. They read only these traces, and write nothing.")]
struct Mcp {
    #[command(flatten)]
    traces: Traces,
    #[command(flatten)]
    limits: Limits,
}

fn run(matches: &ArgMatches) -> Result<()> {
    let mcp: Mcp = arguments(matches)?;
    // Fails now rather than at the first question.
    let session = Session::open(&mcp.traces.traces, &mcp.limits.options())?;
    let paths: Vec<PathBuf> = (session.traces().iter())
        .map(|trace| trace.path.clone())
        .collect();
    drop(session);
    let server = tools::Server {
        program: std::env::current_exe()?,
        traces: paths,
        limits: mcp.limits.arguments(),
    };
    protocol::serve(std::io::stdin().lock(), std::io::stdout(), server)
}
