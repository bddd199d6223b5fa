//! Fuzz targets: functions that feed arbitrary bytes to a reader of outside data, and panic if a rule is violated.
//!
//! `fuzz/run` runs a target under libFuzzer with coverage feedback; `tests/seeds.rs` runs all targets with mutated
//! seeds. Seeds are in `fuzz/seeds/<target>`.

#[path = "../../collector/capture/tests/tpu/card.rs"]
#[allow(dead_code, reason = "targets write some kinds of captures only")]
mod card;
mod events;
mod small_program;
mod targets;

/// Calls a macro with the names of all targets. Each name is also that of a module and of a seed folder.
#[macro_export]
macro_rules! for_each_target {
    ($macro:ident) => {
        $macro! {
            agent_session
            arrays
            bucket
            campaign
            chrome_trace
            config
            core_program
            fabric
            host_trace
            mapping
            object
            onnx
            perfetto
            perfetto_events
            plan
            predictor
            profile
            program
            pt2
            race
            records
            replay
            rpc_session
            rpc_tracker
            safetensors
            safetensors_index
            schedule
            stages
            store
            store_files
            target
            tensor_location
            tflite
            torchscript
            tpu
            tvm_report
            xgboost
        }
    };
}

pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
}

macro_rules! table {
    ($($name:ident)*) => {
        pub const TARGETS: &[Target] = &[$(Target { name: stringify!($name), run: targets::$name::run }),*];
    };
}

for_each_target!(table);

pub fn find_target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
