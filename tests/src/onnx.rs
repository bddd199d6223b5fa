//! Cases of the ONNX project's backend tests: a model, inputs and expected outputs.
//!
//! A case folder contains `model.onnx` and `test_data_set_0/{input,output}_K.pb`, and `output_K_N.pb` for each tensor
//! of a sequence. In the suite, inputs that determine shapes are data. Our reader needs them as constants, so the
//! smallest set of inputs with which a model can be read is made constant.

use models::{DType, Error, Graph};
use readers::{Options, onnx};
use reference::Tensor;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub struct Case {
    pub name: String,
    /// Operators of the file, except those that only hold constants.
    pub operators: BTreeSet<String>,
    model: bytes::Bytes,
    inputs: Vec<(String, Tensor)>,
    outputs: Vec<Option<Tensor>>,
    is_network: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    Failed(String),
    Unsupported(String),
}

pub struct Prepared {
    pub graph: Graph,
    pub inputs: Vec<Tensor>,
}

pub fn folders(root: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(folder) = waiting.pop() {
        if folder.join("model.onnx").is_file() {
            found.push(folder);
            continue;
        }
        for entry in folder.read_dir()? {
            let path = entry?.path();
            if path.is_dir() {
                waiting.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

impl Case {
    /// Reads a case; data of an unknown type makes it unsupported.
    pub fn read(root: &Path, folder: &Path) -> Result<Case, Verdict> {
        let failed = |error: Error| verdict(&error);
        let name = folder.strip_prefix(root).unwrap_or(folder).display().to_string();
        let model = onnx::read_file(&folder.join("model.onnx")).map_err(failed)?;
        let names = onnx::input_names(model.clone(), &name).map_err(failed)?;
        let operators = onnx::operator_names(model.clone(), &name).map_err(failed)?;
        let data = folder.join("test_data_set_0");
        let tensor = |name: &str| -> Result<Option<Tensor>, Verdict> {
            let path = data.join(format!("{name}.pb"));
            if !path.is_file() {
                return Ok(None);
            }
            let bytes = onnx::read_file(&path).map_err(failed)?;
            onnx::read_tensor(bytes, &path.display().to_string())
                .map(|(_, tensor)| Some(tensor))
                .map_err(|error| Verdict::Unsupported(format!("input data: {}", reason(&error))))
        };
        let mut inputs = Vec::new();
        for (index, name) in names.into_iter().enumerate() {
            match tensor(&format!("input_{index}"))? {
                Some(tensor) => inputs.push((name, tensor)),
                None => return Err(Verdict::Unsupported(format!("input `{name}` is not a tensor"))),
            }
        }
        let count = onnx::output_count(model.clone(), &name).map_err(failed)?;
        let mut outputs = Vec::new();
        for index in 0..count {
            let mut parts = Vec::new();
            while let Some(part) = tensor(&format!("output_{index}_{}", parts.len()))? {
                parts.push(Some(part));
            }
            if parts.is_empty() {
                parts.push(tensor(&format!("output_{index}"))?);
            }
            outputs.extend(parts);
        }
        if outputs.iter().all(Option::is_none) {
            return Err(Verdict::Unsupported("none of its outputs is a tensor".to_owned()));
        }
        Ok(Case { name, operators, model, inputs, outputs, is_network: false })
    }

    pub fn prepare(&self) -> Result<Prepared, Verdict> {
        let mut first = None;
        for is_bound in BINDINGS {
            let bindings: BTreeMap<String, Tensor> = (0..)
                .zip(&self.inputs)
                .filter(|(index, (_, tensor))| is_bound(*index, tensor))
                .map(|(_, input)| input.clone())
                .collect();
            let shape = |tensor: &Tensor| tensor.tensor_type().extents().expect("a tensor has numbers for extents");
            let free = || self.inputs.iter().filter(|(name, _)| !bindings.contains_key(name));
            let shapes = free().map(|(name, tensor)| (name.clone(), shape(tensor))).collect();
            let inputs = free().map(|(_, tensor)| tensor.clone()).collect();
            let options = Options { shapes, bindings, ..Options::default() };
            match onnx::import(self.model.clone(), &self.name, None, &options) {
                Ok(imported) => return Ok(Prepared { graph: imported.graph, inputs }),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.map_or(Verdict::Failed("it was never read".to_owned()), |error| verdict(&error)))
    }

    /// Marks a case as a whole network, whose errors are relative to at least the root mean square of the output.
    pub fn of_network(self) -> Case {
        Case { is_network: true, ..self }
    }

    pub fn judge(&self, actual: &[Tensor]) -> Verdict {
        if actual.len() != self.outputs.len() {
            return Verdict::Failed(format!("{} outputs instead of {}", actual.len(), self.outputs.len()));
        }
        for (index, (actual, expected)) in actual.iter().zip(&self.outputs).enumerate() {
            let Some(expected) = expected else { continue };
            if let Err(why) = agrees(actual, expected, self) {
                return Verdict::Failed(format!("output {index}: {why}"));
            }
        }
        Verdict::Passed
    }

    pub fn simplified(&self) -> Result<Graph, String> {
        let prepared = self.prepare().map_err(|verdict| format!("{verdict:?}"))?;
        passes::simplify_graph(&prepared.graph).map_err(|error| chain(&error))
    }

    pub fn evaluate(&self) -> Verdict {
        let prepared = match self.prepare() {
            Ok(prepared) => prepared,
            Err(verdict) => return verdict,
        };
        let simplified = match passes::simplify_graph(&prepared.graph) {
            Ok(simplified) => simplified,
            Err(error) => return Verdict::Failed(chain(&error)),
        };
        for (graph, what) in [(&prepared.graph, "as read"), (&simplified, "after passes")] {
            let judged = match reference::evaluate_graph(graph, &prepared.inputs) {
                Ok(actual) => self.judge(&actual),
                Err(error) => Verdict::Failed(chain(&error)),
            };
            if let Verdict::Failed(why) = judged {
                return Verdict::Failed(format!("{what}, {why}"));
            }
        }
        Verdict::Passed
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Distance {
    /// Largest absolute difference of integer elements.
    pub steps: f64,
    /// Root mean square of the differences of floats, divided by that of the expected elements.
    pub share: f64,
}

impl Case {
    pub fn distance(&self) -> Result<Distance, Verdict> {
        let failed = |error: Error| Verdict::Failed(chain(&error));
        let prepared = self.prepare()?;
        let simplified = passes::simplify_graph(&prepared.graph).map_err(failed)?;
        let mut far = Distance::default();
        for graph in [&prepared.graph, &simplified] {
            let results = reference::evaluate_graph(graph, &prepared.inputs).map_err(failed)?;
            if results.len() != self.outputs.len() {
                return Err(Verdict::Failed(format!("{} outputs instead of {}", results.len(), self.outputs.len())));
            }
            for (found, expected) in results.iter().zip(&self.outputs) {
                let Some(expected) = expected else { continue };
                if found.tensor_type() != expected.tensor_type() {
                    return Err(Verdict::Failed(format!(
                        "{} instead of {}",
                        found.tensor_type(),
                        expected.tensor_type()
                    )));
                }
                let (found, numbers) = (found.to_numbers(), expected.to_numbers());
                let differences: Vec<f64> =
                    found.iter().zip(&numbers).map(|(a, b)| if a == b { 0.0 } else { a - b }).collect();
                if differences.iter().any(|difference| difference.is_nan()) {
                    return Err(Verdict::Failed("a result is NaN".to_owned()));
                }
                if expected.tensor_type().dtype.is_float() {
                    let unit = root_mean_square(&numbers).max(f64::from(f32::EPSILON));
                    far.share = far.share.max(root_mean_square(&differences) / unit);
                } else {
                    far.steps = differences.iter().fold(far.steps, |most, difference| most.max(difference.abs()));
                }
            }
        }
        Ok(far)
    }
}

/// Rules that select the inputs to turn into constants, in the order in which they are tried.
const BINDINGS: [fn(usize, &Tensor) -> bool; 5] = [
    |_, _| false,
    |index, tensor| index > 0 && !tensor.tensor_type().dtype.is_float() && tensor.tensor_type().rank() <= 1,
    |index, tensor| index > 0 && tensor.tensor_type().rank() <= 1,
    |index, _| index > 0,
    |_, _| true,
];

/// Compares with the suite's tolerances: `|a - b| <= 1e-7 + 1e-3 |b|`, wider for 16-bit floats. A few elements of
/// quantised outputs may differ by one step, because the precision of scaling is unspecified.
fn agrees(actual: &Tensor, expected: &Tensor, case: &Case) -> Result<(), String> {
    let relative = match expected.tensor_type().dtype {
        DType::BF16 => f64::from(-6).exp2(),
        DType::F16 => f64::from(-9).exp2(),
        _ => 1e-3,
    };
    // Each element of a spectrum is a sum over the whole signal.
    let is_sum = case.is_network || case.operators.iter().any(|operator| operator == "DFT" || operator == "STFT");
    let absolute = if is_sum { relative * root_mean_square(&expected.to_numbers()) } else { 1e-7 };
    let tolerance = reference::Tolerance { absolute, relative };
    let comparison = reference::compare_tensors(actual, expected, tolerance).map_err(|error| error.to_string())?;
    if comparison.ok {
        return Ok(());
    }
    let (a, b) = (actual.to_numbers(), expected.to_numbers());
    let is_quantised =
        case.operators.iter().any(|operator| operator.contains("Quantize") || operator.contains("QLinear"));
    if is_quantised && !expected.tensor_type().dtype.is_float() && comparison.max_abs_error <= 1.0 {
        let off = a.iter().zip(&b).filter(|(a, b)| a != b).count();
        if off * 200 <= a.len() {
            return Ok(());
        }
    }
    let worst = comparison.worst_index;
    Err(format!("element {worst} is {}, must be {}", a[worst], b[worst]))
}

fn root_mean_square(numbers: &[f64]) -> f64 {
    (numbers.iter().map(|number| number * number).sum::<f64>() / numbers.len().max(1) as f64).sqrt()
}

fn verdict(error: &Error) -> Verdict {
    match error {
        Error::Unsupported { .. } => Verdict::Unsupported(reason(error)),
        _ => Verdict::Failed(chain(error)),
    }
}

/// Returns the reason of an error without names that differ between cases.
fn reason(error: &Error) -> String {
    match error {
        Error::Unsupported { reason, .. } | Error::Malformed { reason, .. } => reason.clone(),
        other => other.to_string(),
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(&format!(": {inner}"));
        source = inner.source();
    }
    text
}
