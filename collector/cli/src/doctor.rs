//! `doctor`: what this machine can measure, what not, and how to improve it.

use super::{DONE, Result, paper, print, print_json};
use engine::doctor::{DoctorRequest, Status, doctor};
use measure::counters::CounterRequest;
use report::{Cell, Table, words};
use std::path::{Path, PathBuf};
use worker::libraries;

/// Prints every finding.
pub fn run(as_json: bool) -> Result<u8> {
    let request = DoctorRequest { library_folders: folders(), counters: CounterRequest::default() };
    let findings = doctor(&request);
    if as_json {
        print_json(&findings)?;
        return Ok(DONE);
    }
    let columns = [words(""), words("what"), words("found"), words("consequence and advice").least(24)];
    let mut table = Table::new(columns);
    for finding in &findings {
        let mark = match finding.status {
            Status::Ok => Cell::from("ok"),
            Status::Limited => Cell::from("limited").uncertain(),
            Status::Missing => Cell::from("missing").bad(),
        };
        let rest: Vec<&str> = [finding.consequence.as_str(), finding.advice.as_str()]
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect();
        table.row([mark, finding.topic.as_str().into(), finding.found.as_str().into(), rest.join("; ").into()]);
    }
    print(&table.on(&paper()))?;
    Ok(DONE)
}

/// Where TVM's libraries are looked for: its own folders, and the one of its interface beside each.
fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in libraries::tvm() {
        let packages = folder.parent().and_then(Path::parent).map(|packages| packages.join("tvm_ffi/lib"));
        for folder in [Some(folder), packages].into_iter().flatten() {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
    }
    folders
}
