//! TVM's thread pool, one per calling thread. Its size is fixed at its creation, which also pins the calling thread.

use super::call::{TvmError, Value, call};
use super::launch::{self, Launch};
use super::names;
use measure::RunThreads;
use std::ffi::{c_int, c_void};

type Result<T> = std::result::Result<T, TvmError>;

/// Creates the calling thread's pool with one thread per CPU (the caller uses the first CPU); returns the pool's size.
pub fn configure_pool(cpus: &[usize]) -> Result<usize> {
    const ONE_CPU_PER_THREAD: i64 = -2;
    let count = i64::try_from(cpus.len()).map_err(|error| TvmError::new(names::CONFIG_THREADPOOL.text, error))?;
    let list: Vec<Value> = cpus.iter().map(|cpu| Value::from(cpu.to_string().as_str())).collect();
    call!(names::CONFIG_THREADPOOL, ONE_CPU_PER_THREAD, count, list)?;
    let size = call!(names::NUM_THREADS)?.as_integer()?;
    usize::try_from(size).map_err(|error| TvmError::new(names::NUM_THREADS.text, error))
}

pub struct PoolThreads {
    launch: Launch,
    cpus: Vec<usize>,
}

impl PoolThreads {
    pub fn new(cpus: &[usize]) -> Result<PoolThreads> {
        let missing = || TvmError::new(launch::NAME, "TVM's runtime lacks the function");
        Ok(PoolThreads { launch: launch::original_launch().ok_or_else(missing)?, cpus: cpus.to_vec() })
    }
}

impl RunThreads for PoolThreads {
    fn cpus(&self) -> &[usize] {
        &self.cpus
    }

    fn run_on_each(&mut self, work: &(dyn Fn(usize) + Sync)) {
        // SAFETY: only `run_on_each` uses this function, and passes the address of its work.
        unsafe extern "C" fn one(place: c_int, _: *mut c_void, data: *mut c_void) -> c_int {
            // SAFETY: the work lives until all tasks have ended, and may be called by several threads at once.
            let work = unsafe { *data.cast::<&(dyn Fn(usize) + Sync)>() };
            work(usize::try_from(place).expect("tasks are counted from zero"));
            0
        }
        let tasks = c_int::try_from(self.cpus.len()).expect("a pool has few threads");
        // SAFETY: TVM's function calls `one` with the data passed here, and returns when all tasks have ended. With as
        // many tasks as threads, each thread runs the task of its own index.
        unsafe { (self.launch)(one, (&raw const work).cast_mut().cast(), tasks) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::library;
    use super::super::names::NameRole;
    use super::*;
    use measure::affinity;
    use std::sync::Mutex;

    #[test]
    fn each_thread_of_the_pool_works_on_its_own_cpu() {
        library::open_libraries(NameRole::Runner).expect("TVM is there");
        let cpus = affinity::allowed_cpus().expect("this process runs somewhere");
        let seen: Vec<Mutex<Vec<Vec<usize>>>> = cpus.iter().map(|_| Mutex::default()).collect();
        // A pool belongs to its thread and pins it.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(configure_pool(&cpus).expect("a pool"), cpus.len());
                affinity::pin_thread(&cpus[..1]).expect("it runs there");
                let mut threads = PoolThreads::new(&cpus).expect("TVM's function");
                for _ in 0..3 {
                    threads.run_on_each(&|place| {
                        let own = affinity::allowed_cpus().expect("readable");
                        seen[place].lock().expect("a place").push(own);
                    });
                    threads.wake_threads();
                }
            });
        });
        for (seen, cpu) in seen.into_iter().zip(cpus) {
            assert_eq!(seen.into_inner().expect("a place"), vec![vec![cpu]; 3]);
        }
    }
}
