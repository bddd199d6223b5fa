//! Task × target → schedules, and a schedule as a record keeps it.

mod moves;
mod schedule;

pub use moves::{Moves, MovesError, OBJECT};
pub use schedule::{Schedule, ScheduleError};
pub use schedules::*;

use models::Task;
use targets::Machine;

/// Version of the spaces. A resumed search must propose the same points, so a store of another version is refused. A change of
/// axes, settings or rules increments it; `tests/spaces.rs` fails otherwise.
pub const VERSION: u32 = 7;

/// The space of a task on a machine.
///
/// A symbol can be 1, so on a CPU no tile may be larger along one.
pub fn space(task: &Task, machine: &Machine) -> Space {
    match machine {
        Machine::Cpu(machine) => cpu_space(&task.with_sizes(|_| 1), machine),
        Machine::Gpu(machine) => gpu::space(task, machine),
        Machine::Core(machine) => core_space(task, machine),
    }
}
