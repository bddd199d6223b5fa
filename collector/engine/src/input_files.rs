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
            arrays::read_tensor(Path::new(path), names[place], inputs[place].tensor_type()).map_err(Failure::usage)?;
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
    for (place, (name, input)) in names.iter().zip(inputs).enumerate() {
        let is_given = |text: &String| {
            text.split_once('=').is_some_and(|(given, _)| input_index(names, given).is_ok_and(|index| index == place))
        };
        if !given.input.iter().any(is_given) {
            *input = arrays::read_tensor(path, name, input.tensor_type()).map_err(Failure::usage)?;
        }
    }
    Ok(())
}

/// Returns the index of an input, which is given by its name or else by its number, counted from 0.
fn input_index(names: &[&str], name: &str) -> Result<usize> {
    let unknown = || Failure::usage(format!("the model has no input `{name}`; it has `{}`", names.join("`, `")));
    let number = || name.parse().ok().filter(|&number: &usize| number < names.len());
    names.iter().position(|known| *known == name).or_else(number).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::npy;
    use models::types::TensorType;

    fn tensor(numbers: [f64; 2]) -> Tensor {
        Tensor::from_numbers(TensorType::f32(&[2]), &numbers).unwrap()
    }

    #[test]
    fn an_input_is_given_by_its_name_or_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image.npy");
        std::fs::write(&path, npy::tensor_bytes(&tensor([1.0, 2.0]))).unwrap();
        let replaced = |name: &str, names: &[&str]| {
            let mut inputs = vec![tensor([0.0; 2]), tensor([0.0; 2])];
            let input = vec![format!("{name}={}", path.display())];
            replace_inputs(&InputFiles { input, inputs: None }, names, &mut inputs)
                .map_err(|error| error.to_string())?;
            Ok::<_, String>(inputs.iter().map(|input| input.to_numbers()[1]).collect::<Vec<_>>())
        };
        assert_eq!(replaced("y", &["x", "y"]).unwrap(), [0.0, 2.0]);
        assert_eq!(replaced("1", &["x", "y"]).unwrap(), [0.0, 2.0]);
        assert_eq!(replaced("1", &["1", "0"]).unwrap(), [2.0, 0.0], "a name precedes a number");
        let error = replaced("2", &["x", "y"]).unwrap_err();
        assert!(error.contains("the model has no input `2`; it has `x`, `y`"), "{error}");
    }
}
