//! Counts events of pool threads around each task that they run, so that the polling between tasks is excluded. A
//! thread opens its counters before its first counted task; counters that do not belong to a single thread are skipped.

use measure::counters::{Channel, CounterReader, CounterRequest, CounterSession, Coverage, Reading};
use profile::session::ThreadCount;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const NONE: usize = usize::MAX;

static GROUP: AtomicUsize = AtomicUsize::new(NONE);
static COUNTED: Mutex<ThreadCounts> =
    Mutex::new(ThreadCounts { request: None, channels: Vec::new(), sums: BTreeMap::new() });

thread_local! {
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
}

struct ThreadCounts {
    request: Option<CounterRequest>,
    channels: Vec<Channel>,
    sums: BTreeMap<(u32, u32, usize), Reading>,
}

struct Own {
    session: CounterSession,
    group: usize,
    /// Index of each channel of the session among all channels; None for channels that do not count a single thread.
    places: Vec<Option<usize>>,
    before: Vec<Option<Reading>>,
    after: Vec<Option<Reading>>,
}

fn lock_counts() -> MutexGuard<'static, ThreadCounts> {
    COUNTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the counters that the next call of [`select_group`] opens.
pub fn request_counters(request: &CounterRequest) {
    lock_counts().request = Some(CounterRequest { with_descendants: false, ..request.clone() });
}

pub fn select_group(group: Option<usize>) {
    GROUP.store(group.unwrap_or(NONE), Ordering::Relaxed);
}

pub(super) fn is_counting() -> bool {
    GROUP.load(Ordering::Relaxed) != NONE
}

pub fn take_counts() -> Vec<ThreadCount> {
    let sums = std::mem::take(&mut lock_counts().sums);
    let count = |((call, thread, channel), reading)| ThreadCount { call: call as usize, thread, channel, reading };
    sums.into_iter().map(count).collect()
}

pub fn counted_channels() -> Vec<Channel> {
    lock_counts().channels.clone()
}

pub(super) fn count_task<T>(call: u32, thread: u32, task: impl FnOnce() -> T) -> T {
    let group = GROUP.load(Ordering::Relaxed);
    OWN.with_borrow_mut(|own| {
        let own = own.get_or_insert_with(Own::open_session);
        if own.group != group {
            own.session.select_group(group);
            own.group = group;
        }
        own.session.read_channels(&mut own.before);
    });
    let done = task();
    OWN.with_borrow_mut(|own| {
        if let Some(own) = own {
            own.session.read_channels(&mut own.after);
            own.add_change(call, thread);
        }
    });
    done
}

impl Own {
    fn open_session() -> Own {
        let mut all = lock_counts();
        let request = all.request.clone().unwrap_or_default();
        let session = CounterSession::open_counters(&request);
        let mut place = |channel: &Channel| {
            if !matches!(channel.coverage, Coverage::Thread | Coverage::ThreadUser) {
                return None;
            }
            let known = all.channels.iter().position(|known| known == channel);
            Some(known.unwrap_or_else(|| {
                all.channels.push(channel.clone());
                all.channels.len() - 1
            }))
        };
        let places: Vec<Option<usize>> = session.channels().iter().map(&mut place).collect();
        let none = vec![None; places.len()];
        Own { session, group: NONE, places, before: none.clone(), after: none }
    }

    fn add_change(&self, call: u32, thread: u32) {
        let mut all = lock_counts();
        for (index, place) in self.places.iter().enumerate() {
            let is_its_turn = self.session.channels()[index].group.is_none_or(|group| group == self.group);
            let passed =
                self.before[index].zip(self.after[index]).and_then(|(before, after)| after.change_since(&before));
            if let (Some(place), Some(passed)) = (place.filter(|_| is_its_turn), passed) {
                all.sums.entry((call, thread, place)).or_default().add_reading(&passed);
            }
        }
    }
}
