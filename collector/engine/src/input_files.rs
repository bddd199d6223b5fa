//! Reads a model's inputs from files instead of generating random inputs.

use crate::Result;
use crate::failure::Failure;
use crate::network::arrays;
use reference::Tensor;
use std::path::{Path, PathBuf};

/// Options that name the files with a model's inputs.
#[derive(Clone, Debug, Default)]
pub struct InputFiles {
    /// Files of single inputs, as `NAME=FILE`.
    pub input: Vec<String>,
    /// File with several inputs, found by their names.
    pub inputs: Option<PathBuf>,
}

impl InputFiles {
    /// Returns whether all inputs are generated at random.
    pub fn is_empty(&self) -> bool {
        self.input.is_empty() && self.inputs.is_none()
    }
}

/// Replaces inputs by tensors of the same name from files.
pub fn replace_inputs(given: &InputFiles, names: &[&str], inputs: &mut [Tensor]) -> Result<()> {
    if let Some(path) = &given.inputs {
        replace_all(path, given, names, inputs)?;
    }
    let mut given_places = vec![false; inputs.len()];
    for text in &given.input {
        let (name, path) = text.split_once('=').ok_or_else(|| {
            Failure::usage(format!("`--input {text}` is not a name and a file")).with_hint("write it as `x=image.npy`")
        })?;
        let place = input_index(names, name)?;
        if std::mem::replace(&mut given_places[place], true) {
            return Err(Failure::usage(format!("`--input` gives `{name}` twice")).with_hint("give each input one file"));
        }
        inputs[place] =
            arrays::read_tensor(Path::new(path), name, inputs[place].tensor_type()).map_err(Failure::usage)?;
    }
    Ok(())
}

/// Replaces all inputs that have no separate file by the tensors of one file.
fn replace_all(path: &Path, given: &InputFiles, names: &[&str], inputs: &mut [Tensor]) -> Result<()> {
    let found = arrays::tensor_names(path).map_err(Failure::usage)?;
    if let Some(other) = found.iter().find(|name| !names.contains(&name.as_str())) {
        let (other, names): (String, String) = (other.chars().take(60).collect(), names.join(", "));
        let message =
            format!("`{}` has `{other}`, which is not an input of the model; inputs are {names}", path.display());
        return Err(Failure::usage(message).with_hint("take single tensors of a file with `--input NAME=FILE`"));
    }
    for (name, input) in names.iter().zip(inputs) {
        let is_given = |text: &String| text.split_once('=').is_some_and(|(given, _)| given == *name);
        if !given.input.iter().any(is_given) {
            *input = arrays::read_tensor(path, name, input.tensor_type()).map_err(Failure::usage)?;
        }
    }
    Ok(())
}

fn input_index(names: &[&str], name: &str) -> Result<usize> {
    let unknown = || Failure::usage(format!("the model has no input `{name}`; it has `{}`", names.join("`, `")));
    names.iter().position(|known| *known == name).ok_or_else(unknown)
}
