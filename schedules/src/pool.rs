//! Decides whether a task runs on the thread pool: for little work, waking the threads takes longer than the work.

use super::Space;
use super::axes::POOL;
use super::choices::YesNo;
use crate::machine::Cpu;
use models::{Task, Work};

/// Nanoseconds to start and finish a loop on a pool whose threads are awake.
const LAUNCH: u64 = 1000;
/// Work above which loops always run on the pool, as a multiple of `LAUNCH`.
const QUESTIONABLE: u64 = 8;

pub(crate) fn add_pool_axis(space: &mut Space, task: &Task, machine: &Cpu) {
    let Ok(work) = task.work() else { return };
    let alone = estimate_ns(&work);
    if machine.cores < 2 || alone > QUESTIONABLE * LAUNCH {
        return;
    }
    space.axes.push(POOL.to_axis("whether loops run on the thread pool", [YesNo::Yes, YesNo::No]));
    // Two threads save half of the time, but starting the pool costs a launch.
    let answer = if alone > 2 * LAUNCH { YesNo::Yes } else { YesNo::No };
    POOL.set(&mut space.default, answer);
}

/// Returns a rough estimate of the time on one core, with data in the nearest caches.
fn estimate_ns(work: &Work) -> u64 {
    /// Multiply-adds per nanosecond on one core; the constants below are rates of function calls, operations and bytes.
    const PRODUCTS: u64 = 60;
    const FUNCTIONS: u64 = 8;
    const OTHERS: u64 = 32;
    const BYTES: u64 = 140;
    let others = work.flops.saturating_sub(2 * work.macs).saturating_sub(work.exps);
    let bytes = work.bytes_in.saturating_add(work.bytes_out).saturating_add(work.bytes_weights);
    let parts = [work.macs / PRODUCTS, work.exps / FUNCTIONS, others / OTHERS, bytes / BYTES];
    parts.into_iter().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::add_pool_axis;
    use crate::machine::Cpu;
    use crate::{Knobs, Space, Template};
    use models::Task;

    fn answer(task: &str, cores: i64) -> Option<String> {
        let task = Task::from_text(task).unwrap();
        let mut space = Space::without_limits(Template::Spatial, Vec::new(), Knobs::default());
        add_pool_axis(
            &mut space,
            &task,
            &Cpu { vector_lanes: 16, vector_registers: 32, cores, is_halved: false, is_intel: false },
        );
        space.default.choice("pool").map(str::to_owned)
    }

    #[test]
    fn little_work_stays_on_one_thread() {
        let transposed = |rows: i64| format!("transpose(f32[1,12,{rows},64]) permutation=[0,2,1,3]");
        assert_eq!(answer(&transposed(1), 2).as_deref(), Some("no"));
        assert_eq!(answer(&transposed(64), 2).as_deref(), Some("yes"));
        assert_eq!(answer(&transposed(4096), 2), None, "large work has no axis `pool`");
        assert_eq!(answer(&transposed(1), 1), None, "a single core has no pool");
    }
}
