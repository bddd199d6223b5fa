//! Reads a model's inputs from files instead of generating random inputs.

use crate::Result;
use crate::failure::Failure;
use crate::network::arrays;
use reference::{Draw, Tensor};
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

/// Replaces inputs by tensors of the same name from files. Refuses indices outside of the dimension that `draws` states:
/// generated code reads them without a check.
pub fn replace_inputs(given: &InputFiles, names: &[&str], draws: &[Draw], inputs: &mut [Tensor]) -> Result<()> {
    replace_by_files(given, names, inputs)?;
    for ((name, draw), input) in names.iter().zip(draws).zip(inputs) {
        if let Some((index, extent)) = draw.find_outside(input) {
            return Err(Failure::usage(format!(
                "input `{name}`: the index {index} is outside of a dimension of {extent}"
            ))
            .with_hint(format!("give indices from -{extent} to {}", extent - 1)));
        }
    }
    Ok(())
}

fn replace_by_files(given: &InputFiles, names: &[&str], inputs: &mut [Tensor]) -> Result<()> {
    if let Some(path) = &given.inputs {
        replace_all(path, given, names, inputs)?;
    }
    let mut given_places = vec![false; inputs.len()];
    for text in &given.input {
        let (name, path) = split_name(names, text).ok_or_else(|| {
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
            split_name(names, text)
                .is_some_and(|(given, _)| input_index(names, given).is_ok_and(|index| index == place))
        };
        if !given.input.iter().any(is_given) {
            *input = arrays::read_tensor(path, name, input.tensor_type()).map_err(Failure::usage)?;
        }
    }
    Ok(())
}

/// Splits `NAME=FILE` after a name of the model, which may contain `=`, or else at the first `=`.
fn split_name<'a>(names: &[&str], text: &'a str) -> Option<(&'a str, &'a str)> {
    let after = |name: &&&str| text.strip_prefix(**name).is_some_and(|rest| rest.starts_with('='));
    match names.iter().filter(after).map(|name| name.len()).max() {
        Some(length) => Some((&text[..length], &text[length + 1..])),
        None => text.split_once('='),
    }
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
    use models::types::{DType, TensorType};

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
            replace_inputs(&InputFiles { input, inputs: None }, names, &[Draw::Any; 2], &mut inputs)
                .map_err(|error| error.to_string())?;
            Ok::<_, String>(inputs.iter().map(|input| input.to_numbers()[1]).collect::<Vec<_>>())
        };
        assert_eq!(replaced("y", &["x", "y"]).unwrap(), [0.0, 2.0]);
        assert_eq!(replaced("1", &["x", "y"]).unwrap(), [0.0, 2.0]);
        assert_eq!(replaced("1", &["1", "0"]).unwrap(), [2.0, 0.0], "a name precedes a number");
        assert_eq!(replaced("a=b", &["a", "a=b"]).unwrap(), [0.0, 2.0]);
        let error = replaced("2", &["x", "y"]).unwrap_err();
        assert!(error.contains("the model has no input `2`; it has `x`, `y`"), "{error}");
    }

    #[test]
    fn indices_outside_of_their_dimension_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("indices.npy");
        let read = |numbers: [f64; 2]| {
            let tensor = |numbers| Tensor::from_numbers(TensorType::new(DType::I64, &[2]), numbers).unwrap();
            std::fs::write(&path, npy::tensor_bytes(&tensor(&numbers))).unwrap();
            let mut inputs = vec![tensor(&[0.0; 2])];
            let input = vec![format!("i={}", path.display())];
            replace_inputs(&InputFiles { input, inputs: None }, &["i"], &[Draw::Index(5)], &mut inputs)
                .map_err(|error| error.to_string())
        };
        assert_eq!(read([-5.0, 4.0]), Ok(()));
        for outside in [5.0, -6.0] {
            let expected = format!("input `i`: the index {outside} is outside of a dimension of 5");
            assert!(read([0.0, outside]).unwrap_err().contains(&expected));
        }
    }
}
