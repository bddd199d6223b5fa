//! TVM's thread pool: one per operating-system thread that calls a kernel.
//!
//! Its size is fixed when it is made, and making it pins the caller. So each thread count gets a fresh thread, which
//! configures the pool before anything else touches it and checks what it got.

use super::call::{TvmError, Value, call};
use super::names;

type Result<T> = std::result::Result<T, TvmError>;

/// Makes this thread's pool: one thread on each of these CPUs, the caller on the first. Returns the pool's size.
pub fn configure(cpus: &[usize]) -> Result<usize> {
    const ONE_CPU_PER_THREAD: i64 = -2;
    let count = i64::try_from(cpus.len()).map_err(|error| TvmError::new(names::CONFIG_THREADPOOL.text, error))?;
    let list: Vec<Value> = cpus.iter().map(|cpu| Value::from(cpu.to_string().as_str())).collect();
    call!(names::CONFIG_THREADPOOL, ONE_CPU_PER_THREAD, count, list)?;
    let size = call!(names::NUM_THREADS)?.integer()?;
    usize::try_from(size).map_err(|error| TvmError::new(names::NUM_THREADS.text, error))
}
