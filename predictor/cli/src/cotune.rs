//! The command `oppredict cotune`.

use crate::installation::find_collector;
use crate::loading::read_times;
use crate::options::TimesFlags;
use crate::{DONE, DONE_WITH_LOSSES, create_output, print_json, print_text, stdout_paper, write_output};
use clap::Args;
use clap::builder::RangedU64ValueParser;
use predictor::Result;
use predictor::planning::cotuning::{Cotuning, CotuningQuestion, IN_TURNS, MeasuredChoice, TOGETHER};
use predictor::probe::{self, RaceResult};
use report::quantity::whole_seconds;
use report::{Table, format_count, format_duration, format_range, number_column, text_column};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

pub const COTUNE_EXAMPLES: &str = "\
Examples:
  opcollect --modelsource simple --modelname matmul:m=512,n=512,k=512 --threads 1,2 --store times
  opcollect --modelsource simple --modelname softmax:shape=64x1000 --threads 1,2 --store times
  oppredict cotune --op matmul:m=512,n=512,k=512 --op softmax:shape=64x1000 --data times --threads 2";

#[derive(Clone, Debug, Args)]
pub struct CotuneArguments {
    /// Operator such as `matmul:m=512,n=512,k=512`; two to four
    #[arg(long, value_name = "TEXT", required = true)]
    pub op: Vec<String>,
    /// Store with records of the operators on up to --threads threads
    #[arg(long, alias = "store", value_name = "DIR")]
    pub data: PathBuf,
    /// Class of hosts, if the store has several
    #[arg(long, value_name = "NAME")]
    pub hardware: Option<String>,
    /// Also use records of other TVM versions, code revisions, clock policies
    #[arg(long)]
    pub all_versions: bool,
    /// Number of cores to share
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,
    /// Number of candidate schedules per operator, fastest on all cores first
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000))]
    pub schedules: usize,
    /// Measure the choice and sequential execution, and keep the faster
    ///
    /// Rounds are interleaved. The report contains both times, including that of a rejected choice.
    #[arg(long)]
    pub measure: bool,
    /// Measurement rounds
    #[arg(long, default_value_t = 15, value_name = "N", requires = "measure", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Program `opcollect` [default: next to this program, else on the search path]
    #[arg(long, value_name = "FILE", requires = "measure")]
    pub opcollect: Option<PathBuf>,
    /// Time limit of the measurement in seconds
    #[arg(long, default_value_t = 300, value_name = "SECONDS", requires = "measure", value_parser = whole_seconds::<1, 86_400>)]
    pub deadline: u64,
    /// Write concurrent and sequential choice as input of `opcollect race`
    #[arg(long, value_name = "FILE")]
    pub choice: Option<PathBuf>,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &CotuneArguments) -> Result<u8> {
    let question = CotuningQuestion::new(&arguments.op, arguments.threads as usize, arguments.schedules)?;
    let file = create_output(arguments.choice.as_deref())?;
    let records = TimesFlags {
        data: Some(arguments.data.clone()),
        hardware: arguments.hardware.clone(),
        all_versions: arguments.all_versions,
        predictor: None,
        device: None,
    };
    let known = read_times(&records, true)?;
    let found = question.choose_schedules(&known)?;
    print_text(arguments.json, &describe_cotuning(&found))?;
    let choice = found.both_choices();
    write_output(file, || choice.to_string().into_bytes())?;
    let measured = match arguments.measure {
        true => {
            let program = arguments.opcollect.clone().unwrap_or_else(find_collector);
            let raced =
                probe::race_choices(&program, &choice, arguments.rounds, Duration::from_secs(arguments.deadline))?;
            Some(MeasuredChoice::new(&found.cotuned, raced))
        }
        false => None,
    };
    if let Some(measured) = &measured {
        print_text(arguments.json, &describe_measurement(measured))?;
    }
    if arguments.json {
        let texts = |way: &str| -> Vec<Value> {
            choice[way].as_array().into_iter().flatten().map(|one| one["schedule"].clone()).collect()
        };
        let report = json!({
            "operators": found.operators, "cotuned": found.cotuned, "promised": found.promised, "measured": measured,
            "schedules_together": texts("together"), "schedules_in_turns": texts("in_turns"),
        });
        print_json(&report)?;
    }
    Ok(if known.damage().is_empty() { DONE } else { DONE_WITH_LOSSES })
}

fn describe_measurement(measured: &MeasuredChoice) -> String {
    let RaceResult { together_ns, in_turns_ns, ratio, rounds } = &measured.raced;
    let interval = ratio.interval.map_or_else(String::new, |(low, high)| format!(" ({low:.3} … {high:.3})"));
    format!(
        "measured in {}: {TOGETHER} {}, {IN_TURNS} {}, ratio {:.3}{interval}; kept: {}; regret of the choice {:.1} %",
        format_count(*rounds, "round"),
        format_duration(*together_ns),
        format_duration(*in_turns_ns),
        ratio.median,
        measured.kept,
        100.0 * measured.regret
    )
}

fn describe_cotuning(cotuning: &Cotuning) -> String {
    let Cotuning { operators, schedules, cotuned: found, promised, .. } = cotuning;
    let mut table = Table::new([
        text_column("operator"),
        number_column("on cores"),
        number_column("ends"),
        text_column("schedule if concurrent"),
        text_column("schedule if sequential"),
    ]);
    let knobs = |text: &str| -> String {
        let read = serde_json::from_str::<serde_json::Value>(text).unwrap_or_default();
        read.get("knobs").map_or_else(|| text.to_owned(), ToString::to_string)
    };
    for (place, operator) in operators.iter().enumerate() {
        let (beside, alone) = (found.together.schedules[place], found.in_turns[place]);
        table.add_row([
            operator.clone(),
            promised.affinity[place].iter().map(usize::to_string).collect::<Vec<_>>().join(","),
            format_duration(found.together.ends_ns[place]),
            knobs(&schedules[place][beside].0),
            if alone == beside { "same".to_owned() } else { knobs(&schedules[place][alone].0) },
        ]);
    }
    let (better, gain) = match found.is_together {
        true => (TOGETHER, found.gain),
        false => (IN_TURNS, 1.0 / found.gain),
    };
    format!(
        "{}\n{TOGETHER} {}, {IN_TURNS} on all cores {}: {better} is {gain:.3} times as fast\nchosen: {better}, {} expected ({})\n{} combinations tried{}",
        table.format_for(&stdout_paper()),
        format_duration(found.together.time_ns),
        format_duration(found.in_turns_ns),
        format_duration(promised.time_ns),
        format_range(promised.low_ns, promised.high_ns),
        found.tried,
        if found.is_exact { " (all)" } else { ", by local search from three starting points" }
    )
}
