//! Runs the target in `OPCOLLECT_FUZZ_TARGET` under libFuzzer; `fuzz/run` builds and starts this program.

#![no_main]

use fuzz::find_target;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static RUN: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("OPCOLLECT_FUZZ_TARGET").expect("OPCOLLECT_FUZZ_TARGET names a target");
    find_target(&name).unwrap_or_else(|| panic!("unknown target `{name}`")).run
});

fuzz_target!(|bytes: &[u8]| RUN(bytes));
