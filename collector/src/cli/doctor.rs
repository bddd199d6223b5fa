//! `doctor`: what this machine can measure, what not, and how to improve it.

use super::{DONE, Result, print, print_json};
use crate::counters::CounterRequest;
use crate::host::{DoctorRequest, Status, doctor};
use crate::report::table::new_table;
use crate::tvm::library;
use std::path::{Path, PathBuf};

/// Prints every finding.
pub fn run(as_json: bool) -> Result<u8> {
    let request = DoctorRequest { library_folders: folders(), counters: CounterRequest::default() };
    let findings = doctor(&request);
    if as_json {
        print_json(&findings)?;
        return Ok(DONE);
    }
    let mut table = new_table(&["", "what", "found", "consequence and advice"]);
    for finding in &findings {
        let mark = match finding.status {
            Status::Ok => "ok",
            Status::Limited => "limited",
            Status::Missing => "missing",
        };
        let rest: Vec<&str> = [finding.consequence.as_str(), finding.advice.as_str()]
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect();
        table.add_row([mark, &finding.topic, &finding.found, &rest.join("; ")]);
    }
    print(&table.to_string())?;
    Ok(DONE)
}

/// Where TVM's libraries are looked for: its own folders, and the one of its interface beside each.
fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in library::candidates() {
        let packages = folder.parent().and_then(Path::parent).map(|packages| packages.join("tvm_ffi/lib"));
        for folder in [Some(folder), packages].into_iter().flatten() {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
    }
    folders
}
