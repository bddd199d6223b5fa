//! Simulates an hour of a fleet on one shared store, with a fake clock and fake work on a real store.
//!
//! `store_fleet FOLDER HOSTS MINUTES` runs ten-minute campaigns on every host. Only one record in `THINNED` is written,
//! but the numbers of claims, journals, seals and merges are those of a fleet. One campaign in `RARE` is killed, and
//! one is requested by two hosts at once. The last line reports the written records and the content of the store.
#![allow(clippy::print_stdout)]

use datasets::{Choose, Claims, Journal, Key, Origin, Outcome, Record, SMALL_PARTS, SealOptions, Source, Store};
use serde_json::json;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

const THINNED: u64 = 100;
/// Records per second of one host.
const RATE: u64 = 10;
const TICK_SECONDS: u64 = THINNED / RATE;
const CAMPAIGN_SECONDS: u64 = 600;
const RECORDS: u64 = CAMPAIGN_SECONDS / TICK_SECONDS;
const RARE: u64 = 50;
const CLASSES: u64 = 4;
const THREADS: usize = 8;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Default)]
struct EventCounts {
    written: AtomicU64,
    killed: AtomicU64,
    left_out: AtomicU64,
    merged: AtomicU64,
    most_parts: AtomicU64,
}

struct Campaign {
    number: u64,
    journal: Journal,
    /// Claims of the campaign's experiments, which are released when the campaign ends.
    _claims: Claims,
    todo: Vec<u64>,
}

struct Host {
    number: u64,
    campaign: Option<Campaign>,
    /// Whether the previous campaign was killed, so that part of the next campaign is already done.
    resumes: bool,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, hosts, minutes] = arguments.as_slice() else {
        return Err("usage: store_fleet FOLDER HOSTS MINUTES".into());
    };
    let (hosts, minutes) = (hosts.parse::<u64>()?, minutes.parse::<u64>()?);
    let store = Store::create(&Path::new(folder).join("store"))?;
    let begin = Instant::now();
    let seen = simulate(&store, hosts, minutes * 60 / TICK_SECONDS)?;
    let sealed = store.seal_journals(SealOptions::default())?;
    store.merge_small_parts()?;
    let seconds = begin.elapsed().as_secs_f64();
    let (stats, keys) = (store.stats(Choose::All)?, store.read_keys()?.len() as u64);
    let written = seen.written.load(Relaxed);
    println!(
        "{}",
        json!({
            "hosts": hosts, "minutes": minutes, "thinned": THINNED, "seconds": seconds, "written": written,
            "lost": written.saturating_sub(stats.measurements), "met_twice": stats.duplicates,
            "made_twice": stats.measurements - keys, "damaged": stats.damage.len(), "left": sealed.left.len(),
            "killed": seen.killed.load(Relaxed), "left_out": seen.left_out.load(Relaxed),
            "merged_parts": seen.merged.load(Relaxed), "most_parts_of_a_folder": seen.most_parts.load(Relaxed),
            "small_parts": SMALL_PARTS, "parts": stats.parts.count,
        })
    );
    Ok(())
}

fn simulate(store: &Store, hosts: u64, ticks: u64) -> Result<EventCounts> {
    let seen = EventCounts::default();
    let mut all: Vec<Host> = (0..hosts).map(|number| Host { number, campaign: None, resumes: false }).collect();
    let share = all.len().div_ceil(THREADS).max(1);
    let threads = all.len().div_ceil(share);
    let barrier = Barrier::new(threads);
    let work = |hosts: &mut [Host]| {
        let mut done = Ok(());
        for tick in 0..=ticks {
            for host in &mut *hosts {
                done = done.and_then(|()| host.step(store, tick, tick == ticks, &seen));
            }
            // A failed thread must still enter the barrier, because the others wait for it.
            barrier.wait();
        }
        done
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = all.chunks_mut(share).map(|hosts| scope.spawn(|| work(hosts))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())))
    })?;
    Ok(seen)
}

impl Host {
    fn step(&mut self, store: &Store, tick: u64, is_last: bool, seen: &EventCounts) -> Result<()> {
        // Both hosts of a pair start a campaign at the same time, different pairs at different times.
        let of_hour = tick + self.number / 2 * 7 % RECORDS;
        if self.campaign.is_none() && !is_last {
            let number = of_hour / RECORDS;
            self.campaign = Some(self.begin(store, number, seen)?);
            self.resumes = false;
        }
        let Some(campaign) = &mut self.campaign else { return Ok(()) };
        if let Some(work) = campaign.todo.pop() {
            campaign.journal.append(&record(self.number, work, tick))?;
            seen.written.fetch_add(1, Relaxed);
        }
        let is_over = of_hour % RECORDS == RECORDS - 1 || is_last;
        let is_killed = campaign.todo.len() as u64 == RECORDS / 3 && chance(self.number, campaign.number, 1);
        if is_killed {
            // Drops locks and claims without sealing the journal, as when a process dies.
            self.campaign = None;
            self.resumes = true;
            seen.killed.fetch_add(1, Relaxed);
        } else if is_over && let Some(campaign) = self.campaign.take() {
            campaign.journal.seal()?;
            seen.merged.fetch_add(store.merge_small_parts()?, Relaxed);
            seen.most_parts.fetch_max(parts(store, self.number)?, Relaxed);
        }
        Ok(())
    }

    /// Seals abandoned journals, claims experiments, and starts a journal for experiments that are new and unclaimed.
    fn begin(&self, store: &Store, number: u64, seen: &EventCounts) -> Result<Campaign> {
        store.seal_journals(SealOptions::default())?;
        let pair = self.number / 2 * 2;
        let is_shared = chance(pair, number, 2);
        let of_host = if is_shared { pair } else { self.number };
        let first = (of_host << 20 | number) * RECORDS;
        let wanted: Vec<u64> = (first..first + RECORDS).collect();
        let keys: Vec<Key> = wanted.iter().map(|&work| record(self.number, work, 0).key).collect();
        let mut claims = store.create_claims()?;
        let taken = claims.claim_free(&keys)?;
        // Reads the keys after claiming, because other hosts claim experiments before they finish them. Keys are needed
        // only if the work is shared or resumed.
        let known = if is_shared || self.resumes { Some(store.read_keys()?) } else { None };
        let is_left =
            |key: &Key| taken.held.contains(key) || known.as_ref().is_some_and(|known| known.attempts(*key) > 0);
        let todo: Vec<u64> =
            wanted.into_iter().zip(&keys).filter(|(_, key)| !is_left(key)).map(|(work, _)| work).collect();
        seen.left_out.fetch_add(RECORDS - todo.len() as u64, Relaxed);
        let host = format!("host-{}", self.number);
        let journal =
            store.start_journal(Origin { host, program: "store_fleet".into(), command: "store_fleet".into() })?;
        Ok(Campaign { number, journal, _claims: claims, todo })
    }
}

/// Returns whether the event `what` (a number), whose probability is 1 / [`RARE`], happens to a campaign.
fn chance(host: u64, campaign: u64, what: u64) -> bool {
    let bytes = Key::of_bytes(format!("{host} {campaign} {what}").as_bytes()).0;
    u64::from(bytes[0]) * 256 + u64::from(bytes[1]) < 65_536 / RARE
}

fn class(host: u64) -> String {
    format!("class-{}", host / 2 % CLASSES)
}

fn parts(store: &Store, host: u64) -> Result<u64> {
    let folder = store.root().join("dataset/part_target=llvm").join(format!("part_host_class={}", class(host)));
    let names = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().starts_with("part-")));
    Ok(names.collect::<std::io::Result<Vec<bool>>>()?.into_iter().filter(|is_part| *is_part).count() as u64)
}

fn record(host: u64, work: u64, tick: u64) -> Record {
    let mut record = Record {
        run_id: "fleet".into(),
        started_at_us: 1_790_000_000_000_000 + i64::try_from(tick * TICK_SECONDS * 1_000_000).unwrap_or_default(),
        task_hash: format!("{:016x}", work / 20),
        op_kind: ["conv2d", "dense", "softmax"][usize::try_from(work / 20 % 3).unwrap_or_default()].into(),
        op_name: "conv2d".into(),
        op_text: "conv2d f32[1,3,8,8] k=3".into(),
        schedule_hash: Some(format!("{work:016x}")),
        threads: Some(2),
        host: format!("host-{host}"),
        host_class: class(host),
        source: Source::Simulated,
        outcome: Outcome::TimedOut,
        reason: Some("nothing was measured".into()),
        program_version: "0.1.0".into(),
        seed: Some(1),
        ..Record::default()
    };
    record.key = record.experiment_key();
    record
}
