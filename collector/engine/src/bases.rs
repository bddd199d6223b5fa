//! Base records: records with only the columns known before tasks are planned: machine, target and versions.

use crate::Result;
use crate::campaign::{Bases, Config, record};
use crate::failure::Failure;
use crate::machine;
use bench::Versions;
use datasets::Record;
use job::revision::Revisions;
use measure::host::Facts;
use targets::Target;

/// Returns base records with all columns that are known before the tasks are planned.
pub fn base_records(config: &Config, target: &Target, facts: &Facts, versions: &Versions) -> Result<Bases> {
    let compiled = Record {
        config_hash: Some(config.hash()),
        seed: i64::try_from(config.seed).ok(),
        // One thread launches the work of a GPU, so no thread pool spins.
        spin_count: Some(if target.kind.runs_on_cpus() { config.limits.spin_count.into() } else { 0 }),
        ..record::machine_record(target, facts, versions, &run_id()).map_err(Failure::usage)?
    };
    let library = record::library_record(&compiled, &machine::library_target(versions)?);
    Ok(Bases { library, compiled, revisions: Revisions::embedded_table().clone() })
}

fn run_id() -> String {
    let identity = format!("{}-{}", std::process::id(), record::now_us());
    blake3::hash(identity.as_bytes()).to_hex()[..16].to_owned()
}
