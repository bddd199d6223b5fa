//! The command `oppredict interference`.

use crate::loading::print_left_out;
use crate::{DONE, DONE_WITH_LOSSES, create_output, print_json, print_text, stdout_paper, write_output};
use clap::Args;
use planners::interference::Machine;
use predictor::planning::{coruns::Scores, interference::RecordedSlowdowns};
use predictor::{Result, pages};
use report::terminal::print_notes;
use report::{Table, number_column, text_column};
use serde_json::json;
use std::path::PathBuf;

pub const INTERFERENCE_EXAMPLES: &str = "\
Examples:
  opcollect corun --config configs/corun.toml --store runs/corun
  oppredict interference --data runs/corun --html slowdowns.html";

#[derive(Clone, Debug, Args)]
pub struct InterferenceArguments {
    /// Store with records of `opcollect corun`
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Class of hosts, if the store has several
    #[arg(long, value_name = "NAME")]
    pub hardware: Option<String>,
    /// Also use records of other TVM versions, code revisions, clock policies
    #[arg(long)]
    pub all_versions: bool,
    /// Seed of the held-out groups
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Write a heat map of all slowdowns as an HTML page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &InterferenceArguments) -> Result<u8> {
    let page = create_output(arguments.html.as_deref())?;
    let read =
        RecordedSlowdowns::read_slowdowns(&arguments.data, arguments.hardware.as_deref(), arguments.all_versions)?;
    print_left_out(read.left_out);
    print_notes("warning", &read.damage);
    let scores = read.score_rules(arguments.seed)?;
    let RecordedSlowdowns { host_class, machine, coruns, .. } = &read;
    if coruns.left_out > 0 {
        print_notes("note", [format!("{} slowdowns with an uncertainty above 5 % were skipped", coruns.left_out)]);
    }
    print_text(arguments.json, &describe_scores(&scores, machine))?;
    write_output(page, || pages::slowdowns_page(coruns, &scores, machine).into_bytes())?;
    if arguments.json {
        let partners = &coruns.partners;
        let report = json!({ "host_class": host_class, "machine": machine, "scores": scores, "partners": partners,
            "operators": coruns.operators, "beside": coruns.beside });
        print_json(&report)?;
    }
    Ok(if read.damage.is_empty() { DONE } else { DONE_WITH_LOSSES })
}

fn describe_scores(scores: &Scores, machine: &Machine) -> String {
    let mut table = Table::new([
        text_column("rule"),
        number_column("MAPE"),
        number_column("median"),
        number_column("90th percentile"),
    ]);
    for one in &scores.rules {
        let percent = |value: f64| format!("{value:.2} %");
        table.add_row([one.rule.to_owned(), percent(one.mape), percent(one.median), percent(one.p90)]);
    }
    let equal = scores.explain_equal_rules().map_or(String::new(), |text| format!("{text}\n"));
    format!("{}\n{equal}{}", table.format_for(&stdout_paper()), scores.describe(machine))
}
