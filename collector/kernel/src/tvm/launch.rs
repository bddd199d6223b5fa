//! What threads of TVM's pool do of each call: the function that built code calls to start tasks is one of ours, which asks
//! TVM's to run them and writes down when each begins and ends.
//!
//! Places for that are there before anything runs; a task costs two times and three stores, and nothing while nobody looks. What
//! has no place is counted. A pool's threads get numbers as they first run a task; the thread that calls has one, too.

use super::team::{self, Lambda};
use super::thread_counts;
use libloading::os::unix::Library;
use measure::HostClock;
use nix::time::ClockId;
use profile::session::Task;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// TVM's function, whose place ours takes.
pub const NAME: &str = "TVMBackendParallelLaunch";

pub(super) type Launch = unsafe extern "C" fn(Lambda, *mut c_void, c_int) -> c_int;

/// Tasks of one run that have a place.
const PLACES: usize = 1 << 15;

static HOOK: OnceLock<Hook> = OnceLock::new();
static IS_LOOKING: AtomicBool = AtomicBool::new(false);
static CALL: AtomicU32 = AtomicU32::new(0);
static TAKEN: AtomicUsize = AtomicUsize::new(0);
/// System's numbers of threads, by ours.
static THREADS: Mutex<Vec<i32>> = Mutex::new(Vec::new());

thread_local! {
    static NUMBER: Cell<Option<u32>> = const { Cell::new(None) };
}

/// What has to be there before the first task.
struct Hook {
    original: Launch,
    origin: Instant,
    places: Box<[LaunchPlace]>,
}

/// Where one task is written down.
#[derive(Default)]
struct LaunchPlace {
    /// The call, and below it the thread.
    what: AtomicU64,
    start_ns: AtomicU64,
    end_ns: AtomicU64,
}

/// What one launch asks for; it lives until all its tasks have ended.
struct LaunchRegion {
    lambda: Lambda,
    data: *mut c_void,
}

/// From now on code that is loaded starts its tasks through us. The clock has the same zero as their times. Nothing where TVM's
/// function is not to be found: then loading says so.
pub fn hook() -> Option<HostClock> {
    if HOOK.get().is_none() {
        let original = original()?;
        let places = std::iter::repeat_with(LaunchPlace::default).take(PLACES).collect();
        let _ = HOOK.set(Hook { original, origin: Instant::now(), places });
    }
    HOOK.get().map(|hook| HostClock::since(hook.origin))
}

/// TVM's function; nothing where it is not to be found.
pub(super) fn original() -> Option<Launch> {
    // SAFETY: TVM's runtime exports a function of this name and signature in `c_backend_api.h`, and is never unloaded.
    unsafe { Library::this().get::<Launch>(NAME.as_bytes()).ok().map(|function| *function) }
}

/// The address of our function, once it has taken the place of TVM's.
pub(super) fn address() -> Option<usize> {
    HOOK.get().map(|_| launch as Launch as usize)
}

/// Tasks are written down from now on, from the first place on.
pub fn look() {
    TAKEN.store(0, Ordering::Relaxed);
    IS_LOOKING.store(true, Ordering::Relaxed);
}

/// The tasks that follow are of this call.
pub fn begin(call: usize) {
    CALL.store(u32::try_from(call).unwrap_or(u32::MAX), Ordering::Relaxed);
}

/// No task is written down from now on. What was, and how many had no place.
pub fn look_away() -> (Vec<Task>, usize) {
    IS_LOOKING.store(false, Ordering::Relaxed);
    let taken = TAKEN.load(Ordering::Relaxed);
    let Some(hook) = HOOK.get() else { return (Vec::new(), 0) };
    let task = |place: &LaunchPlace| {
        let what = place.what.load(Ordering::Relaxed);
        Task {
            call: (what >> 32) as usize,
            thread: what as u32,
            start_ns: place.start_ns.load(Ordering::Relaxed),
            end_ns: place.end_ns.load(Ordering::Relaxed),
        }
    };
    let tasks = hook.places[..taken.min(PLACES)].iter().map(task).collect();
    (tasks, taken.saturating_sub(PLACES))
}

/// The system's numbers of the threads that ran tasks, by ours.
pub fn threads() -> Vec<i32> {
    THREADS.lock().map(|threads| threads.clone()).unwrap_or_default()
}

/// The processor time of each of them so far.
pub fn threads_cpu_ns() -> Vec<u64> {
    /// The kernel makes the clock of a thread of its number and these bits: of a thread, and its time on processors.
    const THREAD_AND_TIME: i32 = 4 | 2;
    let of = |id: i32| {
        let time = ClockId::from_raw((!id << 3) | THREAD_AND_TIME).now().map(Duration::from).unwrap_or_default();
        u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
    };
    threads().into_iter().map(of).collect()
}

/// Starts tasks as TVM does.
///
/// # Safety
///
/// Only built code calls it, with what it would give TVM's function: a lambda that may run with this data on any thread.
unsafe extern "C" fn launch(lambda: Lambda, data: *mut c_void, tasks: c_int) -> c_int {
    // SAFETY: the caller's own arguments.
    if let Some(code) = unsafe { team::launch(lambda, data, tasks) } {
        return code;
    }
    let Some(hook) = HOOK.get() else { return -1 };
    if !IS_LOOKING.load(Ordering::Relaxed) && !thread_counts::is_counting() {
        // SAFETY: the caller's own arguments go to the function that it meant.
        return unsafe { (hook.original)(lambda, data, tasks) };
    }
    let region = LaunchRegion { lambda, data };
    // SAFETY: TVM's function calls `task` with what it is given here, and returns when all tasks have ended: so the region
    // outlives them.
    unsafe { (hook.original)(task, (&raw const region).cast_mut().cast(), tasks) }
}

/// Runs one task and writes down when.
///
/// # Safety
///
/// Only TVM's pool calls it, with the region that `launch` gave it.
unsafe extern "C" fn task(number: c_int, environment: *mut c_void, region: *mut c_void) -> c_int {
    // SAFETY: `launch` gave its region, which lives until this task has ended, and nobody writes to it.
    let region = unsafe { &*region.cast::<LaunchRegion>() };
    // SAFETY: these are the lambda, its number and its data as the code that was launched gave them.
    let lambda = || unsafe { (region.lambda)(number, environment, region.data) };
    if thread_counts::is_counting() {
        return thread_counts::around(CALL.load(Ordering::Relaxed), own_number(), lambda);
    }
    let start_ns = now_ns();
    let code = lambda();
    let end_ns = now_ns();
    if let Some(place) = HOOK.get().and_then(|hook| hook.places.get(TAKEN.fetch_add(1, Ordering::Relaxed))) {
        let what = u64::from(CALL.load(Ordering::Relaxed)) << 32 | u64::from(own_number());
        place.what.store(what, Ordering::Relaxed);
        place.start_ns.store(start_ns, Ordering::Relaxed);
        place.end_ns.store(end_ns, Ordering::Relaxed);
    }
    code
}

fn now_ns() -> u64 {
    HOOK.get().map_or(0, |hook| u64::try_from(hook.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// The number of this thread among those that run tasks; it gets one when it first asks.
fn own_number() -> u32 {
    NUMBER.get().unwrap_or_else(|| {
        let mut threads = THREADS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        threads.push(nix::unistd::gettid().as_raw());
        let number = u32::try_from(threads.len() - 1).unwrap_or(u32::MAX);
        NUMBER.set(Some(number));
        number
    })
}
