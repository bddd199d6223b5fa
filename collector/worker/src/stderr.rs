//! Tail of a worker's standard error, for messages of faults. A thread drains the pipe: a full one blocks the worker.

use std::{
    io::Read,
    process::ChildStderr,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::Duration,
};

/// Number of bytes kept, enough for a stack trace with symbols.
const TAIL_BYTES: usize = 8 << 10;

#[derive(Default)]
struct Tail {
    bytes: Vec<u8>,
    is_complete: bool,
}

pub struct StderrTail(Arc<(Mutex<Tail>, Condvar)>);

impl StderrTail {
    /// Starts a thread that reads the pipe until all processes that hold it have closed it.
    pub fn follow_pipe(mut pipe: ChildStderr) -> std::io::Result<Self> {
        let shared = Arc::new((Mutex::<Tail>::default(), Condvar::new()));
        let writer = Arc::clone(&shared);
        thread::Builder::new().name("worker-stderr".into()).stack_size(64 << 10).spawn(move || {
            let mut chunk = [0_u8; 4096];
            loop {
                let count = pipe.read(&mut chunk).unwrap_or(0);
                let mut tail = writer.0.lock().unwrap_or_else(PoisonError::into_inner);
                push_bounded(&mut tail.bytes, &chunk[..count]);
                if count == 0 {
                    tail.is_complete = true;
                    writer.1.notify_all();
                    return;
                }
            }
        })?;
        Ok(Self(shared))
    }

    /// Returns the last bytes of standard error. Waits up to `patience` until the pipe is closed.
    pub fn text_within(&self, patience: Duration) -> String {
        let (tail, changed) = &*self.0;
        let tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        let (tail, _) = changed
            .wait_timeout_while(tail, patience, |tail| !tail.is_complete)
            .unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&tail.bytes).trim().to_string()
    }
}

fn push_bounded(tail: &mut Vec<u8>, chunk: &[u8]) {
    tail.extend_from_slice(chunk);
    let surplus = tail.len().saturating_sub(TAIL_BYTES);
    tail.drain(..surplus);
}
