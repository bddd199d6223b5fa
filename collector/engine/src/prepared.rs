//! Prepares a whole model for runs: reads it, cuts it into calls, generates inputs, and computes reference outputs.

use crate::bases::base_records;
use crate::boards::{self, BoardOptions, MeasuredMachine};
use crate::campaign::CampaignEvent;
use crate::campaign::choices::{AttentionChoice, Executor};
use crate::campaign::config::{Config, ModelRequest};
use crate::campaign::graphs::{self, LoadedModels};
use crate::failure::{Failure, format_chain};
use crate::input_files::{self, InputFiles};
use crate::network::record::Attempt;
use crate::network::simulated::{self, Simulator};
use crate::network::{self, Best, BuiltModel, Comparison, NetworkError};
use crate::observer::Observer;
use crate::runs::{PrecedingCampaign, Runs};
use crate::stores::{left_out_note, note_damage, open_existing, store_failure};
use crate::{Result, machine};
use bench::{Ability, Access, Bench, Boards, Build, Fleet, Versions};
use datasets::{Choose, Json, Peaks, Record, ScheduleSource};
use executor::program::Numbers;
use job::space::Schedule;
use job::{Artifact, BuildJob, Engine, NetworkJob};
use measure::Method;
use models::stages::calls_hash;
use models::{Graph, Plan, StagePlan, Task, TaskUse};
use profile::Profile;
use profile::data::Simulation;
use reference::Tensor;
use runtimes::{onnxruntime, openvino};
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use targets::{HOST, Target};

/// A model that is prepared for runs.
pub struct PreparedModel {
    /// The model as it was requested.
    pub request: ModelRequest,
    /// The target of the compiled code.
    pub target: Target,
    /// The model after simplification.
    pub graph: Graph,
    /// Outputs of the reference computation, if it was requested.
    pub expected: Option<Vec<Tensor>>,
    /// Bench, CPUs and temporary folder for runs of the model.
    pub runs: Runs,
    /// The machine on which the model runs.
    pub machine: MeasuredMachine,
    /// Parallel plan of the calls for the builds that follow, if there is one.
    pub stages: Option<StagePlan>,
    /// The model before simplification.
    source: Graph,
    plan: Plan,
    constants: Vec<Option<Tensor>>,
    inputs: Vec<Tensor>,
}

/// Request to prepare a model.
pub struct PreparationRequest<'a> {
    /// Configuration with exactly one model.
    pub config: Config,
    /// Cache of models that were read before.
    pub models: &'a LoadedModels,
    /// Number of threads; by default one per CPU.
    pub threads: Option<usize>,
    /// Files with inputs of the model; all other inputs are random.
    pub inputs: &'a InputFiles,
    /// Whether outputs are compared with the reference computation.
    pub is_checked: bool,
    /// Engines that will run the model.
    pub engines: &'a [Engine],
    /// The machines or devices on which the model may run.
    pub on: RunLocation<'a>,
    /// Receiver of notes and progress.
    pub observer: Rc<dyn Observer>,
}

/// The machines or devices on which a model may run.
pub enum RunLocation<'a> {
    /// The CPUs of this machine.
    Cpus,
    /// The CPUs or the GPU of this machine.
    CpusOrGpu,
    /// A board, with its address and options.
    Board(&'a Access, BoardOptions<'a>),
}

impl PreparedModel {
    /// Prepares the model of a request, and writes its inputs to a file for the runner.
    pub fn from_request(options: PreparationRequest<'_>) -> Result<PreparedModel> {
        let request = only_model(&options.config)?.clone();
        refuse_sweeps(&options.config, "`model` runs one model at one size")?;
        let is_on_gpu = options.config.target_kind().runs_on_gpu();
        if is_on_gpu && matches!(options.on, RunLocation::Cpus) {
            return Err(cpu_target_failure());
        }
        // One thread launches the work of a GPU.
        let threads = if is_on_gpu { Some(1) } else { options.threads };
        let (runs, target, machine) = match options.on {
            RunLocation::Board(access, wanted) => {
                connect_board(access, wanted, options.config, threads, options.observer)?
            }
            RunLocation::Cpus | RunLocation::CpusOrGpu => {
                let mut runs = Runs::new(options.config, threads, options.observer)?;
                if is_on_gpu {
                    machine::device_versions(runs.bench.as_mut())?;
                }
                // The engines are started before the target is resolved, because their errors are more specific.
                start_engines(options.engines, runs.bench.as_mut())?;
                let target = machine::resolve_target(&runs.config.target, runs.bench.as_mut())?;
                (runs, target, MeasuredMachine::this_machine()?)
            }
        };
        let loaded = options.models.load(&request).map_err(|error| Failure::usage(format_chain(&error)))?;
        runs.observer.receive_notes(&loaded.notes);
        let (graph, plan) = cut_simplified(&loaded.graph, &runs.config)?;
        refuse_too_large(&request, &graph, runs.config.limits.run_memory_mib)?;
        let mut inputs =
            reference::graph_inputs(&graph, runs.config.seed).map_err(|error| Failure::usage(format_chain(&error)))?;
        input_files::replace_inputs(
            options.inputs,
            &input_names(&graph),
            &reference::input_draws(&graph),
            &mut inputs,
        )?;
        let constants = reference::graph_constants(&graph).map_err(|error| Failure::usage(format_chain(&error)))?;
        let expected =
            if options.is_checked {
                let expected = reference::evaluate_graph_with(&graph, &constants, &inputs);
                Some(expected.map_err(|error| {
                    Failure::usage(format!("cannot compute the reference: {}", format_chain(&error)))
                })?)
            } else {
                None
            };
        runs.write_inputs(&inputs)?;
        Ok(PreparedModel {
            request,
            target,
            graph,
            expected,
            runs,
            machine,
            stages: None,
            source: loaded.graph.clone(),
            plan,
            constants,
            inputs,
        })
    }

    /// Builds the model into a folder. `choose` selects the schedule of each task.
    pub fn build_into(
        &mut self,
        folder: &Path,
        choose: &dyn Fn(&Task) -> Schedule,
    ) -> std::result::Result<BuiltModel, NetworkError> {
        let mut progress = self.runs.observer.begin_progress(self.plan.tasks.len(), None);
        let signal = Arc::clone(&self.runs.signal);
        let mut goes_on = || {
            progress.observe_event(&CampaignEvent::Built);
            signal.load(Ordering::Relaxed) == 0
        };
        let mut numbers = Numbers::from_constants(&self.graph, &self.constants);
        let bench = self.runs.bench.as_mut();
        let made = network::build_model(
            &mut numbers,
            (&self.plan, self.stages.as_ref()),
            &self.target,
            choose,
            bench,
            &mut goes_on,
            folder,
        );
        progress.finish();
        made
    }

    /// Returns a record with the columns of the machine, the target and the versions.
    pub fn base_record(&mut self) -> Result<Record> {
        let versions = machine::collect_versions(&self.target, Versions::new(), self.runs.bench.as_mut())?;
        let mut base = base_records(&self.runs.config, &self.target, &self.machine.facts, &versions)?.compiled;
        if let Some(board) = &self.machine.board {
            board.fill_board_columns(&mut base);
        }
        Ok(base)
    }

    /// Returns the fastest correct schedules in a store for this target and number of threads. Reports the tasks
    /// without a schedule and the number of times of other versions, which are used only with `all_versions`.
    pub fn best_schedules(&mut self, store: &Path, all_versions: bool) -> Result<Best> {
        let best = self.read_best(store, all_versions)?;
        let threads = self.runs.cpus.len();
        let on_threads = report::format_count(threads, "thread");
        let note = |lacking| format!("for the best schedules in `{}` on {on_threads}: {lacking}", store.display());
        let notes = best
            .describe_lacking()
            .map(note)
            .into_iter()
            .chain(left_out_note(best.left_out()))
            .chain(best.describe_other_versions());
        self.runs.observer.receive_notes(&notes.collect::<Vec<_>>());
        Ok(best)
    }

    /// Returns the fastest correct schedules that were measured with the current versions, without any notes.
    pub fn known_schedules(&mut self, store: &Path) -> Result<Best> {
        self.read_best(store, false)
    }

    fn read_best(&mut self, store: &Path, all_versions: bool) -> Result<Best> {
        let contest = Json::new(&network::in_network::round_plan()).map_err(Failure::environment)?;
        let now = self.base_record()?;
        let network = calls_hash(&self.graph, &self.plan);
        let on = (&self.target, self.runs.cpus.len());
        let mut best = Best::for_plan(&self.plan, on, (now, all_versions), (&network, &contest));
        let records = open_existing(store)?.select_records(Choose::All).map_err(store_failure)?;
        note_damage(records.damage(), &*self.runs.observer);
        for record in records {
            best.add_record(&record.map_err(store_failure)?);
        }
        Ok(best)
    }

    /// Returns the record of a model run with these schedules, with the columns that are known before the run.
    pub fn run_record(
        &self,
        (schedules, source): (&[Schedule], ScheduleSource),
        method: &Method,
        base: &Record,
    ) -> Result<Record> {
        let attempt = self.plan_attempt((schedules, source), method);
        network::record::model_record(&attempt, base).map_err(Failure::environment)
    }

    fn plan_attempt<'a>(
        &'a self,
        (schedules, source): (&'a [Schedule], ScheduleSource),
        method: &'a Method,
    ) -> Attempt<'a> {
        Attempt {
            model: &self.request,
            graph: &self.graph,
            plan: &self.plan,
            schedules,
            source,
            target: &self.target,
            cpus: &self.runs.cpus,
            method,
            stages: self.stages.as_ref(),
        }
    }

    /// Returns a record per task, for measurements in the network, with the columns that are known before the run.
    pub fn operator_records(
        &self,
        (schedules, source): (&[Schedule], ScheduleSource),
        method: &Method,
        plan: &profile::Plan,
        base: &Record,
    ) -> Result<Vec<Record>> {
        let attempt = self.plan_attempt((schedules, source), method);
        let network = network::record::model_record(&attempt, base).map_err(Failure::environment)?;
        network::in_network::task_records(&attempt, &network, plan, base).map_err(Failure::environment)
    }

    /// Adds names, work and memory of the model's operators to the profile that a runner measured.
    pub fn complete_profile(&self, seen: Profile, made: &BuiltModel, peaks: &Peaks) -> Result<Profile> {
        let built = network::profile::ProfiledModel { graph: &self.graph, plan: &self.plan, made };
        network::profile::complete_profile(seen, &built, self.runs.cpus.len(), peaks).map_err(build_failure)
    }

    /// Counts the events of one call of each task in a simulator. Also returns the uncounted tasks, with reasons.
    pub fn simulate_calls(&mut self, simulator: &Simulator) -> Result<(Simulation, Vec<String>)> {
        // Simulators support no newer instructions.
        const OLDER: &str = r#"{"kind": "llvm", "mcpu": "x86-64-v3"}"#;
        let is_own = self.runs.config.target == HOST && cfg!(target_arch = "x86_64");
        let target =
            if is_own { machine::resolve_target(OLDER, self.runs.bench.as_mut())? } else { self.target.clone() };
        let job = |one: &'_ TaskUse| {
            let task = serde_json::to_string(&one.task).map_err(Failure::environment)?;
            Ok(BuildJob::for_schedule(&task, &target, &network::default_schedule(&one.task, &target)))
        };
        let tasks = self.plan.tasks.iter().map(|one| Ok((one, job(one)?))).collect::<Result<Vec<_>>>()?;
        self.runs.observer.announce_step(&format!(
            "simulating a call of each of {} tasks by {}",
            tasks.len(),
            simulated::NAME
        ));
        let folder = self.runs.join_path("simulated");
        fs::create_dir(&folder).map_err(Failure::environment)?;
        let cpus = self.runs.cpus.clone();
        Ok(simulator.count_tasks(&tasks, (&target, &cpus), self.runs.bench.as_mut(), &folder))
    }

    /// Returns the tasks of the model.
    pub fn tasks(&self) -> &[TaskUse] {
        &self.plan.tasks
    }

    /// Builds a task of the model again and requests a listing of its code (TIR, LLVM IR and assembly).
    pub fn build_listed(&mut self, task: usize, schedule: &Schedule) -> Result<Artifact> {
        let task = serde_json::to_string(&self.plan.tasks[task].task).map_err(Failure::environment)?;
        let job = BuildJob { wants_listing: true, ..BuildJob::for_schedule(&task, &self.target, schedule) };
        match self.runs.bench.build_jobs(&[job], &mut || {}).pop() {
            Some(Build::Built(artifact)) => Ok(*artifact),
            Some(Build::Failed(why) | Build::Rejected(why)) => Err(Failure::environment(why)),
            Some(Build::Fault(fault)) => Err(Failure::environment(fault)),
            None => Err(Failure::environment("a builder returned no result")),
        }
    }

    /// Returns the schedule that `choose` selects for each task.
    pub fn choose_schedules(&self, choose: &dyn Fn(&Task) -> Schedule) -> Vec<Schedule> {
        self.plan.tasks.iter().map(|one| choose(&one.task)).collect()
    }

    /// Writes the model as ONNX before simplification, because other libraries simplify on their own. Writes the
    /// simplified model if only that has an ONNX form, or if constants come from seeds, which simplification changes.
    pub fn write_onnx(&self, folder: &Path) -> Result<()> {
        let is_drawn =
            |graph: &Graph| graph.values.iter().filter_map(|value| value.data.as_ref()?.random_seed()).count() > 0;
        let of_source = if is_drawn(&self.source) { None } else { readers::onnx::write_graph(&self.source).ok() };
        let bytes = of_source.map_or_else(|| readers::onnx::write_graph(&self.graph), Ok).map_err(|error| {
            Failure::usage(format!("this model has no ONNX representation: {}", format_chain(&error)))
        })?;
        fs::write(folder.join(runtimes::MODEL), bytes).map_err(Failure::environment)
    }

    /// Writes the user's ONNX file with numbers for its dynamic dimensions. External data are linked or copied.
    pub fn write_original(&self, folder: &Path) -> Result<()> {
        let refused = |error: models::Error| Failure::usage(format_chain(&error));
        let Some(path) = self.request.onnx_file().map_err(|error| Failure::usage(format_chain(&error)))? else {
            return Err(Failure::usage(format!("`{}` is not an ONNX file", self.request.label()))
                .with_hint("`--variant onnxruntime` exports any model to ONNX"));
        };
        let name = path.display().to_string();
        let bytes = readers::onnx::read_file(&path).map_err(refused)?;
        let model_folder = path.parent().unwrap_or(Path::new(""));
        let files = readers::onnx::data_files(bytes.clone(), &name).map_err(refused)?;
        let fixed = readers::onnx::with_extents(bytes, &name, &self.source).map_err(refused)?;
        // The model is written first and existing files are skipped, because writing to a link would change the
        // user's file.
        fs::write(folder.join(runtimes::MODEL), fixed).map_err(Failure::environment)?;
        for data in files {
            let target = folder.join(&data);
            if target.exists() {
                continue;
            }
            if let Some(inner) = target.parent() {
                fs::create_dir_all(inner).map_err(Failure::environment)?;
            }
            // A hard link to a relative symbolic link would lead nowhere.
            let source = model_folder.join(&data).canonicalize().map_err(Failure::environment)?;
            fs::hard_link(&source, &target)
                .or_else(|_| fs::copy(&source, &target).map(drop))
                .map_err(Failure::environment)?;
        }
        Ok(())
    }

    /// Writes the model as a program of tasks for a library into a folder.
    pub fn write_tasks(&self, folder: &Path) -> Result<()> {
        let mut numbers = Numbers::from_constants(&self.graph, &self.constants);
        network::write_tasks(&mut numbers, &self.plan, folder).map(drop).map_err(build_failure)
    }

    /// Returns the plan that cuts the model into calls of tasks.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Rejects a model without operators, for commands whose only result are times.
    pub fn require_operators(&self) -> Result<()> {
        match self.plan.calls.is_empty() {
            false => Ok(()),
            true => Err(Failure::usage(format!(
                "`{}` has no operators to time: each output is an input or a constant",
                self.request.label()
            ))
            .with_hint("`opcollect model run` compares its outputs with the reference")),
        }
    }

    /// Returns the engine that runs the compiled program.
    pub fn engine(&self) -> Engine {
        if self.target.kind.runs_on_gpu() { Engine::Cuda } else { Engine::Program }
    }

    /// Creates a subfolder of the temporary folder with this name.
    pub fn new_folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.runs.join_path(name);
        fs::create_dir(&folder).map_err(Failure::environment)?;
        Ok(folder)
    }

    /// Returns the outputs of the last run of a job.
    pub fn last_outputs(&self, job: &NetworkJob) -> Result<Vec<Tensor>> {
        self.runs.read_outputs(job, self.graph.outputs.iter().map(|id| &self.graph.values[id.0 as usize].ty))
    }

    /// Compares outputs with the reference, if that was requested.
    pub fn check_outputs(&self, outputs: &[Tensor]) -> Option<Comparison> {
        let (wanted, share) = (self.expected.as_ref()?, network::error_tolerance(&self.graph));
        let comparison = network::compare_outputs(share, outputs, wanted);
        if comparison.is_right {
            return Some(comparison);
        }
        // A small output can be the difference of large numbers. The second evaluation takes as long as the first.
        let errors = reference::rounding_errors(&self.graph, &self.constants, &self.inputs, wanted);
        Some(errors.map_or(comparison, |floors| network::compare_above(share, &floors, outputs, wanted)))
    }
}

fn start_engines(engines: &[Engine], bench: &mut dyn Bench) -> Result<()> {
    for (engine, ability, runtime) in [
        (Engine::OnnxRuntime, Ability::RunOnnxRuntime, &onnxruntime::DESCRIPTION),
        (Engine::OpenVino, Ability::RunOpenVino, &openvino::DESCRIPTION),
    ] {
        if engines.contains(&engine) {
            machine::runtime_versions(ability, runtime, bench)?;
        }
    }
    if engines.contains(&Engine::Torch) {
        machine::library_worker("`--variant torch` runs the model through PyTorch's library", bench)?;
    }
    Ok(())
}

fn connect_board(
    access: &Access,
    wanted: BoardOptions<'_>,
    config: Config,
    threads: Option<usize>,
    observer: Rc<dyn Observer>,
) -> Result<(Runs, Target, MeasuredMachine)> {
    let mut workers = machine::create_workers(&config.limits)?;
    let (target, machine) = boards::connect_board(access, wanted, &config, &mut workers)?;
    let board = machine.board.as_ref().expect("a connected board");
    let cpus = machine::select_cpus(threads, &machine.cpus, board.display_name())?;
    observer.receive_notes(&board.timing_notes());
    let bench = Boards::new(workers, &Fleet { devices: 1, ..board.fleet.clone() }).map_err(Failure::environment)?;
    Ok((Runs::with_bench(config, cpus, Box::new(bench), observer)?, target, machine))
}

/// Returns the only model of a configuration; fails if there are several.
pub fn only_model(config: &Config) -> Result<&ModelRequest> {
    match config.models.as_slice() {
        [one] => Ok(one),
        several => {
            Err(Failure::usage(format!("exactly one model with one size is needed, {} were given", several.len()))
                .with_hint("give one `--modelname`, and at most one `--batchsize`, `--sequence` and `--phase`"))
        }
    }
}

/// Rejects a model whose constants exceed the memory limit of a runner, before the constants are read.
fn refuse_too_large(request: &ModelRequest, graph: &Graph, run_memory_mib: u64) -> Result<()> {
    let constants = graph.values.iter().filter(|value| value.data.is_some());
    let bytes = constants.filter_map(|value| value.ty.size_bytes()).fold(0, u64::saturating_add);
    match bytes > run_memory_mib.saturating_mul(1 << 20) {
        false => Ok(()),
        true => Err(Failure::environment(format!(
            "the constants of `{}` take {} MiB, and the limit of a runner is {run_memory_mib} MiB",
            request.label(),
            bytes.div_ceil(1 << 20),
        ))
        .with_hint("raise `run_memory_mib` in `[limits]` of a `--config`, if the machine has that much")),
    }
}

/// Converts the error of a failed build.
pub fn build_failure(error: NetworkError) -> Failure {
    Failure::usage(format_chain(&error))
}

/// Returns the error for targets that are not CPUs.
pub fn cpu_target_failure() -> Failure {
    Failure::usage("on GPUs this version can only run whole models")
        .with_hint("give `--target llvm`, or use `opcollect model run`")
}

/// Rejects settings that produce several variants of a model, for commands that run only one variant.
pub fn refuse_sweeps(config: &Config, what_runs: &str) -> Result<()> {
    let refused = |flag: &str, why: &str| {
        let message = format!("`{flag}` {why}, but {what_runs}");
        Err(Failure::usage(message).with_hint(format!("leave out `{flag}`")))
    };
    if config.executor == Executor::Vm {
        return refused("--executor vm", "generates code for all sizes");
    }
    if config.attention == AttentionChoice::Both {
        return refused("--attention both", "splits a model into tasks in two ways");
    }
    if config.variations > 0 {
        return refused("--variations", "creates tasks that are in no model");
    }
    Ok(())
}

/// Simplifies a graph and cuts it into calls. Fails if a partner library computes some of the tasks.
pub fn cut_simplified(graph: &Graph, config: &Config) -> Result<(Graph, Plan)> {
    let cuts = graphs::cut_graph(graph, config).map_err(|error| Failure::usage(format_chain(&error)))?;
    let (graph, plan) = cuts.into_iter().next().expect("a graph is split in at least one way");
    match plan.tasks.iter().find_map(|one| one.partner.as_ref()) {
        Some(partner) => {
            Err(Failure::usage(format!("`{partner}` computes tasks of this model, which have no compiled code"))
                .with_hint("remove `--backend` and partners in `--target`"))
        }
        None => Ok((graph, plan)),
    }
}

/// Returns the names of a graph's inputs.
pub fn input_names(graph: &Graph) -> Vec<&str> {
    graph.inputs.iter().map(|id| graph.values[id.0 as usize].name.as_str()).collect()
}

/// Calls `run` with the model prepared for each number of threads of the configuration.
pub fn for_each_thread_count<T>(
    model: &ModelRequest,
    models: &LoadedModels,
    (config, preceding): (&Config, &PrecedingCampaign),
    is_checked: bool,
    observer: &Rc<dyn Observer>,
    mut run: impl FnMut(&mut PreparedModel, usize) -> Result<T>,
) -> Vec<(usize, Result<T>)> {
    let model = PreparedModel::from_request(PreparationRequest {
        config: Config { models: vec![model.clone()], ..config.clone() },
        models,
        threads: config.threads.iter().copied().max(),
        inputs: &InputFiles::default(),
        is_checked,
        engines: &[Engine::Program],
        on: RunLocation::Cpus,
        observer: Rc::clone(observer),
    });
    let mut model = match model {
        Ok(mut model) => {
            model.runs.run_id = Some(preceding.run_id.clone());
            model.runs.signal = Arc::clone(&preceding.signal);
            model
        }
        Err(failure) => {
            let refused = |&threads: &usize| (threads, Err(Failure::environment(failure.message())));
            return config.threads.iter().map(refused).collect();
        }
    };
    let cpus = model.runs.cpus.clone();
    let mut run_on_threads = |&threads: &usize| {
        model.runs.cpus = cpus[..threads].to_vec();
        (threads, model.runs.check_signal().and_then(|()| run(&mut model, threads)))
    };
    config.threads.iter().map(&mut run_on_threads).collect()
}
