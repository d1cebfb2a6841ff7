//! Times that do not fit into a row: 2^63 ns and more, which is 292 years.
//!
//! Readers pass them as [`TIME_BEYOND`]. Here, for every format, they become NULL and are counted.

use perfquet_events::Error;
use perfquet_events::event::{Call, Common, Enter, Event, Leave, PairedCall, Sample, TIME_BEYOND};

use super::Normalizer;

fn is_beyond(time: Option<i64>) -> bool {
    time == Some(TIME_BEYOND)
}

fn without<'a>(common: &Common<'a>) -> Common<'a> {
    let time = None;
    Common { time, ..*common }
}

impl Normalizer<'_> {
    /// A sample whose time does not fit.
    #[cold]
    pub(super) fn sample_beyond(&mut self, sample: &Sample<'_>) -> Result<(), Error> {
        self.window.beyond += 1;
        let time = None;
        self.sample(&Sample { time, ..*sample })
    }

    /// Handles any other event, whether its time fits or not.
    pub(super) fn side_band_in_time(&mut self, mut event: Event<'_>) -> Result<(), Error> {
        let mut is_any = false;
        let mut check = |time: &mut Option<i64>| {
            if is_beyond(*time) {
                (*time, is_any) = (None, true);
            }
        };
        match &mut event {
            Event::Switch(switch) => check(&mut switch.time),
            Event::Comm(comm) => check(&mut comm.time),
            Event::Fork(fork) => check(&mut fork.time),
            Event::Exit(exit) => check(&mut exit.time),
            Event::Process(state) => check(&mut state.time),
            Event::OpenFile(file) => check(&mut file.time),
            Event::KeptCode(kept) => check(&mut kept.time),
            Event::Mapping(mapping) => check(&mut mapping.time),
            Event::KernelSymbol(symbol) => check(&mut symbol.time),
            Event::Loss(loss) => check(&mut loss.time),
            Event::Enter(Enter { common, .. })
            | Event::Leave(Leave { common, .. })
            | Event::Call(Call { common, .. })
                if is_beyond(common.time) =>
            {
                return self.edge_beyond(event);
            }
            Event::PairedCall(paired) if is_beyond(paired.call.common.time) => {
                return self.edge_beyond(event);
            }
            Event::Aggregate(aggregate) if is_beyond(aggregate.time) => {
                self.window.beyond += 1;
                let time = None;
                return self.aggregate(&perfquet_events::event::Aggregate {
                    time,
                    ..**aggregate
                });
            }
            Event::Count(value) if is_beyond(value.time) || is_beyond(value.since) => {
                self.window.beyond += 1;
                let known = |time: Option<i64>| time.filter(|_| !is_beyond(time));
                return self.count(&perfquet_events::event::CounterValue {
                    since: known(value.since),
                    time: known(value.time),
                    ..**value
                });
            }
            Event::Enter(_) | Event::Leave(_) | Event::Call(_) | Event::PairedCall(_) => {}
            Event::Aggregate(_) | Event::Count(_) => {}
            Event::Sample(_) | Event::Stack(_) | Event::Fact(_) => {}
            Event::Selection(_) | Event::Type(_) | Event::BuildId(_) | Event::KernelText(_) => {}
            Event::Symbol(_) | Event::Problem(_) | Event::Progress(_) | Event::Cgroup(_) => {}
            Event::Namespaces(_) => {}
        }
        self.window.beyond += u64::from(is_any);
        self.side_band(event)
    }

    #[cold]
    fn edge_beyond(&mut self, event: Event<'_>) -> Result<(), Error> {
        self.window.beyond += 1;
        match event {
            Event::Enter(enter) => self.enter(&Enter {
                common: without(&enter.common),
                ..*enter
            }),
            Event::Leave(leave) => self.leave(&Leave {
                common: without(&leave.common),
                ..*leave
            }),
            Event::Call(call) => self.call(&Call {
                common: without(&call.common),
                ..*call
            }),
            Event::PairedCall(paired) => {
                let common = without(&paired.call.common);
                let call = Call {
                    common,
                    ..paired.call
                };
                self.paired_call(&PairedCall { call, ..*paired })
            }
            other => self.side_band(other),
        }
    }

    /// Reports their number as a problem.
    pub(super) fn report_times_beyond(&mut self) {
        if self.window.beyond > 0 {
            let message = "expected times below 2^63 ns, found later ones: these are NULL";
            self.problem(self.window.beyond, message);
        }
    }
}
