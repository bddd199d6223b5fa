//! What is counted beside times, as it is typed: counters, and what a simulator counts in their place.

use super::super::Result;
use crate::profile::arguments::ProfileRun;
use engine::failure::Failure;
use engine::network::simulated::{self, Simulator};
use engine::prepared::PreparedModel;
use job::target::is_cuda;
use profile::Profile;

/// Machine code and simulators are of processors alone.
pub fn refuse_for_gpus(arguments: &ProfileRun, target: &str) -> Result<()> {
    let asked = [
        ("--annotate", arguments.code.annotate.is_some()),
        ("--perf-map", arguments.code.perf_map),
        ("--counters cachegrind", arguments.counters.iter().any(|name| name == simulated::NAME)),
    ];
    match asked.iter().find(|(_, is_asked)| *is_asked && is_cuda(target)) {
        Some((flag, _)) => {
            Err(Failure::usage(format!("`{flag}` is about code of processors, and the target is `cuda`"))
                .with_hint(format!("leave out `{flag}`")))
        }
        None => Ok(()),
    }
}

/// The simulator, where it is among what is to be counted.
pub fn simulator(names: &[String]) -> Result<Option<Simulator>> {
    if !names.iter().any(|name| name == simulated::NAME) {
        return Ok(None);
    }
    let found = Simulator::find().map_err(|why| {
        Failure::environment(format!("`--counters cachegrind` simulates by valgrind: {why}"))
            .with_hint("install it, for example with `apt-get install valgrind`")
    });
    found.map(Some)
}

/// What is counted: processor time when nothing is said. What is simulated is no counter.
pub fn counters(names: &[String]) -> Vec<String> {
    let names: Vec<String> = names.iter().filter(|name| *name != simulated::NAME).cloned().collect();
    match &names[..] {
        [] => vec!["thread_cpu_ns".to_owned()],
        [only] if only == "default" => Vec::new(),
        names => names.to_vec(),
    }
}

/// Adds what a simulator counts, where one is asked for.
pub fn simulate(whole: &mut PreparedModel, simulator: Option<&Simulator>, profile: &mut Profile) -> Result<()> {
    let Some(simulator) = simulator else { return Ok(()) };
    let (simulation, refused) = whole.simulate(simulator)?;
    profile.simulation = Some(simulation);
    profile.notes.extend(refused.into_iter().map(|why| format!("not simulated: {why}")));
    Ok(())
}
