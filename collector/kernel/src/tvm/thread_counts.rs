//! What threads of a pool count around the tasks that they do, each with counters of its own: work without the polling between.
//!
//! A thread opens its counters before the first task that is counted. What is not of one thread, as figures of the whole
//! process are, is left out.

use measure::counters::{Channel, CounterReader, CounterRequest, CounterSession, Coverage, Reading};
use profile::session::ThreadCount;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// No group counts.
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
    /// By call, thread and channel.
    sums: BTreeMap<(u32, u32, usize), Reading>,
}

struct Own {
    session: CounterSession,
    group: usize,
    /// Of each channel of the session, its place among those of all threads; none for what is not of one thread.
    places: Vec<Option<usize>>,
    before: Vec<Option<Reading>>,
    after: Vec<Option<Reading>>,
}

fn counted() -> MutexGuard<'static, ThreadCounts> {
    COUNTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is to be counted from the next [`select`] on.
pub fn ask(request: &CounterRequest) {
    counted().request = Some(CounterRequest { with_descendants: false, ..request.clone() });
}

/// Lets a group count around tasks, or none.
pub fn select(group: Option<usize>) {
    GROUP.store(group.unwrap_or(NONE), Ordering::Relaxed);
}

/// Whether tasks are counted.
pub(super) fn is_counting() -> bool {
    GROUP.load(Ordering::Relaxed) != NONE
}

/// What was counted since this was asked last.
pub fn take() -> Vec<ThreadCount> {
    let sums = std::mem::take(&mut counted().sums);
    let count = |((call, thread, channel), reading)| ThreadCount { call: call as usize, thread, channel, reading };
    sums.into_iter().map(count).collect()
}

/// What was counted on any thread.
pub fn channels() -> Vec<Channel> {
    counted().channels.clone()
}

/// Does a task of this call on this thread and counts it.
pub(super) fn around<T>(call: u32, thread: u32, task: impl FnOnce() -> T) -> T {
    let group = GROUP.load(Ordering::Relaxed);
    OWN.with_borrow_mut(|own| {
        let own = own.get_or_insert_with(Own::open);
        if own.group != group {
            own.session.select(group);
            own.group = group;
        }
        own.session.read(&mut own.before);
    });
    let done = task();
    OWN.with_borrow_mut(|own| {
        if let Some(own) = own {
            own.session.read(&mut own.after);
            own.add(call, thread);
        }
    });
    done
}

impl Own {
    fn open() -> Own {
        let mut all = counted();
        let request = all.request.clone().unwrap_or_default();
        let session = CounterSession::open(&request);
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

    fn add(&self, call: u32, thread: u32) {
        let mut all = counted();
        for (index, place) in self.places.iter().enumerate() {
            let is_its_turn = self.session.channels()[index].group.is_none_or(|group| group == self.group);
            let passed = self.before[index].zip(self.after[index]).and_then(|(before, after)| after.since(&before));
            if let (Some(place), Some(passed)) = (place.filter(|_| is_its_turn), passed) {
                all.sums.entry((call, thread, place)).or_default().add(&passed);
            }
        }
    }
}
