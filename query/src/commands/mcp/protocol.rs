//! JSON-RPC 2.0, one message per line, and the methods of the protocol.

use std::collections::HashMap;
use std::io::{BufRead, Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::Result;
use perfquet::interrupt;
use serde_json::{Value, json};

use super::call::{self, Cancellation};
use super::tools::{self, Server};

/// Supported versions of the protocol, newest first. 2025-03-26 requires batches, which only that version has.
const VERSIONS: [&str; 2] = ["2025-06-18", "2024-11-05"];
/// Bytes of a message; longer ones are answered with an error.
const MOST_BYTES: u64 = 4 << 20;
/// Calls that run at the same time; others wait.
const MOST_RUNNING: usize = 4;
/// Calls that run or wait; further ones are refused.
const MOST_CALLS: usize = 64;

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const BUSY: i64 = -32000;

/// Calls that run or wait, by the ID of their request.
type Running = Arc<Mutex<HashMap<String, Cancellation>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds a lock panics halfway.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers messages until the input ends and all calls have been answered, or the output is closed.
pub(super) fn serve(
    mut input: impl BufRead,
    output: impl Write + Send + 'static,
    server: Server,
) -> Result<()> {
    let output = Arc::new(Mutex::new(output));
    let server = Arc::new(server);
    let running = Running::default();
    let slots = Arc::new(Slots::default());
    let at_end = Arc::clone(&running);
    interrupt::at_end(move || lock(&at_end).values().for_each(Cancellation::cancel));
    let mut calls: Vec<JoinHandle<()>> = Vec::new();
    while let Some(line) = message(&mut input)? {
        let Some(line) = line else {
            let error = failure(&Value::Null, INVALID_REQUEST, "the message is too long");
            send(&output, &error)?;
            continue;
        };
        let Ok(message) = serde_json::from_slice::<Value>(&line) else {
            send(
                &output,
                &failure(&Value::Null, PARSE_ERROR, "the message is not JSON"),
            )?;
            continue;
        };
        if !message.is_object() {
            let error = "expected an object: batches are not supported";
            send(&output, &failure(&Value::Null, INVALID_REQUEST, error))?;
            continue;
        }
        let method = message["method"].as_str().unwrap_or_default();
        let id = &message["id"];
        if method == "notifications/cancelled" {
            let request = message["params"]["requestId"].to_string();
            if let Some(call) = lock(&running).get(&request) {
                call.cancel();
            }
            continue;
        }
        // Notifications and answers to requests of which this server has none.
        if id.is_null() || method.is_empty() {
            if !id.is_null() && message.get("result").is_none() && message.get("error").is_none() {
                send(&output, &failure(id, INVALID_REQUEST, "no method"))?;
            }
            continue;
        }
        let params = &message["params"];
        let answer = match method {
            "initialize" => success(id, initialized(params)),
            "ping" => success(id, json!({})),
            "tools/list" => success(id, json!({ "tools": server.list() })),
            "tools/call" => {
                calls.retain(|call| !call.is_finished());
                match server.command(params) {
                    Ok(_) if calls.len() >= MOST_CALLS => failure(id, BUSY, "too many calls"),
                    Ok(run) => {
                        let cancellation = Cancellation::default();
                        lock(&running).insert(id.to_string(), cancellation.clone());
                        let (id, output) = (id.clone(), Arc::clone(&output));
                        let (running, server) = (Arc::clone(&running), Arc::clone(&server));
                        let slots = Arc::clone(&slots);
                        calls.push(std::thread::spawn(move || {
                            let slot = slots.take();
                            let answer = call::run(&server.program, &run, &cancellation);
                            drop(slot);
                            lock(&running).remove(&id.to_string());
                            if let Some(answer) = answer {
                                let result = answered(&answer.text, answer.is_error);
                                // A client that has gone needs no answer.
                                let _ = send(&output, &success(&id, result));
                            }
                        }));
                        continue;
                    }
                    // As an answer, so that the assistant can correct its arguments.
                    Err(error) if tools::is_known(params) => success(id, answered(&error, true)),
                    Err(error) => failure(id, INVALID_PARAMS, &error),
                }
            }
            _ => failure(id, METHOD_NOT_FOUND, &format!("no method {method}")),
        };
        send(&output, &answer)?;
    }
    // Those who close the input, as a script does, still read the answers.
    for call in calls {
        let _ = call.join();
    }
    Ok(())
}

/// Limits how many calls run at the same time.
#[derive(Default)]
struct Slots {
    taken: Mutex<usize>,
    freed: Condvar,
}

/// One of the calls that may run.
struct Slot<'s>(&'s Slots);

impl Slots {
    /// Waits until fewer than [`MOST_RUNNING`] calls run.
    fn take(&self) -> Slot<'_> {
        let taken = lock(&self.taken);
        let waited = self.freed.wait_while(taken, |taken| *taken >= MOST_RUNNING);
        *waited.unwrap_or_else(PoisonError::into_inner) += 1;
        Slot(self)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *lock(&self.0.taken) -= 1;
        self.0.freed.notify_one();
    }
}

/// Reads a line; `Some(None)` is one that is too long, `None` the end.
fn message(input: &mut impl BufRead) -> std::io::Result<Option<Option<Vec<u8>>>> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if input
            .by_ref()
            .take(MOST_BYTES)
            .read_until(b'\n', &mut line)?
            == 0
        {
            return Ok(None);
        }
        if !line.ends_with(b"\n") && line.len() as u64 == MOST_BYTES {
            input.skip_until(b'\n')?;
            return Ok(Some(None));
        }
        if !line.trim_ascii().is_empty() {
            return Ok(Some(Some(line)));
        }
    }
}

fn send(output: &Mutex<impl Write>, message: &Value) -> std::io::Result<()> {
    let mut output = lock(output);
    writeln!(output, "{message}")?;
    output.flush()
}

fn success(id: &Value, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

/// The result of a call.
fn answered(text: &str, is_error: bool) -> Value {
    json!({ "content": [{ "type": "text", "text": text }], "isError": is_error })
}

fn failure(id: &Value, code: i64, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}

fn initialized(params: &Value) -> Value {
    let wanted = params["protocolVersion"].as_str().unwrap_or_default();
    let known = VERSIONS.iter().find(|version| **version == wanted);
    json!({
        "protocolVersion": known.unwrap_or(&VERSIONS[0]),
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "perfquet-query", "version": env!("CARGO_PKG_VERSION") },
        "instructions": "Performance traces as SQL tables. Begin with info and findings, then top or list_tables. \
            Times and durations are nanoseconds; SQL may write 5ms. Partial data is marked: read the notes, and the tables losses and problems.",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// The answers to lines of input, by a server whose program prints its arguments.
    fn answers(input: &str) -> Vec<Value> {
        #[derive(Clone, Default)]
        struct Shared(Arc<Mutex<Vec<u8>>>);
        impl Write for Shared {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                lock(&self.0).write(bytes)
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let output = Shared::default();
        let server = Server {
            program: PathBuf::from("/bin/echo"),
            traces: vec![PathBuf::from("a.pqt")],
            limits: vec!["--threads=2".to_owned()],
        };
        serve(input.as_bytes(), output.clone(), server).unwrap();
        let bytes = lock(&output.0).clone();
        let text = String::from_utf8(bytes).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect()
    }

    #[test]
    fn methods_are_answered() {
        let found = answers(concat!(
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2024-11-05"}}"#,
            "\n\n",
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            "\n",
            r#"{"jsonrpc":"2.0","id":"two","method":"ping"}"#,
            "\n",
            r#"{"jsonrpc":"2.0","id":3,"method":"tools/list"}"#,
            "\n",
        ));
        assert_eq!(found[0]["result"]["protocolVersion"], "2024-11-05");
        assert_eq!(found[1], json!({"jsonrpc":"2.0","id":"two","result":{}}));
        let tools = found[2]["result"]["tools"].as_array().unwrap();
        for tool in tools {
            assert!(tool["name"].is_string() && tool["description"].is_string());
            assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        }
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn wrong_messages_are_errors_and_the_next_ones_are_answered() {
        let long = "x".repeat(MOST_BYTES as usize + 10);
        let found = answers(&format!(
            "{{\n{long}\n{}\n{}\n{}\n[1]\n",
            r#"{"jsonrpc":"2.0","id":1,"method":"resources/list"}"#,
            r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"rm"}}"#,
            r#"{"jsonrpc":"2.0","id":3}"#,
        ));
        let codes: Vec<i64> = (found.iter())
            .map(|answer| answer["error"]["code"].as_i64().unwrap())
            .collect();
        let expected = [
            PARSE_ERROR,
            INVALID_REQUEST,
            METHOD_NOT_FOUND,
            INVALID_PARAMS,
            INVALID_REQUEST,
            INVALID_REQUEST,
        ];
        assert_eq!(codes, expected);
    }

    #[test]
    fn more_calls_than_may_run_at_the_same_time_are_answered() {
        let call = |id: usize| {
            json!({"jsonrpc":"2.0","id":id,"method":"tools/call","params":{"name":"info"}})
                .to_string()
                + "\n"
        };
        let input: String = (0..20).map(call).collect();
        let mut ids: Vec<u64> = (answers(&input).iter())
            .map(|answer| answer["id"].as_u64().unwrap())
            .collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..20).collect::<Vec<u64>>());
    }

    #[test]
    fn calls_run_the_command_that_a_person_would_type() {
        let wrong = answers(
            r#"{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"query","arguments":{}}}"#,
        );
        let result = &wrong[0]["result"];
        assert_eq!(result["content"][0]["text"], "query: missing sql");
        assert_eq!(result["isError"], true);
        let found = answers(
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"query","arguments":{"sql":"SELECT 1"}}}"#,
        );
        let text = found[0]["result"]["content"][0]["text"].as_str().unwrap();
        assert_eq!(
            text,
            "sql --queries-only --format=ndjson --file=- --threads=2 -- a.pqt\n"
        );
        assert_eq!(found[0]["result"]["isError"], false);
    }
}
