//! Shapes and element types as other profilers write them.

use capture::events::{Arguments, Value};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Arguments as JSON.
pub fn json<'a>(arguments: &Arguments<'a>) -> Cow<'a, str> {
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

/// Shapes with their element types, as many of one as of the other.
pub type Shapes = (Vec<Vec<i64>>, Vec<String>);

/// What torch.profiler knows of a call.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct TorchArguments<'a> {
    /// The number that its kernels have, too.
    #[serde(rename = "External id")]
    pub external: Option<u64>,
    /// Shapes of its inputs; lists of tensors are lists of shapes.
    #[serde(rename = "Input Dims", borrow)]
    pub dims: Option<&'a RawValue>,
    /// Element types of its inputs.
    #[serde(rename = "Input type", borrow)]
    pub types: Option<&'a RawValue>,
    /// Bytes taken, or given back where negative.
    #[serde(rename = "Bytes")]
    pub bytes: Option<i64>,
    /// Bytes taken in all from then on.
    #[serde(rename = "Total Allocated")]
    pub total: Option<i64>,
    /// What device the bytes are of: 0 and below 1 is the host.
    #[serde(rename = "Device Type")]
    pub device: Option<i64>,
}

/// What ONNX Runtime knows of a call.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct OnnxArguments<'a> {
    /// The kind of the operator.
    #[serde(rename = "op_name")]
    pub operator: Option<String>,
    /// `[{"float":[1,3]}, …]`.
    #[serde(rename = "input_type_shape", borrow)]
    pub inputs: Option<&'a RawValue>,
    /// The same of its outputs.
    #[serde(rename = "output_type_shape", borrow)]
    pub outputs: Option<&'a RawValue>,
}

/// A shape, or something deeper that torch.profiler shows as an empty one.
#[derive(Deserialize)]
#[serde(untagged)]
enum Dims {
    Shape(Vec<i64>),
    Other(serde::de::IgnoredAny),
}

/// Shapes of torch.profiler: those of lists are empty, as in its own tables.
pub fn torch(dims: &str, types: Option<&str>) -> Option<Shapes> {
    let dims: Vec<Dims> = serde_json::from_str(dims).ok()?;
    let shapes: Vec<Vec<i64>> = dims
        .into_iter()
        .map(|dims| match dims {
            Dims::Shape(shape) => shape,
            Dims::Other(_) => Vec::new(),
        })
        .collect();
    let types: Vec<String> = types.and_then(|types| serde_json::from_str(types).ok()).unwrap_or_default();
    let mut types: Vec<String> = types.iter().map(|name| element(name)).collect();
    types.resize(shapes.len(), String::new());
    Some((shapes, types))
}

/// Shapes of ONNX Runtime.
pub fn onnx(text: &str) -> Option<Shapes> {
    let entries: Vec<serde_json::Map<String, serde_json::Value>> = serde_json::from_str(text).ok()?;
    let (mut shapes, mut types) = (Vec::new(), Vec::new());
    for (name, dims) in entries.into_iter().flatten() {
        shapes.push(serde_json::from_value(dims).ok()?);
        types.push(element(&name));
    }
    Some((shapes, types))
}

/// Our word for an element type; a word that we do not know stays.
fn element(name: &str) -> String {
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
    use super::{onnx, torch};

    #[test]
    fn shapes_are_read_as_their_profilers_show_them() {
        let (shapes, types) =
            torch("[[2, 3], [], [[2, 2], [4]]]", Some(r#"["float", "Scalar", "TensorList"]"#)).unwrap();
        assert_eq!((shapes, types.join(" ")), (vec![vec![2, 3], vec![], vec![]], "f32 Scalar TensorList".to_owned()));
        let (shapes, types) = torch("[[1], [2]]", None).unwrap();
        assert_eq!((shapes.len(), types.len()), (2, 2));
        let (shapes, types) = onnx(r#"[{"float":[1,3,8,8]},{"int64":[]}]"#).unwrap();
        assert_eq!((shapes, types.join(" ")), (vec![vec![1, 3, 8, 8], vec![]], "f32 i64".to_owned()));
        assert!(torch("7", None).is_none() && torch("[[1", None).is_none() && onnx(r#"[{"float":7}]"#).is_none());
    }
}
