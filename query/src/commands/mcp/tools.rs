//! The tools, and the command line of each call.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::call::{Lines, Run};

/// What a parameter becomes.
#[derive(Clone, Copy)]
enum Becomes {
    /// `--name=value`.
    Option(&'static str),
    /// An argument after the traces.
    Last,
    /// Text on stdin.
    Input,
    /// The number of lines that are read.
    First(usize),
    /// The number of stacks, the heaviest first.
    Heaviest(usize),
    /// The only trace, instead of all.
    Trace,
    /// The limit of time.
    Seconds,
}

#[derive(Clone, Copy)]
struct Parameter {
    name: &'static str,
    /// Its type in JSON Schema: string or integer.
    kind: &'static str,
    about: &'static str,
    becomes: Becomes,
    is_required: bool,
}

const fn text(name: &'static str, becomes: Becomes, about: &'static str) -> Parameter {
    Parameter {
        name,
        kind: "string",
        about,
        becomes,
        is_required: false,
    }
}

const fn number(name: &'static str, becomes: Becomes, about: &'static str) -> Parameter {
    Parameter {
        kind: "integer",
        ..text(name, becomes, about)
    }
}

const fn required(parameter: Parameter) -> Parameter {
    Parameter {
        is_required: true,
        ..parameter
    }
}

/// A tool: a subcommand with some of its options.
struct Tool {
    name: &'static str,
    about: &'static str,
    command: &'static [&'static str],
    /// Whether it answers for one trace only.
    is_of_one: bool,
    parameters: &'static [Parameter],
}

const TIME: Parameter = text(
    "time",
    Becomes::Option("--time"),
    "Range from the start of the trace, such as 1.2s..1.5s",
);
const COMM: Parameter = text(
    "comm",
    Becomes::Option("--comm"),
    "Names of threads, comma-separated",
);
const PID: Parameter = text(
    "pid",
    Becomes::Option("--pid"),
    "Process IDs, comma-separated",
);
const WHERE: Parameter = text(
    "where",
    Becomes::Option("--where"),
    "SQL condition on the rows, such as duration > 5ms",
);
const EVENT: Parameter = text(
    "event",
    Becomes::Option("--event"),
    "Event to analyze; the default is the sampled event with most rows",
);
const LIMIT: Parameter = number(
    "limit",
    Becomes::Option("--limit"),
    "Maximum number of rows",
);
/// Parameters that every tool has; the first one only if there are several traces.
const COMMON: [Parameter; 2] = [
    text(
        "trace",
        Becomes::Trace,
        "Path of the trace to ask, as in info",
    ),
    number(
        "timeout_seconds",
        Becomes::Seconds,
        "Limit of time, 1 to 600; the default is 60",
    ),
];

const TOOLS: &[Tool] = &[
    Tool {
        name: "info",
        about: "Summarizes each trace: time, host, command, events, losses and problems.",
        command: &["info"],
        is_of_one: false,
        parameters: &[],
    },
    Tool {
        name: "findings",
        about: "Lists what stands out: losses, hot functions, long waits, contended locks, failing calls; each with a query to go on.",
        command: &["findings"],
        is_of_one: true,
        parameters: &[TIME, COMM, PID],
    },
    Tool {
        name: "list_tables",
        about: "Lists tables, and views whose events were recorded, with numbers of rows and descriptions.",
        command: &["tables", "--format=csv"],
        is_of_one: true,
        parameters: &[],
    },
    Tool {
        name: "describe",
        about: "Describes the columns of a table or view: types, units, meaning.",
        command: &["tables", "--format=csv"],
        is_of_one: true,
        parameters: &[required(text(
            "table",
            Becomes::Last,
            "A name from list_tables",
        ))],
    },
    Tool {
        name: "query",
        about: "Runs one SQL query (DataFusion's dialect, much of DuckDB's) and returns one JSON object per row. \
            Times are nanoseconds; 5ms and 3s are durations; stack_text(id) is a stack as text. Several traces have the column trace.",
        command: &["sql", "--queries-only", "--format=ndjson", "--file=-"],
        is_of_one: false,
        parameters: &[
            required(text("sql", Becomes::Input, "The query")),
            number(
                "limit",
                Becomes::First(200),
                "Maximum number of rows; the default is 200",
            ),
            TIME,
            COMM,
            PID,
        ],
    },
    Tool {
        name: "top",
        about: "Lists the hottest functions, modules, threads, processes or events of samples: own and total weight.",
        command: &["top"],
        is_of_one: false,
        parameters: &[
            text(
                "by",
                Becomes::Option("--by"),
                "function (default), module, thread, process, event, …",
            ),
            EVENT,
            WHERE,
            TIME,
            COMM,
            PID,
            LIMIT,
        ],
    },
    Tool {
        name: "flamegraph",
        about: "Lists the heaviest stacks of samples, outermost function first, with their weights and shares.",
        command: &["flamegraph", "--folded"],
        is_of_one: false,
        parameters: &[
            text(
                "from",
                Becomes::Option("--from"),
                "A table or view with stacks instead of samples, such as off_cpu",
            ),
            number(
                "limit",
                Becomes::Heaviest(50),
                "Maximum number of stacks; the default is 50",
            ),
            EVENT,
            WHERE,
            TIME,
            COMM,
            PID,
        ],
    },
    Tool {
        name: "annotate",
        about: "Shows the instructions and source lines of a function with their share of its samples, hottest function first. \
            The code is that of the recorded files, or what the recorder kept (--keep-code); where there is none, the answer says why.",
        command: &["annotate"],
        is_of_one: true,
        parameters: &[
            text(
                "function",
                Becomes::Last,
                "A function as in top; the default is the hottest one",
            ),
            text(
                "module",
                Becomes::Option("--module"),
                "Only functions of this file",
            ),
            text(
                "by",
                Becomes::Option("--by"),
                "instruction (default), or line for source lines alone",
            ),
            EVENT,
            number(
                "limit",
                Becomes::Option("--limit"),
                "Number of functions; the default is 1",
            ),
            WHERE,
            TIME,
            COMM,
            PID,
        ],
    },
    Tool {
        name: "durations",
        about: "Summarizes durations of function and system calls: count, total, self, percentiles.",
        command: &["durations"],
        is_of_one: false,
        parameters: &[WHERE, TIME, COMM, PID, LIMIT],
    },
    Tool {
        name: "waits",
        about: "Summarizes what threads wait for, by thread name, state and function of the kernel.",
        command: &["waits"],
        is_of_one: false,
        parameters: &[WHERE, TIME, COMM, PID, LIMIT],
    },
];

/// Whether a call names a tool that exists.
pub(super) fn is_known(params: &Value) -> bool {
    TOOLS.iter().any(|tool| params["name"] == tool.name)
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A program, the traces that it serves, and limits as its arguments.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) program: PathBuf,
    pub(super) traces: Vec<PathBuf>,
    pub(super) limits: Vec<String>,
}

impl Server {
    /// The parameters of a tool.
    fn parameters(&self, tool: &Tool) -> impl Iterator<Item = Parameter> {
        let several = self.traces.len() > 1;
        let of_one = tool.is_of_one;
        let own = tool.parameters.iter().copied();
        own.chain(COMMON).filter_map(move |mut parameter| {
            if matches!(parameter.becomes, Becomes::Trace) {
                parameter.is_required = of_one;
                return several.then_some(parameter);
            }
            Some(parameter)
        })
    }

    /// The tools, as `tools/list` returns them.
    pub(super) fn list(&self) -> Vec<Value> {
        let described = TOOLS.iter().map(|tool| {
            let mut properties = Map::new();
            let mut required = Vec::new();
            for parameter in self.parameters(tool) {
                properties.insert(
                    parameter.name.to_owned(),
                    json!({ "type": parameter.kind, "description": parameter.about }),
                );
                if parameter.is_required {
                    required.push(parameter.name);
                }
            }
            json!({
                "name": tool.name,
                "description": tool.about,
                "inputSchema": {
                    "type": "object",
                    "properties": properties,
                    "required": required,
                    "additionalProperties": false,
                },
                "annotations": { "readOnlyHint": true, "openWorldHint": false },
            })
        });
        described.collect()
    }

    /// The command line of a call, or why there is none.
    pub(super) fn command(&self, params: &Value) -> Result<Run, String> {
        let name = params["name"].as_str().unwrap_or_default();
        let tool = TOOLS.iter().find(|tool| tool.name == name);
        let tool = tool.ok_or_else(|| format!("no tool {name}"))?;
        let none = Map::new();
        let given = match &params["arguments"] {
            Value::Null => &none,
            Value::Object(given) => given,
            _ => return Err("arguments: expected an object".to_owned()),
        };
        let parameters: Vec<Parameter> = self.parameters(tool).collect();
        if let Some(other) =
            (given.keys()).find(|key| parameters.iter().all(|one| one.name != **key))
        {
            let known: Vec<&str> = parameters.iter().map(|one| one.name).collect();
            return Err(format!(
                "no parameter {other}; {name} takes {}",
                known.join(", ")
            ));
        }
        let mut run = Run {
            arguments: tool.command.iter().map(ToString::to_string).collect(),
            input: String::new(),
            lines: Lines::All,
            time: Duration::from_secs(60),
        };
        run.arguments.extend(self.limits.iter().cloned());
        let mut traces: Vec<&PathBuf> = self.traces.iter().collect();
        let mut last = Vec::new();
        for parameter in &parameters {
            let value = match given.get(parameter.name) {
                None | Some(Value::Null) if parameter.is_required => {
                    return Err(format!("{name}: missing {}", parameter.name));
                }
                None | Some(Value::Null) => {
                    match parameter.becomes {
                        Becomes::First(lines) => run.lines = Lines::First(lines),
                        Becomes::Heaviest(stacks) => run.lines = Lines::Heaviest(stacks),
                        _ => {}
                    }
                    continue;
                }
                Some(Value::String(text)) if parameter.kind == "string" => text.clone(),
                Some(Value::Number(number)) => number.to_string(),
                Some(other) => {
                    return Err(format!(
                        "{}: expected {}, found {other}",
                        parameter.name,
                        match parameter.kind {
                            "string" => "a string",
                            _ => "an integer",
                        }
                    ));
                }
            };
            let whole = || {
                let number = value.parse::<u64>();
                number
                    .map_err(|_| format!("{}: expected an integer, found {value}", parameter.name))
            };
            match parameter.becomes {
                Becomes::Option(option) => run.arguments.push(format!("{option}={value}")),
                Becomes::Last => last.push(value),
                Becomes::Input => run.input = value,
                Becomes::First(_) => run.lines = Lines::First(count(whole()?)),
                Becomes::Heaviest(_) => run.lines = Lines::Heaviest(count(whole()?)),
                Becomes::Seconds => run.time = Duration::from_secs(whole()?.clamp(1, 600)),
                Becomes::Trace => {
                    traces.retain(|path| path.to_string_lossy() == value);
                    if traces.is_empty() {
                        let known: Vec<_> = self
                            .traces
                            .iter()
                            .map(|path| path.to_string_lossy())
                            .collect();
                        return Err(format!(
                            "no trace {value}; the traces are {}",
                            known.join(", ")
                        ));
                    }
                }
            }
        }
        // After this, nothing is an option, whatever it begins with.
        run.arguments.push("--".to_owned());
        let traces = traces.iter().map(|path| path.display().to_string());
        run.arguments.extend(traces.chain(last));
        Ok(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(traces: &[&str]) -> Server {
        Server {
            program: PathBuf::from("/bin/echo"),
            traces: traces.iter().map(PathBuf::from).collect(),
            limits: Vec::new(),
        }
    }

    fn line(server: &Server, name: &str, arguments: Value) -> Result<String, String> {
        let run = server.command(&json!({ "name": name, "arguments": arguments }))?;
        Ok(run.arguments.join(" "))
    }

    #[test]
    fn values_are_never_options_of_their_own() {
        let one = server(&["a.pqt"]);
        let top = line(&one, "top", json!({ "comm": "--sql", "limit": 5 }));
        assert_eq!(top.unwrap(), "top --comm=--sql --limit=5 -- a.pqt");
        let described = line(&one, "describe", json!({ "table": "--help" }));
        assert_eq!(described.unwrap(), "tables --format=csv -- a.pqt --help");
        let query = one.command(&json!({ "name": "query", "arguments": { "sql": "/etc/passwd" } }));
        let query = query.unwrap();
        assert_eq!(
            (query.input.as_str(), query.lines),
            ("/etc/passwd", Lines::First(200))
        );
        assert!(query.arguments.contains(&"--queries-only".to_owned()));
        let code = line(
            &one,
            "annotate",
            json!({ "function": "--all", "by": "line" }),
        );
        assert_eq!(code.unwrap(), "annotate --by=line -- a.pqt --all");
    }

    #[test]
    fn only_the_traces_of_the_command_line_are_read() {
        let two = server(&["a.pqt", "b.pqt"]);
        let other = line(&two, "findings", json!({ "trace": "c.pqt" }));
        assert_eq!(
            other.unwrap_err(),
            "no trace c.pqt; the traces are a.pqt, b.pqt"
        );
        let missing = line(&two, "findings", json!({}));
        assert_eq!(missing.unwrap_err(), "findings: missing trace");
        assert_eq!(
            line(&two, "findings", json!({ "trace": "b.pqt" })).unwrap(),
            "findings -- b.pqt"
        );
        assert_eq!(
            line(&two, "info", Value::Null).unwrap(),
            "info -- a.pqt b.pqt"
        );
        assert!(line(&server(&["a.pqt"]), "info", json!({ "trace": "a.pqt" })).is_err());
    }

    #[test]
    fn wrong_arguments_are_named() {
        let one = server(&["a.pqt"]);
        let wrong = |arguments| line(&one, "top", arguments).unwrap_err();
        assert!(wrong(json!({ "limits": 5 })).starts_with("no parameter limits; top takes by, "));
        assert_eq!(
            wrong(json!({ "by": true })),
            "by: expected a string, found true"
        );
        assert!(wrong(json!([])).starts_with("arguments: "));
    }
}
