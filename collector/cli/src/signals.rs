//! Signals that stop the program: attempts in progress are finished, and their results are stored.

use super::Result;
use engine::failure::Failure;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// Returns a number that is 0 until a signal is received, and then the number of that signal. The first signal ends the
/// run after the attempt in flight, the second signal ends the process at once.
pub fn watch_signals() -> Result<Arc<AtomicUsize>> {
    let seen = Arc::default();
    watch_signals_for(&seen)?;
    Ok(seen)
}

/// Makes the first signal set `seen` to its number. Before this call, a signal ends the process at once, even while the
/// process waits for another process.
pub fn watch_signals_for(seen: &Arc<AtomicUsize>) -> Result<()> {
    let again = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let number = usize::try_from(signal).map_err(Failure::environment)?;
        flag::register_conditional_default(signal, Arc::clone(&again)).map_err(Failure::environment)?;
        flag::register(signal, Arc::clone(&again)).map_err(Failure::environment)?;
        flag::register_usize(signal, Arc::clone(seen), number).map_err(Failure::environment)?;
    }
    Ok(())
}
