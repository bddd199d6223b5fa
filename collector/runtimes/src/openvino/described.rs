//! What is known of OpenVINO without its library.

use crate::runtime::Described;

/// What OpenVINO is called, and where its library lies.
pub const DESCRIBED: Described = Described {
    name: "OpenVINO",
    key: "openvino",
    folder: "openvino/libs",
    file: "libopenvino_c.so",
    hint: "run `scripts/setup --openvino`, which installs OpenVINO among the other wheels",
};
