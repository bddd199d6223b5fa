//! A search problem: a task, its schedule space, and the machine.

use job::space::{Domain, Knobs, Space, Template, task_space};
use models::Task;
use samples::features::{Device, Work};
use samples::records::work_of;
use targets::{Machine, Target};

#[derive(Clone, Debug)]
pub struct Problem {
    pub space: Space,
    pub threads: usize,
    /// Numbers of operations and bytes of the task; None if they cannot be counted.
    pub(crate) work: Option<Work>,
    pub(crate) domain: Domain,
    pub(crate) device: Device,
}

impl Problem {
    pub fn of_task(task: &Task, target: &Target, threads: usize) -> Problem {
        let space = task_space(task, &target.machine);
        Problem { space, ..Problem::without_space(task, target, threads, work_of(task).ok()) }
    }

    /// Creates a problem without a space, for observed times of another task; None if the task is not supported.
    pub fn for_observations(task: &Task, target: &Target, threads: usize) -> Option<Problem> {
        Some(Problem::without_space(task, target, threads, Some(work_of(task).ok()?)))
    }

    fn without_space(task: &Task, target: &Target, threads: usize, work: Option<Work>) -> Problem {
        let space = Space::without_limits(Template::Spatial, Vec::new(), Knobs::default());
        let domain = match target.machine {
            Machine::Gpu(_) => Domain::on_gpu(task),
            Machine::Cpu(_) | Machine::Core(_) => Domain::on_cpu(task),
        };
        Problem { space, threads, work, domain, device: device_features(&target.machine) }
    }
}

/// Describes a machine for features. Unknown properties get typical values, as a search covers one machine.
fn device_features(machine: &Machine) -> Device {
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
