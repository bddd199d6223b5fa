//! `fleet`: the devices of a tracker.

use super::{DONE, DONE_WITH_LOSSES, Result, print_json, print_text, stdout_paper};
use clap::{Args, Subcommand};
use engine::failure::Failure;
use engine::trackers::{self, DrainOptions, DrainReport, StayingDevice, read_secret, request_summary};
use remote::Address;
use remote::tracker::TrackerSummary;
use report::quantity::whole_seconds;
use report::{Table, number_column, text_column};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// Show free and used devices and waiting requests of a tracker, by key
    #[command(after_help = "Example: opcollect fleet status --tracker 127.0.0.1:9190")]
    Status {
        /// Tracker [default: TVM_TRACKER_HOST and TVM_TRACKER_PORT of the environment]
        #[arg(long, value_name = "HOST:PORT")]
        tracker: Option<String>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Take the devices of a key out of service after their current sessions
    ///
    /// Agents end before the next waiting request. Campaigns continue on other devices, or end with partial results if
    /// none is left; the same command resumes them. TVM's own servers do not support draining and are listed.
    #[command(after_help = "Example: opcollect fleet drain --tracker 127.0.0.1:9190 --key z2")]
    Drain(FleetDrain),
}

#[derive(Debug, Args)]
pub struct FleetDrain {
    /// Tracker [default: TVM_TRACKER_HOST and TVM_TRACKER_PORT of the environment]
    #[arg(long, value_name = "HOST:PORT")]
    pub tracker: Option<String>,
    /// Key of the devices
    #[arg(long, value_name = "KEY")]
    pub key: String,
    /// File with the secret that the agents were started with
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// Maximum time to wait for all sessions to end, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = whole_seconds::<1, 86_400>)]
    pub wait: u64,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

pub fn tracker_of_environment() -> Result<Option<Address>> {
    let of = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let Some(host) = of("TVM_TRACKER_HOST") else { return Ok(None) };
    let port = of("TVM_TRACKER_PORT").unwrap_or_else(|| "9190".to_owned());
    let port =
        port.parse().map_err(|_| Failure::usage(format!("`TVM_TRACKER_PORT` is `{port}`, which is not a port")))?;
    Ok(Some(Address { host, port }))
}

fn find_tracker(tracker: Option<&str>) -> Result<Address> {
    match tracker {
        Some(text) => text.parse().map_err(Failure::usage),
        None => tracker_of_environment()?.ok_or_else(|| {
            Failure::usage("no tracker was named").with_hint("give `--tracker HOST:PORT`, or set `TVM_TRACKER_HOST`")
        }),
    }
}

pub fn drain_key(wanted: &FleetDrain) -> Result<u8> {
    let tracker = find_tracker(wanted.tracker.as_deref())?;
    let secret = wanted.secret_file.as_deref().map(read_secret).transpose()?;
    let wait = Duration::from_secs(wanted.wait);
    let done = trackers::drain_devices(&DrainOptions { tracker, key: wanted.key.clone(), secret, wait })?;
    if wanted.json {
        print_json(&done)?;
    } else {
        let DrainReport { devices, key, left, stay, devices_before, .. } = &done;
        for address in left {
            print_text(&format!("{address} has left the tracker"))?;
        }
        for StayingDevice { address, why } in stay {
            print_text(&format!("{address} stays: {why}"))?;
        }
        print_text(&format!(
            "{} of {devices_before} devices of the key `{key}` have left the tracker, {devices} remain",
            left.len()
        ))?;
    }
    Ok(if done.is_complete() { DONE } else { DONE_WITH_LOSSES })
}

pub fn print_status(tracker: Option<&str>, as_json: bool) -> Result<u8> {
    let tracker = find_tracker(tracker)?;
    let TrackerSummary { queues, servers } = request_summary(&tracker)?;
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
        print_text(&format!("the tracker at {tracker} has no devices"))?;
        return Ok(DONE);
    }
    let mut keys =
        Table::new([text_column("key"), number_column("devices"), number_column("free"), number_column("waiting")]);
    for (key, queue) in &queues {
        keys.add_row([key.clone(), devices(key).to_string(), queue.free.to_string(), queue.pending.to_string()]);
    }
    let mut addresses = Table::new([text_column("server"), text_column("key")]);
    for (address, key) in &servers {
        addresses.add_row([address.clone(), key.clone()]);
    }
    print_text(&format!("{}\n\n{}", keys.format_for(&stdout_paper()), addresses.format_for(&stdout_paper())))?;
    Ok(DONE)
}
