//! A thread that reports a campaign's counts and updates the store's status file, also while the campaign waits.

use super::Counts;
use crate::campaign::CampaignEvent;
use crate::observer::StoreStatus;
use datasets::store::Status;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Progress of a campaign at one moment.
#[derive(Clone, Debug)]
pub struct MeterReading {
    /// Progress as fields of the status file.
    pub status: Status,
    /// Progress as one line of text.
    pub line: String,
    /// Time since the meter was started.
    pub elapsed: Duration,
    /// Whether this is the last reading.
    pub is_last: bool,
}

/// Function that receives readings.
pub type ReadingSink = Box<dyn FnMut(&MeterReading) + Send>;

/// Counter of a campaign's events, with a thread that reports the counts every second.
pub struct Meter {
    start: Instant,
    shared: Arc<MeterState>,
    reader: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct MeterState {
    /// Counts, and whether they are final.
    state: Mutex<(Counts, bool)>,
    ended: Condvar,
}

impl MeterState {
    fn lock(&self) -> MutexGuard<'_, (Counts, bool)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Meter {
    /// Starts counting. Every second, the progress is written to the status file, if there is one, and to `report`.
    pub fn start(attempts: usize, store: Option<StoreStatus>, report: Option<ReadingSink>) -> Meter {
        let (start, shared) = (Instant::now(), Arc::new(MeterState::default()));
        let is_read = attempts > 0 && (report.is_some() || store.is_some());
        let reader = is_read.then(|| {
            let shared = Arc::clone(&shared);
            let mut report = report.unwrap_or_else(|| Box::new(|_| ()));
            std::thread::spawn(move || poll_counts(&shared, start, attempts as u64, store, report.as_mut()))
        });
        Meter { start, shared, reader }
    }

    /// Counts an event, and returns all counts.
    pub fn count_event(&self, event: &CampaignEvent<'_>) -> Counts {
        let mut state = self.shared.lock();
        state.0.count_event(event, self.start.elapsed());
        state.0.clone()
    }

    /// Stops the thread after it has reported the final counts. Dropping the meter has the same effect.
    pub fn finish(self) {}
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.shared.lock().1 = true;
        self.shared.ended.notify_all();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn poll_counts(
    shared: &MeterState,
    start: Instant,
    attempts: u64,
    store: Option<StoreStatus>,
    report: &mut dyn FnMut(&MeterReading),
) {
    const TICK: Duration = Duration::from_secs(1);
    let mut state = shared.lock();
    loop {
        let (counts, is_last) = state.clone();
        drop(state);
        let elapsed = start.elapsed();
        let status = counts.current_status(attempts, elapsed, store.as_ref().map(|to| &to.status));
        if let Some(to) = &store {
            // The campaign continues if the status cannot be written.
            let _ = to.file.write_status(&status);
        }
        report(&MeterReading { status, line: counts.progress_line(attempts, elapsed), elapsed, is_last });
        if is_last {
            return;
        }
        state = shared.lock();
        if !state.1 {
            state = shared.ended.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
