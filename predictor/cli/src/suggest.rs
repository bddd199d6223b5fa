//! `oppredict suggest`.

use crate::installation::predictor_file;
use crate::loading::load_unmeasured_samples;
use crate::options::Data;
use crate::{DONE, paper, print_json, print_text};
use clap::Args;
use learn::adaptation;
use predictor::{Result, bundle};
use report::{Table, figures, words};
use serde_json::json;
use std::path::PathBuf;

pub const SUGGEST_EXAMPLES: &str = "\
Examples:
  oppredict suggest --predictor gpu.opp --data bmm.csv.gz --mapping configs/gpu-ops.toml --count 20";

#[derive(Clone, Debug, Args)]
pub struct Suggest {
    /// Predictor file of `train` [default: built-in, for GPUs with --mapping, else for CPUs]
    #[arg(long, value_name = "FILE")]
    pub predictor: Option<PathBuf>,
    #[command(flatten)]
    pub data: Data,
    /// Number of shapes per operator
    #[arg(long, value_name = "NUMBER", default_value = "20")]
    pub count: std::num::NonZeroUsize,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}

/// Prints the shapes to measure on a new device.
pub fn run(arguments: &Suggest) -> Result<u8> {
    let file = predictor_file(arguments.predictor.as_deref(), None, arguments.data.mapping.is_some())?;
    let predictor = bundle::read(&file)?;
    let suggestions =
        adaptation::suggest(&predictor, load_unmeasured_samples(&arguments.data)?, arguments.count.get())?;
    for of_operator in suggestions.chunk_by(|one, two| one.operator == two.operator) {
        let sizes = of_operator[0].sizes.iter().map(|(name, _)| *name);
        let mut table = Table::new([words("operator")].into_iter().chain(sizes.map(figures)));
        for one in of_operator {
            let sizes = one.sizes.iter().map(|(_, size)| size.to_string());
            table.row([one.operator.clone()].into_iter().chain(sizes));
        }
        print_text(arguments.json, &table.on(&paper()))?;
    }
    print_text(
        arguments.json,
        "most informative first; measure them on the new device, then run `oppredict adapt` on the records",
    )?;
    if arguments.json {
        print_json(&json!({ "suggestions": suggestions }))?;
    }
    Ok(DONE)
}
