//! The command `oppredict train`.

use crate::held_out::operator_errors;
use crate::kernels::{self, TrainingFiles};
use crate::language_models::train_servers;
use crate::loading::load_samples;
use crate::options::{Data, parse_not_negative, refuse_flags};
use crate::{DONE, DONE_WITH_LOSSES, create_output, print_json, print_text, write_output};
use clap::Args;
use learn::train::{TrainOptions, few_shapes};
use predictor::{Result, bundle};
use report::format_count;
use report::terminal::print_notes;
use serde_json::json;
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
pub struct Train {
    #[command(flatten)]
    pub data: Data,
    /// Output file of the predictor
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Train the overheads of language-model servers
    ///
    /// --data is one table of whole servers.
    #[arg(long, conflicts_with = "mapping")]
    pub servers: bool,
    /// Seed of all random choices
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Tune the hyperparameters per operator; takes about seven times as long
    #[arg(long)]
    pub tune: bool,
    /// Minimum loss reduction of a split, in squared error of log times
    ///
    /// Larger values make a smaller file with slightly larger errors.
    #[arg(long, default_value_t = 0.0, value_name = "SAVED", value_parser = parse_not_negative)]
    pub min_split_loss: f64,
    /// Maximum number of rows of language-model kernels [default: all]
    ///
    /// The limit is for each operator, format and device of the tables.
    #[arg(long, value_name = "COUNT", requires = "mapping")]
    pub most_rows: Option<usize>,
    /// Predictor to include in --out, next to language-model kernels
    #[arg(long, value_name = "FILE", requires = "mapping")]
    pub base: Option<PathBuf>,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}

pub fn run(train: &Train) -> Result<u8> {
    if train.servers {
        return train_servers(&train.data.data, &train.out, train.json);
    }
    if let Some(mapping) = train.data.mapping.as_deref().map(predictor::kernels::read_mapping).transpose()?.flatten() {
        refuse_flags("kernels of language models", &[("--tune", train.tune)])?;
        let (seed, min_split_loss, most_rows) = (train.seed, train.min_split_loss, train.most_rows);
        let options = serving::train::TrainOptions { seed, min_split_loss, most_rows, ..Default::default() };
        let files = TrainingFiles { data: &train.data.data, base: train.base.as_deref(), out: &train.out };
        return kernels::run_train(&files, &mapping, &options, train.json);
    }
    refuse_flags(
        "tables that are not of language-model kernels",
        &[("--most-rows", train.most_rows.is_some()), ("--base", train.base.is_some())],
    )?;
    let out = create_output(Some(&train.out))?;
    let samples = load_samples(&train.data)?;
    let min_split_loss = train.min_split_loss;
    let predictor = learn::train::train_predictor(
        &samples,
        &TrainOptions { seed: train.seed, is_tuned: train.tune, min_split_loss },
    )?;
    write_output(out, || bundle::to_bytes(&predictor))?;
    let operators: Vec<_> = predictor.learned.operators.keys().cloned().collect();
    print_text(
        train.json,
        &format!(
            "trained {} on {} ({}); wrote `{}`",
            format_count(operators.len(), "operator"),
            format_count(predictor.about.rows, "sample"),
            format_count(samples.names.len(), "feature"),
            train.out.display()
        ),
    )?;
    for (device, learned) in &predictor.about.in_place {
        let use_of_it = if learned.is_worth_it() { "" } else { "; the model is not used" };
        print_text(
            train.json,
            &format!(
                "in-network times of {} in {} on {device}: held-out error {:.1} %, error of isolated times {:.1} %{use_of_it}",
                format_count(learned.operators, "operator"),
                format_count(learned.networks, "network"),
                100.0 * learned.error_learned,
                100.0 * learned.error_alone
            ),
        )?;
    }
    print_text(train.json, &operator_errors(&predictor.about))?;
    let not_learned = &predictor.about.not_learned;
    if !not_learned.is_empty() {
        let warning = format!(
            "too few shapes for training and evaluation of {}: {}; collect more models, or use `--variations`",
            format_count(not_learned.len(), "operator"),
            few_shapes(not_learned)
        );
        print_notes("warning", [warning]);
    }
    if train.json {
        let document = json!({
            "out": train.out, "rows": predictor.about.rows, "left_out": samples.left_out, "operators": operators,
            "not_learned": not_learned, "in_place": predictor.about.in_place, "data_hash": predictor.about.data_hash,
            "held_out": predictor.about.held_out, "provenance": predictor.about.provenance,
        });
        print_json(&document)?;
    }
    Ok(if not_learned.is_empty() { DONE } else { DONE_WITH_LOSSES })
}
