//! `race`: operators side by side and in sequence, in interleaved rounds.

use super::{DONE, Pace, Result, paper, print, print_json, terminal};
use crate::values::whole_seconds;
use clap::Args;
use engine::race::run_race;
use std::path::PathBuf;

/// Two ways to run a few operators.
#[derive(Debug, Args)]
pub struct RaceRun {
    /// A choice, as `oppredict cotune --choice FILE` writes it
    #[arg(value_name = "FILE")]
    pub choice: PathBuf,
    /// How many rounds; six are the least that give an interval
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Wait so long when another process measures on the same CPUs, instead of refusing
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = whole_seconds::<0, 1_000_000>)]
    pub wait: u64,
    /// Print one JSON document as the last line of stdout
    #[arg(long)]
    pub json: bool,
}

/// Runs both ways.
pub fn run(arguments: &RaceRun) -> Result<u8> {
    let RaceRun { choice, rounds, wait, json } = arguments;
    let report = run_race(choice, *rounds, *wait, terminal(Pace::default()).as_ref())?;
    if *json {
        print_json(&report)?
    } else {
        print(&report.describe(&paper()))?
    }
    Ok(DONE)
}
