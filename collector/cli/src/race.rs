//! `race`: concurrent and sequential execution of operators, in interleaved rounds.

use super::{DONE, Pace, Result, print_json, print_text, stdout_paper, terminal_observer};
use crate::options::ExclusiveUse;
use clap::Args;
use engine::race::run_race;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct RaceRun {
    /// Choice of schedules and threads that `oppredict cotune --choice` wrote
    #[arg(value_name = "FILE")]
    pub choice: PathBuf,
    /// Number of rounds
    ///
    /// Rounds are divided into 5 visits, which are fresh processes; the interval is over these.
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    #[command(flatten)]
    pub exclusive: ExclusiveUse,
    /// Print one JSON document as the last line of stdout
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &RaceRun) -> Result<u8> {
    let RaceRun { choice, rounds, exclusive, json } = arguments;
    let report = run_race(choice, *rounds, exclusive.wait, terminal_observer(Pace::default()).as_ref())?;
    if *json {
        print_json(&report)?
    } else {
        print_text(&report.describe(&stdout_paper()))?
    }
    Ok(DONE)
}
