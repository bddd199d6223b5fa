//! `trace import`: operators of a trace as rows of a store.

use super::super::{Result, print, print_json, tell};
use super::arguments::Import;
use super::{tell_skipped, unread};
use engine::campaign::record::now_us;
use engine::failure::Failure;
use engine::stores::take_over;
use profile::import::rows::{self, Provenance};
use profile::import::{self, Bounds, Imported};
use std::path::Path;

/// Imports a trace.
pub fn run(import: &Import) -> Result<u8> {
    let (records, found) = match import::tvm::read(&import.file).map_err(unread)? {
        Some((report, found)) => {
            let file = import.file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let records = rows::of_report(&report, &provenance(import, &file)?).map_err(Failure::usage)?;
            if records.is_empty() {
                return Err(Failure::usage(format!(
                    "the report `{}` has no call that took time",
                    import.file.display()
                )));
            }
            tell(&["the report that TVM had holds sums: a row has the mean of its calls, and nothing of single ones"
                .to_owned()]);
            (records, found)
        }
        None => {
            let bounds = Bounds::of_memory(import.memory_mib);
            let Imported { profile, found } = import::read(&import.file, &bounds).map_err(super::top::failed)?;
            tell(&profile.notes);
            (rows::records(&profile, &provenance(import, &profile.model)?).map_err(Failure::usage)?, found)
        }
    };
    let report = take_over(&import.store, &records)?;
    if import.json {
        print_json(&report)?;
    } else {
        let (trace, store) = (import.file.display(), import.store.display());
        print(&format!("{} rows of `{trace}`, one per operator, are in the store `{store}`", report.rows))?;
    }
    Ok(tell_skipped(&found))
}

fn provenance(import: &Import, file: &str) -> Result<Provenance> {
    let modified = import.file.metadata().and_then(|metadata| metadata.modified());
    let taken = modified.ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    Ok(Provenance {
        taken_at_us: taken.map_or_else(now_us, |time| i64::try_from(time.as_micros()).unwrap_or(i64::MAX)),
        host: import.host.clone().unwrap_or_else(|| "unknown".to_owned()),
        threads: import.threads,
        model: import.model.clone().unwrap_or_else(|| file.to_owned()),
        run_id: format!("trace-import-{}", now_us()),
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        trace_hash: hash(&import.file)?,
    })
}

fn hash(path: &Path) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    let hashed = std::fs::File::open(path).and_then(|mut file| std::io::copy(&mut file, &mut hasher));
    hashed.map_err(|error| Failure::usage(format!("cannot read the trace `{}`: {error}", path.display())))?;
    Ok(hasher.finalize().to_hex()[..32].to_owned())
}
