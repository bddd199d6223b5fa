//! Counters of a profile, and the counts of a simulator.

use super::code::CodeOptions;
use crate::Result;
use crate::failure::Failure;
use crate::network::simulated::{self, Simulator};
use crate::prepared::PreparedModel;
use measure::counters::names::CPU_TIME;
use profile::Profile;
use targets::Kind;

/// Returns the counters to read, without the simulator's name: thread CPU time if no names are given, and an empty
/// list, which selects the default counters, for the name `default`.
pub fn requested_counters(names: &[String]) -> Vec<String> {
    let names: Vec<String> = names.iter().filter(|name| *name != simulated::NAME).cloned().collect();
    match &names[..] {
        [] => vec![CPU_TIME.to_owned()],
        [only] if only == "default" => Vec::new(),
        names => names.to_vec(),
    }
}

/// Rejects options that need CPU machine code, such as annotation and simulation, for GPU targets.
pub fn check_target(counters: &[String], code: &CodeOptions<'_>, target: Kind) -> Result<()> {
    let given = [
        ("--annotate", code.annotate.is_some()),
        ("--perf-map", code.has_perf_map),
        ("--counters cachegrind", is_simulated(counters)),
    ];
    match given.iter().find(|(_, is_given)| *is_given && target.runs_on_gpu()) {
        Some((flag, _)) => {
            Err(Failure::usage(format!("`{flag}` needs a target with CPU code, and the target is `{}`", target.name()))
                .with_hint(format!("leave out `{flag}`")))
        }
        None => Ok(()),
    }
}

fn is_simulated(names: &[String]) -> bool {
    names.iter().any(|name| name == simulated::NAME)
}

pub fn find_simulator(names: &[String]) -> Result<Option<Simulator>> {
    if !is_simulated(names) {
        return Ok(None);
    }
    let found = Simulator::find().map_err(|why| {
        Failure::environment(format!("`--counters cachegrind` needs valgrind: {why}"))
            .with_hint("install it, for example with `apt-get install valgrind`")
    });
    found.map(Some)
}

pub fn add_simulation(model: &mut PreparedModel, simulator: &Simulator, profile: &mut Profile) -> Result<()> {
    let (simulation, refused) = model.simulate_calls(simulator)?;
    profile.simulation = Some(simulation);
    profile.notes.extend(refused.into_iter().map(|why| format!("not simulated: {why}")));
    Ok(())
}
