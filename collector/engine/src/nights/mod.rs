//! Nightly runs: slices of campaigns, each a process with a deadline, sentinels between them, and a report of changes.
//!
//! This process measures nothing and saves only its progress; slices write records to the store. A slice that exceeds
//! its time budget receives SIGTERM, after which it seals its records, and it is killed at its deadline. Slices end
//! with this process; a restarted nightly run resumes where it stopped.

mod doubts;
mod job;
mod options;
mod progress;
mod report;
mod sentinels;
mod slice;

use crate::Result;
use crate::campaign::graphs::LoadedModels;
use crate::campaign::record::now_us;
use crate::campaign::{Night, Settings, planned_tasks};
use crate::drift::{OwnSections, Pages, compare_night};
use crate::failure::{Failure, format_chain};
use crate::machine::allowed_cpus;
use crate::observer::Observer;
use crate::state::StateFile;
use crate::stores::{note_damage, open_store, store_failure};
use datasets::{SealOptions, Store};
use job::NightJob;
use measure::host::{Exclusive, ExclusiveError, Facts, exclusive};
pub use options::NightOptions;
use progress::NightProgress;
pub use report::{NightPhase, NightReport};
use sentinels::Sentinels;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

/// A validated nightly run, which holds the machine's lock for nightly runs.
pub struct PreparedNight<'a> {
    options: &'a NightOptions,
    observer: &'a dyn Observer,
    raw: Settings,
    settings: Night,
    /// Configuration as text, which identifies the request of a killed run.
    text: String,
    start: Instant,
    start_us: i64,
    pages: Pages,
    store: Store,
    _exclusive: Exclusive,
}

/// Validates a nightly run, and waits until no other nightly run holds this machine's lock.
pub fn prepare_night<'a>(options: &'a NightOptions, observer: &'a dyn Observer) -> Result<PreparedNight<'a>> {
    let raw = Settings::read(&options.config).map_err(Failure::usage)?;
    let mut settings = raw.night.clone().ok_or_else(|| {
        Failure::usage(format!("`{}` has no table `[night]`", options.config.display()))
            .with_hint("add one, such as `[night]` with `minutes = 60`; configs/nightly.toml is an example")
    })?;
    settings.minutes = options.minutes.unwrap_or(settings.minutes);
    let config = Settings { night: Some(settings.clone()), ..raw.clone() };
    let config = config.check(allowed_cpus()?.len()).map_err(Failure::usage)?;
    if config.models.is_empty() {
        return Err(Failure::usage(format!(
            "`{}` names no models, so there is nothing to do",
            options.config.display()
        ))
        .with_hint("add `models = [{ source = \"local\", name = \"resnet-18\" }]`"));
    }
    planned_tasks(&config, &LoadedModels::default()).map_err(|error| Failure::usage(format_chain(&error)))?;
    let (start, start_us) = (Instant::now(), now_us());
    let seconds = options.wait.as_secs();
    let mut waits = |busy: &ExclusiveError| observer.note(format!("{busy}; waiting up to {seconds} s for it"));
    let exclusive = Exclusive::lock_night(&exclusive::lock_folder(), options.wait, &mut waits).map_err(|error| {
        Failure::environment(error).with_hint("wait for it with `--wait SECONDS`, or let cron begin later")
    })?;
    let pages = Pages::create(&options.pages)?;
    let store = open_store(Some(&options.store))?;
    let text = config.json_without_budget();
    Ok(PreparedNight { options, observer, raw, settings, text, start, start_us, pages, store, _exclusive: exclusive })
}

impl PreparedNight<'_> {
    /// Measures until the time is over or `signal` becomes non-zero, and compares this run with earlier ones.
    pub fn run(self, signal: &AtomicUsize) -> Result<NightReport> {
        let PreparedNight { options, observer, .. } = self;
        let file = StateFile::new(&options.state, "nights", &options.store);
        let progress = self.load_progress(&file);
        let end = Instant::now() + Duration::from_secs_f64(seconds_until(progress.end_us));
        let mut sentinels = Sentinels::new(options, &self.raw, &Facts::read_facts());
        sentinels.seconds = progress.last_sentinels.map_or(0.0, |(_, seconds)| seconds);
        let settings = self.settings.clone();
        let (phases, has_losses) = (Vec::new(), false);
        let mut job =
            NightJob { options, settings, end, signal, observer, sentinels, phases, has_losses, progress, file };
        job.save_progress();
        job.run_phases()?;
        job.file.remove_file();
        note_damage(&self.store.seal_journals(SealOptions::default()).map_err(store_failure)?.damage, observer);
        self.build_report(job)
    }

    fn load_progress(&self, file: &StateFile) -> NightProgress {
        let request = NightProgress::request_hash(&self.text, &self.options.store, self.settings.minutes);
        if let Some(progress) = NightProgress::resume(file, &request, now_us()) {
            let left = seconds_until(progress.end_us) / 60.0;
            self.observer.note(format!("{} was killed and continues for the remaining {left:.1} minutes", progress.id));
            return progress;
        }
        let now = u64::try_from(self.start_us / 1_000_000).unwrap_or_default();
        let seconds = self.settings.duration_seconds(now);
        let end_us = self.start_us.saturating_add((seconds * 1e6) as i64);
        NightProgress { id: format!("night-{}", night_name(now)), request, end_us, seconds, ..NightProgress::default() }
    }

    fn build_report(self, job: NightJob<'_>) -> Result<NightReport> {
        let PreparedNight { options, observer, start, .. } = self;
        let label = job.progress.label();
        let found = compare_night(&options.store, label, job.settings.nights, options.bounds, observer)?;
        let report = NightReport {
            night: label.to_owned(),
            store: options.store.display().to_string(),
            minutes: start.elapsed().as_secs_f64() / 60.0,
            allowed_minutes: job.end.saturating_duration_since(start).as_secs_f64() / 60.0,
            phases: job.phases,
            sentinels: job.sentinels.runs,
            notes: job.sentinels.notes,
            drift: found.drift.clone(),
            change_points: found.change_points.clone(),
            has_losses: job.has_losses,
        };
        let own = OwnSections { markdown: format!("{}\n", report.render_markdown()), html: report.render_section() };
        self.pages.write(&format!("Nightly run {}", drift::night_title(label)), &found, &own, observer)?;
        observer.receive_notes(&[report.drift.notes.as_slice(), &report.notes].concat());
        Ok(report)
    }
}

fn seconds_until(moment_us: i64) -> f64 {
    moment_us.saturating_sub(now_us()).max(0) as f64 / 1e6
}

/// Formats a time in seconds since 1970 as the UTC name of a nightly run, such as `20261122-213000`.
fn night_name(seconds: u64) -> String {
    let day = ::drift::night_of(&datasets::Record {
        // Noon is part of the night of the same date.
        started_at_us: i64::try_from((seconds / 86_400 * 86_400 + 43_200) * 1_000_000).unwrap_or_default(),
        ..datasets::Record::default()
    });
    let of_day = seconds % 86_400;
    format!("{}-{:02}{:02}{:02}", day.replace('-', ""), of_day / 3600, of_day / 60 % 60, of_day % 60)
}
