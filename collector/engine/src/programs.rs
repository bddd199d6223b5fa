//! Folders with programs of whole models, built on one machine and run on others without the compiler or the model.

use crate::atomic_folder::AtomicFolder;
use crate::campaign::graphs::LoadedModels;
use crate::campaign::{Config, Settings};
use crate::failure::{Failure, format_chain};
use crate::input_files::{self, InputFiles};
use crate::network::portable::{self, Portable, ProgramFolder};
use crate::network::{self, Best, BuiltModel, Comparison};
use crate::observer::Observer;
use crate::prepared::{PreparationRequest, PreparedModel, RunLocation, build_failure};
use crate::runs::{PROGRAM, Runs, model_method};
use crate::{Result, machine};
use executor::Program;
use job::{Engine, Measured};
use measure::host::cpu_flags;
use models::Task;
use reference::Tensor;
use serde::Serialize;
use std::path::Path;
use std::rc::Rc;

/// Options for building a program into a folder.
pub struct ProgramOptions<'a> {
    /// Number of threads, used to choose schedules from the store; by default one per CPU.
    pub threads: Option<usize>,
    /// Store with measured schedules, and whether measurements with other versions are used.
    pub best: Option<(&'a Path, bool)>,
    /// Whether the reference computation is run and its outputs are stored in the folder.
    pub is_checked: bool,
}

/// Summary of a program that was built into a folder.
#[derive(Clone, Debug, Serialize)]
pub struct BuiltProgram {
    /// Path of the folder with the program.
    pub folder: String,
    /// Name of the model.
    pub model: String,
    /// Batch size of the model, if it has one.
    pub batch: Option<i64>,
    /// Target as text.
    pub target: String,
    /// Processor that the code requires.
    pub code_for: String,
    /// Number of calls in the program.
    pub calls: usize,
    /// Number of distinct tasks in the program.
    pub tasks: usize,
    /// Number of tasks whose schedule came from the store; None if no store was given.
    pub tasks_found: Option<usize>,
    /// Size of the constants in bytes.
    pub constant_bytes: u64,
    /// Whether the folder contains expected outputs.
    pub is_checkable: bool,
}

/// Builds the only model of a configuration in a temporary folder, which is then moved to `out`.
pub fn build_program(
    (config, models): (Config, &LoadedModels),
    (folder, out): (AtomicFolder, &Path),
    options: &ProgramOptions<'_>,
    observer: Rc<dyn Observer>,
) -> Result<BuiltProgram> {
    let mut prepared = PreparedModel::from_request(PreparationRequest {
        config,
        models,
        threads: options.threads,
        inputs: &InputFiles::default(),
        is_checked: options.is_checked,
        engines: &[Engine::Program],
        on: RunLocation::Cpus,
        observer,
    })?;
    let best = options.best.map(|(store, all_versions)| prepared.best_schedules(store, all_versions)).transpose()?;
    let target = prepared.target.clone();
    let choose = |task: &Task| match &best {
        Some(best) => best.choose_schedule(task),
        None => network::default_schedule(task, &target),
    };
    let made = prepared.build_into(folder.path(), &choose).map_err(build_failure)?;
    let portable = program_metadata(&mut prepared, &made)?;
    let built = BuiltProgram {
        folder: out.display().to_string(),
        model: portable.model.clone(),
        batch: portable.batch,
        target: portable.target.clone(),
        code_for: portable.required_processor(),
        calls: made.program.calls.len(),
        tasks: made.program.codes,
        tasks_found: best.as_ref().map(Best::found_count),
        constant_bytes: network::constant_bytes(&made.program),
        is_checkable: prepared.expected.is_some(),
    };
    portable::write_metadata(folder.path(), portable, prepared.expected.as_deref()).map_err(Failure::environment)?;
    folder.finish(out)?;
    Ok(built)
}

fn program_metadata(prepared: &mut PreparedModel, made: &BuiltModel) -> Result<Portable> {
    let object = made.artifacts.first().map_or(&[][..], |artifact| &artifact.object);
    let mut used: Vec<String> = made.artifacts.iter().flat_map(|artifact| artifact.instruction_sets.clone()).collect();
    used.sort();
    used.dedup();
    Ok(Portable {
        versions: machine::builder_versions(prepared.runs.bench.as_mut())?,
        model: prepared.request.label(),
        batch: prepared.request.batch,
        target: prepared.target.text.clone(),
        // A program without calls has no code, so it runs on every machine.
        architecture: match object {
            [] => std::env::consts::ARCH.to_owned(),
            object => portable::object_architecture(object),
        },
        instruction_sets: used,
        seed: prepared.runs.config.seed,
        draws: reference::input_draws(&prepared.graph),
        tolerance: network::error_tolerance(&prepared.graph),
        ..Portable::default()
    })
}

/// Returns whether a folder contains a program, complete or not.
pub fn has_program(folder: &Path) -> bool {
    executor::folder::description_path(folder).exists() || portable::metadata_path(folder).exists()
}

/// Options of a run of a program in a folder.
pub struct ProgramRunOptions<'a> {
    /// Measurement method, counters and limits. The number of threads is taken from `threads` only.
    pub config: Settings,
    /// Number of threads; by default one per CPU.
    pub threads: Option<usize>,
    /// Seed of the random input values; by default that of the expected outputs.
    pub seed: Option<u64>,
    /// Files with inputs of the model; all other inputs are random.
    pub inputs: &'a InputFiles,
    /// Longest wait for another process that measures on the same CPUs.
    pub wait_seconds: u64,
}

/// Result of a run of a program from a folder.
pub struct ProgramRun {
    /// Metadata of the program.
    pub portable: Portable,
    /// The program that ran.
    pub program: Program,
    /// Number of threads.
    pub threads: usize,
    /// Seed of the random input values.
    pub seed: u64,
    /// Measured times of the program.
    pub measured: Measured,
    /// Outputs of the model in the last run.
    pub outputs: Vec<Tensor>,
    /// Comparison with the expected outputs, if these belong to the inputs of the run.
    pub check: Option<Comparison>,
}

/// Runs the program in a folder.
pub fn run_program(folder: &Path, options: ProgramRunOptions<'_>, observer: Rc<dyn Observer>) -> Result<ProgramRun> {
    let ProgramFolder { portable, program, expected } = portable::read_folder(folder).map_err(|error| {
        Failure::usage(format_chain(&error))
            .with_hint("create the folder with `opcollect model build --out`, and copy all of it")
    })?;
    let flags = cpu_flags();
    if let Some(why) = portable.describe_lacking(std::env::consts::ARCH, &|name| flags.contains(name)) {
        return Err(Failure::environment(format!("`{}` cannot run here: {why}", folder.display()))
            .with_hint("build it on this machine, or with `--target` for this one's processor"));
    }
    let ProgramRunOptions { mut config, threads, seed, inputs: given, wait_seconds } = options;
    config.sweep.threads = threads.map(|threads| vec![threads]);
    let config = config.check(machine::allowed_cpus()?.len()).map_err(Failure::usage)?;
    let seed = seed.unwrap_or(portable.seed);
    let types = program.inputs.iter().map(|port| &port.ty);
    let mut inputs = reference::drawn_inputs(types.zip(portable.draws.iter().copied()), seed)
        .map_err(|error| Failure::usage(format_chain(&error)))?;
    let names: Vec<&str> = program.inputs.iter().map(|port| port.name.as_str()).collect();
    input_files::replace_inputs(given, &names, &portable.draws, &mut inputs)?;
    let has_expected_inputs = seed == portable.seed && given.is_empty();
    if expected.is_some() && !has_expected_inputs {
        let known = portable.seed;
        observer.note(format!("outputs are not compared: the expected outputs of the folder are for seed {known}"));
    }
    let mut runs = Runs::new(config, threads, Rc::clone(&observer))?;
    runs.write_inputs(&inputs)?;
    let job = runs.create_job(
        Engine::Program,
        // The worker has its own working directory, so the path must be absolute.
        folder.canonicalize().map_err(Failure::usage)?,
        PROGRAM,
        model_method(&runs.config),
        runs.config.counters.clone(),
    );
    let _exclusive = machine::lock_cpus(wait_seconds, observer.as_ref())?;
    let measured = runs.run_job(&job)?;
    let outputs = runs.read_outputs(&job, program.outputs.iter().map(|port| &port.ty))?;
    let check = expected
        .filter(|_| has_expected_inputs)
        .map(|wanted| network::compare_outputs(portable.tolerance, &outputs, &wanted));
    Ok(ProgramRun { threads: runs.cpus.len(), portable, program, seed, measured, outputs, check })
}
