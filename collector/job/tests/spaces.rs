//! Tests that a change of axes, settings or rules has a new version of the spaces, on which resumed searches depend.
#![allow(missing_docs)]

use job::space::{SETTINGS_VERSION, VERSION, find_declaration, task_space};
use models::Task;
use std::collections::BTreeMap;
use targets::{cuda_text, llvm_target, parse_cuda};

/// Version of the spaces, and hash of its axes, settings and rules. Axes of later versions are not part of the hash.
const KNOWN: (u32, &str) = (8, "86d58b5aed486b1a");

const TASKS: &[&str] = &[
    "dense(f32[32,64], const f32[64,64]) | bias_add(_, const f32[64]) axis=1",
    "mat_mul(f32[48,64], f32[64,32]) transpose_a=false transpose_b=false",
    "conv(f32[1,16,14,14], const f32[32,16,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1",
    "conv(f32[1,16,14,14], const f32[32,16,1,1]) strides=[1,1] pads=[0,0,0,0] dilations=[1,1] groups=1",
    "conv(f32[1,32,28,28], const f32[32,1,3,3]) strides=[2,2] pads=[1,1,1,1] dilations=[1,1] groups=32",
    "q_conv(u8[1,16,14,14], const i8[32,16,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1 x_zero=0 w_zero=0",
    r#"pool(f32[1,16,28,28]) mode="max" kernel=[3,3] strides=[2,2] pads=[1,1,1,1] dilations=[1,1] ceil=false count_pad=false"#,
    "softmax(f32[8,100]) axis=1 log=false",
    r#"unary(f32[4,64]) function="gelu""#,
];

#[test]
fn the_version_of_the_spaces_follows_their_axes() {
    let (mut hasher, mut later) = (blake3::Hasher::new(), BTreeMap::new());
    let gpu = parse_cuda(&cuda_text(&["sm_80".to_owned()])).expect("an architecture there is");
    for target in
        [llvm_target("haswell", &["avx2".to_owned()], 4), llvm_target("x86-64-v4", &["avx512f".to_owned()], 4), gpu]
    {
        for text in TASKS {
            let task = Task::from_text(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let space = task_space(&task, &target.machine);
            for axis in &space.axes {
                let version = find_declaration(axis.name).map_or(1, |declared| declared.version);
                if version > KNOWN.0 {
                    let first = *later.entry(version).or_insert(axis.name);
                    assert_eq!(first, axis.name, "both axes state version {version}; the newer one needs the next");
                    continue;
                }
                let settings: Vec<String> = axis.settings.iter().map(ToString::to_string).collect();
                hasher.update(format!("{} {}\n", axis.name, settings.join(" ")).as_bytes());
            }
            for rule in space.rules() {
                hasher.update(format!("{}\n", rule.name).as_bytes());
            }
        }
    }
    assert!(
        VERSION <= KNOWN.0 + 1,
        "only the newest axis may be left out of the hash: set `SETTINGS_VERSION` to {}, and update this constant",
        VERSION - 1
    );
    let digits = hasher.finalize().to_hex()[..16].to_owned();
    assert_eq!(
        (SETTINGS_VERSION, digits.as_str()),
        KNOWN,
        "axes, settings or rules differ: a new axis states its version with `added_in`; for other intended changes set \
         `SETTINGS_VERSION` to `VERSION` + 1, and update this constant"
    );
}
