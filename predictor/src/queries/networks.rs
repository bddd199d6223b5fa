//! Networks from any supported source.

use super::{Operator, graph_operators};
use crate::error::{Error, Result};
use models::Choice;
use readers::{Imported, Skipped};
use std::path::Path;
use zoo::transformers;

models::choice! {
    /// Where neural networks come from.
    pub enum ModelSource {
        /// The built-in model zoo
        Local = "local",
        /// A transformer: a shipped configuration, or a folder with a `config.json`
        Transformers = "transformers",
        /// An ONNX file
        Onnx = "onnx",
        /// A TFLite file
        Tflite = "tflite",
        /// A `.pt2` archive of `torch.export`
        Torch = "torch",
    }
}

impl ModelSource {
    /// Returns the given source, or infers it from the name.
    pub fn infer_source(given: Option<ModelSource>, name: &str) -> ModelSource {
        let said = || zoo::source_of(name).and_then(ModelSource::from_name);
        given.or_else(said).unwrap_or(ModelSource::Local)
    }
}

/// Returns whether a text names a network of the zoo, a transformer, or a file.
pub fn is_network(text: &str) -> bool {
    zoo::source_of(text).is_some_and(|source| source != "simple")
}

/// Returns whether a text names one operator with its sizes, not a network.
pub fn is_operator(text: &str) -> bool {
    zoo::source_of(text) == Some("simple")
}

#[derive(Clone, Copy, Debug)]
pub struct NetworkQuestion<'a> {
    pub source: ModelSource,
    /// Name in the source, or path.
    pub name: &'a str,
    pub batch: i64,
    pub tokens: i64,
    /// Options for the reader of a file; the batch size is that of the question.
    pub options: Option<&'a readers::Options>,
}

impl NetworkQuestion<'_> {
    /// Names the network with its batch size, and the tokens of a transformer.
    pub fn describe(&self) -> String {
        let tokens = match self.source {
            ModelSource::Transformers => format!(", {}", report::format_count(self.tokens, "token")),
            _ => String::new(),
        };
        format!("{}, batch size {}{tokens}", self.name, self.batch)
    }

    pub fn distinct_operators(&self) -> Result<Vec<Operator>> {
        self.operators_with_losses().map(|(operators, _)| operators)
    }

    /// Returns the distinct operators, and a sentence about each operator of the file that was left out.
    pub fn operators_with_losses(&self) -> Result<(Vec<Operator>, Vec<String>)> {
        let (graph, left_out) = self.graph_with_losses()?;
        Ok((graph_operators(&graph)?, left_out))
    }

    /// Returns the graph, and a sentence about each operator of the file that was left out.
    pub fn graph_with_losses(&self) -> Result<(models::Graph, Vec<String>)> {
        let describe = |Skipped { place, operator, reason }: Skipped| {
            format!("left out the node `{place}` (`{operator}`): {reason}")
        };
        let (graph, skipped) = self.read_graph()?;
        Ok((graph, skipped.into_iter().map(describe).collect()))
    }

    /// Returns the graph and the operators that were left out.
    fn read_graph(&self) -> Result<(models::Graph, Vec<Skipped>)> {
        let NetworkQuestion { source, name, batch, tokens, options } = *self;
        if batch < 1 {
            return Err(Error::Query(format!("batch size {batch} must be at least 1")));
        }
        let options = readers::Options { batch, ..options.cloned().unwrap_or_default() };
        let file = Path::new(name);
        let whole = |graph| (graph, Vec::new());
        let imported = |imported: Imported| (imported.graph, imported.skipped);
        let graph = match source {
            ModelSource::Local => zoo::build_model(name, batch).map(whole),
            ModelSource::Transformers => {
                let options = transformers::Options { batch, sequence: tokens, ..transformers::Options::default() };
                transformers::load_model(name, &options).map(|loaded| whole(loaded.graph))
            }
            ModelSource::Onnx => readers::onnx::load_file(file, &options).map(imported),
            ModelSource::Tflite => readers::tflite::load_file(file, &options).map(imported),
            ModelSource::Torch => readers::torch::load_file(file, &options).map(imported),
        };
        graph.map_err(|error| Error::Query(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_come_from_every_source() {
        let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/readers/tests/tflite-cases/one_layer_int8");
        let kinds = |source: ModelSource, name: &str| {
            let operators = NetworkQuestion { source, name, batch: 1, tokens: 16, options: None }
                .distinct_operators()
                .expect("a network");
            operators.into_iter().map(|operator| operator.name).collect::<Vec<String>>()
        };
        assert!(kinds(ModelSource::Local, "mobilenet:hw=96").contains(&"depthwise_conv2d".to_owned()));
        assert!(kinds(ModelSource::Transformers, "gpt2:n_layer=1").contains(&"attention".to_owned()));
        for (source, file) in [(ModelSource::Tflite, "model.tflite"), (ModelSource::Onnx, "qdq.onnx")] {
            assert!(kinds(source, &format!("{cases}/{file}")).contains(&"q_conv2d".to_owned()), "{file}");
        }
        let question = NetworkQuestion {
            source: ModelSource::Torch,
            name: "no such file.pt2",
            batch: 1,
            tokens: 16,
            options: None,
        };
        let refused = question.distinct_operators().expect_err("there is no file");
        assert!(refused.to_string().contains("no such file.pt2"), "{refused}");
    }

    #[test]
    fn missing_files_and_batches_without_samples_are_named() {
        let refusal = |source, name, batch| {
            let refused = NetworkQuestion { source, name, batch, tokens: 16, options: None }.distinct_operators();
            refused.expect_err(name).to_string()
        };
        assert_eq!(refusal(ModelSource::Local, "absent.json", 1), "cannot read `absent.json`: no such file");
        for source in ModelSource::ALL {
            assert_eq!(refusal(*source, "mlp", -1), "batch size -1 must be at least 1");
        }
    }
}
