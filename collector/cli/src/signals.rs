//! Signals that stop the program: attempts in progress are finished, and their results are stored.

use super::Result;
use engine::failure::Failure;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// Returns a number that the first signal sets; the current attempt is the last. A second one ends at once.
pub fn watch_signals() -> Result<Arc<AtomicUsize>> {
    let seen = Arc::default();
    watch_signals_for(&seen)?;
    Ok(seen)
}

/// Starts to handle signals, which set `seen`. Before, they end the process at once, even during a wait.
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
