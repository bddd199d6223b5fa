//! What records say of the machine, the target and the versions, before anything else is known.

use crate::Result;
use crate::campaign::{Bases, Config, record};
use crate::failure::Failure;
use crate::machine;
use bench::Versions;
use datasets::Record;
use job::revision::Revisions;
use job::target::{Fabric, Kind, Target};
use measure::host::Facts;

/// Records with all that is known before the tasks are.
pub fn bases(config: &Config, target: &Target, facts: &Facts, versions: &Versions) -> Result<Bases> {
    let compiled = Record {
        config_hash: Some(config.hash()),
        seed: i64::try_from(config.seed).ok(),
        // A GPU's work is started by one thread, which waits for nobody.
        spin_count: Some(if target.kind == Kind::Llvm { config.limits.spin_count.into() } else { 0 }),
        ..machine_record(target, facts, versions)?
    };
    let library = record::of_library(&compiled, &machine::library_target(versions)?);
    Ok(Bases { library, compiled, revisions: Revisions::own().clone() })
}

fn machine_record(target: &Target, facts: &Facts, versions: &Versions) -> Result<Record> {
    if target.kind == Kind::Pynq {
        let fabric = Fabric::read(&target.text).map_err(Failure::usage)?;
        return Ok(record::of_fabric(&fabric, target, facts, &run_id()));
    }
    Ok(record::of_machine(target, facts, versions, &run_id()))
}

fn run_id() -> String {
    let identity = format!("{}-{}", std::process::id(), record::now_us());
    blake3::hash(identity.as_bytes()).to_hex()[..16].to_owned()
}
