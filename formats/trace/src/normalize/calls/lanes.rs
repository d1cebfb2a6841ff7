//! The open calls of each lane.

use hashbrown::HashMap;

use super::Open;

/// Slots of the cache in front of the hash table.
const RECENT: usize = 256;

/// A unit of nesting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    Thread(i32),
    /// The idle tasks of all CPUs share the TID 0.
    Idle(u32),
    /// The thread is unknown.
    Cpu(u32),
    Unknown,
}

impl Lane {
    pub(super) fn of(tid: Option<i32>, cpu: Option<u32>) -> Lane {
        match (tid, cpu) {
            (Some(0), Some(cpu)) => Lane::Idle(cpu),
            (Some(tid), _) => Lane::Thread(tid),
            (None, Some(cpu)) => Lane::Cpu(cpu),
            (None, None) => Lane::Unknown,
        }
    }

    #[inline]
    fn slot(self) -> usize {
        let number = match self {
            Lane::Thread(tid) => tid as usize,
            Lane::Idle(cpu) | Lane::Cpu(cpu) => cpu as usize,
            Lane::Unknown => 0,
        };
        number % RECENT
    }
}

/// All lanes.
pub(super) struct Lanes {
    places: HashMap<Lane, u32>,
    /// The open calls at each place, outermost first.
    opens: Vec<Vec<Open>>,
    /// Places of lanes that were removed.
    free: Vec<u32>,
    /// The lane at the slot of its low bits, and its place: most edges are of a few threads.
    recent: Box<[Option<(Lane, u32)>; RECENT]>,
}

impl Default for Lanes {
    fn default() -> Lanes {
        Lanes {
            places: HashMap::new(),
            opens: Vec::new(),
            free: Vec::new(),
            recent: Box::new([None; RECENT]),
        }
    }
}

impl Lanes {
    /// Number of lanes.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is this lane.
    pub(super) fn contains(&self, lane: Lane) -> bool {
        self.places.contains_key(&lane)
    }

    /// The open calls of all lanes.
    pub(super) fn opens(&self) -> impl Iterator<Item = &Open> {
        let places = self.places.values();
        places.flat_map(|&place| self.opens.get(place as usize).into_iter().flatten())
    }

    /// The open calls of a lane, which is added if it is new.
    #[inline]
    pub(super) fn of(&mut self, lane: Lane) -> &mut Vec<Open> {
        let place = match self.recent.get(lane.slot()) {
            Some(&Some((recent, place))) if recent == lane => place,
            _ => self.look_up(lane),
        } as usize;
        if place >= self.opens.len() {
            self.opens.resize_with(place + 1, Vec::new);
        }
        #[expect(
            clippy::indexing_slicing,
            reason = "there are more after the line above"
        )]
        &mut self.opens[place]
    }

    fn look_up(&mut self, lane: Lane) -> u32 {
        let next = self.free.last().copied();
        let next = next.unwrap_or(self.opens.len() as u32);
        let place = *self.places.entry(lane).or_insert_with(|| {
            self.free.pop();
            next
        });
        if let Some(slot) = self.recent.get_mut(lane.slot()) {
            *slot = Some((lane, place));
        }
        place
    }

    /// Removes a lane.
    pub(super) fn remove(&mut self, lane: Lane) -> Option<Vec<Open>> {
        let place = self.places.remove(&lane)?;
        if let Some(slot) = self.recent.get_mut(lane.slot())
            && slot.is_some_and(|(recent, _)| recent == lane)
        {
            *slot = None;
        }
        self.free.push(place);
        self.opens.get_mut(place as usize).map(std::mem::take)
    }

    /// Passes the open calls of each lane on, and removes the lanes that are empty then.
    pub(super) fn sweep(&mut self, mut change: impl FnMut(&mut Vec<Open>)) {
        let Lanes {
            places,
            opens,
            free,
            recent,
        } = self;
        places.retain(|_, &mut place| {
            let Some(opens) = opens.get_mut(place as usize) else {
                return false;
            };
            change(opens);
            if opens.is_empty() {
                free.push(place);
            }
            !opens.is_empty()
        });
        recent.fill(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(time: i64) -> Open {
        Open {
            time: Some(time),
            ..Open::default()
        }
    }

    #[test]
    fn lanes_come_and_go() {
        let mut lanes = Lanes::default();
        // Several share a slot.
        for tid in 0..1000 {
            lanes.of(Lane::Thread(tid)).push(open(i64::from(tid)));
        }
        lanes.of(Lane::Cpu(5)).push(open(-5));
        assert_eq!(lanes.len(), 1001);
        for tid in (0..1000).step_by(2) {
            assert_eq!(lanes.remove(Lane::Thread(tid)).unwrap().len(), 1);
            assert!(lanes.remove(Lane::Thread(tid)).is_none());
        }
        for tid in 1000..1600 {
            assert!(lanes.of(Lane::Thread(tid)).is_empty());
            lanes.of(Lane::Thread(tid)).push(open(i64::from(tid)));
        }
        lanes.sweep(|opens| opens.retain(|open| open.time.unwrap() % 3 == 0));
        assert!(!lanes.contains(Lane::Cpu(5)));
        for tid in 0..1600 {
            let is_kept = tid % 3 == 0 && (tid >= 1000 || tid % 2 == 1);
            assert_eq!(lanes.contains(Lane::Thread(tid)), is_kept, "{tid}");
            if is_kept {
                let opens = lanes.of(Lane::Thread(tid));
                assert_eq!(opens[0].time, Some(i64::from(tid)));
            }
        }
        lanes.sweep(Vec::clear);
        assert_eq!(lanes.len(), 0);
        assert!(lanes.of(Lane::Thread(3)).is_empty());
    }
}
