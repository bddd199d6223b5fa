//! What records say of the machine, the target and the versions, before anything else is known.

use crate::Result;
use crate::campaign::{Bases, Config, record};
use crate::failure::Failure;
use crate::machine;
use bench::Versions;
use datasets::Record;
use job::revision::Revisions;
use measure::host::Facts;
use targets::Target;

/// Records with all that is known before the tasks are.
pub fn bases(config: &Config, target: &Target, facts: &Facts, versions: &Versions) -> Result<Bases> {
    let compiled = Record {
        config_hash: Some(config.hash()),
        seed: i64::try_from(config.seed).ok(),
        // A GPU's work is started by one thread, which waits for nobody.
        spin_count: Some(if target.kind.runs_on_cpus() { config.limits.spin_count.into() } else { 0 }),
        ..record::of_machine(target, facts, versions, &run_id()).map_err(Failure::usage)?
    };
    let library = record::of_library(&compiled, &machine::library_target(versions)?);
    Ok(Bases { library, compiled, revisions: Revisions::own().clone() })
}

fn run_id() -> String {
    let identity = format!("{}-{}", std::process::id(), record::now_us());
    blake3::hash(identity.as_bytes()).to_hex()[..16].to_owned()
}
