//! Every operator becomes OpenCL C for Mali GPUs, which a real front end of that language takes where one is there.
//!
//! Nothing is launched here, so nothing is said of results or times.

// A test that is skipped says so aloud.
#![allow(clippy::print_stderr)]

mod common;
#[path = "common/every.rs"]
mod every;

use bench::{Bench, Build};
use every::TASKS;
use job::device::DeviceCode;
use job::space::{self, Schedule};
use job::target::{self, Machine};
use std::path::Path;
use std::process::Command;

/// Types that OpenCL C has no words for.
const FOREIGN: &[&str] = &["bf16["];

/// How many points of a space are tried beside the default.
const POINTS: usize = 2;

fn built(tried: &[(&'static str, Schedule)]) -> Vec<Result<DeviceCode, String>> {
    let target = target::mali("mali").expect("it has a description");
    let jobs: Vec<_> =
        tried.iter().map(|(text, schedule)| common::build_job(&common::task(text), &target, schedule)).collect();
    let outcome = |build: Build| match build {
        Build::Built(artifact) => artifact.device.ok_or_else(|| "code for a CPU".to_owned()),
        other => Err(format!("{other:?}")),
    };
    common::workers().build(&jobs, &mut || {}).into_iter().map(outcome).collect()
}

/// Whether a front end takes a source; nothing where there is none.
fn is_taken(folder: &Path, place: usize, source: &str) -> Option<Result<(), String>> {
    let file = folder.join(format!("{place}.cl"));
    std::fs::write(&file, source).expect("a temporary file");
    let found = Command::new("clang")
        .args([
            "-x",
            "cl",
            "-cl-std=CL1.2",
            "-target",
            "spir64",
            "-Xclang",
            "-finclude-default-header",
            "-fsyntax-only",
        ])
        .args(["-Werror=implicit-function-declaration", "-w"])
        .arg(&file)
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&found.stderr).into_owned();
    Some(if found.status.success() { Ok(()) } else { Err(said) })
}

#[test]
fn every_operator_becomes_opencl() {
    let Machine::Gpu(gpu) = target::mali("mali").expect("it has a description").machine else { panic!("a GPU") };
    let machine = Machine::Gpu(gpu);
    let is_known = |text: &&&str| !FOREIGN.iter().any(|foreign| text.contains(foreign));
    let mut tried: Vec<(&str, Schedule)> = Vec::new();
    for text in TASKS.iter().filter(is_known) {
        let points = space::sample(&space::space(&common::task(text), &machine), 7, POINTS);
        tried.extend(points.into_iter().map(|knobs| (*text, Schedule::Template { knobs })));
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mut wrong, mut looked_at) = (Vec::new(), 0);
    for (place, ((text, schedule), code)) in tried.iter().zip(built(&tried)).enumerate() {
        let mut fail = |why: &str| wrong.push(format!("{text}\n  {}\n  {why}", schedule.describe()));
        let code = match code {
            Ok(code) => code,
            Err(why) => {
                fail(&why);
                continue;
            }
        };
        let largest = code.launches.iter().map(|launch| launch.block_threads()).max().unwrap_or(0);
        let has_kernels = code.launches.iter().all(|launch| code.source.contains(&format!(" {}(", launch.kernel)));
        if !(1..=256).contains(&largest)
            || !has_kernels
            || !code.source.contains("__kernel void")
            || !code.cubins.is_empty()
        {
            fail(&format!("{largest} work-items in a group, and this source:\n{}", code.source));
        }
        if let Some(taken) = is_taken(folder.path(), place, &code.source) {
            looked_at += 1;
            if let Err(why) = taken {
                fail(&why);
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} failed:\n{}", wrong.len(), tried.len(), wrong.join("\n"));
    if looked_at == 0 {
        eprintln!("skipped: no `clang` here to read the {} sources as OpenCL C", tried.len());
    }
}
