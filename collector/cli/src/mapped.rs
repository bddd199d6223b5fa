//! `model run --unit fpga`: runs a quantised model on a simulated accelerator core, compares it with the
//! unmodified model, and lists the processor of each task.

use super::boards::{self, BoardRequest};
use super::pace::Pace;
use super::progress::terminal_observer;
use super::{DONE, DONE_WITH_LOSSES, Result, print_json, print_text, settings, stdout_paper};
use crate::options::{ModelRun, Models, Sampling, Sweep, Tuning};
use engine::campaign::settings::ResolvedConfig;
use engine::failure::Failure;
use engine::units::{self, CpuBoard, UnitsOptions, UnitsReport};
use report::{Table, format_duration, number_column, text_column};
use targets::PYNQ;

pub fn run(arguments: &ModelRun, mut models: Models) -> Result<u8> {
    refuse_flags(arguments)?;
    let wanted = BoardRequest { boards: &arguments.boards, models: &models };
    let access = boards::board_access(wanted)?;
    let sweep = Sweep::of_run(None, arguments.seed, &arguments.running.sampling);
    let ResolvedConfig { config, loaded } = settings::resolve_config(&models, &sweep)?;
    (models.settings.target, models.settings.unit) = (Some(PYNQ.to_owned()), None);
    let wanted = BoardRequest { boards: &arguments.boards, models: &models };
    let board = access.as_ref().map(|access| {
        let sweep = Sweep::of_run(arguments.threads, arguments.seed, &Sampling::default());
        let ResolvedConfig { config, .. } = settings::config_of_search(&models, &sweep, &Tuning::default(), true)?;
        Ok(CpuBoard { access, options: wanted.of_board(), config, threads: arguments.threads })
    });
    let (inputs, board) = (arguments.running.given.input_files(), board.transpose()?);
    let options =
        UnitsOptions { config: &config, loaded: &loaded, inputs: &inputs, is_checked: !arguments.no_check, board };
    let report = units::run_on_units(&options, terminal_observer(Pace::default()).as_ref())?;
    match arguments.json {
        true => print_json(&report)?,
        false => print_text(&render_report(&report))?,
    }
    Ok(if report.is_complete { DONE } else { DONE_WITH_LOSSES })
}

fn refuse_flags(arguments: &ModelRun) -> Result<()> {
    let given = [
        ("--plan", arguments.plan.is_some()),
        ("--parallel", arguments.parallel.is_some()),
        ("--store", arguments.store.is_some()),
        ("--output", arguments.running.output.is_some()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => {
            Err(Failure::usage(format!("`{flag}` does not apply to a run on a simulated core and a CPU"))
                .with_hint(format!("remove `{flag}`; to record layers, run `opcollect --target pynq --unit fpga`")))
        }
        None => Ok(()),
    }
}

fn render_report(report: &UnitsReport) -> String {
    let mut table = Table::new([
        text_column("unit"),
        text_column("layer"),
        number_column("time"),
        text_column("source"),
        text_column("reason for the CPU"),
    ]);
    for call in &report.calls {
        table.add_row([
            call.unit.to_owned(),
            call.what.clone(),
            call.time_ns.map_or("–".to_owned(), format_duration),
            call.source.unwrap_or("–").to_owned(),
            call.why.clone().unwrap_or_default(),
        ]);
    }
    let [core, cpu] = &report.units;
    let cpu_time = match cpu.source {
        Some(source) if cpu.timed_calls > 0 => {
            let untimed = cpu.calls - cpu.timed_calls;
            let left = if untimed > 0 { format!(", {untimed} without a time") } else { String::new() };
            format!(
                "{} {source} on {}, as the sum over tasks measured one at a time{left}",
                format_duration(cpu.timed_ns),
                cpu.on
            )
        }
        Some(_) => "no time".to_owned(),
        None => "not timed; give a board with `--host` or `--tracker`".to_owned(),
    };
    let answer = match (report.off_by, report.largest_output) {
        (Some(off_by), Some(largest)) => format!(
            "differs by up to {off_by:.1e} from the unmodified model, whose outputs are up to {largest:.1e}, because \
             shifts replace its scales",
        ),
        _ => "not compared".to_owned(),
    };
    format!(
        "{} on {}\n{}\n  fpga    {} calls, {} simulated\n  arm     {} calls, {cpu_time}\n  \
         sum     none: times of different sources are not added up\n  \
         answer  {answer}\n  layers  the outputs of all {} layers on the core equal the reference in every byte",
        report.model,
        core.on,
        table.format_for(&stdout_paper()),
        core.calls,
        format_duration(core.timed_ns),
        cpu.calls,
        core.calls,
    )
}
