//! Calls as slices: BEGIN and END of a call are written together, because the importer sorts by time.
//!
//! All arguments and the return value are in BEGIN: with equal timestamps, an END may close another slice of its track.
//! A call without an exit must not stay open, because all later calls would nest in it. It becomes an instant, or, if
//! it was still open at the end of the trace, a slice on a separate track.

use std::collections::HashMap;

use anyhow::Result;

use super::super::calls::{Call, OpenDepths, Owner, each_call};
use super::super::lanes::Lanes;
use super::super::source::Source;
use super::super::{SLICES_DEEPEST, Tally};
use super::fields::track_event;
use super::packets::Packets;
use super::tracks::{Annotation, Track, TrackEvent, Tracks};

const CATEGORY: &str = "calls";
/// The depth of a call, where times do not tell it.
const CALL_DEPTH: &str = "call_depth";

/// Writes the calls.
pub(super) fn write(
    source: &Source<'_>,
    packets: &mut Packets<'_>,
    tracks: &mut Tracks<'_>,
    tally: &mut Tally,
) -> Result<()> {
    let mut slices = Slices {
        lanes: HashMap::new(),
        open: HashMap::new(),
        depths: OpenDepths::default(),
        slices: 0,
        instants: 0,
        too_deep: 0,
        before_zero: 0,
    };
    let counts = each_call(source, |call| slices.call(packets, tracks, call))?;
    slices.end(packets, tracks)?;
    tally.wrote("call", slices.slices + slices.instants);
    tally.omit(
        "call",
        "nested deeper than 512, or 256 overlapping",
        slices.too_deep,
    );
    counts.omissions(tally);
    tally.omit("call", "before time 0 of the clock", slices.before_zero);
    Ok(())
}

struct Slices {
    lanes: HashMap<Track, Lanes>,
    /// Calls that may be open until the end, by thread, outermost first.
    open: HashMap<Track, Vec<OpenCall>>,
    depths: OpenDepths,
    slices: u64,
    /// Calls with an unknown duration.
    instants: u64,
    too_deep: u64,
    before_zero: u64,
}

struct OpenCall {
    time: i64,
    depth: i32,
    comm: Option<String>,
    entry_seen: bool,
    name: String,
    annotations: Vec<(String, Annotation)>,
}

impl Slices {
    fn call(
        &mut self,
        packets: &mut Packets<'_>,
        tracks: &mut Tracks<'_>,
        call: &Call<'_>,
    ) -> Result<()> {
        if call.time < 0 {
            self.before_zero += 1;
            return Ok(());
        }
        let main = main_track(call);
        self.close(packets, tracks, &main, call)?;
        let mut annotations = annotations(call);
        if let Some(depth) = self.depths.of(call) {
            annotations.push((CALL_DEPTH.to_owned(), Annotation::Int(depth.into())));
        }
        let Some(end) = call.end() else {
            let open = OpenCall {
                time: call.time,
                depth: call.depth.unwrap_or(0),
                comm: call.head.comm.map(str::to_owned),
                entry_seen: call.entry_seen,
                name: call.name().to_owned(),
                annotations,
            };
            if call.exit_seen || call.depth.is_none() {
                return self.instant(packets, tracks, &main, &open);
            }
            self.open.entry(main).or_default().push(open);
            return Ok(());
        };
        let lanes = self.lanes.entry(main.clone()).or_default();
        let Some(place) = lanes.place(call.time, end, SLICES_DEEPEST) else {
            self.too_deep += 1;
            return Ok(());
        };
        self.slices += 1;
        let track = on_lane(main, place.lane);
        let event = TrackEvent {
            time: call.time,
            kind: track_event::BEGIN,
            category: CATEGORY,
            name: call.name(),
            annotations: &annotations,
        };
        tracks.event(packets, &track, call.head.comm, &event)?;
        tracks.end(packets, &track, end)
    }

    /// Writes open calls that do not enclose this one as instants: they must have ended.
    fn close(
        &mut self,
        packets: &mut Packets<'_>,
        tracks: &mut Tracks<'_>,
        track: &Track,
        call: &Call<'_>,
    ) -> Result<()> {
        let Some(open) = self.open.get_mut(track) else {
            return Ok(());
        };
        let depth = call.depth.unwrap_or(0);
        let inside = open.partition_point(|open| open.depth < depth);
        for open in open.split_off(inside) {
            self.instant(packets, tracks, track, &open)?;
        }
        Ok(())
    }

    fn instant(
        &mut self,
        packets: &mut Packets<'_>,
        tracks: &mut Tracks<'_>,
        track: &Track,
        open: &OpenCall,
    ) -> Result<()> {
        self.instants += 1;
        let missing = match open.entry_seen {
            true => "exit",
            false => "entry",
        };
        let event = TrackEvent {
            time: open.time,
            kind: track_event::INSTANT,
            category: CATEGORY,
            name: &format!("{} ({missing} not seen)", open.name),
            annotations: &open.annotations,
        };
        tracks.event(packets, track, open.comm.as_deref(), &event)
    }

    /// Writes the calls that were open when the trace ended.
    fn end(&mut self, packets: &mut Packets<'_>, tracks: &mut Tracks<'_>) -> Result<()> {
        let mut open: Vec<(Track, Vec<OpenCall>)> =
            std::mem::take(&mut self.open).into_iter().collect();
        open.sort_by_key(|(track, _)| format!("{track:?}"));
        for (track, calls) in open {
            let track = match track {
                Track::Thread { tid, pid, .. } => Track::Open { tid, pid },
                other => other,
            };
            for call in calls {
                self.slices += 1;
                let event = TrackEvent {
                    time: call.time,
                    kind: track_event::BEGIN,
                    category: CATEGORY,
                    name: &call.name,
                    annotations: &call.annotations,
                };
                tracks.event(packets, &track, None, &event)?;
            }
        }
        Ok(())
    }
}

fn main_track(call: &Call<'_>) -> Track {
    match call.owner() {
        Owner::Thread { tid, pid } => Track::Thread { tid, pid, lane: 0 },
        Owner::Cpu { cpu, what } => Track::Cpu { cpu, what, lane: 0 },
        Owner::Unknown => Track::Named("calls"),
    }
}

fn on_lane(track: Track, lane: usize) -> Track {
    match track {
        Track::Thread { tid, pid, .. } => Track::Thread { tid, pid, lane },
        Track::Cpu { cpu, what, .. } => Track::Cpu { cpu, what, lane },
        other => other,
    }
}

fn annotations(call: &Call<'_>) -> Vec<(String, Annotation)> {
    let mut annotations = Vec::new();
    for (index, arg) in call.args.iter().enumerate() {
        let (name, value) = match arg.split_once('=') {
            Some((name, value)) => (name.to_owned(), value),
            None => (format!("arg{}", index + 1), arg.as_str()),
        };
        let value = match value.parse::<i64>() {
            Ok(number) => Annotation::Int(number),
            Err(_) => Annotation::Text(value.to_owned()),
        };
        annotations.push((name, value));
    }
    if let Some(retval) = call.retval {
        annotations.push(("retval".to_owned(), Annotation::Int(retval)));
    }
    if let Some(self_time) = call.self_time {
        annotations.push(("self_time".to_owned(), Annotation::Int(self_time)));
    }
    if let Some(module) = call.module {
        annotations.push(("module".to_owned(), Annotation::Text(module.to_owned())));
    }
    annotations
}
