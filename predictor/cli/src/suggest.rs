//! `oppredict suggest`.

use crate::loading::load_unmeasured_samples;
use crate::options::Data;
use crate::{DONE, paper, print, print_json};
use clap::Args;
use learn::adaptation;
use predictor::{Result, bundle};
use report::{Table, figures, words};
use serde_json::json;
use std::path::PathBuf;

pub const SUGGEST_EXAMPLES: &str = "\
Examples:
  oppredict suggest --predictor gpu.opp --data bmm.csv.gz --mapping configs/gpu-ops.toml --count 20";

/// What to measure.
#[derive(Clone, Debug, Args)]
pub struct Suggest {
    /// File that `train` wrote
    #[arg(long, value_name = "FILE")]
    pub predictor: PathBuf,
    /// The shapes to choose among; their times are not looked at
    #[command(flatten)]
    pub data: Data,
    /// Shapes of each operator
    #[arg(long, value_name = "NUMBER", default_value = "20")]
    pub count: std::num::NonZeroUsize,
    /// End with one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Says which shapes to measure on a new device.
pub fn run(arguments: &Suggest) -> Result<u8> {
    let predictor = bundle::read(&arguments.predictor)?;
    let suggestions =
        adaptation::suggest(&predictor, load_unmeasured_samples(&arguments.data)?, arguments.count.get())?;
    for of_operator in suggestions.chunk_by(|one, two| one.operator == two.operator) {
        let sizes = of_operator[0].sizes.iter().map(|(name, _)| *name);
        let mut table = Table::new([words("operator")].into_iter().chain(sizes.map(figures)));
        for one in of_operator {
            let sizes = one.sizes.iter().map(|(_, size)| size.to_string());
            table.row([one.operator.clone()].into_iter().chain(sizes));
        }
        print(&table.on(&paper()))?;
    }
    print("the most telling first; measure them on the new device, then give them to `oppredict adapt`")?;
    if arguments.json {
        print_json(&json!({ "suggestions": suggestions }))?;
    }
    Ok(DONE)
}
