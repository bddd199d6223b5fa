//! Runs work of the engine in a separate thread. Meanwhile, the caller's thread delivers progress and handles Ctrl-C.

use crate::failure_error;
use engine::campaign::CampaignEvent;
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

/// Maximum delay until a signal is noticed.
const TICK: Duration = Duration::from_millis(50);
/// Number of queued messages before the engine waits for a slow callback.
const MAX_MESSAGES: usize = 256;
/// Stack size of a program's main thread.
const STACK_BYTES: usize = 8 << 20;
const SIGINT: usize = 2;

/// Python callbacks that receive progress and notes as texts.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Callbacks {
    /// Receives progress as JSON, if it is not `None`.
    progress: Option<Py<PyAny>>,
    note: Py<PyAny>,
}

enum Message {
    /// Progress as JSON.
    Progress(String),
    Note(String),
}

impl Callbacks {
    fn deliver(&self, py: Python<'_>, message: Message) -> PyResult<()> {
        match (message, &self.progress) {
            (Message::Progress(text), Some(progress)) => progress.call1(py, (text,)).map(drop),
            (Message::Progress(_), None) => Ok(()),
            (Message::Note(text), _) => self.send_note(py, &text),
        }
    }

    pub fn send_note(&self, py: Python<'_>, text: &str) -> PyResult<()> {
        self.note.call1(py, (text,)).map(drop)
    }
}

/// Sends notes and progress to the caller's thread; they are dropped if the caller has stopped listening.
struct Channel {
    sender: SyncSender<Message>,
}

impl Observer for Channel {
    fn receive_notes(&self, notes: &[String]) {
        for note in notes {
            let _ = self.sender.send(Message::Note(note.clone()));
        }
    }

    fn begin_progress(&self, attempts: usize, store: Option<StoreStatus>) -> Box<dyn observer::Progress> {
        let sender = self.sender.clone();
        let report: ReadingSink = Box::new(move |reading| {
            if let Ok(text) = serde_json::to_string(&reading.status) {
                let _ = sender.send(Message::Progress(text));
            }
        });
        Box::new(Progress { meter: Meter::start(attempts, store, Some(report)) })
    }
}

struct Progress {
    meter: Meter,
}

impl observer::Progress for Progress {
    fn observe_event(&mut self, event: &CampaignEvent<'_>) {
        self.meter.count_event(event);
    }

    fn finish(self: Box<Self>) {
        self.meter.finish();
    }
}

/// Runs work in a thread and returns its result. An exception of a callback, or Ctrl-C, signals the
/// work to stop, and is raised when the work has ended. A second Ctrl-C is raised immediately, and
/// the work ends in the background.
pub fn run_on_thread<T: Send + 'static>(
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
        None => done?.map_err(failure_error),
    }
}
