//! The command `oppredict suggest`.

use crate::installation::predictor_file;
use crate::kernels::{self, SuggestionQuestion};
use crate::loading::load_unmeasured_samples;
use crate::options::Data;
use crate::{DONE, print_json, print_text, stdout_paper};
use clap::Args;
use learn::adaptation::{self, Suggestion};
use predictor::{Error, Result, bundle};
use report::{Table, number_column, text_column};
use serde_json::json;
use std::path::PathBuf;

pub const SUGGEST_EXAMPLES: &str = "\
Examples:
  oppredict suggest --predictor gpu.opp --data bmm.csv.gz --mapping configs/gpu-ops.toml --count 20
  oppredict suggest --data aic --mapping configs/mappings/aiconfigurator.toml --device l40s --count 50";

#[derive(Clone, Debug, Args)]
pub struct Suggest {
    /// Predictor file of `train` [default: built-in; for GPUs with --mapping, else for CPUs]
    #[arg(long, value_name = "FILE")]
    pub predictor: Option<PathBuf>,
    #[command(flatten)]
    pub data: Data,
    /// Device to be measured, for mappings of language-model kernels
    #[arg(long, value_name = "NAME", requires = "mapping")]
    pub device: Option<String>,
    /// Number of shapes per operator, and per format of language-model kernels
    #[arg(long, value_name = "NUMBER", default_value = "20")]
    pub count: std::num::NonZeroUsize,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &Suggest) -> Result<u8> {
    let mapping = arguments.data.mapping.as_deref();
    if let Some(mapping) = mapping.map(predictor::kernels::read_mapping).transpose()?.flatten() {
        let question = SuggestionQuestion {
            data: &arguments.data.data,
            predictor: arguments.predictor.as_deref(),
            device: arguments.device.as_deref(),
            count: arguments.count.get(),
        };
        return kernels::run_suggest(&question, &mapping, arguments.json);
    }
    if arguments.device.is_some() {
        return Err(Error::Query("--device needs a mapping of language-model kernels".to_owned()));
    }
    let file = predictor_file(arguments.predictor.as_deref(), None, arguments.data.mapping.is_some())?;
    let predictor = bundle::read_bundle(&file)?;
    let suggestions =
        adaptation::suggest_shapes(&predictor, load_unmeasured_samples(&arguments.data)?, arguments.count.get())?;
    for of_operator in suggestions.chunk_by(|one, two| one.operator == two.operator) {
        let sizes = of_operator[0].sizes.iter().map(|(name, _)| *name);
        let mut table = Table::new([text_column("operator")].into_iter().chain(sizes.map(number_column)));
        for one in of_operator {
            let sizes = one.sizes.iter().map(|(_, size)| size.to_string());
            table.add_row([one.operator.clone()].into_iter().chain(sizes));
        }
        print_text(arguments.json, &table.format_for(&stdout_paper()))?;
        for command in of_operator.iter().filter_map(measure_command) {
            print_text(arguments.json, &command)?;
        }
    }
    print_text(
        arguments.json,
        "most informative first; measure them on the new device, then run `oppredict adapt` on the records",
    )?;
    if arguments.json {
        let commands: Vec<Option<String>> = suggestions.iter().map(measure_command).collect();
        print_json(&json!({ "suggestions": suggestions, "commands": commands }))?;
    }
    Ok(DONE)
}

/// Returns the `opcollect` command that measures a shape with its default schedule; None for shapes of foreign tables.
fn measure_command(one: &Suggestion) -> Option<String> {
    let Suggestion { text, threads, .. } = one;
    let quoted = text.replace('\'', r"'\''");
    (!text.is_empty()).then(|| {
        format!(
            "opcollect --modelsource simple --modelname '{quoted}' --schedules 1 --threads {threads} --store new-device"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suggestion_is_a_command_of_the_shell() {
        let one = |text: &str| Suggestion {
            operator: "relu".to_owned(),
            sizes: Vec::new(),
            text: text.to_owned(),
            threads: 2.0,
        };
        assert_eq!(
            measure_command(&one("relu(f32[8,8])")).as_deref(),
            Some(
                "opcollect --modelsource simple --modelname 'relu(f32[8,8])' --schedules 1 --threads 2 --store new-device"
            )
        );
        assert!(measure_command(&one("it's")).is_some_and(|command| command.contains(r"'it'\''s'")));
        assert_eq!(measure_command(&one("")), None);
    }
}
