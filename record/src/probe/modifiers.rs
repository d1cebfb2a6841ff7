//! Modifiers after an event's last colon: `cycles:u`, `instructions:kp`.
//!
//! As in perf (tools/perf/util/parse-events.c, get_event_modifier): the first of u, k, h excludes the other two; the
//! same holds for G and H.

use crate::failure::{Failure, misuse};
use crate::sys::perf_event::Attr;

/// Applies modifiers to `attr`; returns whether the highest precision was requested (`P`).
pub(crate) fn apply(event: &str, modifiers: &str, attr: &mut Attr) -> Result<bool, Failure> {
    let mut wants_precision = false;
    let mut precise = 0;
    let mut excludes_spaces = false;
    let mut excludes_guests = false;
    for modifier in modifiers.chars() {
        match modifier {
            'u' | 'k' | 'h' if !excludes_spaces => {
                excludes_spaces = true;
                attr.set_exclude_user(1);
                attr.set_exclude_kernel(1);
                attr.set_exclude_hv(1);
            }
            'G' | 'H' if !excludes_guests => {
                excludes_guests = true;
                attr.set_exclude_guest(1);
                attr.set_exclude_host(1);
            }
            _ => {}
        }
        match modifier {
            'u' => attr.set_exclude_user(0),
            'k' => attr.set_exclude_kernel(0),
            'h' => attr.set_exclude_hv(0),
            'G' => attr.set_exclude_guest(0),
            'H' => attr.set_exclude_host(0),
            'I' => attr.set_exclude_idle(1),
            'p' => precise += 1,
            'P' => wants_precision = true,
            'D' => attr.set_pinned(1),
            _ => {
                return Err(misuse(format!("{event}: unknown modifier '{modifier}'")).hint(
                    "use u (user), k (kernel), h (hypervisor), G (guests), H (host), I (not idle), \
                     p to ppp and P (precision), D (pinned)",
                ));
            }
        }
    }
    if precise > 3 {
        return Err(misuse(format!("{event}: at most three p")));
    }
    attr.set_precise_ip(precise);
    Ok(wants_precision)
}
