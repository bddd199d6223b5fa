//! The command `oppredict xgboost`.

use crate::{DONE, create_output, print_line, write_output};
use clap::Args;
use predictor::{Result, bundle, exchange};
use report::format_count;
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
pub struct Xgboost {
    /// Predictor file of `train`
    #[arg(long, value_name = "FILE")]
    pub predictor: PathBuf,
    /// Folder to write trees to
    ///
    /// Files: `OPERATOR.known.0.json`, and `OPERATOR.transfer.0.json` for unseen devices.
    #[arg(long, value_name = "FOLDER", required_unless_present = "read")]
    pub write: Option<PathBuf>,
    /// Folder to read trees from
    ///
    /// Operators without a file keep their trees. Intervals of operators with a file are removed.
    #[arg(long, value_name = "FOLDER", requires = "out", conflicts_with = "write")]
    pub read: Option<PathBuf>,
    /// Output file of the predictor with imported trees
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

pub fn run(arguments: &Xgboost) -> Result<u8> {
    let file = create_output(arguments.out.as_deref().filter(|_| arguments.read.is_some()))?;
    let mut predictor = bundle::read_bundle(&arguments.predictor)?;
    if let (Some(folder), Some(out)) = (&arguments.read, &arguments.out) {
        let replaced = exchange::import_trees(&mut predictor, folder)?;
        write_output(file, || bundle::to_bytes(&predictor))?;
        print_line(&format!(
            "read the trees of {} from `{}`; wrote `{}`",
            replaced.join(", "),
            folder.display(),
            out.display()
        ))?;
    }
    if let Some(folder) = &arguments.write {
        let written = exchange::export_trees(&predictor, folder)?;
        let files = format_count(written.len(), "file");
        print_line(&format!("wrote {files} into `{}`", folder.display()))?;
    }
    Ok(DONE)
}
