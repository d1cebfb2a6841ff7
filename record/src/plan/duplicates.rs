//! Events that several options select are recorded once: each hit twice would double every number.
//!
//! ```text
//! --preset sched -e sched:sched_switch                                      sched:sched_switch once
//! -e sched:sched_switch --filter 'prev_pid > 0' -e 'sched:*'                once, without the filter
//! -e sched:sched_switch --filter A -e sched:sched_switch --filter B         refused: a hit that passes both would be two rows
//! ```

use std::collections::BTreeSet;

use super::requests::{Request, What};
use crate::failure::{Failure, misuse};
use crate::probe::Wanted;
use crate::probe::definition::Definition;
use crate::probe::form::Form;
use crate::sys::perf_event::attr_bytes;

/// What makes two events the same, with the name for messages.
#[derive(Clone, PartialEq)]
struct Event {
    name: String,
    /// Attributes of an event that exists; empty for a probe.
    attr: Vec<u8>,
    /// Forms of a probe to define.
    forms: Vec<Form>,
}

impl Event {
    fn of_definition(definition: &Definition) -> Event {
        Event {
            name: definition.text.clone(),
            attr: Vec::new(),
            forms: definition.forms.clone(),
        }
    }

    fn is(&self, other: &Event) -> bool {
        match self.attr.is_empty() {
            true => self.forms == other.forms,
            false => self.name == other.name,
        }
    }
}

/// The events of a request that are rows, in their order. Groups are events of their own.
fn events(request: &Request<'_>) -> Vec<Option<Event>> {
    match &request.what {
        What::Rows(Wanted::Events(probes)) => probes
            .iter()
            .map(|probe| {
                probe.members.is_empty().then(|| Event {
                    name: probe.name.clone(),
                    attr: attr_bytes(&probe.attr),
                    forms: Vec::new(),
                })
            })
            .collect(),
        What::Rows(Wanted::Probes(definitions)) => {
            let all = definitions.iter();
            all.map(|one| Some(Event::of_definition(one))).collect()
        }
        What::Rows(Wanted::Calls(functions)) | What::Paired(functions) => {
            let all = functions.all.iter();
            all.map(|both| Some(Event::of_definition(&both.entry)))
                .collect()
        }
        What::Hits(_) | What::Calls(_) | What::Latency => Vec::new(),
    }
}

/// An event that is recorded: where it was selected.
struct Known {
    event: Event,
    request: usize,
    place: usize,
}

/// Removes all but one of the events that are selected more than once.
pub(super) fn remove(requests: &mut [Request<'_>]) -> Result<(), Failure> {
    let mut known: Vec<Known> = Vec::new();
    let mut removed: BTreeSet<(usize, usize)> = BTreeSet::new();
    for (number, request) in requests.iter().enumerate() {
        for (place, event) in events(request).into_iter().enumerate() {
            let Some(event) = event else { continue };
            let Some(earlier) = known.iter_mut().find(|known| known.event.is(&event)) else {
                known.push(Known {
                    event,
                    request: number,
                    place,
                });
                continue;
            };
            if earlier.event.attr != event.attr {
                return Err(misuse(format!(
                    "{} is selected twice, with different terms",
                    event.name
                ))
                .hint("select it once"));
            }
            let filter = |request: usize| requests[request].filter.as_deref();
            match (filter(earlier.request), filter(number)) {
                (Some(_), None) => {
                    removed.insert((earlier.request, earlier.place));
                    (earlier.request, earlier.place) = (number, place);
                }
                (Some(first), Some(second)) if first != second => {
                    return Err(misuse(format!(
                        "{} is selected twice, with different filters",
                        event.name
                    ))
                    .hint(format!(
                        "select it once, with --filter '({first}) || ({second})'"
                    )));
                }
                _ => {
                    removed.insert((number, place));
                }
            }
            log::info!("{} is selected twice, and recorded once", event.name);
        }
    }
    for (number, request) in requests.iter_mut().enumerate() {
        let mut place = 0;
        let mut is_kept = || {
            place += 1;
            !removed.contains(&(number, place - 1))
        };
        match &mut request.what {
            What::Rows(Wanted::Events(probes)) => probes.retain(|_| is_kept()),
            What::Rows(Wanted::Probes(definitions)) => definitions.retain(|_| is_kept()),
            What::Rows(Wanted::Calls(functions)) | What::Paired(functions) => {
                functions.retain(is_kept);
            }
            What::Hits(_) | What::Calls(_) | What::Latency => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use crate::cli::Cli;
    use crate::plan::requests::Requests;

    /// The recorded events of a command line, or what is wrong with it.
    fn recorded(words: &[&str]) -> Result<Vec<String>, String> {
        let words = std::iter::once("perfquet-record").chain(words.iter().copied());
        let matches = Cli::command().try_get_matches_from(words);
        let matches = matches.map_err(|error| error.to_string())?;
        let cli = Cli::of(&matches).map_err(|error| error.to_string())?;
        let mut requests = Requests::read(&cli).map_err(|error| error.to_string())?;
        super::remove(&mut requests.events).map_err(|error| error.to_string())?;
        let probes = requests.existing();
        Ok(probes.iter().map(|probe| probe.name.clone()).collect())
    }

    #[test]
    fn an_event_that_two_options_select_is_recorded_once() {
        let twice = ["-e", "cpu-clock,page-faults", "-e", "page-faults,cpu-clock"];
        assert_eq!(
            recorded(&twice),
            Ok(vec!["cpu-clock".to_owned(), "page-faults".to_owned()])
        );
        let different = ["-e", "cpu-clock:u,cpu-clock:k"];
        assert_eq!(recorded(&different).map(|all| all.len()), Ok(2));
    }
}
