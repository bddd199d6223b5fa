//! Thread pool of parallel kernels, with one thread per CPU of a measurement, including the caller.
//!
//! Between launches a thread polls for work, yields after each poll, and finally sleeps, like the threads of the local
//! runner. A launch that follows soon therefore finds the threads awake.

use measure::{RunThreads, affinity};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};

const SPIN_COUNT: usize = 2000;

type Task = unsafe extern "C" fn(c_int, *mut Environment, *mut c_void) -> c_int;

/// A launch's number of tasks, and the barrier for its tasks.
#[repr(C)]
pub struct Environment {
    barrier: *const TaskBarrier,
    count: c_int,
}

#[derive(Default)]
struct TaskBarrier {
    arrived: AtomicUsize,
    round: AtomicUsize,
}

#[derive(Clone, Copy, Default)]
struct PoolJob {
    task: usize,
    data: usize,
    environment: usize,
    count: usize,
}

#[derive(Default)]
struct PoolState {
    job: Mutex<PoolJob>,
    launch: AtomicUsize,
    at_work: AtomicUsize,
    has_failed: AtomicBool,
    is_over: AtomicBool,
}

struct WorkerPool {
    cpus: Vec<usize>,
    shared: Arc<PoolState>,
    workers: Vec<JoinHandle<()>>,
}

static POOL: Mutex<Option<WorkerPool>> = Mutex::new(None);

/// Recreates the pool with one thread per CPU; the calling thread uses the first CPU.
pub fn use_cpus(cpus: &[usize]) -> Result<(), affinity::AffinityError> {
    affinity::pin_thread(&cpus[..1])?;
    let shared = Arc::new(PoolState::default());
    let threads = cpus.len();
    let workers = cpus.iter().enumerate().skip(1).map(|(place, &cpu)| {
        let shared = Arc::clone(&shared);
        std::thread::spawn(move || {
            // An unpinned thread still works. Measurements verify the pinning.
            let _ = affinity::pin_thread(&[cpu]);
            run_worker(&shared, place, threads);
        })
    });
    let pool = WorkerPool { cpus: cpus.to_vec(), workers: workers.collect(), shared: Arc::clone(&shared) };
    *POOL.lock().expect("no thread panics with the lock") = Some(pool);
    Ok(())
}

pub struct PoolThreads(Vec<usize>);

/// Returns the threads of the pool; `None` before the first `use_cpus`.
pub fn pool_threads() -> Option<PoolThreads> {
    POOL.lock().ok()?.as_ref().map(|pool| PoolThreads(pool.cpus.clone()))
}

impl RunThreads for PoolThreads {
    fn cpus(&self) -> &[usize] {
        &self.0
    }

    fn run_on_each(&mut self, work: &(dyn Fn(usize) + Sync)) {
        // SAFETY: only `run_on_each` uses this function, with the address of its work.
        unsafe extern "C" fn one(place: c_int, _: *mut Environment, data: *mut c_void) -> c_int {
            // SAFETY: the work lives until all tasks have ended, and is `Sync`.
            let work = unsafe { *data.cast::<&(dyn Fn(usize) + Sync)>() };
            work(usize::try_from(place).expect("tasks are counted from zero"));
            0
        }
        let tasks = c_int::try_from(self.0.len()).expect("a board has few CPUs");
        // SAFETY: a launch calls `one` with the given data and returns after all tasks have ended.
        unsafe { launch(one, (&raw const work).cast_mut().cast(), tasks) };
    }
}

pub fn has_cpus() -> bool {
    POOL.lock().is_ok_and(|pool| pool.is_some())
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.workers.iter().for_each(|worker| worker.thread().unpark());
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

fn run_worker(shared: &PoolState, place: usize, threads: usize) {
    let mut seen = 0;
    loop {
        let mut asked = 0;
        while shared.launch.load(Ordering::Acquire) == seen {
            if shared.is_over.load(Ordering::Acquire) {
                return;
            }
            asked += 1;
            match asked < SPIN_COUNT {
                true => std::thread::yield_now(),
                false => std::thread::park(),
            }
        }
        seen += 1;
        let job = *shared.job.lock().expect("no thread panics with the lock");
        run_share(&job, place, threads, shared);
        shared.at_work.fetch_sub(1, Ordering::AcqRel);
    }
}

fn run_share(job: &PoolJob, place: usize, threads: usize, shared: &PoolState) {
    for task in (place..job.count).step_by(threads) {
        let number = c_int::try_from(task).expect("tasks are few");
        // SAFETY: the addresses come from the launch, which does not return before all tasks have ended.
        let code = unsafe {
            let function = std::mem::transmute::<usize, Task>(job.task);
            function(number, job.environment as *mut Environment, job.data as *mut c_void)
        };
        if code != 0 {
            shared.has_failed.store(true, Ordering::Release);
        }
    }
}

/// Runs a launch's tasks on all threads of the pool and waits for their end.
///
/// # Safety
///
/// Only compiled kernels call this function, with one of their functions and its data.
pub unsafe extern "C" fn launch(task: Task, data: *mut c_void, wanted: c_int) -> c_int {
    // A nested launch runs on the current thread only.
    let pool = POOL.try_lock().ok();
    let pool = pool.as_ref().and_then(|pool| pool.as_ref());
    let threads = pool.as_ref().map_or(1, |pool| pool.workers.len() + 1);
    let count = usize::try_from(wanted).ok().filter(|count| *count > 0).unwrap_or(threads).min(threads);
    let barrier = TaskBarrier::default();
    let number = c_int::try_from(count).expect("threads are few");
    let mut environment = Environment { barrier: &raw const barrier, count: number };
    let job = PoolJob {
        task: task as *const () as usize,
        data: data as usize,
        environment: &raw mut environment as usize,
        count,
    };
    let idle = PoolState::default();
    let shared = pool.as_ref().map_or(&idle, |pool| &pool.shared);
    let workers: Vec<&Thread> = pool.iter().flat_map(|pool| &pool.workers).map(JoinHandle::thread).collect();
    shared.has_failed.store(false, Ordering::Release);
    shared.at_work.store(workers.len(), Ordering::Release);
    *shared.job.lock().expect("no thread panics with the lock") = job;
    shared.launch.fetch_add(1, Ordering::AcqRel);
    workers.iter().for_each(|worker| worker.unpark());
    run_share(&job, 0, threads, shared);
    while shared.at_work.load(Ordering::Acquire) > 0 {
        std::hint::spin_loop();
    }
    if shared.has_failed.load(Ordering::Acquire) { -1 } else { 0 }
}

/// Waits until all tasks of a launch have arrived.
///
/// # Safety
///
/// Only tasks of a launch call this function, with their own environment.
pub unsafe extern "C" fn barrier(_: c_int, environment: *mut Environment) -> c_int {
    // SAFETY: the launch keeps environment and barrier until all its tasks have returned.
    let (barrier, count) = unsafe { (&*(*environment).barrier, (*environment).count) };
    let round = barrier.round.load(Ordering::Acquire);
    let arrived = barrier.arrived.fetch_add(1, Ordering::AcqRel) + 1;
    if c_int::try_from(arrived) == Ok(count) {
        barrier.arrived.store(0, Ordering::Release);
        barrier.round.fetch_add(1, Ordering::AcqRel);
    } else {
        while barrier.round.load(Ordering::Acquire) == round {
            std::hint::spin_loop();
        }
    }
    0
}
