//! What is searched: a task, its space, and where it runs.

use job::space::{Knobs, Space, Template, space};
use models::Task;
use samples::features::{Device, Work};
use samples::records::work_of;
use targets::{Machine, Target};

/// The schedules of a task on so many threads of a machine.
#[derive(Clone, Debug)]
pub struct Problem {
    /// All its schedules.
    pub space: Space,
    /// Threads.
    pub threads: usize,
    /// What it has to do; nothing where that cannot be counted.
    pub(crate) work: Option<Work>,
    pub(crate) device: Device,
}

impl Problem {
    /// A task on some threads of a target.
    pub fn of(task: &Task, target: &Target, threads: usize) -> Problem {
        let space = space(task, &target.machine);
        Problem { space, threads, work: work_of(task).ok(), device: device(&target.machine) }
    }

    /// A task of which only times are heard, and nothing is searched; nothing where it cannot be understood.
    pub fn elsewhere(task: &Task, target: &Target, threads: usize) -> Option<Problem> {
        let space = Space::free(Template::Spatial, Vec::new(), Knobs::default());
        Some(Problem { space, threads, work: Some(work_of(task).ok()?), device: device(&target.machine) })
    }
}

/// A machine in the words of features. All schedules of a search run on one, so what is not known of it may be anything usual.
fn device(machine: &Machine) -> Device {
    const MULTIPLY_ADDS: f64 = 4.0;
    let (units, flops_per_cycle) = match machine {
        Machine::Cpu(cpu) => (cpu.cores as f64, cpu.vector_lanes as f64 * MULTIPLY_ADDS),
        Machine::Gpu(gpu) => (1.0, gpu.block_threads as f64),
        Machine::Core(core) => (1.0, 2.0 * core.macs_per_cycle() as f64),
    };
    Device {
        units: units.max(1.0),
        flops_per_cycle: flops_per_cycle.max(1.0),
        clock_ghz: 3.0,
        bandwidth_gb_per_s: 20.0,
        cache_bytes: 1_048_576.0,
        near_bytes: 49_152.0,
        memory_bytes: 0.0,
        generation: 0.0,
        peaks: None,
    }
}
