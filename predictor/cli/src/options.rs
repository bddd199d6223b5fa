//! Options that several commands share.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use datasets::Source;
use models::{Choice, Graph};
use predictor::queries::{ModelSource, NetworkQuestion};
use predictor::{Error, Result};
use readers::inputs::OpenInputs;
use report::terminal::print_notes;
use samples::records::{self, Policy};
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
pub struct Data {
    /// Records, a store, or a table of times; repeatable
    #[arg(long, alias = "store", required = true, value_name = "PATH")]
    pub data: Vec<PathBuf>,
    /// TOML file that describes the columns of another project's table
    #[arg(long, value_name = "FILE")]
    pub mapping: Option<PathBuf>,
    #[command(flatten)]
    pub filter: Filter,
}

/// Selection of records, common to all commands.
#[derive(Clone, Debug, Args)]
pub struct Filter {
    /// Origin of times to use, from the column `source`
    #[arg(long, default_value = "measured", value_name = "WORD", requires = "data")]
    pub source: String,
    /// Use records with at most this relative uncertainty of the median [default: 0.1, or what half meet]
    ///
    /// The uncertainty is half the width of the 95 % interval, divided by the median. `inf` uses all records, also
    /// those with unknown uncertainty. Default: the smallest of 0.1, 0.2, 0.5 and `inf` that at least half of the
    /// measurements meet; 0.1 for operators in networks.
    #[arg(long, value_name = "SHARE", value_parser = parse_share, requires = "data")]
    pub max_uncertainty: Option<f64>,
    /// Use records with at most this coefficient of variation [default: any]
    ///
    /// This is the standard deviation of single runs, divided by their mean.
    #[arg(long, value_name = "SHARE", value_parser = parse_share, requires = "data")]
    pub max_cv: Option<f64>,
    /// Also use records of other TVM versions and older code
    ///
    /// Default: records of the most frequent TVM version and the newest code.
    #[arg(long, requires = "data")]
    pub all_versions: bool,
    /// Use records with this value of a column; repeatable [default: each device's most frequent values]
    ///
    /// For columns that are not features, such as `cache_state=cold` or `clock_policy=powersave`.
    #[arg(long, value_name = "COLUMN=VALUE", requires = "data")]
    pub setting: Vec<String>,
    /// Use only records of default schedules
    #[arg(long, requires = "data")]
    pub default_only: bool,
}

#[derive(Clone, Debug, Default, Args)]
pub struct PredictorFlags {
    /// Predictor file of `train` [default: built-in, by device]
    ///
    /// The default is the built-in predictor for CPUs. With --mapping, and in commands with --device if the device is a
    /// GPU, the default is the built-in predictor for GPUs.
    #[arg(long, value_name = "FILE")]
    pub predictor: Option<PathBuf>,
    /// Calibration file of `adapt --this-host --out` [default: the stored calibration of this machine]
    #[arg(long, value_name = "FILE")]
    pub calibration: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub struct TimesFlags {
    /// Store with records of this machine on up to --threads threads
    ///
    /// Operators with records are not predicted.
    #[arg(long, alias = "store", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Predictor file of `train` for operators without records [default: built-in, without --data]
    #[arg(long, value_name = "FILE")]
    pub predictor: Option<PathBuf>,
    /// Class of hosts, if the store has several
    ///
    /// Without --data, it selects the predictor's device.
    #[arg(long, value_name = "NAME")]
    pub hardware: Option<String>,
    /// Also use records of other TVM versions, code revisions, clock policies
    #[arg(long, requires = "data")]
    pub all_versions: bool,
    /// Device of the predictor, with --data [default: that of the predictor, if it has only one]
    #[arg(long, value_name = "NAME", requires_all = ["predictor", "data"])]
    pub device: Option<String>,
}

/// Parses a limit that is a positive number; `inf` disables the limit.
pub fn parse_share(text: &str) -> std::result::Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if number > 0.0 { Ok(number) } else { Err("must be larger than 0; `inf` disables the limit".to_owned()) }
}

pub fn parse_not_negative(text: &str) -> std::result::Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if number >= 0.0 && number.is_finite() { Ok(number) } else { Err("give a number of at least 0".to_owned()) }
}

/// Flags of one neural network whose name is another flag.
#[derive(Clone, Debug, Args)]
pub struct NetworkFlags {
    /// Source of --model [default: derived from its name]
    #[arg(long, value_parser = model_source(), value_name = "SOURCE")]
    pub modelsource: Option<ModelSource>,
    /// Sequence length of a transformer, in tokens [default: 128]
    #[arg(long, value_name = "N")]
    pub sequence: Option<i64>,
    /// Batch size
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub batchsize: i64,
    #[command(flatten)]
    pub inputs: OpenInputs,
}

impl NetworkFlags {
    /// Returns a description of the network and its graph; prints a warning for each operator that was left out.
    pub fn load_network(&self, name: &str) -> Result<(String, Graph)> {
        let source = ModelSource::infer_source(self.modelsource, name);
        let tokens = sequence_length(self.sequence, [source].into_iter())?;
        let options = reader_options(&self.inputs)?;
        let question = NetworkQuestion { source, name, batch: self.batchsize, tokens, options: Some(&options) };
        let (graph, left_out) = question.graph_with_losses()?;
        print_notes("warning", &left_out);
        Ok((question.describe(), graph))
    }
}

/// Default sequence length of a transformer.
const SEQUENCE: i64 = 128;

/// Returns the sequence length, by default that of `SEQUENCE`. A given length is refused if no model is a transformer.
pub fn sequence_length(given: Option<i64>, mut sources: impl Iterator<Item = ModelSource>) -> Result<i64> {
    match given {
        Some(_) if !sources.any(|source| source == ModelSource::Transformers) => Err(Error::Query(
            "--sequence applies only to transformers, such as `gpt2`; other models have a fixed length".to_owned(),
        )),
        _ => Ok(given.unwrap_or(SEQUENCE)),
    }
}

/// Returns the options of the reader of model files. Each input has one shape.
pub fn reader_options(flags: &OpenInputs) -> Result<readers::Options> {
    let one_shape = |(name, mut shapes): (String, Vec<Vec<i64>>)| match shapes.len() {
        1 => Ok((name, shapes.remove(0))),
        count => Err(Error::Query(format!("`--shape` gives `{name}` {count} shapes, but a prediction is for one"))),
    };
    Ok(readers::Options {
        shapes: flags.parse_shapes().map_err(Error::Query)?.into_iter().map(one_shape).collect::<Result<_>>()?,
        values: flags.parse_values().map_err(Error::Query)?,
        skip_unsupported: flags.skip_unsupported,
        ..readers::Options::default()
    })
}

/// Returns an error for the first given flag of a list; none of these flags would affect the subject.
pub fn refuse_flags(subject: &str, flags: &[(&str, bool)]) -> Result<()> {
    match flags.iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => Err(Error::Query(format!("{flag} cannot be used with {subject}"))),
        None => Ok(()),
    }
}

pub fn model_source() -> impl TypedValueParser<Value = ModelSource> {
    let values = ModelSource::ALL.iter().map(|source| PossibleValue::new(source.name()).help(source.help()));
    PossibleValuesParser::new(values).try_map(|name| ModelSource::from_name(&name).ok_or("unknown value"))
}

impl Filter {
    pub fn policy(&self) -> Result<Policy> {
        let known = || Source::ALL.iter().map(|source| source.name());
        let source =
            Source::from_name(&self.source).ok_or_else(|| Error::unknown_name("source", &self.source, known()))?;
        let Filter { max_cv, max_uncertainty, all_versions, default_only, .. } = *self;
        let max_cv = max_cv.filter(|most| most.is_finite());
        let settings = self.setting.iter().map(|text| parse_setting(text)).collect::<Result<_>>()?;
        Ok(Policy { source, max_cv, max_uncertainty, all_versions, default_only, settings, ..Policy::default() })
    }
}

fn parse_setting(text: &str) -> Result<(String, String)> {
    let (column, value) = text
        .split_once('=')
        .ok_or_else(|| Error::Query(format!("`--setting {text}` is not COLUMN=VALUE, such as cache_state=cold")))?;
    records::check_setting(column)?;
    Ok((column.to_owned(), value.to_owned()))
}

/// Parses the name of a choice; the error suggests the nearest name.
pub fn parse_choice<T: Choice>(what: &str, name: &str) -> Result<T> {
    T::from_name(name).ok_or_else(|| Error::unknown_name(what, name, T::ALL.iter().map(|one| one.name())))
}
