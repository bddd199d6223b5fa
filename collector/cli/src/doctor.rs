//! `doctor`: what this machine can and cannot measure, and how to improve it.

use super::{DONE, Result, print_json, print_text, stdout_paper};
use crate::pace::Pace;
use crate::progress::terminal_observer;
use engine::doctor::{DoctorRequest, check_machine, lacks_requirement};
use engine::failure::Kind;
use engine::noise;
use engine::report::findings;
use measure::counters::CounterRequest;
use worker::libraries;

pub fn run(as_json: bool) -> Result<u8> {
    let library_folders = libraries::tvm_and_interface();
    let found = check_machine(&DoctorRequest { library_folders, counters: CounterRequest::default() });
    if as_json {
        print_json(&found)?
    } else {
        print_text(&findings::describe_findings(&found, &stdout_paper()))?
    }
    Ok(if lacks_requirement(&found) { Kind::Environment.exit_code() } else { DONE })
}

pub fn measure_noise(as_json: bool) -> Result<u8> {
    let report = noise::measure_noise(terminal_observer(Pace::default()).as_ref())?;
    if as_json {
        print_json(&report)?
    } else {
        print_text(&report.text(&stdout_paper()))?
    }
    Ok(DONE)
}
