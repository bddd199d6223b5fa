//! Determines the source of a model (file format, zoo, single operator, transformer) from its name.

use crate::{find_entry, simple, transformers};
use std::path::Path;

/// Classifies a name as file format, zoo model, single operator or transformer; None for unknown names.
pub fn source_of(name: &str) -> Option<&'static str> {
    if name.starts_with("file://") {
        return Some("remoteonnx");
    }
    let path = Path::new(name);
    let of_file = path.extension().and_then(|extension| match extension.to_str()?.to_ascii_lowercase().as_str() {
        "onnx" => Some("onnx"),
        "tflite" => Some("tflite"),
        "pt2" | "pt" | "pth" => Some("torch"),
        _ => None,
    });
    let base = name.split_once(':').map_or(name, |(base, _)| base);
    let is_simple = || name.contains(':') && simple::list_forms().iter().any(|form| form.name == base.trim());
    let is_transformer = || transformers::is_known(base) || models::configuration::is_folder(name);
    match of_file {
        Some(format) => Some(format),
        None if find_entry(base).is_ok() => Some("local"),
        None if is_simple() => Some("simple"),
        None if is_transformer() => Some("transformers"),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_where_models_come_from() {
        for (name, source) in [
            ("resnet-18", Some("local")),
            ("ResNet18:hw=160", Some("local")),
            ("matmul:m=8,n=8,k=8", Some("simple")),
            ("folder/net.onnx", Some("onnx")),
            ("file:///net.onnx", Some("remoteonnx")),
            ("net.TFLITE", Some("tflite")),
            ("model.pt2", Some("torch")),
            ("gpt2", Some("transformers")),
            ("gpt2:n_layer=1", Some("transformers")),
            ("dataset", None),
            ("", None),
        ] {
            assert_eq!(source_of(name), source, "{name}");
        }
    }
}
