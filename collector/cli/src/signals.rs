//! Signals that stop the program: attempts in progress are finished, and their results are stored.

use super::Result;
use engine::failure::Failure;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Time within which a second signal is a copy of the first one.
const REPEAT: Duration = Duration::from_secs(1);

/// Returns a number that is 0 until a signal is received, and then the number of that signal. The first signal ends the
/// run after the attempt in flight, the second signal ends the process at once. Programs such as `timeout` signal both the
/// process and its group, so signals within `REPEAT` of the first one are ignored.
pub fn watch_signals() -> Result<Arc<AtomicUsize>> {
    let seen = Arc::default();
    watch_signals_for(&seen)?;
    Ok(seen)
}

/// Makes the first signal set `seen` to its number. Before this call, a signal ends the process at once, even while the
/// process waits for another process.
pub fn watch_signals_for(seen: &Arc<AtomicUsize>) -> Result<()> {
    let again = Arc::new(AtomicBool::new(false));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(Failure::environment)?;
    for signal in [SIGINT, SIGTERM] {
        let number = usize::try_from(signal).map_err(Failure::environment)?;
        flag::register_conditional_default(signal, Arc::clone(&again)).map_err(Failure::environment)?;
        flag::register_usize(signal, Arc::clone(seen), number).map_err(Failure::environment)?;
    }
    let wait = move || {
        signals.forever().next();
        std::thread::sleep(REPEAT);
        again.store(true, Ordering::Relaxed);
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map_err(Failure::environment)?;
    Ok(())
}
