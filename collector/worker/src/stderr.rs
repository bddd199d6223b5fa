//! The end of what a worker wrote to its standard error, kept for the text of a fault.
//!
//! A thread empties the pipe all the time, since a full pipe would stop the worker; only the last bytes stay.

use std::{
    io::Read,
    process::ChildStderr,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::Duration,
};

/// How much is kept. A stack trace with symbols fits; an endless loop of messages does not.
const TAIL_BYTES: usize = 8 << 10;

#[derive(Default)]
struct Tail {
    bytes: Vec<u8>,
    is_complete: bool,
}

/// The reader of one worker's standard error.
pub struct StderrTail(Arc<(Mutex<Tail>, Condvar)>);

impl StderrTail {
    /// Starts reading until the pipe is closed by everyone who holds it.
    pub fn follow(mut pipe: ChildStderr) -> std::io::Result<Self> {
        let shared = Arc::new((Mutex::<Tail>::default(), Condvar::new()));
        let writer = Arc::clone(&shared);
        thread::Builder::new().name("worker-stderr".into()).stack_size(64 << 10).spawn(move || {
            let mut chunk = [0_u8; 4096];
            loop {
                let count = pipe.read(&mut chunk).unwrap_or(0);
                let mut tail = writer.0.lock().unwrap_or_else(PoisonError::into_inner);
                push(&mut tail.bytes, &chunk[..count]);
                if count == 0 {
                    tail.is_complete = true;
                    writer.1.notify_all();
                    return;
                }
            }
        })?;
        Ok(Self(shared))
    }

    /// The text so far. After the worker's death, waits up to `patience` for the rest to come through the pipe.
    pub fn text(&self, patience: Duration) -> String {
        let (tail, changed) = &*self.0;
        let tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        let (tail, _) = changed
            .wait_timeout_while(tail, patience, |tail| !tail.is_complete)
            .unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&tail.bytes).trim().to_string()
    }
}

fn push(tail: &mut Vec<u8>, chunk: &[u8]) {
    tail.extend_from_slice(chunk);
    let surplus = tail.len().saturating_sub(TAIL_BYTES);
    tail.drain(..surplus);
}
