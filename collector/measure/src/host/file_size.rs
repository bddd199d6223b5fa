//! The file-size limit of this process.

use nix::sys::signal::Signal;
use std::sync::Arc;

/// Makes writes beyond the limit (`ulimit -f`) fail with an error, which is reported, instead of ending the process.
pub fn report_exceeded_limit() {
    // If the signal cannot be caught, it ends the process as before.
    let _ = signal_hook::flag::register(Signal::SIGXFSZ as i32, Arc::default());
}
