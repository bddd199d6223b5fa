//! The bench of this machine: builder and runner processes. Runs are sequential, and no CPU core builds and runs at the
//! same time. A run that leaves CPUs to builders overlaps with builds. A run that needs all CPUs makes builders pause,
//! so it is delayed until a batch of such runs is waiting, or nothing is left to build. The batch then runs as a whole.
//! `docs/performance.md` describes the effect of the overlap on times.

use crate::builders::Builders;
use crate::{Ability, Bench, BenchWork, Done, Ran, Ticket, Versions};
use job::{Engine, LibraryJob, MemberReply, NetworkJob, RunJob, RunReply, TogetherJob, TogetherReply};
use measure::Placement;
use measure::host::Topology;
use serde::Serialize;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use worker::{Fault, ProcessLimits, Recycle, Supervisor, WorkerSpec, wait_any};

/// Environment variable for the number of polls before a thread of TVM's pool sleeps. TVM reads it once per process.
const SPIN_VARIABLE: &str = "TVM_THREAD_POOL_SPIN_COUNT";

#[derive(Clone, Debug)]
pub struct WorkerLimits {
    pub builders: usize,
    /// CPUs to which builders are pinned, one for each builder; empty for no pinning.
    pub builder_cpus: Vec<usize>,
    pub overlap: bool,
    /// Number of waiting runs at which builders pause, counting only runs that need all CPUs.
    pub wide_runs: usize,
    pub start_deadline: Duration,
    pub build_deadline: Duration,
    pub build_memory_bytes: u64,
    pub run_memory_bytes: u64,
    /// Number of jobs after which a runner is replaced.
    pub runner_jobs: u32,
    /// Number of times that an idle pool thread polls for work before it sleeps.
    pub spin_count: u32,
}

pub struct Workers {
    builders: Builders,
    runners: Runners,
    overlap: bool,
    builder_cpus: Vec<usize>,
    topology: Topology,
    /// Waiting runs that can overlap with builds.
    narrow: VecDeque<(Ticket, WorkerRun)>,
    /// Waiting runs during which builders must pause.
    wide: VecDeque<(Ticket, WorkerRun)>,
    wide_runs: usize,
    /// Whether the waiting wide runs are due. Until none of them is left, neither builds nor narrow runs start.
    builders_pause: bool,
    /// Runner process number that the last job requested from a process without turns. A job with a greater number
    /// gets a new process.
    process: u32,
}

/// Runner processes, each started on first use.
struct Runners {
    cpu: Turns<RunJob>,
    gpu: Supervisor<RunJob, RunReply>,
    library: Turns<LibraryJob>,
    network: Supervisor<NetworkJob, RunReply>,
    gpu_network: Supervisor<NetworkJob, RunReply>,
    onnxruntime: Supervisor<NetworkJob, RunReply>,
    openvino: Supervisor<NetworkJob, RunReply>,
    together: Supervisor<TogetherJob, RunReply>,
    /// CPUs of the OpenVINO process, which cannot change after its start.
    openvino_cpus: Vec<usize>,
}

/// Runner processes that stay alive and take turns by the process number of jobs, so that the visits of an experiment
/// run in different processes without a restart before each.
struct Turns<Job>([Supervisor<Job, RunReply>; 3]);

enum WorkerRun {
    Code(RunJob, Duration),
    Library(LibraryJob, Duration),
    Network(NetworkJob, Duration),
    /// Operators that run concurrently, the CPUs of all of them, and the deadline.
    Together(TogetherJob, Vec<usize>, Duration),
}

/// Returns the worker program: the one set by [`set_worker_program`], or `opcollect-worker` next to this program.
pub fn worker_program() -> std::io::Result<PathBuf> {
    Ok(worker::libraries::base_program()?.with_file_name("opcollect-worker"))
}

/// Sets the worker program, for hosts such as Python. Only the first call has an effect.
pub fn set_worker_program(path: PathBuf) {
    worker::libraries::set_program(path);
}

pub fn library_program(worker: &Path) -> PathBuf {
    worker.with_file_name("opcollect-torch")
}

impl Workers {
    /// Creates the bench. Processes are started on first use.
    pub fn new(program: &Path, limits: &WorkerLimits) -> Workers {
        /// Resident memory above which a builder is replaced.
        const BUILDER_RSS_BYTES: u64 = 1 << 30;
        let mut build = WorkerSpec::new(program, &["build"]);
        build.start_deadline = limits.start_deadline;
        build.limits = ProcessLimits { memory_bytes: Some(limits.build_memory_bytes), ..ProcessLimits::default() };
        build.recycle = Recycle { after_jobs: None, above_rss_bytes: Some(BUILDER_RSS_BYTES) };
        Workers {
            builders: Builders::new(&build, limits.builders, &limits.builder_cpus, limits.build_deadline),
            runners: Runners::new(program, limits),
            overlap: limits.overlap,
            builder_cpus: limits.builder_cpus.clone(),
            topology: Topology::read_topology(&limits.builder_cpus),
            narrow: VecDeque::new(),
            wide: VecDeque::new(),
            wide_runs: limits.wide_runs.max(1),
            builders_pause: false,
            process: 0,
        }
    }

    /// Ends the runner processes, so that the next job starts a new one.
    pub fn recycle_runners(&mut self) {
        self.runners.cpu.recycle_workers();
        self.runners.library.recycle_workers();
        self.runners.together.recycle_worker();
        self.recycle_runners_without_turns();
    }

    fn recycle_runners_without_turns(&mut self) {
        self.runners.gpu.recycle_worker();
        self.runners.library.of_networks().recycle_worker();
        self.runners.network.recycle_worker();
        self.runners.gpu_network.recycle_worker();
        self.runners.onnxruntime.recycle_worker();
        self.runners.openvino.recycle_worker();
    }

    /// Returns the CPUs of a run and their hyper-threading siblings, which share execution units.
    fn busy_cpus(&self, run: &WorkerRun) -> Vec<usize> {
        self.topology.with_siblings(run.cpus())
    }

    fn can_overlap_builds(&self, busy_cpus: &[usize]) -> bool {
        self.overlap && self.builder_cpus.iter().any(|cpu| !busy_cpus.contains(cpu))
    }

    fn queue_run(&mut self, ticket: Ticket, run: WorkerRun) {
        match self.can_overlap_builds(&self.busy_cpus(&run)) {
            true => self.narrow.push_back((ticket, run)),
            false => self.wide.push_back((ticket, run)),
        }
    }

    fn next_due(&mut self) -> Option<(Ticket, WorkerRun)> {
        // During a pause, a narrow run would start a build, for which the next wide run would have to wait.
        self.builders_pause |= self.wide.len() >= self.wide_runs || self.builders.are_idle() && self.narrow.is_empty();
        let due = if self.builders_pause { self.wide.pop_front() } else { None };
        self.builders_pause &= !self.wide.is_empty();
        due.or_else(|| self.narrow.pop_front())
    }

    fn perform_run(&mut self, run: WorkerRun) -> Ran {
        let busy = self.busy_cpus(&run);
        let overlaps = self.can_overlap_builds(&busy);
        match overlaps {
            true => self.builders.vacate_cpus(&busy),
            false => self.builders.leave_all(),
        }
        if let Some(Placement { process, .. }) = run.placement().filter(|_| !run.takes_turns()) {
            // Delayed runs may come after those of a later process number.
            if process > self.process {
                self.recycle_runners_without_turns();
            }
            self.process = if process == 0 { 0 } else { self.process.max(process) };
        }
        let (began, builders) = (SystemTime::now(), overlaps.then_some(&mut self.builders));
        let reply = match &run {
            WorkerRun::Code(job, deadline) => {
                let runner = match job.device {
                    Some(_) => &mut self.runners.gpu,
                    None => self.runners.cpu.of_process(job.placement.process),
                };
                let reply = call_runner(runner, builders, &busy, job, *deadline);
                if is_spent(&reply, job.device.is_some()) {
                    runner.recycle_worker();
                }
                reply
            }
            WorkerRun::Library(job, deadline) => {
                let process = run.placement().map_or(0, |placement| placement.process);
                let runner = self.runners.library.of_process(process);
                let reply = call_runner(runner, builders, &busy, job, *deadline);
                if is_spent(&reply, false) {
                    runner.recycle_worker();
                }
                reply
            }
            WorkerRun::Together(job, _, deadline) => {
                let reply = call_runner(&mut self.runners.together, builders, &busy, job, *deadline);
                if is_spent(&reply, false) {
                    self.runners.together.recycle_worker();
                }
                reply
            }
            WorkerRun::Network(job, deadline) => {
                let Runners { library, network, gpu_network, onnxruntime, openvino, openvino_cpus, .. } =
                    &mut self.runners;
                match job.engine {
                    Engine::OnnxRuntime | Engine::OpenVino | Engine::Torch if job.profile.is_some() => {
                        Ok(RunReply::Unsupported(
                            "only models compiled by this project can be profiled by operator".to_owned(),
                        ))
                    }
                    Engine::Program => call_runner(network, builders, &busy, job, *deadline),
                    Engine::Cuda => {
                        let reply = call_runner(gpu_network, builders, &busy, job, *deadline);
                        if is_spent(&reply, true) {
                            gpu_network.recycle_worker();
                        }
                        reply
                    }
                    Engine::OnnxRuntime => call_runner(onnxruntime, builders, &busy, job, *deadline),
                    Engine::OpenVino => {
                        if *openvino_cpus != job.cpus {
                            openvino.recycle_worker();
                            openvino_cpus.clone_from(&job.cpus);
                        }
                        call_runner(openvino, builders, &busy, job, *deadline)
                    }
                    Engine::Torch => {
                        let job = LibraryJob::Network(job.clone());
                        call_runner(library.of_networks(), builders, &busy, &job, *deadline)
                    }
                }
            }
        };
        Ran { began, reply }
    }
}

impl Bench for Workers {
    fn capability(&mut self, of: Ability) -> Result<Versions, Fault> {
        let versions = match of {
            Ability::Build => self.builders.versions()?,
            Ability::RunOnCpu => &self.runners.cpu.of_process(0).ensure_ready()?.versions,
            Ability::RunOnGpu => &self.runners.gpu.ensure_ready()?.versions,
            Ability::RunLibrary => &self.runners.library.of_process(0).ensure_ready()?.versions,
            Ability::RunOnnxRuntime => &self.runners.onnxruntime.ensure_ready()?.versions,
            Ability::RunOpenVino => &self.runners.openvino.ensure_ready()?.versions,
        };
        Ok(versions.clone())
    }

    fn submit(&mut self, ticket: Ticket, work: BenchWork) {
        match work {
            BenchWork::Build(job) => self.builders.request_build(ticket, job),
            BenchWork::Run(job, deadline) => self.queue_run(ticket, WorkerRun::Code(job, deadline)),
            BenchWork::Library(job, deadline) => self.queue_run(ticket, WorkerRun::Library(job, deadline)),
            BenchWork::Network(job, deadline) => self.queue_run(ticket, WorkerRun::Network(job, deadline)),
            BenchWork::Together(job, deadline) => {
                let cpus = job.distinct_cpus();
                self.queue_run(ticket, WorkerRun::Together(job, cpus, deadline));
            }
        }
    }

    fn next_result(&mut self, goes_on: &mut dyn FnMut() -> bool) -> Option<(Ticket, Done)> {
        loop {
            if let Some((ticket, build)) = self.builders.take_result() {
                return Some((ticket, Done::Built(build)));
            }
            if !goes_on() {
                return None;
            }
            if let Some((ticket, run)) = self.next_due() {
                return Some((ticket, Done::Ran(self.perform_run(run))));
            }
            if self.builders.are_idle() {
                return None;
            }
            self.builders.wait_for_result();
        }
    }

    fn abandon_all(&mut self) {
        self.builders.abandon_all();
        self.narrow.clear();
        self.wide.clear();
        self.builders_pause = false;
    }
}

impl Runners {
    fn new(program: &Path, limits: &WorkerLimits) -> Runners {
        let mut cpu = WorkerSpec::new(program, &["run"]);
        cpu.start_deadline = limits.start_deadline;
        cpu.limits = ProcessLimits { memory_bytes: Some(limits.run_memory_bytes), ..ProcessLimits::default() };
        cpu.recycle = Recycle { after_jobs: Some(limits.runner_jobs), above_rss_bytes: None };
        cpu.environment.push((SPIN_VARIABLE.into(), limits.spin_count.to_string().into()));
        let mut gpu = WorkerSpec { arguments: vec!["run-cuda".into()], ..cpu.clone() };
        // The CUDA driver reserves far more address space than it uses, so a memory limit would be meaningless.
        gpu.limits.memory_bytes = None;
        let gpu_network = WorkerSpec { arguments: vec!["run-cuda-network".into()], ..gpu.clone() };
        let mut library = WorkerSpec { arguments: Vec::new(), program: library_program(program), ..cpu.clone() };
        // With active waiting, idle threads would add to the CPU time of the next operator.
        library.environment = vec![("OMP_WAIT_POLICY".into(), "PASSIVE".into())];
        let network = WorkerSpec { arguments: vec!["run-network".into()], ..cpu.clone() };
        let together = WorkerSpec { arguments: vec!["run-together".into()], ..cpu.clone() };
        // These runtimes have thread pools of their own.
        let with_pool =
            |role: &str| WorkerSpec { arguments: vec![role.into()], environment: Vec::new(), ..cpu.clone() };
        let (onnxruntime, openvino) = (with_pool("run-onnxruntime"), with_pool("run-openvino"));
        Runners {
            cpu: Turns::new(&cpu),
            gpu: Supervisor::new(gpu),
            library: Turns::new(&library),
            network: Supervisor::new(network),
            gpu_network: Supervisor::new(gpu_network),
            onnxruntime: Supervisor::new(onnxruntime),
            openvino: Supervisor::new(openvino),
            openvino_cpus: Vec::new(),
            together: Supervisor::new(together),
        }
    }
}

impl<Job: Serialize> Turns<Job> {
    fn new(spec: &WorkerSpec) -> Turns<Job> {
        Turns([(); 3].map(|()| Supervisor::new(spec.clone())))
    }

    /// Returns the runner of a process number. Consecutive numbers have different runners.
    fn of_process(&mut self, process: u32) -> &mut Supervisor<Job, RunReply> {
        let Turns(runners) = self;
        &mut runners[process as usize % runners.len()]
    }

    /// Returns the runner of whole networks, of which only one process is kept because they need much memory.
    fn of_networks(&mut self) -> &mut Supervisor<Job, RunReply> {
        self.of_process(0)
    }

    fn recycle_workers(&mut self) {
        self.0.iter_mut().for_each(Supervisor::recycle_worker);
    }
}

impl WorkerRun {
    /// Returns whether the runner processes of this run stay alive and take turns.
    fn takes_turns(&self) -> bool {
        match self {
            // A second process might not get the GPU, or not enough of its memory.
            WorkerRun::Code(job, _) => job.device.is_none(),
            WorkerRun::Library(job, _) => matches!(job, LibraryJob::Task(_)),
            WorkerRun::Network(..) | WorkerRun::Together(..) => false,
        }
    }

    fn placement(&self) -> Option<Placement> {
        match self {
            WorkerRun::Code(job, _) | WorkerRun::Library(LibraryJob::Task(job), _) => Some(job.placement),
            WorkerRun::Network(job, _) | WorkerRun::Library(LibraryJob::Network(job), _) => Some(job.placement),
            WorkerRun::Library(LibraryJob::Module(_), _) | WorkerRun::Together(..) => None,
        }
    }

    fn cpus(&self) -> &[usize] {
        match self {
            WorkerRun::Code(job, _) | WorkerRun::Library(LibraryJob::Task(job), _) => &job.cpus,
            WorkerRun::Library(LibraryJob::Module(job), _) => &job.cpus,
            WorkerRun::Network(job, _) | WorkerRun::Library(LibraryJob::Network(job), _) => &job.cpus,
            WorkerRun::Together(_, cpus, _) => cpus,
        }
    }
}

/// Returns whether to replace a runner: a wrong result may mean corrupt memory, a failed launch a dead device.
fn is_spent(reply: &Result<RunReply, Fault>, is_device: bool) -> bool {
    match reply {
        Ok(RunReply::WrongResult(_)) => true,
        Ok(RunReply::Failed(_)) => is_device,
        Ok(RunReply::Measured(measured)) => measured.is_runner_spent,
        Ok(RunReply::Together(TogetherReply::Members(members))) => {
            members.iter().any(|one| matches!(one, MemberReply::WrongResult(_)))
        }
        Ok(RunReply::Together(TogetherReply::Ways(_))) => false,
        Ok(RunReply::Unsupported(_) | RunReply::Profiled(_) | RunReply::Simulated(_)) | Err(_) => false,
    }
}

/// Calls a runner. Meanwhile, builders work on CPUs outside `busy_cpus`.
fn call_runner<Job: Serialize>(
    runner: &mut Supervisor<Job, RunReply>,
    builders: Option<&mut Builders>,
    busy_cpus: &[usize],
    job: &Job,
    deadline: Duration,
) -> Result<RunReply, Fault> {
    let Some(builders) = builders else { return runner.call_worker(job, deadline) };
    runner.send_request(job, deadline)?;
    loop {
        builders.feed_idle_builders(busy_cpus);
        let mut waiting = builders.waiting_builders();
        let place = waiting.len();
        waiting.push(runner.pending_request());
        match wait_any(&waiting) {
            Some(builder) if builder < place => builders.receive_build(builder),
            Some(_) | None => return runner.receive_reply(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::{Evaluator, Method};

    /// Creates a bench of two CPUs in separate cores, on which two wide runs are a batch.
    fn create_workers() -> Workers {
        let limits = WorkerLimits {
            builders: 2,
            builder_cpus: vec![0, 1],
            overlap: true,
            wide_runs: 2,
            start_deadline: Duration::from_secs(1),
            build_deadline: Duration::from_secs(1),
            build_memory_bytes: 1 << 30,
            run_memory_bytes: 1 << 30,
            runner_jobs: 1,
            spin_count: 0,
        };
        Workers { topology: Topology::default(), ..Workers::new(Path::new("never-started"), &limits) }
    }

    fn queue_code(workers: &mut Workers, ticket: Ticket, cpus: &[usize]) {
        let job = RunJob::library_run(String::new(), cpus.to_vec(), Method::Evaluate(Evaluator::default()));
        workers.queue_run(ticket, WorkerRun::Code(job, Duration::from_secs(1)));
    }

    fn tickets_due(workers: &mut Workers) -> Vec<Ticket> {
        std::iter::from_fn(|| workers.next_due()).map(|(ticket, _)| ticket).collect()
    }

    #[test]
    fn narrow_runs_wait_until_a_batch_of_wide_runs_has_ended() {
        let mut workers = create_workers();
        queue_code(&mut workers, 0, &[0, 1]);
        queue_code(&mut workers, 1, &[0]);
        queue_code(&mut workers, 2, &[0, 1]);
        assert_eq!(workers.next_due().map(|(ticket, _)| ticket), Some(0));
        // A build that ended meanwhile adds runs.
        queue_code(&mut workers, 3, &[0]);
        queue_code(&mut workers, 4, &[0, 1]);
        assert_eq!(tickets_due(&mut workers), [2, 4, 1, 3]);
    }

    #[test]
    fn a_few_wide_runs_are_due_when_nothing_else_is_left() {
        let mut workers = create_workers();
        queue_code(&mut workers, 0, &[0, 1]);
        queue_code(&mut workers, 1, &[0]);
        assert_eq!(tickets_due(&mut workers), [1, 0]);
    }
}
