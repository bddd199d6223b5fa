//! The commands `oppredict plan` and `oppredict stages`.

use crate::loading::read_times;
use crate::options::{NetworkFlags, TimesFlags, parse_not_negative};
use crate::{DONE, DONE_WITH_LOSSES, create_outputs, print_json, print_text, stdout_paper, write_output};
use clap::Args;
use datasets::output::Output;
use learn::host_translation::HostTranslation;
use predictor::pages::{MeasuredLanes, PlanFacts};
use predictor::planning::NetworkPlan;
use predictor::planning::network::BARRIER_NS;
use predictor::{Result, pages};
use report::{Table, number_column, text_column};
use samples::text::file_label;
use serde_json::json;
use std::path::PathBuf;

pub const PLAN_EXAMPLES: &str = "\
Examples:
  opcollect --modelsource local --modelname inception-v3 --schedules 1 --threads 1,2 --store times
  oppredict plan --model inception-v3 --data times --threads 2 --out inception.plan --html lanes.html
  opcollect model run --modelsource local --modelname inception-v3 --plan inception.plan";

#[derive(Clone, Debug, Args)]
pub struct PlanArguments {
    /// Neural network: a name of the zoo such as `inception-v3`, or a file
    #[arg(long, visible_alias = "modelname", value_name = "NAME")]
    pub model: String,
    #[command(flatten)]
    pub network: NetworkFlags,
    #[command(flatten)]
    pub times: TimesFlags,
    /// Number of cores
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,
    /// Cost of starting and joining concurrent groups in microseconds [default: 1]
    #[arg(long, value_name = "TIME", value_parser = parse_not_negative)]
    pub barrier_us: Option<f64>,
    /// Write the plan for `opcollect model run --plan`
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write the timeline of cores and the scaling of operators as an HTML page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Also draw the measured times of `opcollect model run --plan FILE --json`
    ///
    /// The file contains the output of that command.
    #[arg(long, value_name = "FILE", requires = "html")]
    pub measured: Option<PathBuf>,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &PlanArguments) -> Result<u8> {
    let [page, out] = create_outputs([("--html", arguments.html.as_deref()), ("--out", arguments.out.as_deref())])?;
    let planned = plan_model(arguments)?;
    print_text(arguments.json, &describe_plan(&planned))?;
    write_plan(arguments, &planned, page, out)
}

pub fn run_stages(arguments: &PlanArguments) -> Result<u8> {
    let [page, out] = create_outputs([("--html", arguments.html.as_deref()), ("--out", arguments.out.as_deref())])?;
    let planned = plan_model(arguments)?;
    print_text(arguments.json, &stage_table(&planned))?;
    write_plan(arguments, &planned, page, out)
}

fn write_plan(
    arguments: &PlanArguments,
    planned: &PlanOfTimes,
    page: Option<Output>,
    out: Option<Output>,
) -> Result<u8> {
    let PlanOfTimes { found, versions, this_host, is_damaged, .. } = planned;
    let measured = arguments.measured.as_deref().map(|path| MeasuredLanes::read_lanes(path, found)).transpose()?;
    write_output(page, || pages::plan_page(found, &planned.facts(), measured.as_ref()).into_bytes())?;
    write_output(out, || serde_json::to_vec_pretty(&found.stages).expect("a plan holds only JSON values"))?;
    if arguments.json {
        print_json(
            &json!({ "plan": found, "stages": found.stages.stages, "versions": versions, "this_host": this_host }),
        )?;
    }
    Ok(if *is_damaged || !found.lower_bounds.is_empty() { DONE_WITH_LOSSES } else { DONE })
}

struct PlanOfTimes {
    found: NetworkPlan,
    /// Whether contents of the store were skipped because they are damaged.
    is_damaged: bool,
    versions: Vec<String>,
    /// Translation of predicted times from the training device to this machine, if any.
    this_host: Option<HostTranslation>,
    /// Predictor and machine of predicted times.
    predicted: Option<String>,
}

impl PlanOfTimes {
    fn facts(&self) -> PlanFacts {
        pages::describe_plan(&self.found, &self.versions, self.predicted.as_deref())
    }
}

fn plan_model(arguments: &PlanArguments) -> Result<PlanOfTimes> {
    let (_, graph) = arguments.network.load_network(&arguments.model)?;
    let known = read_times(&arguments.times, false)?;
    let barrier_ns = arguments.barrier_us.map_or(BARRIER_NS, |us| us * 1e3);
    let found = known.plan_network(&graph, arguments.threads as usize, barrier_ns)?;
    let versions = known.measured_host().into_iter().flat_map(|host| host.versions.iter().cloned()).collect();
    let predicted = known.predicted_machine().map(|machine| {
        let file = arguments.times.predictor.as_deref();
        let by = file.map_or("the built-in predictor".to_owned(), |file| format!("`{}`", file_label(file)));
        format!("by {by} for {machine}")
    });
    let is_damaged = !known.damage().is_empty();
    Ok(PlanOfTimes { found, is_damaged, versions, this_host: known.this_host().cloned(), predicted })
}

fn describe_plan(planned: &PlanOfTimes) -> String {
    let PlanFacts { headline, lines } = planned.facts();
    let lines = lines.iter().map(|(name, line)| format!("\n  {name:<11} {line}"));
    headline + &lines.collect::<String>()
}

fn stage_table(planned: &PlanOfTimes) -> String {
    let found = &planned.found;
    let mut table = Table::new([
        number_column("stage"),
        number_column("time"),
        number_column("cores"),
        number_column("calls"),
        text_column("names"),
    ]);
    found.stage_rows().into_iter().for_each(|row| table.add_row(row));
    format!("{}\n{}", table.format_for(&stdout_paper()), describe_plan(planned))
}
