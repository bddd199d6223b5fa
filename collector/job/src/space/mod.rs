//! Schedule spaces of tasks, and schedules as stored in records.

mod moves;
mod schedule;

pub use moves::{Moves, MovesError, OBJECT};
pub use schedule::{Schedule, ScheduleError};
pub use schedules::*;

use models::Task;
use targets::Machine;

/// Version of the schedule spaces. A resumed search must propose the same points, so a store of another version is
/// rejected. The declaration of a new axis states this number plus one.
pub const VERSION: u32 = if NEWEST_AXIS > SETTINGS_VERSION { NEWEST_AXIS } else { SETTINGS_VERSION };

/// Version of the spaces that last changed settings or rules. Any such change sets this to [`VERSION`] plus one.
/// `tests/spaces.rs` checks the rules, and the settings of all axes except those of later versions than this.
pub const SETTINGS_VERSION: u32 = 8;

/// Returns the task's space; on CPUs, tiles along a symbolic dimension have size 1, as its extent can be 1.
pub fn task_space(task: &Task, machine: &Machine) -> Space {
    match machine {
        Machine::Cpu(machine) => cpu_space(&task.with_sizes(|_| 1), machine),
        Machine::Gpu(machine) => gpu::gpu_space(task, machine),
        Machine::Core(machine) => core_space(task, machine),
    }
}
