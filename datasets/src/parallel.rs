//! Work on two threads.
//!
//! Two, because files of records are often handled beside a measurement, and because memory grows with each.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How many threads share a piece of work.
pub const THREADS: usize = 2;

/// What a function gives for the numbers below a count, in order.
pub fn map<T: Send>(count: usize, function: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return done;
            }
            done.push((index, function(index)));
        }
    };
    let mut results: Vec<(usize, T)> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..THREADS).map(|_| scope.spawn(take)).collect();
        let mut results = take();
        for other in others {
            results.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        results
    });
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
