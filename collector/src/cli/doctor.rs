//! `doctor`: what this machine can measure, what not, and how to improve it.

use super::{DONE, Result, print, print_json};
use crate::counters::CounterRequest;
use crate::host::{DoctorRequest, Status, doctor};
use crate::report::table::new_table;
use crate::tvm::library;

/// Prints every finding.
pub fn run(as_json: bool) -> Result<u8> {
    let request = DoctorRequest { library_folders: library::candidates(), counters: CounterRequest::default() };
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
