//! `oppredict xgboost`.

use crate::{DONE, begin, finish, print};
use clap::Args;
use predictor::{Result, bundle, exchange};
use std::path::PathBuf;

/// Trees to or from XGBoost's JSON.
#[derive(Clone, Debug, Args)]
pub struct Xgboost {
    /// File that `train` wrote
    #[arg(long, value_name = "FILE")]
    pub predictor: PathBuf,
    /// Folder to write the trees into: `OPERATOR.known.0.json`, and `OPERATOR.transfer.0.json` for devices never seen
    #[arg(long, value_name = "FOLDER", required_unless_present = "read")]
    pub write: Option<PathBuf>,
    /// Folder to take trees from; operators without files keep theirs, those with files lose their intervals
    #[arg(long, value_name = "FOLDER", requires = "out", conflicts_with = "write")]
    pub read: Option<PathBuf>,
    /// Where to write the predictor with the trees that were read
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Writes the trees, or a predictor with trees that were read.
pub fn run(arguments: &Xgboost) -> Result<u8> {
    let file = begin(arguments.out.as_deref().filter(|_| arguments.read.is_some()))?;
    let mut predictor = bundle::read(&arguments.predictor)?;
    if let (Some(folder), Some(out)) = (&arguments.read, &arguments.out) {
        let replaced = exchange::read(&mut predictor, folder)?;
        finish(file, || bundle::to_bytes(&predictor))?;
        print(&format!(
            "took the trees of {} from `{}`; wrote `{}`",
            replaced.join(", "),
            folder.display(),
            out.display()
        ))?;
    }
    if let Some(folder) = &arguments.write {
        let written = exchange::write(&predictor, folder)?;
        print(&format!("wrote {} files into `{}`", written.len(), folder.display()))?;
    }
    Ok(DONE)
}
