//! Parsing of shapes and element types in other profilers' formats.

use capture::events::{Arguments, Value};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

pub fn to_json<'a>(arguments: &Arguments<'a>) -> Cow<'a, str> {
    let list = match arguments {
        Arguments::None => return Cow::Borrowed("{}"),
        Arguments::Json(text) => return Cow::Borrowed(text),
        Arguments::List(list) => list,
    };
    let member = |(name, value): &(String, Value)| {
        let value = match value {
            Value::Whole(value) => (*value).into(),
            Value::Real(value) => (*value).into(),
            Value::Text(text) => text.as_str().into(),
            Value::Json(text) => serde_json::from_str(text).unwrap_or_else(|_| text.as_str().into()),
        };
        (name.clone(), value)
    };
    Cow::Owned(serde_json::Value::Object(list.iter().map(member).collect()).to_string())
}

pub type Shapes = (Vec<Vec<i64>>, Vec<String>);

#[derive(Default, Deserialize)]
#[serde(default)]
pub struct TorchArguments<'a> {
    #[serde(rename = "External id")]
    pub external: Option<u64>,
    /// Shapes of the inputs; a list of tensors is a list of shapes.
    #[serde(rename = "Input Dims", borrow)]
    pub dims: Option<&'a RawValue>,
    #[serde(rename = "Input type", borrow)]
    pub types: Option<&'a RawValue>,
    /// Description of an operator with its sizes, which only traces of `opcollect profile` have.
    #[serde(borrow)]
    pub text: Option<&'a RawValue>,
    /// Bytes allocated; negative if freed.
    #[serde(rename = "Bytes")]
    pub bytes: Option<i64>,
    #[serde(rename = "Total Allocated")]
    pub total: Option<i64>,
    /// Device type of the memory; 0 and negative values are the host.
    #[serde(rename = "Device Type")]
    pub device: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub struct OnnxArguments<'a> {
    #[serde(rename = "op_name")]
    pub operator: Option<String>,
    /// Input types and shapes: `[{"float":[1,3]}, …]`.
    #[serde(rename = "input_type_shape", borrow)]
    pub inputs: Option<&'a RawValue>,
    #[serde(rename = "output_type_shape", borrow)]
    pub outputs: Option<&'a RawValue>,
}

/// A shape, or a nested list that torch.profiler displays as an empty shape.
#[derive(Deserialize)]
#[serde(untagged)]
enum Dims {
    Shape(Vec<i64>),
    Other(serde::de::IgnoredAny),
}

/// Parses input shapes and their types. Lists of tensors get an empty shape, as in torch.profiler's own tables.
pub fn parse_torch(dims: &str, types: Option<&str>) -> Option<Shapes> {
    let dims: Vec<Dims> = serde_json::from_str(dims).ok()?;
    let shapes: Vec<Vec<i64>> = dims
        .into_iter()
        .map(|dims| match dims {
            Dims::Shape(shape) => shape,
            Dims::Other(_) => Vec::new(),
        })
        .collect();
    let types: Vec<String> = types.and_then(|types| serde_json::from_str(types).ok()).unwrap_or_default();
    let mut types: Vec<String> = types.iter().map(|name| element_name(name)).collect();
    types.resize(shapes.len(), String::new());
    Some((shapes, types))
}

pub fn parse_onnx(text: &str) -> Option<Shapes> {
    let entries: Vec<serde_json::Map<String, serde_json::Value>> = serde_json::from_str(text).ok()?;
    let (mut shapes, mut types) = (Vec::new(), Vec::new());
    for (name, dims) in entries.into_iter().flatten() {
        shapes.push(serde_json::from_value(dims).ok()?);
        types.push(element_name(&name));
    }
    Some((shapes, types))
}

/// Maps an element type to this project's name; keeps unknown names.
fn element_name(name: &str) -> String {
    match name {
        "float" | "float32" => "f32",
        "double" | "float64" => "f64",
        "c10::Half" | "float16" => "f16",
        "c10::BFloat16" | "bfloat16" => "bf16",
        "long int" | "long" | "int64" => "i64",
        "int" | "int32" => "i32",
        "short" | "short int" | "int16" => "i16",
        "signed char" | "int8" => "i8",
        "unsigned char" | "uint8" => "u8",
        other => other,
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::{parse_onnx, parse_torch};

    #[test]
    fn shapes_match_those_of_other_profilers() {
        let (shapes, types) =
            parse_torch("[[2, 3], [], [[2, 2], [4]]]", Some(r#"["float", "Scalar", "TensorList"]"#)).unwrap();
        assert_eq!((shapes, types.join(" ")), (vec![vec![2, 3], vec![], vec![]], "f32 Scalar TensorList".to_owned()));
        let (shapes, types) = parse_torch("[[1], [2]]", None).unwrap();
        assert_eq!((shapes.len(), types.len()), (2, 2));
        let (shapes, types) = parse_onnx(r#"[{"float":[1,3,8,8]},{"int64":[]}]"#).unwrap();
        assert_eq!((shapes, types.join(" ")), (vec![vec![1, 3, 8, 8], vec![]], "f32 i64".to_owned()));
        assert!(
            parse_torch("7", None).is_none()
                && parse_torch("[[1", None).is_none()
                && parse_onnx(r#"[{"float":7}]"#).is_none()
        );
    }
}
