//! The bench of this machine: builders and runners.
//!
//! Runs happen one at a time, and never on a core where something is being built. A run that leaves CPUs to builders goes
//! as soon as it can, with builders at work beside it; one that takes them all waits until there are many like it or
//! nothing is left to build, since builders rest meanwhile. What builders beside a run do to its times was measured (see
//! ARCHITECTURE.md).

use crate::builders::Builders;
use crate::{Ability, Bench, Done, Ran, Ticket, Versions, Work};
use job::{Engine, LibraryJob, MemberReply, NetworkJob, RunJob, RunReply, TogetherJob, TogetherReply};
use measure::Placement;
use measure::host::Topology;
use serde::Serialize;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use worker::{Fault, Limits, Recycle, Supervisor, WorkerSpec, wait_any};

/// The variable TVM reads once per process.
const SPIN_VARIABLE: &str = "TVM_THREAD_POOL_SPIN_COUNT";

/// Bounds of the workers.
#[derive(Clone, Debug)]
pub struct WorkerLimits {
    /// Builders at work at once.
    pub builders: usize,
    /// CPUs of the builders, one each; none leaves them where the system puts them.
    pub builder_cpus: Vec<usize>,
    /// Whether builders go on while a candidate runs on other CPUs than theirs.
    pub overlap: bool,
    /// Builders rest as soon as so many runs wait for their CPUs.
    pub wide_runs: usize,
    /// A worker may take this long to start.
    pub start_deadline: Duration,
    /// A build may take this long.
    pub build_deadline: Duration,
    /// Memory of a builder.
    pub build_memory_bytes: u64,
    /// Memory of a runner.
    pub run_memory_bytes: u64,
    /// A runner is replaced after this many jobs.
    pub runner_jobs: u32,
    /// An idle thread of a runner's pool asks this often for work before it sleeps.
    pub spin_count: u32,
}

/// The builders and the runners of a machine.
pub struct Workers {
    builders: Builders,
    runners: Runners,
    overlap: bool,
    builder_cpus: Vec<usize>,
    topology: Topology,
    /// Runs beside which builders may work.
    narrow: VecDeque<(Ticket, Run)>,
    /// Runs for which they rest.
    wide: VecDeque<(Ticket, Run)>,
    wide_runs: usize,
    /// Whether builders rest until no wide run is left.
    are_resting: bool,
    /// Number of the runner processes that the last placement asked for.
    process: u32,
}

/// One process for each kind of run; none is started before it is needed.
struct Runners {
    cpu: Supervisor<RunJob, RunReply>,
    gpu: Supervisor<RunJob, RunReply>,
    library: Supervisor<LibraryJob, RunReply>,
    network: Supervisor<NetworkJob, RunReply>,
    gpu_network: Supervisor<NetworkJob, RunReply>,
    onnxruntime: Supervisor<NetworkJob, RunReply>,
    openvino: Supervisor<NetworkJob, RunReply>,
    together: Supervisor<TogetherJob, RunReply>,
    /// The CPUs of that process, which cannot change.
    openvino_cpus: Vec<usize>,
}

/// A run with its deadline.
enum Run {
    Code(RunJob, Duration),
    Library(LibraryJob, Duration),
    Network(NetworkJob, Duration),
    /// With all CPUs of what runs.
    Together(TogetherJob, Vec<usize>, Duration),
}

/// Returns the worker program, which lies beside this one unless [`set_worker_program`] was called.
pub fn worker_program() -> std::io::Result<PathBuf> {
    Ok(worker::libraries::program()?.with_file_name("opcollect-worker"))
}

/// Sets the worker program of this process, for a library that another program hosts, such as Python. Only the first call has an
/// effect.
pub fn set_worker_program(path: PathBuf) {
    worker::libraries::set_program(path);
}

/// The program that computes tasks through PyTorch's library, beside the worker program where it was built.
pub fn library_program(worker: &Path) -> PathBuf {
    worker.with_file_name("opcollect-torch")
}

impl Workers {
    /// Workers of this program; none is started before it is needed.
    pub fn new(program: &Path, limits: &WorkerLimits) -> Workers {
        /// A builder that has grown beyond this is replaced.
        const BUILDER_RSS_BYTES: u64 = 1 << 30;
        let mut build = WorkerSpec::new(program, &["build"]);
        build.start_deadline = limits.start_deadline;
        build.limits = Limits { memory_bytes: Some(limits.build_memory_bytes), ..Limits::default() };
        build.recycle = Recycle { after_jobs: None, above_rss_bytes: Some(BUILDER_RSS_BYTES) };
        Workers {
            builders: Builders::new(&build, limits.builders, &limits.builder_cpus, limits.build_deadline),
            runners: Runners::new(program, limits),
            overlap: limits.overlap,
            builder_cpus: limits.builder_cpus.clone(),
            topology: Topology::read(&limits.builder_cpus),
            narrow: VecDeque::new(),
            wide: VecDeque::new(),
            wide_runs: limits.wide_runs.max(1),
            are_resting: false,
            process: 0,
        }
    }

    /// Ends the runners; the next job starts a fresh one.
    pub fn recycle_runners(&mut self) {
        self.runners.cpu.recycle();
        self.runners.gpu.recycle();
        self.runners.library.recycle();
        self.runners.network.recycle();
        self.runners.gpu_network.recycle();
        self.runners.onnxruntime.recycle();
        self.runners.openvino.recycle();
        self.runners.together.recycle();
    }

    /// Where no builder may be at work while something runs: a sibling of its CPU shares the units of its core.
    fn busy_cpus(&self, run: &Run) -> Vec<usize> {
        self.topology.with_siblings(run.cpus())
    }

    /// Whether a builder may be at work while something runs on these CPUs.
    fn can_build_beside(&self, busy_cpus: &[usize]) -> bool {
        self.overlap && self.builder_cpus.iter().any(|cpu| !busy_cpus.contains(cpu))
    }

    fn queue(&mut self, ticket: Ticket, run: Run) {
        match self.can_build_beside(&self.busy_cpus(&run)) {
            true => self.narrow.push_back((ticket, run)),
            false => self.wide.push_back((ticket, run)),
        }
    }

    /// The next run, if its time has come.
    fn due(&mut self) -> Option<(Ticket, Run)> {
        if let Some(narrow) = self.narrow.pop_front() {
            return Some(narrow);
        }
        self.are_resting |= self.wide.len() >= self.wide_runs || self.builders.are_idle();
        let wide = if self.are_resting { self.wide.pop_front() } else { None };
        self.are_resting &= !self.wide.is_empty();
        wide
    }

    /// Runs; no builder touches its cores meanwhile.
    fn make(&mut self, run: Run) -> Ran {
        let busy = self.busy_cpus(&run);
        let beside = self.can_build_beside(&busy);
        match beside {
            true => self.builders.leave(&busy),
            false => self.builders.leave_all(),
        }
        if let Some(Placement { process, .. }) = run.placement() {
            // Runs that waited for all CPUs may come after those of the next process.
            if process > self.process {
                self.recycle_runners();
            }
            self.process = if process == 0 { 0 } else { self.process.max(process) };
        }
        let (began, builders) = (SystemTime::now(), beside.then_some(&mut self.builders));
        let reply = match &run {
            Run::Code(job, deadline) => {
                let runner = if job.device.is_some() { &mut self.runners.gpu } else { &mut self.runners.cpu };
                let reply = call(runner, builders, &busy, job, *deadline);
                if is_spent(&reply, job.device.is_some()) {
                    runner.recycle();
                }
                reply
            }
            Run::Library(job, deadline) => {
                let reply = call(&mut self.runners.library, builders, &busy, job, *deadline);
                if is_spent(&reply, false) {
                    self.runners.library.recycle();
                }
                reply
            }
            Run::Together(job, _, deadline) => {
                let reply = call(&mut self.runners.together, builders, &busy, job, *deadline);
                if is_spent(&reply, false) {
                    self.runners.together.recycle();
                }
                reply
            }
            Run::Network(job, deadline) => {
                let Runners { library, network, gpu_network, onnxruntime, openvino, openvino_cpus, .. } =
                    &mut self.runners;
                match job.engine {
                    Engine::OnnxRuntime | Engine::OpenVino | Engine::Torch if job.profile.is_some() => {
                        Ok(RunReply::Unsupported("only programs of our own code tell of their operators".to_owned()))
                    }
                    Engine::Program => call(network, builders, &busy, job, *deadline),
                    Engine::Cuda => {
                        let reply = call(gpu_network, builders, &busy, job, *deadline);
                        if is_spent(&reply, true) {
                            gpu_network.recycle();
                        }
                        reply
                    }
                    Engine::OnnxRuntime => call(onnxruntime, builders, &busy, job, *deadline),
                    Engine::OpenVino => {
                        if *openvino_cpus != job.cpus {
                            openvino.recycle();
                            openvino_cpus.clone_from(&job.cpus);
                        }
                        call(openvino, builders, &busy, job, *deadline)
                    }
                    Engine::Torch => call(library, builders, &busy, &LibraryJob::Network(job.clone()), *deadline),
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
            Ability::RunOnCpu => &self.runners.cpu.ready()?.versions,
            Ability::RunOnGpu => &self.runners.gpu.ready()?.versions,
            Ability::RunLibrary => &self.runners.library.ready()?.versions,
            Ability::RunOnnxRuntime => &self.runners.onnxruntime.ready()?.versions,
            Ability::RunOpenVino => &self.runners.openvino.ready()?.versions,
        };
        Ok(versions.clone())
    }

    fn submit(&mut self, ticket: Ticket, work: Work) {
        match work {
            Work::Build(job) => self.builders.request(ticket, job),
            Work::Run(job, deadline) => self.queue(ticket, Run::Code(job, deadline)),
            Work::Library(job, deadline) => self.queue(ticket, Run::Library(job, deadline)),
            Work::Network(job, deadline) => self.queue(ticket, Run::Network(job, deadline)),
            Work::Together(job, deadline) => {
                let cpus = job.cpus();
                self.queue(ticket, Run::Together(job, cpus, deadline));
            }
        }
    }

    fn next(&mut self, goes_on: &mut dyn FnMut() -> bool) -> Option<(Ticket, Done)> {
        loop {
            if let Some((ticket, build)) = self.builders.take() {
                return Some((ticket, Done::Built(build)));
            }
            if !goes_on() {
                return None;
            }
            if let Some((ticket, run)) = self.due() {
                return Some((ticket, Done::Ran(self.make(run))));
            }
            if self.builders.are_idle() {
                return None;
            }
            self.builders.wait();
        }
    }

    fn abandon(&mut self) {
        self.builders.abandon();
        self.narrow.clear();
        self.wide.clear();
        self.are_resting = false;
    }
}

impl Runners {
    fn new(program: &Path, limits: &WorkerLimits) -> Runners {
        let mut cpu = WorkerSpec::new(program, &["run"]);
        cpu.start_deadline = limits.start_deadline;
        cpu.limits = Limits { memory_bytes: Some(limits.run_memory_bytes), ..Limits::default() };
        cpu.recycle = Recycle { after_jobs: Some(limits.runner_jobs), above_rss_bytes: None };
        cpu.environment.push((SPIN_VARIABLE.into(), limits.spin_count.to_string().into()));
        let mut gpu = WorkerSpec { arguments: vec!["run-cuda".into()], ..cpu.clone() };
        // The driver reserves far more memory than it uses, so a limit on it would say nothing.
        gpu.limits.memory_bytes = None;
        let gpu_network = WorkerSpec { arguments: vec!["run-cuda-network".into()], ..gpu.clone() };
        let mut library = WorkerSpec { arguments: Vec::new(), program: library_program(program), ..cpu.clone() };
        // Threads that wait for work would be charged to the next operator if they polled.
        library.environment = vec![("OMP_WAIT_POLICY".into(), "PASSIVE".into())];
        let network = WorkerSpec { arguments: vec!["run-network".into()], ..cpu.clone() };
        let together = WorkerSpec { arguments: vec!["run-together".into()], ..cpu.clone() };
        // They have pools of their own.
        let with_pool =
            |role: &str| WorkerSpec { arguments: vec![role.into()], environment: Vec::new(), ..cpu.clone() };
        let (onnxruntime, openvino) = (with_pool("run-onnxruntime"), with_pool("run-openvino"));
        Runners {
            cpu: Supervisor::new(cpu),
            gpu: Supervisor::new(gpu),
            library: Supervisor::new(library),
            network: Supervisor::new(network),
            gpu_network: Supervisor::new(gpu_network),
            onnxruntime: Supervisor::new(onnxruntime),
            openvino: Supervisor::new(openvino),
            openvino_cpus: Vec::new(),
            together: Supervisor::new(together),
        }
    }
}

impl Run {
    fn placement(&self) -> Option<Placement> {
        match self {
            Run::Code(job, _) | Run::Library(LibraryJob::Task(job), _) => Some(job.placement),
            Run::Network(job, _) | Run::Library(LibraryJob::Network(job), _) => Some(job.placement),
            Run::Library(LibraryJob::Module(_), _) | Run::Together(..) => None,
        }
    }

    fn cpus(&self) -> &[usize] {
        match self {
            Run::Code(job, _) | Run::Library(LibraryJob::Task(job), _) => &job.cpus,
            Run::Library(LibraryJob::Module(job), _) => &job.cpus,
            Run::Network(job, _) | Run::Library(LibraryJob::Network(job), _) => &job.cpus,
            Run::Together(_, cpus, _) => cpus,
        }
    }
}

/// Whether a runner may have been damaged: what wrote wrong numbers may have written elsewhere too, and a device stays in
/// error after a failed launch.
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

/// One job of a runner while builders, if there are any that may, work on other CPUs than these.
fn call<Job: Serialize>(
    runner: &mut Supervisor<Job, RunReply>,
    builders: Option<&mut Builders>,
    busy_cpus: &[usize],
    job: &Job,
    deadline: Duration,
) -> Result<RunReply, Fault> {
    let Some(builders) = builders else { return runner.call(job, deadline) };
    runner.send(job, deadline)?;
    loop {
        builders.feed_beside(busy_cpus);
        let mut waiting = builders.waiting();
        let place = waiting.len();
        waiting.push(runner.waiting());
        match wait_any(&waiting) {
            Some(builder) if builder < place => builders.receive(builder),
            Some(_) | None => return runner.receive(),
        }
    }
}
