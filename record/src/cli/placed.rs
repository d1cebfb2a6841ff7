//! Events and probes in their order, each with the filters and aggregations that follow it.

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory};

use super::Cli;
use crate::bpf;
use crate::probe::ProbeOption;

/// What the order of the options says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Placed {
    /// Long names of the options on the command line.
    pub(crate) given: Vec<String>,
    /// Events and probes in their order, each with its filters.
    pub(crate) requests: Vec<ProbeRequest>,
    /// A filter that no event or probe precedes.
    pub(crate) has_lonely_filter: bool,
    /// An aggregation whose probe is ambiguous or missing.
    pub(crate) has_lonely_aggregation: bool,
}

/// One event or probe option with its filters and aggregations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProbeRequest {
    pub(crate) option: ProbeOption,
    /// The value of the option.
    pub(crate) text: String,
    /// Values of the options `--call` directly before it, which are aggregated together with it.
    pub(crate) earlier: Vec<String>,
    /// The filters that follow it.
    pub(crate) filters: Vec<String>,
    /// Aggregations of the event or probe.
    pub(crate) aggregations: Vec<String>,
}

impl Placed {
    /// Assigns each filter and aggregation to the event or probe before it.
    pub(super) fn of(cli: &Cli, matches: &ArgMatches) -> Placed {
        let mut has_lonely_filter = false;
        let mut has_lonely_aggregation = false;
        let options = [
            (ProbeOption::Event, "events", &cli.events.names),
            (ProbeOption::Kprobe, "kprobes", &cli.events.kprobes),
            (ProbeOption::Kretprobe, "kretprobes", &cli.events.kretprobes),
            (ProbeOption::Uprobe, "uprobes", &cli.events.uprobes),
            (ProbeOption::Uretprobe, "uretprobes", &cli.events.uretprobes),
            (ProbeOption::Usdt, "usdts", &cli.events.usdts),
            (ProbeOption::Call, "calls", &cli.calls.calls),
            (ProbeOption::Latency, "latencies", &cli.in_kernel.latencies),
        ];
        let mut placed = Vec::new();
        for (option, id, texts) in options {
            let places = matches.indices_of(id).into_iter().flatten();
            placed.extend(places.zip(texts).map(|(place, text)| {
                let request = ProbeRequest {
                    option,
                    text: text.clone(),
                    earlier: Vec::new(),
                    filters: Vec::new(),
                    aggregations: Vec::new(),
                };
                (place, request)
            }));
        }
        placed.sort_by_key(|(place, _)| *place);
        let places = matches.indices_of("filters").into_iter().flatten();
        for (place, filter) in places.zip(&cli.in_kernel.filters) {
            match placed.iter_mut().rfind(|(before, _)| *before < place) {
                Some((_, request)) => request.filters.push(filter.clone()),
                None => has_lonely_filter = true,
            }
        }
        let texts = cli.in_kernel.bpf.aggregations();
        let places = matches.indices_of(bpf::AGGREGATIONS).into_iter().flatten();
        for (place, text) in places.zip(texts) {
            let before = placed.iter().rposition(|(before, _)| *before < place);
            // Before a single probe, an aggregation can only mean that one.
            let only = (placed.len() == 1).then_some(0);
            match before.or(only) {
                Some(index) => placed[index].1.aggregations.push(text.clone()),
                None => has_lonely_aggregation = true,
            }
        }
        let requests = joined(placed.into_iter().map(|(_, request)| request));
        Placed {
            given: given(matches),
            requests,
            has_lonely_filter,
            has_lonely_aggregation,
        }
    }
}

/// Returns the long names of the options that the user gave.
fn given(matches: &ArgMatches) -> Vec<String> {
    let command = Cli::command();
    let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let options = command.get_arguments();
    let options = options.filter(|option| is_given(option.get_id().as_str()));
    options
        .filter_map(|option| option.get_long().map(str::to_owned))
        .collect()
}

/// Joins several `--call` in a row that an aggregation follows: it is for the calls of all of them.
fn joined(requests: impl Iterator<Item = ProbeRequest>) -> Vec<ProbeRequest> {
    let mut all: Vec<ProbeRequest> = Vec::new();
    for mut request in requests {
        let is_aggregated = !request.aggregations.is_empty();
        if request.option == ProbeOption::Call && is_aggregated {
            let is_plain = |before: &mut ProbeRequest| {
                let has_own = !before.aggregations.is_empty() || !before.filters.is_empty();
                before.option == ProbeOption::Call && !has_own
            };
            while let Some(before) = all.pop_if(is_plain) {
                request.earlier.insert(0, before.text);
            }
        }
        all.push(request);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::read;

    #[test]
    fn filters_belong_to_the_event_before() {
        let cli = read("-e a:b --kprobe f --filter x --filter z -e e:f,g:h --filter y -a").unwrap();
        let requests: Vec<(ProbeOption, &str, usize)> = cli
            .placed
            .requests
            .iter()
            .map(|request| (request.option, request.text.as_str(), request.filters.len()))
            .collect();
        assert_eq!(
            requests,
            [
                (ProbeOption::Event, "a:b", 0),
                (ProbeOption::Kprobe, "f", 2),
                (ProbeOption::Event, "e:f,g:h", 1)
            ]
        );
        assert!(!cli.placed.has_lonely_filter);
        let of = |line: &str| -> Vec<usize> {
            let cli = read(line).unwrap();
            let counts = cli
                .placed
                .requests
                .iter()
                .map(|request| request.aggregations.len());
            counts
                .chain(cli.placed.has_lonely_aggregation.then_some(99))
                .collect()
        };
        assert_eq!(of("--agg count() --uprobe a:b -a"), [1]);
        assert_eq!(
            of("-e a:b --agg count() -e c:d --agg count() --agg count() -a"),
            [1, 2]
        );
        assert_eq!(of("--agg count() -e a:b -e c:d -a"), [0, 0, 99]);
        let earlier = |line: &str| -> Vec<(String, Vec<String>)> {
            let requests = read(line).unwrap().placed.requests.into_iter();
            requests
                .map(|request| (request.text, request.earlier))
                .collect()
        };
        let one = |text: &str, earlier: &[&str]| {
            let earlier = earlier.iter().map(|text| (*text).to_owned()).collect();
            (text.to_owned(), earlier)
        };
        assert_eq!(
            earlier("--call f --call g -a --call h --agg count() --agg max(duration) --call i"),
            [one("h", &["f", "g"]), one("i", &[])]
        );
        assert_eq!(
            earlier("--call f --filter x -e a:b --call g --agg count()"),
            [one("f", &[]), one("a:b", &[]), one("g", &[])]
        );
        assert!(
            read("--filter x -e a:b -a")
                .unwrap()
                .placed
                .has_lonely_filter
        );
    }
}
