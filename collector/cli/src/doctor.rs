//! `doctor`: what this machine can measure, what not, and how to improve it.

use super::{DONE, Result, paper, print, print_json};
use crate::pace::Pace;
use crate::progress::terminal;
use engine::doctor::{DoctorRequest, doctor};
use engine::noise;
use engine::report::findings;
use measure::counters::CounterRequest;
use worker::libraries;

/// Prints every finding.
pub fn run(as_json: bool) -> Result<u8> {
    let library_folders = libraries::tvm_and_interface();
    let found = doctor(&DoctorRequest { library_folders, counters: CounterRequest::default() });
    if as_json {
        print_json(&found)?
    } else {
        print(&findings::describe(&found, &paper()))?
    }
    Ok(DONE)
}

/// Prints how much this machine's times scatter from visit to visit.
pub fn measure_noise(as_json: bool) -> Result<u8> {
    let report = noise::measure_noise(terminal(Pace::default()).as_ref())?;
    if as_json {
        print_json(&report)?
    } else {
        print(&report.text(&paper()))?
    }
    Ok(DONE)
}
