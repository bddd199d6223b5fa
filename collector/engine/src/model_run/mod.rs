//! Runs whole models as an application does, compares their outputs with the reference, and reports their times.

mod report;

pub use report::{ModelReport, RanProgram};

use crate::boards::BoardOptions;
use crate::campaign::record;
use crate::campaign::settings::ResolvedConfig;
use crate::failure::{Failure, format_chain};
use crate::input_files::InputFiles;
use crate::network;
use crate::observer::Observer;
use crate::prepared::{PreparationRequest, PreparedModel, RunLocation, build_failure};
use crate::record_keeping::{RecordKeeper, RecordLocation};
use crate::runs::{PROGRAM, Runs, model_method};
use crate::{Result, machine, staging};
use bench::Access;
use datasets::{Outcome, Record, RowError, ScheduleSource};
use executor::Program;
use job::{NetworkJob, RunReply};
use models::{Parallel, Task};
use reference::Tensor;
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Options of a run of a whole model.
pub struct ModelRunOptions<'a> {
    /// The board on which the model runs; None for this machine.
    pub board: Option<(&'a Access, BoardOptions<'a>)>,
    /// Number of threads; by default one per CPU.
    pub threads: Option<usize>,
    /// Files with inputs of the model; all other inputs are random.
    pub inputs: &'a InputFiles,
    /// Whether outputs are compared with the reference.
    pub is_checked: bool,
    /// File with a parallel plan, which assigns calls to concurrent stages.
    pub plan: Option<&'a Path>,
    /// Rule by which a parallel plan is derived, if no file is given.
    pub parallel: Option<Parallel>,
    /// Store to which a record of the run is written; None writes none.
    pub store: Option<&'a Path>,
    /// Longest wait for another process that measures on the same CPUs, in seconds.
    pub wait_seconds: u64,
    /// Set to the number of a signal, which ends the run after the current build or visit, without a record.
    pub signal: Arc<AtomicUsize>,
}

/// Result of a run of a whole model.
pub struct ModelRun {
    /// Times, memory and comparison of outputs.
    pub report: ModelReport,
    /// The program that was built and run.
    pub program: Program,
    /// Outputs of the model in the last run.
    pub outputs: Vec<Tensor>,
}

/// Rejects a parallel plan if the model runs on a board.
pub fn refuse_plan_on_board(options: &ModelRunOptions<'_>) -> Result<()> {
    if options.board.is_some() && (options.plan.is_some() || options.parallel.is_some()) {
        return Err(Failure::usage("a board runs the operators of a model only sequentially")
            .with_hint("leave out `--plan` and `--parallel`"));
    }
    Ok(())
}

/// Builds and runs the only model of a configuration.
pub fn run_model(
    options: &ModelRunOptions<'_>,
    resolved: ResolvedConfig,
    observer: Rc<dyn Observer>,
) -> Result<ModelRun> {
    refuse_plan_on_board(options)?;
    let ResolvedConfig { config, loaded } = resolved;
    let mut prepared = PreparedModel::from_request(PreparationRequest {
        config,
        models: &loaded,
        threads: options.threads,
        inputs: options.inputs,
        is_checked: options.is_checked,
        engines: &[],
        on: options.board.map_or(RunLocation::CpusOrGpu, |(access, board)| RunLocation::Board(access, board)),
        observer: Rc::clone(&observer),
    })?;
    prepared.runs.signal = Arc::clone(&options.signal);
    prepared.stages = match (options.plan, options.parallel) {
        (Some(path), _) => Some(staging::read_plan(path, &prepared)?),
        (None, Some(parallel)) => Some(staging::plan_by_rule(parallel, &prepared)),
        (None, None) => None,
    };
    let folder = prepared.new_folder(PROGRAM)?;
    let config = &prepared.runs.config;
    let job = prepared.runs.create_job(
        prepared.engine(),
        folder.clone(),
        PROGRAM,
        model_method(config),
        config.counters.clone(),
    );
    let is_here = prepared.machine.board.is_none();
    let _exclusive = if is_here { Some(machine::lock_cpus(options.wait_seconds, observer.as_ref())?) } else { None };
    measure_model(options, &mut prepared, &folder, &job)
}

fn measure_model(
    options: &ModelRunOptions<'_>,
    prepared: &mut PreparedModel,
    folder: &Path,
    job: &NetworkJob,
) -> Result<ModelRun> {
    let target = prepared.target.clone();
    let choose = |task: &Task| network::default_schedule(task, &target);
    // The store is opened last, so that an earlier error does not leave an empty store behind.
    let keeper = match options.store {
        Some(store) => {
            let schedules = prepared.choose_schedules(&choose);
            Some(RecordKeeper::begin(
                store,
                prepared,
                (&schedules, ScheduleSource::Default),
                &job.method,
                options.inputs,
            )?)
        }
        None => None,
    };
    let made = match prepared.build_into(folder, &choose) {
        Ok(made) => made,
        Err(error) => {
            prepared.runs.check_signal()?;
            let why = format_chain(&error);
            store_record(keeper, |row| {
                record::mark_failed(row, Outcome::BuildFailed, why);
                Ok(())
            })?;
            return Err(build_failure(error));
        }
    };
    prepared.runs.check_signal()?;
    let reply = prepared.runs.run_visits(job);
    prepared.runs.check_signal()?;
    let outputs = if let Ok(RunReply::Measured(_)) = &reply { prepared.last_outputs(job)? } else { Vec::new() };
    let check = if reply.is_ok() && !outputs.is_empty() { prepared.check_outputs(&outputs) } else { None };
    let kept = store_record(keeper, |row| {
        network::record::describe_made(row, &made)?;
        let is_right = check.is_none_or(|check| check.is_right);
        match &reply {
            Ok(RunReply::Measured(_)) if made.program.calls.is_empty() && is_right => {
                record::mark_failed(row, Outcome::Skipped, "the model has no operators, so it has no time".to_owned());
                Ok(())
            }
            reply => network::record::describe_run(row, reply, check),
        }
    })?;
    let measured = Runs::reply_times(reply)?;
    let report = ModelReport::new(&RanProgram {
        model: prepared.request.label(),
        batch: prepared.request.batch,
        target: &prepared.target.text,
        code_for: None,
        threads: prepared.runs.cpus.len(),
        seed: prepared.runs.config.seed,
        program: &made.program,
        measured: &measured,
        check,
        kept,
        stages: prepared.stages.as_ref(),
        board: prepared.machine.board.as_ref(),
    });
    Ok(ModelRun { report: report.map_err(Failure::environment)?, program: made.program, outputs })
}

fn store_record(
    keeper: Option<RecordKeeper>,
    fill: impl FnOnce(&mut Record) -> std::result::Result<(), RowError>,
) -> Result<Option<RecordLocation>> {
    keeper.map(|keeper| keeper.store_record(fill)).transpose()
}

/// Writes each output of a run to a NumPy file in a folder.
pub fn write_outputs(program: &Program, outputs: &[Tensor], folder: &Path) -> Result<()> {
    let failed = |error| Failure::usage(format!("cannot write to `{}`: {error}", folder.display()));
    fs::create_dir_all(folder).map_err(failed)?;
    for (place, (port, tensor)) in program.outputs.iter().zip(outputs).enumerate() {
        // Names come from files and may contain path separators.
        let plain: String = port.name.chars().map(|one| if one.is_ascii_alphanumeric() { one } else { '_' }).collect();
        let bytes = network::npy::tensor_bytes(tensor);
        let path = folder.join(format!("{place}-{}.npy", plain.chars().take(60).collect::<String>()));
        datasets::output::write_file(&path, &bytes).map_err(|error| Failure::usage(format_chain(&error)))?;
    }
    Ok(())
}
