//! Trackers and what they lend.

use super::failure::Failure;
use super::{DONE, Result, paper, print, print_json};
use bench::{Access, At};
use remote::tracker::Summary;
use remote::{Address, RemoteError, Tracker};
use report::{Table, figures, words};
use serde_json::json;
use std::time::Duration;

/// A tracker is given so long to answer what it knows.
const PATIENCE: Duration = Duration::from_secs(5);
/// More devices of a key than this are not used at once: each is a thread here.
const DEVICES_MAX: usize = 64;

/// The tracker of the environment.
pub fn tracker_of_environment() -> Result<Option<Address>> {
    let of = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let Some(host) = of("TVM_TRACKER_HOST") else { return Ok(None) };
    let port = of("TVM_TRACKER_PORT").unwrap_or_else(|| "9190".to_owned());
    let port = port.parse().map_err(|_| Failure::usage(format!("`TVM_TRACKER_PORT` is `{port}`, which is no port")))?;
    Ok(Some(Address { host, port }))
}

/// How many devices of a key there are to work at once.
pub fn devices(access: &Access) -> Result<usize> {
    let At::Tracker(tracker) = &access.at else { return Ok(1) };
    let summary = summary(tracker)?;
    let count = summary.servers.iter().filter(|(_, key)| *key == access.key).count();
    Ok(count.clamp(1, DEVICES_MAX))
}

fn summary(tracker: &Address) -> Result<Summary> {
    let told = Tracker::open(tracker, PATIENCE).and_then(|mut tracker| tracker.summary(PATIENCE));
    told.map_err(unreachable)
}

/// Shows what a tracker knows.
pub fn status(tracker: Option<&str>, as_json: bool) -> Result<u8> {
    let tracker = match tracker {
        Some(text) => text.parse().map_err(Failure::usage)?,
        None => tracker_of_environment()?.ok_or_else(|| {
            Failure::usage("no tracker was named").with_hint("give `--tracker HOST:PORT`, or set `TVM_TRACKER_HOST`")
        })?,
    };
    let Summary { queues, servers } = summary(&tracker)?;
    let devices = |key: &str| servers.iter().filter(|(_, own)| own == key).count();
    if as_json {
        let keys = queues.iter().map(
            |(key, queue)| json!({ "key": key, "devices": devices(key), "free": queue.free, "pending": queue.pending }),
        );
        let servers = servers.iter().map(|(address, key)| json!({ "address": address, "key": key }));
        let (keys, servers) = (keys.collect::<Vec<_>>(), servers.collect::<Vec<_>>());
        print_json(&json!({ "tracker": tracker.to_string(), "keys": keys, "servers": servers }))?;
        return Ok(DONE);
    }
    if queues.is_empty() && servers.is_empty() {
        print(&format!("the tracker at {tracker} knows no devices"))?;
        return Ok(DONE);
    }
    let mut keys = Table::new([words("key"), figures("devices"), figures("free"), figures("waiting")]);
    for (key, queue) in &queues {
        keys.row([key.clone(), devices(key).to_string(), queue.free.to_string(), queue.pending.to_string()]);
    }
    let mut addresses = Table::new([words("server"), words("key")]);
    for (address, key) in &servers {
        addresses.row([address.clone(), key.clone()]);
    }
    print(&format!("{}\n\n{}", keys.on(&paper()), addresses.on(&paper())))?;
    Ok(DONE)
}

/// A device that cannot be used, with the next step.
pub fn unreachable(error: RemoteError) -> Failure {
    let hint = error.hint();
    let failure = match error {
        RemoteError::KeyRefused { .. } => Failure::usage(error),
        other => Failure::environment(other),
    };
    match hint {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}
