//! Flags that state the shapes and the values of a model's inputs. Names may contain any character.

use std::collections::BTreeMap;

// A doc comment here would become the description of a command.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct OpenInputs {
    /// Shape of a model input, as NAME=1x3x224x224; repeatable
    ///
    /// For files with dynamic dimensions. In ONNX files, dimensions of the same name have the same size in all inputs;
    /// --batchsize sets a dimension with `batch` in its name, or the first one if it is called `N` or has no name. In
    /// `opcollect`, --sequence sets a dimension with the name of a sequence length, and several shapes for one input
    /// make a model of several sizes.
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME=SHAPE"))]
    pub shape: Vec<String>,
    /// Bind an input of an ONNX file to numbers; repeatable
    ///
    /// The input becomes a constant, so that shapes, branches and trip counts of loops that depend on it are known.
    /// NAME=VALUE sets all elements to one number, NAME=1,2,3 sets each. Example: --bind sr=16000
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME=VALUE"))]
    pub bind: Vec<String>,
    /// Skip unsupported operators of a file, with a warning
    #[cfg_attr(feature = "clap", arg(long))]
    pub skip_unsupported: bool,
}

impl OpenInputs {
    pub fn is_given(&self) -> bool {
        !self.shape.is_empty() || !self.bind.is_empty() || self.skip_unsupported
    }

    /// Returns all shapes of each input, in the order of the flags.
    pub fn parse_shapes(&self) -> Result<BTreeMap<String, Vec<Vec<i64>>>, String> {
        let mut shapes: BTreeMap<String, Vec<Vec<i64>>> = BTreeMap::new();
        for text in &self.shape {
            let (name, extents) = parse_shape(text)?;
            shapes.entry(name).or_default().push(extents);
        }
        Ok(shapes)
    }

    pub fn parse_values(&self) -> Result<BTreeMap<String, Vec<f64>>, String> {
        let mut values = BTreeMap::new();
        for text in &self.bind {
            let (name, numbers) = parse_binding(text)?;
            if values.insert(name, numbers).is_some() {
                return Err(format!("`--bind {text}` sets this input twice"));
            }
        }
        Ok(values)
    }
}

/// Parses a shape such as `x=1x3x224x224`.
fn parse_shape(text: &str) -> Result<(String, Vec<i64>), String> {
    let parsed = text.rsplit_once('=').and_then(|(name, extents)| {
        let extents = extents.split('x').filter(|extent| !extent.is_empty());
        Some((name.to_owned(), extents.map(|extent| extent.parse().ok()).collect::<Option<Vec<i64>>>()?))
    });
    parsed.ok_or_else(|| format!("`--shape {text}` is not a name and a shape; write it as `x=1x3x224x224`"))
}

/// Parses values such as `sr=16000` or `size=2,3`.
fn parse_binding(text: &str) -> Result<(String, Vec<f64>), String> {
    let number = |text: &str| match text.trim() {
        "true" => Some(1.0),
        "false" => Some(0.0),
        number => number.parse().ok().filter(|number: &f64| number.is_finite()),
    };
    let parsed = text.rsplit_once('=').and_then(|(name, numbers)| {
        Some((name.to_owned(), numbers.split(',').map(number).collect::<Option<Vec<f64>>>()?))
    });
    parsed.ok_or_else(|| format!("`--bind {text}` is not a name and numbers; write it as `sr=16000` or `size=2,3`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_and_values_follow_the_last_equals_sign() {
        assert_eq!(parse_shape("x=1x3x8"), Ok(("x".to_owned(), vec![1, 3, 8])));
        assert_eq!(parse_shape("a=b:i64=2"), Ok(("a=b:i64".to_owned(), vec![2])));
        assert_eq!(parse_shape("scalar="), Ok(("scalar".to_owned(), vec![])));
        assert!(parse_shape("x").is_err_and(|problem| problem.contains("x=1x3x224x224")));
        assert!(parse_shape("x=1xN").is_err());
        assert_eq!(parse_binding("sizes=2, 3"), Ok(("sizes".to_owned(), vec![2.0, 3.0])));
        assert_eq!(parse_binding("flag=true"), Ok(("flag".to_owned(), vec![1.0])));
        let twice = OpenInputs { bind: vec!["n=1".to_owned(), "n=2".to_owned()], ..OpenInputs::default() };
        assert_eq!(twice.parse_values(), Err("`--bind n=2` sets this input twice".to_owned()));
        assert!(parse_binding("sr=inf").is_err_and(|problem| problem.contains("sr=16000")));
    }
}
