//! Static description of ONNX Runtime.

use crate::runtime::RuntimeDescription;

pub const DESCRIPTION: RuntimeDescription = RuntimeDescription {
    name: "ONNX Runtime",
    key: "onnxruntime",
    folder: "onnxruntime/capi",
    file: "libonnxruntime.so",
    hint: "run `scripts/setup --test`, which installs ONNX Runtime among the wheels for tests",
};
