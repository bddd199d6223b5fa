//! A whole model made ready to be run: read, cut into calls, given inputs, its reference computed, all in one folder.

use super::arguments::{Models, Sweep};
use super::failure::{Failure, chain};
use super::progress::{LINE_SECONDS, Progress};
use super::{Result, machine, settings, tell};
use crate::campaign::config::{AttentionChoice, Config, Executor, ModelRequest};
use crate::campaign::{Event, graphs};
use crate::network::{self, Comparison, Made};
use bench::{Bench, Workers};
use executor::program::Numbers;
use job::space::Schedule;
use job::target::{Kind, Target};
use job::{Engine, Measured, NetworkJob, RunReply};
use measure::Method;
use measure::counters::CounterRequest;
use models::{Graph, Plan, Task};
use reference::Tensor;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// A model with all that running it takes.
pub struct Whole {
    pub config: Config,
    pub request: ModelRequest,
    pub target: Target,
    pub cpus: Vec<usize>,
    pub graph: Graph,
    plan: Plan,
    constants: Vec<Option<Tensor>>,
    expected: Option<Vec<Tensor>>,
    workers: Workers,
    folder: TempDir,
}

/// How a model is asked for.
pub struct Asked<'a> {
    pub models: &'a Models,
    pub sweep: Sweep,
    pub threads: Option<usize>,
    /// Inputs from files, as `NAME=FILE`.
    pub inputs: &'a [String],
    pub is_checked: bool,
    /// What is going to run it.
    pub engines: &'a [Engine],
}

impl Whole {
    /// Reads and cuts the one model that is asked for; its inputs lie in a file when this is done.
    pub fn of(asked: Asked<'_>) -> Result<Whole> {
        let config = settings::config(asked.models, &asked.sweep)?;
        let request = only(&config)?.clone();
        refuse_sweeps(&config)?;
        let allowed = settings::allowed_cpus()?;
        let cpus = allowed.iter().copied().take(asked.threads.unwrap_or(allowed.len())).collect();
        let mut workers = machine::workers(&config.limits)?;
        if asked.engines.contains(&Engine::OnnxRuntime) {
            machine::onnxruntime_versions(&mut workers)?;
        }
        let target = machine::target(&config.target, &mut workers)?;
        if target.kind != Kind::Llvm {
            return Err(Failure::usage("whole models run on CPUs in this version").with_hint("give `--target llvm`"));
        }
        let loaded = graphs::load_with_notes(&request).map_err(|error| Failure::usage(chain(&error)))?;
        tell(&loaded.notes);
        let (graph, plan) = cut(&loaded.graph, &config)?;
        let inputs = inputs(&graph, asked.inputs, config.seed)?;
        let constants = reference::constants(&graph).map_err(|error| Failure::usage(chain(&error)))?;
        let expected = if asked.is_checked {
            let expected = reference::evaluate_graph_with(&graph, &constants, &inputs);
            Some(expected.map_err(|error| Failure::usage(format!("cannot compute the reference: {}", chain(&error))))?)
        } else {
            None
        };
        let folder = tempfile::Builder::new().prefix("opcollect-model-").tempdir().map_err(Failure::environment)?;
        let whole = Whole { config, request, target, cpus, graph, plan, constants, expected, workers, folder };
        let bytes: Vec<u8> = inputs.iter().flat_map(|tensor| tensor.bytes().iter().copied()).collect();
        fs::write(whole.inputs(), bytes).map_err(Failure::environment)?;
        Ok(whole)
    }

    fn inputs(&self) -> PathBuf {
        self.folder.path().join("inputs.bin")
    }

    /// A new folder beside the inputs.
    fn new_folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.path().join(name);
        fs::create_dir(&folder).map_err(Failure::environment)?;
        Ok(folder)
    }

    /// The model's tasks.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.plan.tasks.iter().map(|one| &one.task)
    }

    /// Builds the model into a folder of this name, each task by the schedule that is chosen for it.
    pub fn make(&mut self, name: &str, choose: &dyn Fn(&Task) -> Schedule) -> Result<Made> {
        let folder = self.new_folder(name)?;
        let mut progress = Progress::new(self.plan.tasks.len(), LINE_SECONDS);
        let mut done = || progress.hear(&Event::Built);
        let mut numbers = Numbers::of(&self.graph, &self.constants);
        let bench = &mut self.workers;
        let made = network::make(&mut numbers, &self.plan, &self.target, choose, bench, &mut done, &folder);
        progress.finish();
        made.map_err(|error| Failure::usage(chain(&error)))
    }

    /// Writes the model as an ONNX file into a folder of this name.
    pub fn write_onnx(&self, name: &str) -> Result<()> {
        let bytes = readers::onnx::write(&self.graph)
            .map_err(|error| Failure::usage(format!("this model cannot be an ONNX file: {}", chain(&error))))?;
        fs::write(self.new_folder(name)?.join(onnxruntime::MODEL), bytes).map_err(Failure::environment)
    }

    /// Running what lies in the folder of this name.
    pub fn job(&self, engine: Engine, name: &str, method: Method, counters: CounterRequest) -> NetworkJob {
        NetworkJob {
            engine,
            program: self.folder.path().join(name),
            inputs: self.inputs(),
            outputs: self.folder.path().join(format!("{name}-outputs.bin")),
            cpus: self.cpus.clone(),
            method,
            counters,
        }
    }

    /// Runs a job; loading what it names belongs to the time that a run may take.
    pub fn run(&mut self, job: &NetworkJob) -> Result<Measured> {
        let deadline = job.deadline(Duration::from_secs_f64(self.config.limits.run_seconds));
        match self.workers.run_network(job, deadline) {
            Ok(RunReply::Measured(measured)) => Ok(*measured),
            Ok(RunReply::Failed(why)) => Err(Failure::environment(format!("the model did not run: {why}"))),
            Ok(other) => Err(Failure::environment(format!("the model did not run: {other:?}"))),
            Err(fault) => Err(Failure::environment(format!("the model did not run: {fault}"))),
        }
    }

    /// What the last run of a job answered.
    pub fn outputs(&self, job: &NetworkJob) -> Result<Vec<Tensor>> {
        let bytes = fs::read(&job.outputs).map_err(Failure::environment)?;
        let types = self.graph.outputs.iter().map(|id| &self.graph.values[id.0 as usize].ty);
        network::tensors(types, &bytes).map_err(|error| Failure::environment(chain(&error)))
    }

    /// Outputs beside those of the reference, where that was asked for.
    pub fn check(&self, outputs: &[Tensor]) -> Option<Comparison> {
        self.expected.as_ref().map(|wanted| network::compare(&self.graph, outputs, wanted))
    }
}

/// The one model of a configuration.
fn only(config: &Config) -> Result<&ModelRequest> {
    match config.models.as_slice() {
        [one] => Ok(one),
        several => Err(Failure::usage(format!("`model` runs one model at one size, {} were named", several.len()))
            .with_hint("give one `--modelname`, and at most one `--batchsize`, `--sequence` and `--phase`")),
    }
}

/// What makes several of a model has no meaning where one is run.
fn refuse_sweeps(config: &Config) -> Result<()> {
    let refused = |flag: &str, why: &str| {
        let message = format!("`{flag}` {why}, and `model` runs one model at one size");
        Err(Failure::usage(message).with_hint(format!("leave out `{flag}`")))
    };
    if config.executor == Executor::Vm {
        return refused("--executor vm", "makes code for all sizes");
    }
    if config.attention == AttentionChoice::Both {
        return refused("--attention both", "cuts a model in two ways");
    }
    if config.variations > 0 {
        return refused("--variations", "makes tasks that stand in no model");
    }
    Ok(())
}

fn cut(graph: &Graph, config: &Config) -> Result<(Graph, Plan)> {
    let cuts = graphs::cuts(graph, config).map_err(|error| Failure::usage(chain(&error)))?;
    let (graph, plan) = cuts.into_iter().next().expect("a graph is cut in at least one way");
    match plan.tasks.iter().find_map(|one| one.partner.as_ref()) {
        Some(partner) => {
            Err(Failure::usage(format!("`{partner}` computes tasks of this model, and has no code to run"))
                .with_hint("leave out `--backend` and partners in `--target`"))
        }
        None => Ok((graph, plan)),
    }
}

/// What the model is given: files, or numbers of a seed.
fn inputs(graph: &Graph, texts: &[String], seed: u64) -> Result<Vec<Tensor>> {
    let mut inputs = network::drawn_inputs(graph, seed).map_err(|error| Failure::usage(chain(&error)))?;
    for text in texts {
        let (name, path) = text.split_once('=').ok_or_else(|| {
            Failure::usage(format!("`--input {text}` is not a name and a file")).with_hint("write it as `x=image.npy`")
        })?;
        let names: Vec<&str> = graph.inputs.iter().map(|id| graph.values[id.0 as usize].name.as_str()).collect();
        let place = names
            .iter()
            .position(|known| *known == name)
            .ok_or_else(|| Failure::usage(format!("the model has no input `{name}`; it has {}", names.join(", "))))?;
        inputs[place] = network::npy::read(Path::new(path), inputs[place].ty()).map_err(Failure::usage)?;
    }
    Ok(inputs)
}
