//! `model`: runs a whole model in the way that applications run it.

use super::boards::{self, BoardRequest};
use super::pace::Pace;
use super::progress::terminal_observer;
use super::{DONE, DONE_WITH_LOSSES, Result, mapped, print_json, print_text, settings};
use crate::options::{ModelRun, Sweep, Tuning};
use engine::model_run::{self, ModelReport, ModelRunOptions, refuse_plan_on_board, write_outputs};
use executor::Program;
use reference::Tensor;
use std::path::Path;
use std::sync::Arc;

pub fn run(arguments: &ModelRun) -> Result<u8> {
    let models = settings::models_with_file(&arguments.models)?;
    let unit = models.settings.unit.as_deref().and_then(targets::kind_of_unit);
    if unit.is_some_and(|kind| kind.task_form().is_some()) {
        return mapped::run(arguments, models);
    }
    let sweep = Sweep::of_run(arguments.threads, arguments.seed, &arguments.running.sampling);
    let wanted = BoardRequest { boards: &arguments.boards, models: &models };
    let access = boards::board_access(wanted)?;
    let inputs = arguments.running.given.input_files();
    let options = ModelRunOptions {
        board: access.as_ref().map(|access| (access, wanted.of_board())),
        threads: arguments.threads,
        inputs: &inputs,
        is_checked: !arguments.no_check,
        plan: arguments.plan.as_deref(),
        parallel: arguments.parallel,
        store: arguments.store.as_deref(),
        wait_seconds: arguments.exclusive.wait,
        signal: Arc::default(),
    };
    refuse_plan_on_board(&options)?;
    let resolved = settings::config_of_search(&models, &sweep, &Tuning::default(), access.is_some())?;
    let done = model_run::run_model(&options, resolved, terminal_observer(Pace::default()))?;
    report_run(&done.report, (&done.program, &done.outputs), arguments.running.output.as_deref(), arguments.json)
}

pub fn report_run(
    report: &ModelReport,
    (program, outputs): (&Program, &[Tensor]),
    folder: Option<&Path>,
    as_json: bool,
) -> Result<u8> {
    if let Some(folder) = folder {
        write_outputs(program, outputs, folder)?;
    }
    if as_json {
        print_json(report)?
    } else {
        print_text(&report.text())?
    }
    Ok(if report.is_wrong() { DONE_WITH_LOSSES } else { DONE })
}
