//! The command `oppredict adapt`.

use crate::installation::{cache_folder, find_collector, predictor_file};
use crate::kernels::{self, AdaptationFiles};
use crate::loading::load_samples_from;
use crate::options::Filter;
use crate::{DONE, DONE_WITH_LOSSES, create_output, print_json, print_text, stdout_paper, write_output};
use clap::Args;
use learn::adaptation::{self, DeviceChange};
use predictor::this_host::Calibration;
use predictor::{Error, Result, bundle, published};
use report::quantity::whole_seconds;
use report::terminal::print_notes;
use report::{Cell, Table, UNKNOWN, format_count, format_duration, number_column, text_column};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

pub const ADAPT_EXAMPLES: &str = "\
Examples:
  oppredict train --data bmm.csv.gz --mapping configs/gpu-ops.toml --out gpu.opp
  oppredict adapt --predictor gpu.opp --data few.csv --mapping with-the-new-device.toml --out new.opp
  oppredict adapt --data gemm.csv --mapping configs/mappings/aiconfigurator.toml --out new.opp
  oppredict adapt --this-host && oppredict predict --model resnet-18";

#[derive(Clone, Debug, Args)]
pub struct Adapt {
    /// Predictor file of `train` [default: built-in; for GPUs with --mapping, else for CPUs]
    #[arg(long, value_name = "FILE")]
    pub predictor: Option<PathBuf>,
    /// Measure peak rates and nine operators to calibrate this machine
    ///
    /// `opcollect` measures them in at least three rounds, in about a minute. Predicted times are converted by the ratio of
    /// peak rates, then by that of measured to converted times. All commands, `serve` and Python then predict for this
    /// machine.
    #[arg(long, conflicts_with = "data")]
    pub this_host: bool,
    /// Records, a store, or a table of times of the new device; repeatable
    ///
    /// Rows of devices in the training data are ignored.
    #[arg(long, required_unless_present = "this_host", value_name = "PATH")]
    pub data: Vec<PathBuf>,
    /// TOML file that describes the columns of another project's table
    #[arg(long, value_name = "FILE", requires = "data")]
    pub mapping: Option<PathBuf>,
    #[command(flatten)]
    pub filter: Filter,
    /// Output file for the corrected predictor or the calibration
    ///
    /// With --this-host the default is in the user's cache folder.
    #[arg(long, value_name = "FILE", required_unless_present = "this_host")]
    pub out: Option<PathBuf>,
    /// Replace an earlier calibration of this host that was more consistent
    #[arg(long, requires = "this_host", conflicts_with = "data")]
    pub replace: bool,
    /// Time limit of --this-host in seconds, 10 to 3600
    #[arg(long, default_value_t = 180, value_name = "SECONDS", requires = "this_host", value_parser = whole_seconds::<10, 3600>)]
    pub seconds: u64,
    /// Repeat --this-host until its rounds agree; none begins after SECONDS
    ///
    /// The measurement is repeated while another `opcollect` uses the CPUs, while the factors of its rounds differ by more
    /// than 3 %, and while more than a quarter of the sentinels are noisy. The best measurement is stored.
    #[arg(long, default_value_t = 0, value_name = "SECONDS", requires = "this_host", value_parser = whole_seconds::<0, 86_400>)]
    pub wait: u64,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &Adapt) -> Result<u8> {
    if arguments.this_host {
        return calibrate_host(arguments);
    }
    let Some(path) = &arguments.out else {
        return Err(Error::Query("give --out FILE for the corrected predictor".to_owned()));
    };
    let kernel_mapping = arguments.mapping.as_deref().map(predictor::kernels::read_mapping).transpose()?.flatten();
    if let Some(mapping) = kernel_mapping {
        let files = AdaptationFiles { data: &arguments.data, predictor: arguments.predictor.as_deref(), out: path };
        return kernels::run_adapt(&files, &mapping, arguments.json);
    }
    let out = create_output(Some(path))?;
    let mut predictor =
        bundle::read_bundle(&predictor_file(arguments.predictor.as_deref(), None, arguments.mapping.is_some())?)?;
    let samples = load_samples_from(&arguments.data, arguments.mapping.as_deref(), arguments.filter.policy()?)?;
    let unknown = adaptation::count_unknown_rows(&predictor, &samples);
    let skipped = |(operator, rows): (&String, &usize)| {
        format!("skipped {} of `{operator}`, which the predictor lacks", format_count(*rows, "row"))
    };
    print_notes("note", unknown.iter().map(skipped));
    let changes = adaptation::adapt_predictor(&mut predictor, samples)?;
    let worse = changes.iter().filter(|change| change.is_worse).map(|change| {
        let after = change.after.unwrap_or(change.before);
        let DeviceChange { operator, device, rows, before, .. } = change;
        format!(
            "the correction by {} increases the error of `{operator}` on {device} from {before:.1} % to {after:.1} %; check the measurements, or measure ten or more shapes",
            format_count(*rows, "measurement")
        )
    });
    print_notes("warning", worse);
    write_output(out, || bundle::to_bytes(&predictor))?;
    let mut table = Table::new([
        text_column("operator"),
        text_column("device"),
        number_column("measurements").drop_order(1),
        number_column("error before"),
        number_column("error after"),
    ]);
    for change in &changes {
        let after = match change.after {
            None => Cell::from(UNKNOWN).mark_uncertain(),
            Some(after) if change.is_worse => Cell::from(format!("{after:.1} %")).mark_bad(),
            Some(after) => Cell::from(format!("{after:.1} %")),
        };
        table.add_row([
            change.operator.as_str().into(),
            change.device.as_str().into(),
            change.rows.to_string().into(),
            format!("{:.1} %", change.before).into(),
            after,
        ]);
    }
    print_text(
        arguments.json,
        &format!(
            "{}\n`error after` is cross-validated: each half of the measurements is predicted after correction with the other half; wrote `{}`",
            table.format_for(&stdout_paper()),
            path.display()
        ),
    )?;
    if arguments.json {
        print_json(&json!({ "out": path, "changes": changes, "unknown_operators": unknown }))?;
    }
    Ok(DONE)
}

fn calibrate_host(arguments: &Adapt) -> Result<u8> {
    let predictor =
        bundle::read_bundle(&predictor_file(arguments.predictor.as_deref(), None, arguments.mapping.is_some())?)?;
    let host_class = measure::host::Facts::read_facts().host_class();
    let below_cache = || Some(published::calibration_file(&cache_folder()?, &host_class));
    let problem = "no cache folder, because HOME is not set; give --out FILE";
    let kept = arguments.out.clone().or_else(below_cache).ok_or_else(|| Error::Query(problem.to_owned()))?;
    if let Some(folder) = kept.parent().filter(|_| arguments.out.is_none()) {
        std::fs::create_dir_all(folder).map_err(|error| Error::io_error("create", folder, error))?;
    }
    let out = create_output(Some(&kept))?;
    let deadline = Duration::from_secs(arguments.seconds);
    let collector = find_collector();
    let known = Calibration::measure_until_settled(
        Duration::from_secs(arguments.wait),
        || Calibration::measure_sentinels(&collector, &predictor, &host_class, deadline),
        |reason| print_notes("note", [reason]),
    )?;
    print_text(arguments.json, &sentinel_table(&known))?;
    let disturbed = known.sentinels.len() - known.usable_sentinels().count();
    if disturbed > 0 {
        let sentinels = format_count(disturbed, "noisy sentinel");
        let warning = format!("{sentinels} ignored; results are better on a quieter machine");
        print_notes("warning", [warning]);
    }
    print_text(arguments.json, &repeats_note(&known))?;
    // An unreadable calibration is replaced.
    let before = if kept.is_file() { Calibration::read_file(&kept).ok() } else { None };
    let is_kept = before.as_ref().is_some_and(|before| before.is_better_than(&known)) && !arguments.replace;
    if let Some(before) = before.filter(|_| is_kept) {
        let warning = format!(
            "`{}` is kept, because it had fewer noisy sentinels or its rounds agreed better ({}); use --replace to overwrite it",
            kept.display(),
            agreement_text(&before)
        );
        print_notes("warning", [warning]);
    } else {
        write_output(out, || serde_json::to_vec(&known).expect("numbers and texts have a JSON form"))?;
        print_text(
            arguments.json,
            &format!("{}\nstored in `{}`", known.host_translation(1).distance_note(&host_class), kept.display()),
        )?;
    }
    if arguments.json {
        let (distance, repeats_within) = (known.overall_distance(), known.repeats_within());
        print_json(&json!({
            "out": kept, "is_replaced": !is_kept, "distance": distance, "repeats_within": repeats_within, "calibration": known,
        }))?;
    }
    Ok(if is_kept { DONE_WITH_LOSSES } else { DONE })
}

fn repeats_note(known: &Calibration) -> String {
    let rounds = known.usable_sentinels().map(|one| one.rounds_ns.len()).max().unwrap_or(0);
    format!("{}; {}", format_count(rounds, "round"), agreement_text(known))
}

fn agreement_text(known: &Calibration) -> String {
    known.repeats_within().map_or_else(
        || "agreement of their factors unknown".to_owned(),
        |range| format!("factors agree within {:.1} %", 100.0 * range),
    )
}

fn sentinel_table(known: &Calibration) -> String {
    let mut table = Table::new([
        text_column("operator").min_width(20),
        number_column("threads"),
        text_column("bound by").drop_order(1),
        number_column("measured"),
        number_column("±").drop_order(2),
        number_column("predicted"),
        number_column("ratio"),
    ]);
    for one in &known.sentinels {
        let half = one.uncertainty.map_or(UNKNOWN.to_owned(), |half| format!("{:.1} %", 100.0 * half));
        table.add_row([
            one.operator.clone(),
            one.threads.to_string(),
            one.bound.clone(),
            format_duration(one.measured_ns),
            half,
            format_duration(one.scaled_ns()),
            if one.is_known() { format!("{:.2}", one.measured_ns / one.scaled_ns()) } else { UNKNOWN.to_owned() },
        ]);
    }
    table.format_for(&stdout_paper())
}
