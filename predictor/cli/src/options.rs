//! Flags that several commands share.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use datasets::Source;
use models::Choice;
use predictor::queries::ModelSource;
use predictor::{Error, Result};
use samples::records::{self, Policy};
use std::path::PathBuf;

/// What to learn from.
#[derive(Clone, Debug, Args)]
pub struct Data {
    /// File of records or table of others, or a store; repeatable
    #[arg(long, alias = "store", required = true, value_name = "PATH")]
    pub data: Vec<PathBuf>,
    /// TOML file that says what the columns of a foreign table mean
    #[arg(long, value_name = "FILE")]
    pub mapping: Option<PathBuf>,
    /// Which records are taken.
    #[command(flatten)]
    pub filter: Filter,
}

/// Which records are taken; the same for every command.
#[derive(Clone, Debug, Args)]
pub struct Filter {
    /// Of records, the one kind of time that is taken
    #[arg(long, default_value = "measured", value_name = "WORD", requires = "data")]
    pub source: String,
    /// Of records, those whose median is known to this share of it (half the width of its 95 % interval); `inf` takes all, those
    /// of which it is not known, too
    #[arg(long, default_value_t = Policy::default().max_uncertainty, value_name = "SHARE", value_parser = share, requires = "data")]
    pub max_uncertainty: f64,
    /// Of records, those whose single runs are spread by at most this (standard deviation over mean) [default: any]
    #[arg(long, value_name = "SHARE", value_parser = share, requires = "data")]
    pub max_cv: Option<f64>,
    /// Of records, take those of all TVM versions and of older code, not only of the most frequent version and the newest code
    #[arg(long, requires = "data")]
    pub all_versions: bool,
    /// Of records, those with this value of a column that no feature tells, such as `cache_state=cold` or
    /// `clock_policy=powersave`; repeatable [default: of each device the values that most of its records share]
    #[arg(long, value_name = "COLUMN=VALUE", requires = "data")]
    pub setting: Vec<String>,
    /// Of records, take those of default schedules alone
    #[arg(long, requires = "data")]
    pub default_only: bool,
}

/// The predictor that is asked.
#[derive(Clone, Debug, Default, Args)]
pub struct PredictorFlags {
    /// File that `train` wrote [default: the one for CPUs that came with the program; with a GPU's --device, or with --mapping, the
    /// one for GPUs]
    #[arg(long, value_name = "FILE")]
    pub predictor: Option<PathBuf>,
    /// How far this machine is from where the predictor learned: the file that `adapt --this-host --out` wrote [default: what
    /// `adapt --this-host` kept of this machine for this predictor]
    #[arg(long, value_name = "FILE")]
    pub calibration: Option<PathBuf>,
}

/// Where times of operators come from.
#[derive(Clone, Debug, Args)]
pub struct TimesFlags {
    /// Store with records of this machine, at every number of threads up to --threads; what was measured is not predicted
    #[arg(long, alias = "store", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// File that `train` wrote, for what was not measured [default: without --data, the one that came with the program]
    #[arg(long, value_name = "FILE")]
    pub predictor: Option<PathBuf>,
    /// Class of hosts, where the store has several; without --data, the predictor's device
    #[arg(long, value_name = "NAME")]
    pub hardware: Option<String>,
    /// Also use times of --data with older TVM versions, code revisions and other clock policies
    #[arg(long, requires = "data")]
    pub all_versions: bool,
    /// Device of the predictor beside --data; may be left out where it learned from only one
    #[arg(long, value_name = "NAME", requires_all = ["predictor", "data"])]
    pub device: Option<String>,
}

/// A time in whole seconds.
pub fn whole_seconds(text: &str) -> std::result::Result<u64, String> {
    let seconds = report::quantity::seconds(text)?.ceil();
    if (1.0..=86_400.0).contains(&seconds) { Ok(seconds as u64) } else { Err("give 1 s to 24 h".to_owned()) }
}

/// A positive share; `inf` is no limit.
fn share(text: &str) -> std::result::Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "it is not a number".to_owned())?;
    if number > 0.0 { Ok(number) } else { Err("it must be larger than 0; `inf` is no limit".to_owned()) }
}

/// What a split must save.
pub fn saved(text: &str) -> std::result::Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "it is not a number".to_owned())?;
    if number >= 0.0 && number.is_finite() { Ok(number) } else { Err("give a number of at least 0".to_owned()) }
}

/// Returns the parser of words for where networks come from.
pub fn model_source() -> impl TypedValueParser<Value = ModelSource> {
    let values = ModelSource::ALL.iter().map(|source| PossibleValue::new(source.name()).help(source.help()));
    PossibleValuesParser::new(values).try_map(|name| ModelSource::from_name(&name).ok_or("there is no such value"))
}

impl Filter {
    /// Returns which records are taken.
    pub fn policy(&self) -> Result<Policy> {
        let known = || Source::ALL.iter().map(|source| source.name());
        let source = Source::from_name(&self.source).ok_or_else(|| Error::unknown("source", &self.source, known()))?;
        let Filter { max_cv, max_uncertainty, all_versions, default_only, .. } = *self;
        let max_cv = max_cv.filter(|most| most.is_finite());
        let settings = self.setting.iter().map(|text| setting(text)).collect::<Result<_>>()?;
        Ok(Policy { source, max_cv, max_uncertainty, all_versions, default_only, settings, ..Policy::default() })
    }
}

/// A column and the value that is asked for.
fn setting(text: &str) -> Result<(String, String)> {
    let (column, value) = text
        .split_once('=')
        .ok_or_else(|| Error::Query(format!("`--setting {text}` is not COLUMN=VALUE, such as cache_state=cold")))?;
    records::check_setting(column)?;
    Ok((column.to_owned(), value.to_owned()))
}
