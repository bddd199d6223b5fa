//! Static description of OpenVINO.

use crate::runtime::RuntimeDescription;

pub const DESCRIPTION: RuntimeDescription = RuntimeDescription {
    name: "OpenVINO",
    key: "openvino",
    folder: "openvino/libs",
    file: "libopenvino_c.so",
    hint: "run `scripts/setup --openvino`, which installs OpenVINO among the other wheels",
};
