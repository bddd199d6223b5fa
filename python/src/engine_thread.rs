//! Runs work of the engine in a thread of its own, while the caller's thread delivers progress and watches for Ctrl-C.

use crate::failed;
use engine::campaign::Event;
use engine::observer::{self, Observer, StoreStatus};
use engine::progress::{Meter, ReadingSink};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// Longest time until a signal is noticed.
const TICK: Duration = Duration::from_millis(50);
/// Messages that wait for a slow function of the caller before the engine waits for it.
const MAX_MESSAGES: usize = 256;
/// As much as the main thread of a program has.
const STACK_BYTES: usize = 8 << 20;
/// Number of the signal that Ctrl-C sends.
const SIGINT: usize = 2;

/// Python functions that receive progress and notes as texts.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Callbacks {
    /// Receives progress as JSON, if it is not `None`.
    progress: Option<Py<PyAny>>,
    /// Receives notes.
    note: Py<PyAny>,
}

/// A message of the engine's thread.
enum Message {
    /// Progress as JSON.
    Progress(String),
    /// A note for the user.
    Note(String),
}

impl Callbacks {
    fn deliver(&self, py: Python<'_>, message: Message) -> PyResult<()> {
        match (message, &self.progress) {
            (Message::Progress(text), Some(progress)) => progress.call1(py, (text,)).map(drop),
            (Message::Progress(_), None) => Ok(()),
            (Message::Note(text), _) => self.note(py, &text),
        }
    }

    /// Delivers a note.
    pub fn note(&self, py: Python<'_>, text: &str) -> PyResult<()> {
        self.note.call1(py, (text,)).map(drop)
    }
}

/// Sends notes and progress to the caller's thread. A caller that listens no more loses them.
struct Channel {
    sender: SyncSender<Message>,
}

impl Observer for Channel {
    fn notes(&self, notes: &[String]) {
        for note in notes {
            let _ = self.sender.send(Message::Note(note.clone()));
        }
    }

    fn begin(&self, attempts: usize, store: Option<StoreStatus>) -> Box<dyn observer::Progress> {
        let sender = self.sender.clone();
        let report: ReadingSink = Box::new(move |reading| {
            if let Ok(text) = serde_json::to_string(&reading.status) {
                let _ = sender.send(Message::Progress(text));
            }
        });
        Box::new(Progress { meter: Meter::start(attempts, store, Some(report)) })
    }
}

/// Progress of one pass over attempts.
struct Progress {
    meter: Meter,
}

impl observer::Progress for Progress {
    fn hear(&mut self, event: &Event<'_>) {
        self.meter.take(event);
    }

    fn finish(self: Box<Self>) {
        self.meter.finish();
    }
}

/// Runs work in a thread and returns its result. An exception of a callback, and Ctrl-C, set the signal of the work and are raised
/// once the work has ended; a second Ctrl-C is raised at once, and the work then ends in the background.
pub fn run<T: Send + 'static>(
    py: Python<'_>,
    callbacks: &Callbacks,
    work: impl FnOnce(Rc<dyn Observer>, Arc<AtomicUsize>) -> engine::Result<T> + Send + 'static,
) -> PyResult<T> {
    let signal = Arc::new(AtomicUsize::new(0));
    let (sender, receiver) = sync_channel(MAX_MESSAGES);
    let of_work = Arc::clone(&signal);
    let thread = Builder::new()
        .name("opcollect".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || work(Rc::new(Channel { sender }), of_work))?;
    let receiver = Mutex::new(receiver);
    let mut raised: Option<PyErr> = None;
    loop {
        let message = py.detach(|| receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(TICK));
        let delivered = match message {
            Ok(message) if raised.is_none() => callbacks.deliver(py, message),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if thread.is_finished() => break,
            Ok(_) | Err(RecvTimeoutError::Timeout) => Ok(()),
        };
        match delivered.and_then(|()| py.check_signals()) {
            Ok(()) => {}
            Err(again) if raised.is_some() => return Err(again),
            Err(first) => {
                signal.store(SIGINT, Ordering::Relaxed);
                raised = Some(first);
            }
        }
    }
    let done = py.detach(|| thread.join()).map_err(|_| PyRuntimeError::new_err("the engine's thread panicked"));
    match raised {
        Some(error) => Err(error),
        None => done?.map_err(failed),
    }
}
