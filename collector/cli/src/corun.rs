//! `corun`: operators that run concurrently with other operators or synthetic partners.

use super::progress::terminal_observer;
use super::signals::watch_signals;
use super::{DONE, DONE_WITH_LOSSES, Result, print_json, print_text, settings, stdout_paper};
use crate::options::{Measuring, Models, Sweep};
use clap::Args;
use engine::campaign::settings::ResolvedConfig;
use engine::coruns::CoRunCampaign;
use engine::machine;
use engine::repeat::Repeat;
use engine::stores::open_store;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

pub const CORUN_EXAMPLES: &str = "\
Examples:
  opcollect corun --config configs/corun.toml --store runs/corun
  opcollect corun --config configs/corun.toml --modelsource local --modelname squeezenet-1.1 --modelname mlp
  oppredict interference --data runs/corun --html slowdowns.html";

#[derive(Debug, Args)]
pub struct CoRunRun {
    #[command(flatten)]
    pub models: Models,
    #[command(flatten)]
    pub sweep: Sweep,
    #[command(flatten)]
    pub measuring: Measuring,
    /// Store to write records to, created if absent [default: opcollect-data]
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Print one JSON document as the last line of stdout
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &CoRunRun) -> Result<u8> {
    let CoRunRun { models, sweep, measuring, store, json } = arguments;
    let (ResolvedConfig { config, loaded }, corun) = settings::config_of_coruns(models, sweep)?;
    let (repeat, observer) = (Repeat::new(&measuring.repeat_options())?, terminal_observer(measuring.progress));
    let campaign = CoRunCampaign::plan((config, corun), &loaded, repeat, observer.clone())?;
    let _exclusive = machine::lock_cpus(measuring.exclusive.wait, observer.as_ref())?;
    let store = open_store(store.as_deref())?;
    let signal = watch_signals()?;
    let report = campaign.run(&store, &signal)?;
    if *json {
        print_json(&report)?;
    } else {
        print_text(&report.format_table(&stdout_paper()))?;
        print_text(&report.describe_losses())?;
        print_text(&report.summary_line())?;
    }
    Ok(match signal.load(Ordering::Relaxed) {
        0 if !report.losses.is_empty() => DONE_WITH_LOSSES,
        0 => DONE,
        signal => 128 + u8::try_from(signal).unwrap_or(0),
    })
}
