//! `dataset push` and `pull`, and `--sink`: exchange of records with folders, buckets and databases, by their
//! address.

use super::pace::Pace;
use super::progress::terminal_observer;
use super::signals::watch_signals;
use super::{DONE, DONE_WITH_LOSSES, Result, print_json, print_text};
use datasets::Store;
pub use engine::sharing::Address;
use engine::sharing::{self, BucketServer, Transfer, TransferReport};
use report::format_count;
use std::path::Path;
use std::sync::Arc;

pub fn push_store(store: &Path, address: &str, as_json: bool) -> Result<u8> {
    let report = transfer_with(address, |transfer| sharing::push_store(store, address, transfer))?;
    print_transfer(&report, "pushed", as_json)
}

pub fn pull_store(store: &Path, address: &str, as_json: bool) -> Result<u8> {
    let report = transfer_with(address, |transfer| sharing::pull_store(store, address, transfer))?;
    print_transfer(&report, "pulled", as_json)
}

pub fn push_sealed(store: &Store, address: &str) -> Result<String> {
    transfer_with(address, |transfer| sharing::push_sealed(store, address, transfer))
        .map(|report| describe_transfer(&report, "pushed"))
}

fn transfer_with(address: &str, run: impl FnOnce(&Transfer<'_>) -> Result<TransferReport>) -> Result<TransferReport> {
    let signal = match Address::parse(address)? {
        // Nothing watches for signals while folders are copied.
        Address::Folder(_) => Arc::default(),
        Address::Bucket(_) | Address::Postgres(_) => watch_signals()?,
    };
    run(&Transfer { server: &bucket_server(), signal: &signal, observer: terminal_observer(Pace::default()).as_ref() })
}

fn bucket_server() -> BucketServer {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    BucketServer {
        address: variable("AWS_ENDPOINT_URL_S3").or_else(|| variable("AWS_ENDPOINT_URL")),
        region: variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION")),
        key: variable("AWS_ACCESS_KEY_ID").zip(variable("AWS_SECRET_ACCESS_KEY")),
        token: variable("AWS_SESSION_TOKEN"),
    }
}

fn print_transfer(report: &TransferReport, done: &str, as_json: bool) -> Result<u8> {
    if as_json {
        print_json(report)?
    } else {
        print_text(&describe_transfer(report, done))?
    }
    Ok(if report.has_losses { DONE_WITH_LOSSES } else { DONE })
}

/// Describes a transfer; `done` is `pushed` or `pulled`.
fn describe_transfer(report: &TransferReport, done: &str) -> String {
    let TransferReport { address, parts, known, rows, .. } = report;
    if address.starts_with("postgres") {
        return format!("`{address}`: {}", format_count(*rows, "new record"));
    }
    let what = if address.starts_with("s3:") { "object" } else { "part" };
    let of_journals = match rows {
        0 => String::new(),
        rows => format!(", {} of journals", format_count(*rows, "row")),
    };
    format!("`{address}`: {} {done}, {known} already present{of_journals}", format_count(*parts, what))
}
