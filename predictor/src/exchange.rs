//! Exports and imports trees as XGBoost's own JSON files, to be inspected, trained further or replaced elsewhere.
//!
//! A folder has one file per set of trees: `conv2d.known.0.json` contains the first set for devices with training
//! data, `conv2d.transfer.1.json` the second set for other devices, and `conv2d.alone.0.json` the set of the first
//! known device. Trees predict the log ratio of time to roofline bound. Files may come from untrusted sources: their
//! size is limited, their features must be those of the predictor, and their trees are checked.

use crate::error::{Error, Result};
use learn::operator::OperatorEnsemble;
use learn::predictor::Predictor;
use learn::trees::Trees;
use serde::Deserialize;
use std::io::Read;
use std::path::{Path, PathBuf};

const MAX_BYTES: u64 = 1 << 30;
const MAX_SETS: usize = 256;

/// Name of the log ratio of bound to overhead, which is appended to the features of samples.
pub const LAST_FEATURE: &str = "bound_of_overhead";

/// Writes all trees of a predictor into a folder, which is created if missing. Returns the paths of the files.
pub fn export_trees(predictor: &Predictor, folder: &Path) -> Result<Vec<PathBuf>> {
    std::fs::create_dir_all(folder).map_err(|error| Error::io_error("create", folder, error))?;
    let names = feature_names(predictor);
    let mut written = Vec::new();
    for (operator, of) in &predictor.learned.operators {
        for (kind, sets) in [("known", &of.known), ("transfer", &of.transfer), ("alone", &of.per_device)] {
            for (place, trees) in sets.iter().enumerate() {
                let path = tree_path(folder, operator, kind, place)?;
                datasets::output::write_file(&path, trees.to_json(&names))?;
                written.push(path);
            }
        }
    }
    Ok(written)
}

/// Replaces the trees of every operator that has files in the folder, and returns the names of these operators. Their
/// intervals are removed, because the errors of the new trees are unknown.
pub fn import_trees(predictor: &mut Predictor, folder: &Path) -> Result<Vec<String>> {
    let names = feature_names(predictor);
    let mut replaced = Vec::new();
    for (operator, of) in &mut predictor.learned.operators {
        let sets = |kind: &str| -> Result<Vec<Trees>> {
            let mut sets = Vec::new();
            for place in 0..MAX_SETS {
                let path = tree_path(folder, operator, kind, place)?;
                if !path.exists() {
                    break;
                }
                sets.push(read_one(&path, &names)?);
            }
            Ok(sets)
        };
        let read = [sets("known")?, sets("transfer")?, sets("alone")?];
        if read.iter().all(Vec::is_empty) {
            continue;
        }
        replace_trees(of, read);
        predictor.about.held_out.remove(operator);
        replaced.push(operator.clone());
    }
    match replaced.is_empty() {
        true => Err(Error::Data(format!(
            "`{}` has no file for any operator of the predictor, such as `{}`",
            folder.display(),
            predictor.learned.operators.keys().next().map_or(String::new(), |name| format!("{name}.known.0.json"))
        ))),
        false => Ok(replaced),
    }
}

fn replace_trees(ensemble: &mut OperatorEnsemble, [known, transfer, per_device]: [Vec<Trees>; 3]) {
    // Corrections belong to the replaced trees.
    if !transfer.is_empty() || !per_device.is_empty() {
        ensemble.corrections.clear();
    }
    for (place, sets) in
        [(&mut ensemble.known, known), (&mut ensemble.transfer, transfer), (&mut ensemble.per_device, per_device)]
    {
        if !sets.is_empty() {
            *place = sets;
        }
    }
    ensemble.statistics.half_widths.clear();
    ensemble.statistics.half_widths_by_view.clear();
    ensemble.statistics.held_out_mape = None;
}

fn feature_names(predictor: &Predictor) -> Vec<String> {
    predictor.about.names.iter().cloned().chain([LAST_FEATURE.to_owned()]).collect()
}

fn tree_path(folder: &Path, operator: &str, kind: &str, place: usize) -> Result<PathBuf> {
    match operator.contains(['/', '\0']) {
        true => Err(Error::Data(format!("the operator name `{operator}` cannot be a file name"))),
        false => Ok(folder.join(format!("{operator}.{kind}.{place}.json"))),
    }
}

#[derive(Deserialize)]
struct NamedModel {
    learner: NamedLearner,
}

#[derive(Deserialize)]
struct NamedLearner {
    #[serde(default)]
    feature_names: Vec<String>,
}

fn read_one(path: &Path, names: &[String]) -> Result<Trees> {
    let opened = std::fs::File::open(path).map_err(|error| Error::io_error("open", path, error))?;
    let mut text = String::new();
    opened.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| Error::io_error("read", path, error))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(Error::table_error(path, format!("the file has more than {MAX_BYTES} bytes")));
    }
    let trees = Trees::from_json(&text).map_err(|error| Error::table_error(path, error.to_string()))?;
    let named: NamedModel = serde_json::from_str(&text).map_err(|error| Error::table_error(path, error.to_string()))?;
    if trees.features != names.len() {
        let problem = format!("the trees have {} features, but the predictor has {}", trees.features, names.len());
        return Err(Error::table_error(path, problem));
    }
    // Feature names are optional in XGBoost's files; if present, they must match.
    let theirs = named.learner.feature_names;
    let other = theirs.iter().zip(names).position(|(theirs, ours)| theirs != ours);
    match other {
        Some(place) => Err(Error::table_error(
            path,
            format!("feature {place} is `{}`, but in the predictor it is `{}`", theirs[place], names[place]),
        )),
        None => Ok(trees),
    }
}
