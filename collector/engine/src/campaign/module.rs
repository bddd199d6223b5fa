//! Whole TorchScript files, run by PyTorch's library as a baseline for a model; they are not split into tasks. A file
//! lacks the shapes of its inputs, so the user provides them. Its code is executed: use only trusted files.

use super::choices::Backend;
use super::config::{Config, ModelRequest};
use models::{DType, TensorType};
use readers::torch;
use std::path::{Path, PathBuf};

/// A TorchScript file of the campaign.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedModule {
    /// Index of the model among the models of the configuration.
    pub index: usize,
    /// The model as it was requested.
    pub model: ModelRequest,
    /// Path of the TorchScript file.
    pub path: PathBuf,
    /// BLAKE3 hash of the file's content.
    pub hash: String,
    /// Types of the program's inputs.
    pub inputs: Vec<TensorType>,
}

/// Reason why a file cannot be run as a whole.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ModuleError {
    #[error(
        "TorchScript files lack the shapes of inputs; give each with `--shape`, such as `--shape 0=1x3x224x224`, \
         or `--shape 0:i64=1x128` for whole numbers"
    )]
    NoShapes,
    #[error("`{name}` in `--shape` has no element type `{dtype}`; the types are {}", list_dtypes())]
    UnknownType { name: String, dtype: String },
    #[error("cannot read the file: {0}")]
    Unreadable(#[from] std::io::Error),
}

fn list_dtypes() -> String {
    DType::ALL.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(", ")
}

pub(super) fn is_whole(model: &ModelRequest, config: &Config) -> bool {
    config.backend == Backend::Torch && model.source == "torch" && torch::is_torchscript(Path::new(&model.name))
}

pub(super) fn plan_module(index: usize, model: &ModelRequest) -> Result<PlannedModule, ModuleError> {
    let path = Path::new(&model.name).canonicalize()?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(std::fs::File::open(&path)?)?;
    // The names of the inputs are the numbers of the arguments, or letters in their order.
    let inputs: Vec<TensorType> =
        model.shapes.iter().map(|(name, extents)| parse_input_type(name, extents)).collect::<Result<_, _>>()?;
    if inputs.is_empty() {
        return Err(ModuleError::NoShapes);
    }
    Ok(PlannedModule { index, model: model.clone(), path, hash: hasher.finalize().to_hex().to_string(), inputs })
}

/// Parses an input given as `name` or `name:dtype`, with its extents.
fn parse_input_type(name: &str, extents: &[i64]) -> Result<TensorType, ModuleError> {
    let Some((_, dtype)) = name.rsplit_once(':') else { return Ok(TensorType::f32(extents)) };
    let known = DType::from_name(dtype);
    let unknown = || ModuleError::UnknownType { name: name.to_owned(), dtype: dtype.to_owned() };
    Ok(TensorType::new(known.ok_or_else(unknown)?, extents))
}

impl PlannedModule {
    /// Returns a one-line description of the program.
    pub fn describe(&self) -> String {
        let inputs: Vec<String> = self.inputs.iter().map(ToString::to_string).collect();
        format!("torchscript {}", inputs.join(" "))
    }

    /// Returns a hash of content and inputs, which identifies the program among tasks.
    pub fn content_hash(&self) -> String {
        blake3::hash(format!("{} {}", self.hash, self.describe()).as_bytes()).to_hex()[..32].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_may_have_an_element_type() {
        assert_eq!(parse_input_type("0", &[1, 3]).unwrap(), TensorType::f32(&[1, 3]));
        assert_eq!(parse_input_type("0:i64", &[1, 3]).unwrap(), TensorType::new(DType::I64, &[1, 3]));
        assert!(
            parse_input_type("0:f8", &[1])
                .unwrap_err()
                .to_string()
                .contains("`0:f8` in `--shape` has no element type `f8`")
        );
    }
}
