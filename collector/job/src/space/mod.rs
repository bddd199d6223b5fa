//! Task × target → schedules, and a schedule as a record keeps it.

mod moves;
mod schedule;

pub use moves::{Moves, MovesError, OBJECT};
pub use schedule::{Schedule, ScheduleError};
pub use schedules::*;

use crate::target::Machine;
use models::Task;

/// Which spaces this program has. A search counts on proposing the same points when it goes on, so a store of another version
/// is refused; whoever changes axes, settings or rules counts up, and `tests/spaces.rs` tells who forgets it.
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
