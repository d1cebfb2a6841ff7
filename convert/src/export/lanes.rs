//! Assigns calls to lanes in which they nest; calls that overlap are in different lanes.
//!
//! ```text
//! lane 0   [ read    [ lock ]  ] [ write ]
//! lane 1          [ request 1      ]            overlaps read: asynchronous, or from another clock
//! ```
//! Viewers keep one stack per track, and draw calls that do not nest incorrectly.

/// Maximum number of lanes of a thread.
const MOST_LANES: usize = 256;

/// The lanes of one thread.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
}

#[derive(Debug, Default)]
struct Lane {
    /// Ends of the open calls, outermost first.
    ends: Vec<i64>,
    last_start: i64,
}

/// Position of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) lane: usize,
    /// Number of enclosing calls in the lane.
    pub(super) depth: usize,
}

impl Lanes {
    /// Finds the first lane in which a call nests, at a depth of at most `deepest`. Calls arrive in the order of their
    /// starts; a call that arrives late gets a separate lane. Returns `None` if all lanes are occupied.
    pub(super) fn place(&mut self, start: i64, end: i64, deepest: usize) -> Option<Place> {
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            if start < lane.last_start {
                continue;
            }
            while lane.ends.last().is_some_and(|open| *open <= start) {
                lane.ends.pop();
            }
            if lane.ends.last().is_some_and(|open| *open < end) {
                continue;
            }
            let depth = lane.ends.len();
            if depth >= deepest {
                return None;
            }
            lane.last_start = start;
            lane.ends.push(end);
            return Some(Place {
                lane: number,
                depth,
            });
        }
        if self.lanes.len() >= MOST_LANES {
            return None;
        }
        self.lanes.push(Lane {
            ends: vec![end],
            last_start: start,
        });
        Some(Place {
            lane: self.lanes.len() - 1,
            depth: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_nest_in_lanes() {
        let mut lanes = Lanes::default();
        let mut check = |start, end, expected: (usize, usize)| {
            let place = lanes.place(start, end, 512).unwrap();
            assert_eq!((place.lane, place.depth), expected, "{start}..{end}");
        };
        check(10, 50, (0, 0));
        check(10, 50, (0, 1));
        check(20, 30, (0, 2));
        check(30, 40, (0, 2));
        check(35, 60, (1, 0));
        check(45, 55, (1, 1));
        check(50, 50, (0, 0));
        check(60, 70, (0, 0));
        // Entered earlier, written later.
        check(5, 100, (2, 0));
    }

    #[test]
    fn depth_is_limited() {
        let mut lanes = Lanes::default();
        assert!(lanes.place(0, 100, 2).is_some());
        assert!(lanes.place(1, 99, 2).is_some());
        assert_eq!(lanes.place(2, 98, 2), None);
        assert_eq!(lanes.place(99, 100, 2).map(|place| place.depth), Some(1));
    }
}
