//! The command `oppredict knee`.

use crate::installation::find_collector;
use crate::language_models::{self, ServerFlags};
use crate::loading::read_predictor;
use crate::options::{PredictorFlags, refuse_flags};
use crate::{DONE, create_output, print_json, print_text, stdout_paper, write_output};
use clap::Args;
use datasets::output::Output;
use learn::predictor::MOST_THREADS;
use predictor::knee::{Contradiction, Knee, KneeOptions, Probing, TableKnee, find_knee, find_table_knee};
use predictor::queries::{self, Setting};
use predictor::{Error, Result, pages};
use report::quantity::whole_seconds;
use report::{Cell, Table, format_count, format_duration, format_range, number_column, text_column};
use samples::table::CurveMapping;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Clone, Debug, Args)]
pub struct KneeArguments {
    #[command(flatten)]
    pub asked: PredictorFlags,
    /// Operator such as `conv2d:ci=64,hw=56,co=64,k=3,p=1`
    ///
    /// With --data, the name in the table.
    #[arg(long, value_name = "TEXT", required_unless_present = "model")]
    pub op: Option<String>,
    /// Language model on GPUs instead of an operator, such as `llama-3.1-70b`
    #[arg(long, value_name = "NAME", conflicts_with_all = ["op", "probe", "html", "data", "calibration", "most_threads", "threads", "knob", "extrapolate"])]
    pub model: Option<String>,
    /// Use a table of measured thread counts instead of a predictor; repeatable
    ///
    /// Uses the rows of --op on --device. Curves of other machines in the table are the prior.
    #[arg(long, value_name = "PATH", requires_all = ["mapping", "device"], conflicts_with_all = ["predictor", "calibration", "probe", "knob", "threads", "over", "extrapolate"])]
    pub data: Vec<PathBuf>,
    /// TOML file with the columns of operator, device, threads and time
    #[arg(long, value_name = "FILE", requires = "data")]
    pub mapping: Option<PathBuf>,
    /// Use only this many rows, the most informative first [default: all]
    ///
    /// The result also states how much faster the best of all rows is.
    #[arg(long, value_name = "COUNT", requires = "data", value_parser = clap::value_parser!(u32).range(1..=MOST_THREADS))]
    pub probes: Option<u32>,
    /// Axis of the curve, such as `threads`; repeatable
    ///
    /// `threads` or a knob such as `tile_x`; with --model `batch` or `context` [default: threads, with --model batch].
    #[arg(long, value_name = "NAME")]
    pub over: Vec<String>,
    /// Concurrent requests of --model, for curves over the context [default: 1]
    #[arg(long, value_name = "N", requires = "model")]
    pub batch: Option<i64>,
    /// Maximum number of threads of the curve [default: that of the training data]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(2..=MOST_THREADS))]
    pub most_threads: Option<u32>,
    /// Number of threads for curves over knobs [default: all of the device]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=MOST_THREADS))]
    pub threads: Option<u32>,
    /// Fixed knob, such as `tile_c=8`; repeatable
    ///
    /// Other knobs are those of the default schedule.
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "probe")]
    pub knob: Vec<String>,
    /// Device [default: that of the predictor, if it has only one]
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Measure up to three thread counts with `opcollect` to fit the curve
    #[arg(long)]
    pub probe: bool,
    /// Program `opcollect` [default: next to this program, else on the search path]
    #[arg(long, value_name = "FILE", requires = "probe")]
    pub opcollect: Option<PathBuf>,
    /// Time limit of one measurement in seconds
    #[arg(long, default_value_t = 120, value_name = "SECONDS", requires = "probe", value_parser = whole_seconds::<1, 86_400>)]
    pub deadline: u64,
    /// Also predict outside of the training range, with a note
    #[arg(long)]
    pub extrapolate: bool,
    /// Write the curves as an HTML page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerFlags,
}

impl KneeArguments {
    /// Returns the axes of the curves.
    fn axes(&self) -> Vec<&str> {
        let default = if self.model.is_some() { "batch" } else { "threads" };
        match self.over.is_empty() {
            true => vec![default],
            false => self.over.iter().map(String::as_str).collect(),
        }
    }

    /// Refuses flags that would be ignored.
    fn refuse_unused(&self) -> Result<()> {
        let axes = self.axes();
        let is_only_axis = |name: &str| axes.iter().all(|axis| *axis == name);
        if self.model.is_some() {
            let is_unused = self.batch.is_some() && is_only_axis("batch");
            refuse_flags("curves over the batch size, which vary it", &[("--batch", is_unused)])?;
            let is_unused = self.server.input_tokens.is_some() && is_only_axis("context");
            return refuse_flags("curves over the context, which vary it", &[("--context", is_unused)]);
        }
        let of_servers = "--dtype, --tensor-parallel, --context and other flags of servers";
        refuse_flags("--op; servers are predicted for --model", &[(of_servers, self.server.is_given())])?;
        let is_unused = self.threads.is_some() && is_only_axis("threads");
        refuse_flags("curves over threads, which vary them", &[("--threads", is_unused)])?;
        let is_unused = self.most_threads.is_some() && !axes.contains(&"threads");
        refuse_flags("curves over knobs", &[("--most-threads", is_unused)])
    }
}

pub fn run(arguments: &KneeArguments) -> Result<u8> {
    arguments.refuse_unused()?;
    if let Some(model) = &arguments.model {
        let (device, batch) = (arguments.device.as_deref(), arguments.batch.unwrap_or(1));
        let question = arguments.server.server_question(model, device, batch)?;
        let predictor = arguments.asked.predictor.as_deref();
        return language_models::print_knees(&question, &arguments.axes(), predictor, arguments.json);
    }
    let Some(text) = &arguments.op else {
        return Err(Error::Query("give --op or --model".to_owned()));
    };
    let page = create_output(arguments.html.as_deref())?;
    if let (Some(mapping), Some(device)) = (&arguments.mapping, &arguments.device) {
        return run_table(arguments, (text, device), mapping, page);
    }
    let (predictor, _) = read_predictor(&arguments.asked, arguments.device.as_deref(), None)?;
    let operator = queries::parse_operator(text, None)?;
    let mut usual = Setting {
        device: arguments.device.clone(),
        threads: arguments.threads.map(f64::from),
        extrapolate: arguments.extrapolate,
        ..Setting::default()
    };
    usual.set_knobs(&arguments.knob)?;
    let device = queries::find_machine(&predictor, &usual)?.to_owned();
    let probing = arguments.probe.then(|| Probing {
        program: arguments.opcollect.clone().unwrap_or_else(find_collector),
        operator: text.clone(),
        deadline: Duration::from_secs(arguments.deadline),
    });
    let options = KneeOptions { most_threads: arguments.most_threads, probing };
    let mut knees = Vec::new();
    for over in arguments.axes() {
        let found = find_knee(&predictor, &operator, &usual, over, &options)?;
        print_text(arguments.json, &describe_knee(&operator.text, &found))?;
        knees.push(found);
    }
    write_output(page, || pages::curves_page(&operator.text, &device, &knees, &[]).into_bytes())?;
    if arguments.json {
        print_json(&json!({ "operator": operator.text, "device": device, "knees": knees }))?;
    }
    Ok(DONE)
}

/// Prints the curve of times over thread counts in a foreign table, and its knee.
fn run_table(
    arguments: &KneeArguments,
    (operator, device): (&str, &str),
    mapping: &Path,
    page: Option<Output>,
) -> Result<u8> {
    let curves = CurveMapping::read_file(mapping)?.read_curves(&arguments.data)?;
    let probes = arguments.probes.map(|count| count as usize);
    let found = find_table_knee(&curves, operator, device, probes, arguments.most_threads)?;
    let notes = table_notes(&found);
    print_text(arguments.json, &(describe_knee(operator, &found.knee) + &notes.join("\n")))?;
    let knees = [found.knee.clone()];
    write_output(page, || pages::curves_page(operator, device, &knees, &notes).into_bytes())?;
    if arguments.json {
        print_json(&json!({ "operator": operator, "device": device, "knees": [found] }))?;
    }
    Ok(DONE)
}

/// States what a table contributed to a knee, and what to measure next.
fn table_notes(found: &TableKnee) -> Vec<String> {
    let mut notes = vec![format!(
        "measured at {} of {} thread counts; prior from curves of {} other machines",
        found.knee.probes.len(),
        found.knee.curve.len(),
        found.machines
    )];
    notes.extend(found.contradictions.iter().map(|Contradiction { at, rows, low_ns, high_ns }| {
        format!(
            "the {rows} rows with {} contradict each other ({}): keep one, or distinguish them by `apart` in the mapping",
            format_count(*at, "thread"),
            format_range(*low_ns, *high_ns)
        )
    }));
    notes.extend(found.regret_percent.map(|regret| match regret > 0.0 {
        true => format!("the fastest row of the table is {regret:.1} % faster"),
        false => "no other row of the table is faster".to_owned(),
    }));
    notes.extend(found.next_probe.map(|at| format!("measure next: {}", format_count(at, "thread"))));
    notes
}

fn describe_knee(operator: &str, found: &Knee) -> String {
    let mut table = Table::new([
        number_column(&found.over),
        number_column("time"),
        number_column("90 % between"),
        text_column("remarks"),
    ]);
    for point in &found.curve {
        let time = Cell::from(format_duration(point.time_ns));
        table.add_row([
            point.at.to_string().into(),
            if point.at == found.knee { time.mark_best() } else { time },
            format_range(point.low_ns, point.high_ns).into(),
            pages::point_remark(found, point).into(),
        ]);
    }
    format!("{}\n{}\n{}\n", operator, table.format_for(&stdout_paper()), pages::describe_knee(found))
}
