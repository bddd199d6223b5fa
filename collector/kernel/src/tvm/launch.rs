//! Records the parallel tasks that the threads of TVM's pool run: compiled code calls this module's launch function,
//! which forwards to TVM's function. Memory for the records is allocated before the run; a recorded task costs two
//! clock reads and three stores. Threads are numbered when they first run a task, including the calling thread.

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

/// Name of TVM's launch function, which the launch function of this module replaces.
pub const NAME: &str = "TVMBackendParallelLaunch";

pub(super) type Launch = unsafe extern "C" fn(Lambda, *mut c_void, c_int) -> c_int;

const TASKS_MAX: usize = 1 << 15;

static HOOK: OnceLock<Hook> = OnceLock::new();
static IS_RECORDING: AtomicBool = AtomicBool::new(false);
static CALL: AtomicU32 = AtomicU32::new(0);
static TAKEN: AtomicUsize = AtomicUsize::new(0);
/// System thread ids, by the number that this module assigned to the thread.
static THREADS: Mutex<Vec<i32>> = Mutex::new(Vec::new());

thread_local! {
    static NUMBER: Cell<Option<u32>> = const { Cell::new(None) };
}

struct Hook {
    original: Launch,
    origin: Instant,
    records: Box<[TaskRecord]>,
}

#[derive(Default)]
struct TaskRecord {
    /// Index of the operator's call in the upper 32 bits, number of the thread in the lower 32 bits.
    call_and_thread: AtomicU64,
    start_ns: AtomicU64,
    end_ns: AtomicU64,
}

/// Arguments of one launch; lives until all its tasks have ended.
struct LaunchRegion {
    lambda: Lambda,
    data: *mut c_void,
}

/// Redirects launches of code loaded later; returns the clock of task times; None if TVM's function is missing.
pub fn install_hook() -> Option<HostClock<'static>> {
    if HOOK.get().is_none() {
        let original = original_launch()?;
        let records = std::iter::repeat_with(TaskRecord::default).take(TASKS_MAX).collect();
        let _ = HOOK.set(Hook { original, origin: Instant::now(), records });
    }
    HOOK.get().map(|hook| HostClock::with_origin(hook.origin))
}

pub(super) fn original_launch() -> Option<Launch> {
    // SAFETY: TVM's runtime exports a function of this name and signature in `c_backend_api.h`, and is never unloaded.
    unsafe { Library::this().get::<Launch>(NAME.as_bytes()).ok().map(|function| *function) }
}

pub(super) fn hook_address() -> Option<usize> {
    HOOK.get().map(|_| launch_tasks as Launch as usize)
}

/// Starts recording tasks and discards earlier records.
pub fn start_recording() {
    TAKEN.store(0, Ordering::Relaxed);
    IS_RECORDING.store(true, Ordering::Relaxed);
}

pub fn begin_call(call: usize) {
    CALL.store(u32::try_from(call).unwrap_or(u32::MAX), Ordering::Relaxed);
}

/// Stops recording; returns the recorded tasks and the number of tasks beyond the capacity.
pub fn stop_recording() -> (Vec<Task>, usize) {
    IS_RECORDING.store(false, Ordering::Relaxed);
    let taken = TAKEN.load(Ordering::Relaxed);
    let Some(hook) = HOOK.get() else { return (Vec::new(), 0) };
    let task = |record: &TaskRecord| {
        let call_and_thread = record.call_and_thread.load(Ordering::Relaxed);
        Task {
            call: (call_and_thread >> 32) as usize,
            thread: call_and_thread as u32,
            start_ns: record.start_ns.load(Ordering::Relaxed),
            end_ns: record.end_ns.load(Ordering::Relaxed),
        }
    };
    let tasks = hook.records[..taken.min(TASKS_MAX)].iter().map(task).collect();
    (tasks, taken.saturating_sub(TASKS_MAX))
}

/// Returns the system thread ids of the threads that ran tasks, by assigned thread number.
pub fn thread_ids() -> Vec<i32> {
    THREADS.lock().map(|threads| threads.clone()).unwrap_or_default()
}

pub fn threads_cpu_ns() -> Vec<u64> {
    /// Low bits of a clock id that select the CPU-time clock of a thread.
    const THREAD_AND_TIME: i32 = 4 | 2;
    let of = |id: i32| {
        let time = ClockId::from_raw((!id << 3) | THREAD_AND_TIME).now().map(Duration::from).unwrap_or_default();
        u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
    };
    thread_ids().into_iter().map(of).collect()
}

/// # Safety
///
/// Called only by compiled code, with a lambda that may run with this data on any thread.
unsafe extern "C" fn launch_tasks(lambda: Lambda, data: *mut c_void, tasks: c_int) -> c_int {
    // SAFETY: the caller's arguments are passed on unchanged.
    if let Some(code) = unsafe { team::launch_on_crew(lambda, data, tasks) } {
        return code;
    }
    let Some(hook) = HOOK.get() else { return -1 };
    if !IS_RECORDING.load(Ordering::Relaxed) && !thread_counts::is_counting() {
        // SAFETY: the caller's arguments are passed on to the function that the caller expects.
        return unsafe { (hook.original)(lambda, data, tasks) };
    }
    let region = LaunchRegion { lambda, data };
    // SAFETY: TVM's function calls `record_task` with the region passed here, and returns when all tasks have ended,
    // so the region outlives them.
    unsafe { (hook.original)(record_task, (&raw const region).cast_mut().cast(), tasks) }
}

/// # Safety
///
/// Called only by TVM's pool, with the region that `launch_tasks` passed.
unsafe extern "C" fn record_task(number: c_int, environment: *mut c_void, region: *mut c_void) -> c_int {
    // SAFETY: the region is that of `launch_tasks`, lives until this task has ended and is never written to.
    let region = unsafe { &*region.cast::<LaunchRegion>() };
    // SAFETY: lambda, task number and data are those that the launched code passed.
    let lambda = || unsafe { (region.lambda)(number, environment, region.data) };
    if thread_counts::is_counting() {
        return thread_counts::count_task(CALL.load(Ordering::Relaxed), own_number(), lambda);
    }
    let start_ns = now_ns();
    let code = lambda();
    let end_ns = now_ns();
    if let Some(record) = HOOK.get().and_then(|hook| hook.records.get(TAKEN.fetch_add(1, Ordering::Relaxed))) {
        let call_and_thread = u64::from(CALL.load(Ordering::Relaxed)) << 32 | u64::from(own_number());
        record.call_and_thread.store(call_and_thread, Ordering::Relaxed);
        record.start_ns.store(start_ns, Ordering::Relaxed);
        record.end_ns.store(end_ns, Ordering::Relaxed);
    }
    code
}

fn now_ns() -> u64 {
    HOOK.get().map_or(0, |hook| u64::try_from(hook.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// Returns the number assigned to this thread; the first call assigns it.
fn own_number() -> u32 {
    NUMBER.get().unwrap_or_else(|| {
        let mut threads = THREADS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        threads.push(nix::unistd::gettid().as_raw());
        let number = u32::try_from(threads.len() - 1).unwrap_or(u32::MAX);
        NUMBER.set(Some(number));
        number
    })
}
