//! `dataset best`: the best known schedules and times.

use super::{DONE, DONE_WITH_LOSSES, Pace, Result, paper, print, print_json, tell, terminal};
use clap::Args;
use datasets::best::{Best, Question};
use engine::best::{best_in_store, find_best};
use report::duration;
use std::path::{Path, PathBuf};

/// Of what the best is asked.
#[derive(Clone, Debug, Args)]
pub struct BestQuestion {
    /// The store
    #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
    pub store: PathBuf,
    /// Only tasks of this operator, such as `conv2d`
    #[arg(long, value_name = "KIND")]
    pub operator: Option<String>,
    /// Only tasks whose text contains this, or whose hash begins with it
    #[arg(long, value_name = "TEXT")]
    pub task: Option<String>,
    /// Only tasks of this model, and their sum
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Only times on so many threads
    #[arg(long, value_name = "N")]
    pub threads: Option<i64>,
    /// The host, or its class; without records of it, the nearest that is known [default: this machine]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Also use times of other TVM versions, code revisions and clock policies, and show them
    #[arg(long)]
    pub all_versions: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Prints the best of each task.
pub fn run(asked: &BestQuestion) -> Result<u8> {
    let question = Question {
        operator: asked.operator.clone(),
        task: asked.task.clone(),
        model: asked.model.clone(),
        threads: asked.threads,
        host: asked.host.clone(),
        all_versions: asked.all_versions,
    };
    let times = find_best(&asked.store, &question, terminal(Pace::default()).as_ref())?;
    if asked.json {
        print_json(&times)?;
    } else {
        print(&times.table(asked.all_versions, &paper()))?;
        if let (Some(total), Some(model)) = (times.total_ns, &asked.model) {
            print(&format!("{model}: {} by the best of each task, one after the other", duration(total)))?;
        }
        let note = times.elsewhere_note().filter(|_| asked.host.is_none());
        tell(&note.into_iter().collect::<Vec<_>>());
    }
    Ok(if times.is_damaged { DONE_WITH_LOSSES } else { DONE })
}

/// Returns the best of each task of a store.
pub fn ask(store: &Path, question: &Question) -> Result<Vec<Best>> {
    best_in_store(store, question, terminal(Pace::default()).as_ref())
}
