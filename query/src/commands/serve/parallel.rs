//! Work on all CPUs.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, anyhow};

/// Computes things on all CPUs, in order.
pub(super) fn parallel<T: Send>(
    count: usize,
    make: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let mut all: Vec<(usize, T)> = std::thread::scope(|scope| {
        let work = || {
            let mut made = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= count {
                    return Ok(made);
                }
                made.push((at, make(at)?));
            }
        };
        let started: Vec<_> = (0..cpus.min(count)).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::new();
        for thread in started {
            let made: Result<Vec<(usize, T)>> = thread
                .join()
                .unwrap_or_else(|_| Err(anyhow!("the work ended unexpectedly")));
            all.extend(made?);
        }
        Ok::<_, anyhow::Error>(all)
    })?;
    all.sort_by_key(|(at, _)| *at);
    Ok(all.into_iter().map(|(_, made)| made).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order() {
        let made = parallel(1000, |at| Ok(at * 2)).unwrap();
        assert_eq!(made, (0..1000).map(|at| at * 2).collect::<Vec<_>>());
        assert!(parallel(0, |_| Ok(())).unwrap().is_empty());
        let failed = parallel(100, |at| match at {
            70 => Err(anyhow!("no table")),
            _ => Ok(()),
        });
        assert_eq!(failed.unwrap_err().to_string(), "no table");
    }
}
