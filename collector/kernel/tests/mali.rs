//! Tests that every operator becomes OpenCL C for Mali GPUs, checked by a compiler if one is installed, without a GPU.

// A test that is skipped says so aloud.
#![allow(clippy::print_stderr)]

mod common;
#[path = "common/every.rs"]
mod every;

use common::device::{Outcome, build};
use every::TASKS;
use job::space::{self, Schedule};
use std::path::Path;
use std::process::Command;

const FOREIGN: &[&str] = &["bf16["];

const POINTS: usize = 2;

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

fn look(folder: &Path, place: usize, outcome: Outcome) -> Result<bool, String> {
    let code = outcome?;
    let largest = code.launches.iter().map(|launch| launch.block_threads()).max().unwrap_or(0);
    let has_kernels = code.launches.iter().all(|launch| code.source.contains(&format!(" {}(", launch.kernel)));
    let is_opencl = has_kernels && code.source.contains("__kernel void") && code.cubins.is_empty();
    if !(1..=256).contains(&largest) || !is_opencl {
        return Err(format!("{largest} work-items in a group, and this source:\n{}", code.source));
    }
    is_taken(folder, place, &code.source).map_or(Ok(false), |taken| taken.map(|()| true))
}

#[test]
fn every_operator_becomes_opencl() {
    let target = targets::parse_mali("mali").expect("it has a description");
    let is_known = |text: &&&str| !FOREIGN.iter().any(|foreign| text.contains(foreign));
    let points = |text: &&'static str| {
        let points = space::sample_points(&space::task_space(&common::task(text), &target.machine), 7, POINTS);
        let text = *text;
        points.into_iter().map(move |knobs| (text, Schedule::Template { knobs }))
    };
    let tried: Vec<(&str, Schedule)> = TASKS.iter().filter(is_known).flat_map(points).collect();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mut wrong, mut looked_at) = (Vec::new(), 0);
    let outcomes = build(&mut common::workers(), &target, &tried);
    for (place, ((text, schedule), outcome)) in tried.iter().zip(outcomes).enumerate() {
        match look(folder.path(), place, outcome) {
            Ok(was_read) => looked_at += usize::from(was_read),
            Err(why) => wrong.push(format!("{text}\n  {}\n  {why}", schedule.describe_knobs())),
        }
    }
    assert!(wrong.is_empty(), "{} of {} failed:\n{}", wrong.len(), tried.len(), wrong.join("\n"));
    if looked_at == 0 {
        eprintln!("skipped: no `clang` here to read the {} sources as OpenCL C", tried.len());
    }
}
