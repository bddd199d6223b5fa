//! `dataset best`: the fastest known schedules.

use super::{
    DONE, DONE_WITH_LOSSES, Pace, Result, print_json, print_note_lines, print_text, stdout_paper, terminal_observer,
};
use clap::Args;
use datasets::best::{Best, Question};
use engine::best::{best_in_store, find_best};
use engine::stores::DEFAULT_STORE;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Args)]
pub struct BestQuestion {
    /// Store
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STORE)]
    pub store: PathBuf,
    /// Show only tasks of this operator, such as `conv2d`
    #[arg(long, value_name = "KIND")]
    pub operator: Option<String>,
    /// Show only tasks whose text contains TEXT or whose hash starts with it
    #[arg(long, value_name = "TEXT")]
    pub task: Option<String>,
    /// Show only tasks of this model, and the sum of their times
    ///
    /// Tasks that a campaign has not tried yet are not in the store, so the sum lacks them.
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Show only times on N threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub threads: Option<i64>,
    /// Show only times of this host or class of hosts
    ///
    /// By default, the times are of this machine, and of the most similar host for tasks that it has not measured.
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Also use times of other TVM versions, code revisions and clock policies
    #[arg(long)]
    pub all_versions: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &BestQuestion) -> Result<u8> {
    let question = Question {
        operator: arguments.operator.clone(),
        task: arguments.task.clone(),
        model: arguments.model.clone(),
        threads: arguments.threads,
        host: arguments.host.clone(),
        all_versions: arguments.all_versions,
    };
    let times = find_best(&arguments.store, &question, terminal_observer(Pace::default()).as_ref())?;
    if arguments.json {
        print_json(&times)?;
    } else {
        print_text(&times.format_table(arguments.all_versions, &stdout_paper()))?;
        if let Some(total) = arguments.model.as_ref().and_then(|model| times.describe_total(model)) {
            print_text(&total)?;
        }
        let note = times.elsewhere_note().filter(|_| arguments.host.is_none());
        print_note_lines(&note.into_iter().collect::<Vec<_>>());
    }
    Ok(if times.is_damaged { DONE_WITH_LOSSES } else { DONE })
}

pub fn best_times(store: &Path, question: &Question) -> Result<Vec<Best>> {
    best_in_store(store, question, terminal_observer(Pace::default()).as_ref())
}
