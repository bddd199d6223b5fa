//! The environment of a command: workers, targets, CPUs, and the versions of libraries.

use crate::Result;
use crate::campaign::PlannedModule;
use crate::campaign::config::Limits;
use crate::campaign::planned::PlannedTask;
use crate::failure::Failure;
use crate::observer::Observer;
use bench::{Ability, Bench, Breeder, Build, Versions, WorkerLimits, Workers};
use cuda::driver;
use cuda::nvrtc::{self, Nvrtc};
use job::BuildJob;
use job::space::{Schedule, task_space};
use measure::host::{self, Exclusive, ExclusiveError, Facts, Topology, exclusive, memory::memory_limit};
use models::partner::CPU_VENDOR;
use runtimes::RuntimeDescription;
use std::path::PathBuf;
use std::time::Duration;
use targets::{Architecture, Host, HostCpu, Kind, Machine, Refusal, Resolved, Target};
use worker::Fault;

/// Hint for the error that TVM cannot be used.
const SETUP_HINT: &str = "run `scripts/setup`, which installs the pinned TVM; `opcollect doctor` lists what is missing";

/// Memory that a worker needs to load TVM.
const WORKER_BYTES: u64 = 512 << 20;
/// Hint for the error that TVM cannot be used, in a process with less memory than `WORKER_BYTES`.
const MEMORY_HINT: &str = "allow this process at least 512 MiB of memory; `ulimit -v` and the control group limit it";

/// Hint for the error that the worker program is missing.
pub const WORKER_HINT: &str = "the worker program must lie in the same folder as `opcollect`: the wheel contains both, and \
                           `scripts/opcollect` builds both";

/// Returns what to do if no worker can be started.
pub fn worker_hint() -> &'static str {
    match find_worker() {
        Ok(_) if memory_limit().is_some_and(|(bytes, _)| bytes < WORKER_BYTES) => MEMORY_HINT,
        Ok(_) => SETUP_HINT,
        Err(_) => WORKER_HINT,
    }
}

/// Returns the path of the worker program, or why there is none.
pub fn find_worker() -> std::result::Result<PathBuf, String> {
    let path = bench::worker_program().map_err(|error| error.to_string())?;
    if path.is_file() { Ok(path) } else { Err(format!("no `{}`", path.display())) }
}

/// Returns the CPUs of this process in the order of preference: a run on n threads uses the first n.
pub fn allowed_cpus() -> Result<Vec<usize>> {
    host::allowed_cpus().map_err(Failure::environment)
}

/// Returns the CPUs of a run: the first `threads` of those allowed, or all.
pub fn select_cpus(threads: Option<usize>, allowed: &[usize], machine: &str) -> Result<Vec<usize>> {
    let count = threads.unwrap_or(allowed.len());
    match allowed.get(..count).filter(|cpus| !cpus.is_empty()) {
        Some(cpus) => Ok(cpus.to_vec()),
        None => {
            let most = allowed.len();
            Err(Failure::usage(format!("`--threads` is {count}; allowed are 1 to {most} on {machine}")))
        }
    }
}

/// Creates workers with the limits of a configuration.
pub fn create_workers(limits: &Limits) -> Result<Workers> {
    const MIB: u64 = 1 << 20;
    let program = bench::worker_program().map_err(Failure::environment)?;
    let cpus = allowed_cpus()?;
    let limits = WorkerLimits {
        builders: if limits.builders > 0 { limits.builders } else { cpus.len() },
        builder_cpus: cpus,
        wide_runs: limits.build_batch,
        overlap: limits.overlap,
        start_deadline: Duration::from_secs_f64(limits.start_seconds),
        build_deadline: Duration::from_secs_f64(limits.build_seconds),
        build_memory_bytes: limits.build_memory_mib * MIB,
        run_memory_bytes: limits.run_memory_mib * MIB,
        runner_jobs: limits.runner_jobs,
        spin_count: limits.spin_count,
    };
    Ok(Workers::new(&program, &limits))
}

/// Returns a note for each thread count at which threads share physical cores.
pub fn shared_core_notes(threads: &[usize], cpus: &[usize]) -> Vec<String> {
    let topology = Topology::read_topology(cpus);
    threads.iter().filter_map(|&count| shared_cores(&topology, cpus.get(..count)?)).collect()
}

fn shared_cores(topology: &Topology, cpus: &[usize]) -> Option<String> {
    let cores = topology.count_cores(cpus);
    let note =
        || format!("{} threads run on {}, whose units they share", cpus.len(), report::format_count(cores, "core"));
    (cores < cpus.len()).then(note)
}

/// Creates the process that evolves schedules for TVM's own space, with the limits of a builder.
pub fn create_breeder(limits: &Limits, should_stop: impl Fn() -> bool + 'static) -> Result<Breeder> {
    let program = bench::worker_program().map_err(Failure::environment)?;
    let start_deadline = Duration::from_secs_f64(limits.start_seconds);
    Ok(Breeder::new(&program, start_deadline, limits.build_memory_mib << 20, should_stop))
}

/// Locks the CPUs of this process: no other process measures on them until the returned value is dropped.
pub fn lock_cpus(wait_seconds: u64, observer: &dyn Observer) -> Result<Exclusive> {
    let mut waits = |busy: &ExclusiveError| observer.note(format!("{busy}; waiting up to {wait_seconds} s for it"));
    let patience = Duration::from_secs(wait_seconds);
    Exclusive::lock_cpus(&exclusive::lock_folder(), &allowed_cpus()?, patience, &mut waits).map_err(|error| match error
    {
        ExclusiveError::Busy { .. } => Failure::environment(error)
            .with_hint("wait for it with `--wait SECONDS`, or run each process on separate CPUs with `taskset -c 0-3`"),
        ExclusiveError::Night { .. } | ExclusiveError::Folder { .. } => Failure::environment(error),
    })
}

const LIBRARY_HINT: &str = "run `scripts/setup --torch`, which installs PyTorch's library, then `scripts/opcollect`, \
                            which builds with it; see docs/guide/torch.md";

/// Returns the versions of the library that computes tasks or whole programs, if any. Fails if its worker is missing.
pub fn library_versions(tasks: &[PlannedTask], modules: &[PlannedModule], bench: &mut dyn Bench) -> Result<Versions> {
    let count = tasks.iter().filter(|planned| planned.partner.is_some()).count();
    if count == 0 && modules.is_empty() {
        return Ok(Versions::new());
    }
    let what = match modules.first() {
        Some(module) => format!("`{}` is TorchScript, which PyTorch's library runs", module.model.name),
        None => format!("{count} of {} tasks belong to PyTorch's library (`{CPU_VENDOR}`)", tasks.len()),
    };
    library_worker(&what, bench)
}

/// Returns the versions that the library's worker reports. `what` begins the error message for a missing worker.
pub fn library_worker(what: &str, bench: &mut dyn Bench) -> Result<Versions> {
    let worker = bench::worker_program().map_err(Failure::environment)?;
    if !bench::library_program(&worker).exists() {
        let message = format!("{what}, and its worker `opcollect-torch` is not built");
        return Err(Failure::environment(message).with_hint(LIBRARY_HINT));
    }
    bench.capability(Ability::RunLibrary).map_err(|fault| Failure::environment(fault).with_hint(LIBRARY_HINT))
}

/// Rejects tasks that a library computes, for commands that need compiled code.
pub fn refuse_library(tasks: &[PlannedTask]) -> Result<()> {
    if tasks.iter().all(|planned| planned.partner.is_none()) {
        return Ok(());
    }
    Err(Failure::usage("`build` needs compiled code for all tasks, but a library computes some")
        .with_hint("remove `--backend torch` and partners in `--target`; a library needs no artifacts"))
}

/// Returns the target of `--backend torch`.
pub fn library_target(versions: &Versions) -> Result<Target> {
    Ok(targets::torch_target(versions.get("torch").map(String::as_str), &host_cpu("generic", &Facts::read_facts())?))
}

/// Resolves a target description for compilation; the target need not run on this machine.
pub fn compiled_target(description: &str, bench: &mut dyn Bench) -> Result<Target> {
    let resolved = kind_of(description)?.resolve(description, &mut Compilers(bench));
    let Resolved { target, is_host } = resolved.map_err(Failure::from_refusal)?;
    if !is_host {
        try_target(&target, bench)?;
    }
    Ok(target)
}

/// Resolves a target description for a target that can run on this machine.
pub fn resolve_target(description: &str, bench: &mut dyn Bench) -> Result<Target> {
    match kind_of(description)?.run_refusal() {
        Some(refusal) => Err(Failure::from_refusal(refusal)),
        None => compiled_target(description, bench),
    }
}

fn kind_of(description: &str) -> Result<Kind> {
    targets::find_kind(description)
        .ok_or_else(|| Failure::usage(format!("`target` is `{description}`; {}", targets::allowed_names())))
}

struct Compilers<'a>(&'a mut dyn Bench);

impl Host for Compilers<'_> {
    fn host_cpu(&mut self) -> std::result::Result<HostCpu, Refusal> {
        let versions = builder_versions(self.0)?;
        Ok(host_cpu(versions.get("cpu").map_or("generic", String::as_str), &Facts::read_facts())?)
    }

    fn gpu_capability(&mut self) -> std::result::Result<String, Refusal> {
        let facts = device_versions(self.0)
            .map_err(|failure| failure.with_hint("to compile without a GPU, give `--arch`, such as `--arch sm_90`"))?;
        Ok(facts["capability"].clone())
    }

    fn check_architectures(&mut self, architectures: &[Architecture]) -> std::result::Result<(), Refusal> {
        let nvrtc = Nvrtc::open().map_err(|error| Failure::environment(error).with_hint(nvrtc::SETUP_HINT))?;
        for architecture in architectures {
            nvrtc.check_architecture(*architecture).map_err(Failure::usage)?;
        }
        Ok(())
    }
}

fn host_cpu(name: &str, facts: &Facts) -> Result<HostCpu> {
    let (name, extensions) = (name.to_owned(), facts.vector_extensions.clone());
    Ok(HostCpu { name, extensions, cores: allowed_cpus()?.len() })
}

/// Builds a small task, so that an unusable target causes one error instead of a failure of every attempt.
fn try_target(target: &Target, bench: &mut dyn Bench) -> Result<()> {
    let small = zoo::simple::build_operator("relu:shape=16").map_err(Failure::environment)?;
    let tasks = models::fuse::distinct_tasks(&small, models::fuse::Fuse::None).map_err(Failure::environment)?;
    let task = &tasks.first().ok_or_else(|| Failure::environment("a graph of one operator has no task"))?.task;
    let schedule = Schedule::Template { knobs: task_space(task, &target.machine).default };
    let task = serde_json::to_string(task).map_err(Failure::environment)?;
    let job = BuildJob::for_schedule(&task, target, &schedule);
    match bench.build_jobs(&[job], &mut || ()).into_iter().next() {
        Some(Build::Built(_)) => Ok(()),
        Some(Build::Failed(why) | Build::Rejected(why)) => {
            Err(Failure::usage(format!("cannot compile for this target: {why}")))
        }
        Some(Build::Fault(fault)) => Err(Failure::usage(format!("cannot compile for this target: {fault}"))),
        None => Err(Failure::environment("a builder returned no result")),
    }
}

/// Returns the versions of all libraries that build or run for a target, including those in `library`.
pub fn collect_versions(target: &Target, library: Versions, bench: &mut dyn Bench) -> Result<Versions> {
    let mut versions = if target.kind.is_library() { Versions::new() } else { builder_versions(bench)? };
    versions.extend(library);
    if target.kind.runs_on_gpu() {
        versions.extend(device_versions(bench)?);
    }
    Ok(versions)
}

/// Returns the versions of TVM, LLVM and the CPU that the builders report.
pub fn builder_versions(bench: &mut dyn Bench) -> Result<Versions> {
    bench.capability(Ability::Build).map_err(worker_missing)
}

/// Returns the version of TVM that the runner reports.
pub fn runner_versions(bench: &mut dyn Bench) -> Result<Versions> {
    bench.capability(Ability::RunOnCpu).map_err(worker_missing)
}

/// Returns the version of another runtime's library, as its runner reports it.
pub fn runtime_versions(of: Ability, runtime: &RuntimeDescription, bench: &mut dyn Bench) -> Result<Versions> {
    bench.capability(of).map_err(|fault| {
        Failure::environment(format!("{} cannot run here: {}", runtime.name, last_words(&fault)))
            .with_hint(runtime.hint)
    })
}

/// Returns the last line of a fault's text, which names the cause if a worker ended during its start.
fn last_words(fault: &Fault) -> String {
    fault.to_string().trim().lines().last().unwrap_or_default().trim().to_owned()
}

/// Returns the versions of device and driver that the GPU runner reports.
pub fn device_versions(bench: &mut dyn Bench) -> Result<Versions> {
    bench.capability(Ability::RunOnGpu).map_err(|fault| {
        let why = last_words(&fault);
        Failure::environment(format!("nothing can run on a GPU here: {why}")).with_hint(driver::HINT)
    })
}

fn worker_missing(fault: Fault) -> Failure {
    Failure::environment(fault).with_hint(worker_hint())
}

/// Returns a machine description for schedule spaces, estimated from the CPU vendor without starting a worker. `board`
/// names the board of a target that needs one.
pub fn guess_machine(description: &str, board: Option<&str>) -> Result<Machine> {
    let kind = kind_of(description)?;
    if let Some(named) = kind.board_target(board, "") {
        return named.map(|target| target.machine).map_err(Failure::usage);
    }
    let facts = Facts::read_facts();
    // Without the compiler, the processor's name is unknown. Defaults depend on its vendor.
    let is_amd = facts.cpu_model.as_deref().is_some_and(|model| model.starts_with("AMD"));
    let cpu = if is_amd { "znver" } else { "generic" };
    kind.guess_machine(description, &host_cpu(cpu, &facts)?).map_err(Failure::usage)
}

#[cfg(test)]
mod tests {
    use super::{guess_machine, select_cpus, shared_cores};
    use measure::host::Topology;
    use std::fs;
    use targets::{Cpu, Machine};

    #[test]
    fn spaces_are_those_of_the_described_machine() {
        let vectors = |target: &str, board| match guess_machine(target, board) {
            Ok(Machine::Cpu(Cpu { vector_lanes, vector_registers, .. })) => (vector_lanes, vector_registers),
            other => panic!("{target}: {other:?}"),
        };
        assert_eq!(vectors("pynq", None), (4, 16));
        assert_eq!(vectors("pynq", Some("ultra96")), (4, 32));
        assert_eq!(vectors(r#"{"kind": "llvm", "mcpu": "x86-64-v3", "mtriple": "x86_64-linux-gnu"}"#, None), (8, 16));
        assert!(guess_machine("pynq", Some("pynq-z9")).is_err());
    }

    #[test]
    fn threads_that_share_cores_are_reported() {
        let root = tempfile::tempdir().expect("folder");
        for (cpu, siblings) in ["0-1", "0-1", "2-3", "2-3"].into_iter().enumerate() {
            let folder = root.path().join(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
            fs::create_dir_all(&folder).expect("folder");
            fs::write(folder.join("thread_siblings_list"), siblings).expect("file");
        }
        let topology = Topology::read_from(root.path(), &[0, 1, 2, 3]);
        let cpus = topology.order_cpus(&[0, 1, 2, 3]);
        let describe = |count: usize| shared_cores(&topology, &cpus[..count]);
        assert_eq!((describe(1), describe(2)), (None, None));
        assert_eq!(describe(3).as_deref(), Some("3 threads run on 2 cores, whose units they share"));
        assert_eq!(
            shared_cores(&topology, &[0, 1]).as_deref(),
            Some("2 threads run on 1 core, whose units they share")
        );
    }

    #[test]
    fn a_run_takes_the_first_cpus_within_the_limit() {
        let taken =
            |threads| select_cpus(threads, &[0, 2, 1, 3], "the board").map_err(|error| error.message().to_owned());
        assert_eq!(taken(Some(2)), Ok(vec![0, 2]));
        assert_eq!(taken(None), Ok(vec![0, 2, 1, 3]));
        for threads in [0, 5, usize::MAX] {
            let why = format!("`--threads` is {threads}; allowed are 1 to 4 on the board");
            assert_eq!(taken(Some(threads)), Err(why));
        }
    }
}
