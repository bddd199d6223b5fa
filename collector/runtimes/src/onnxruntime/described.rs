//! What is known of ONNX Runtime without its library.

use crate::runtime::Described;

/// What ONNX Runtime is called, and where its library lies.
pub const DESCRIBED: Described = Described {
    name: "ONNX Runtime",
    key: "onnxruntime",
    folder: "onnxruntime/capi",
    file: "libonnxruntime.so",
    hint: "run `scripts/setup --test`, which installs ONNX Runtime among the wheels for tests",
};
