//! `night`: slices of campaigns, each a process with a deadline, and sentinels between them; then what changed.
//!
//! This process measures nothing and keeps only its progress; its children write records to the store. A child gets a budget, later
//! a signal to end, upon which it seals, and is killed at its deadline. Children end with this process. A nightly run that is
//! started again goes on where it stopped.

mod child;
mod course;
mod doubts;
mod sentinels;
mod summary;

use super::drift::{Pages, bounds, code, night as judge_night};
use super::kept::Kept;
use super::night_arguments::NightRun;
use super::signals::watch_signals;
use super::{DONE, DONE_WITH_LOSSES, Result, SLOWER, print, print_json, tell};
pub use child::end_with_parent;
use child::{Child, Ended, sealing};
use course::Course;
use datasets::SealOptions;
use engine::campaign::graphs::LoadedModels;
use engine::campaign::record::now_us;
use engine::campaign::{Night, Settings, planned_tasks};
use engine::failure::{Failure, chain};
use engine::machine::allowed_cpus;
use engine::stores::failed;
use engine::stores::open_store;
use measure::host::{Exclusive, ExclusiveError, Facts, exclusive};
use sentinels::Sentinels;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use summary::{Phase, Report};

/// No slice is shorter: a child would hardly get to measure.
const SLICE_LEAST: f64 = 5.0;
/// A child that was told its budget may need this much longer for what is in flight and for the peaks of the machine.
const GRACE: f64 = 60.0;

/// A night under way.
struct Job {
    run: NightRun,
    settings: Night,
    end: Instant,
    start: Instant,
    signal: Arc<AtomicUsize>,
    sentinels: Sentinels,
    phases: Vec<Phase>,
    has_losses: bool,
    course: Course,
    kept: Kept,
}

/// Measures for a night.
pub fn run(run: &NightRun) -> Result<u8> {
    let raw = Settings::read(&run.config).map_err(Failure::usage)?;
    let mut settings = raw.night.clone().ok_or_else(|| {
        Failure::usage(format!("`{}` has no table `[night]`", run.config.display()))
            .with_hint("add one, such as `[night]` with `minutes = 60`; configs/nightly.toml is an example")
    })?;
    settings.minutes = run.minutes.unwrap_or(settings.minutes);
    let config = Settings { night: Some(settings.clone()), ..raw.clone() };
    let config = config.check(allowed_cpus()?.len()).map_err(Failure::usage)?;
    if config.models.is_empty() {
        return Err(Failure::usage(format!("`{}` names no models, so there is nothing to do", run.config.display()))
            .with_hint("add `models = [{ source = \"local\", name = \"resnet-18\" }]`"));
    }
    planned_tasks(&config, &LoadedModels::default()).map_err(|error| Failure::usage(chain(&error)))?;
    let (start, begun_us) = (Instant::now(), now_us());
    let now = u64::try_from(begun_us / 1_000_000).unwrap_or_default();
    let mut waits = |busy: &ExclusiveError| tell(&[format!("{busy}; waiting up to {} s for it", run.wait)]);
    let patience = Duration::from_secs(run.wait);
    let _night = Exclusive::night(&exclusive::folder(), patience, &mut waits).map_err(|error| {
        Failure::environment(error).with_hint("wait for it with `--wait SECONDS`, or let cron begin later")
    })?;
    let pages = Pages::begin(&run.judging)?;
    let store = open_store(Some(&run.store))?;
    let signal = watch_signals()?;
    let kept = Kept::about("nights", &run.store);
    let asked = Course::asked(&config.kept_text(), &run.store, settings.minutes);
    let course = match Course::resumed(&kept, &asked, now_us()) {
        Some(course) => {
            let left = seconds_until(course.end_us) / 60.0;
            tell(&[format!("{} goes on, which was killed: {left:.1} minutes are left of it", course.id)]);
            course
        }
        None => {
            let seconds = settings.seconds(now);
            let end_us = begun_us.saturating_add((seconds * 1e6) as i64);
            Course { id: format!("night-{}", stamp(now)), asked, end_us, seconds, ..Course::default() }
        }
    };
    let end = Instant::now() + Duration::from_secs_f64(seconds_until(course.end_us));
    let mut sentinels = Sentinels::new(&run.store, &raw, &Facts::read());
    sentinels.seconds = course.looked.map_or(0.0, |(_, seconds)| seconds);
    let (run, phases) = (run.clone(), Vec::new());
    let mut job = Job { run, settings, end, start, signal, sentinels, phases, has_losses: false, course, kept };
    job.keep_course();
    job.work()?;
    job.kept.forget();
    tell(
        &store.seal(SealOptions::default()).map_err(failed)?.damage.iter().map(ToString::to_string).collect::<Vec<_>>(),
    );
    job.report(pages)
}

/// Returns the seconds from now until a moment, 0 if it is past.
fn seconds_until(moment_us: i64) -> f64 {
    moment_us.saturating_sub(now_us()).max(0) as f64 / 1e6
}

/// A moment as the name of a night: `20261122-213000`, in UTC.
fn stamp(seconds: u64) -> String {
    let day = drift::night_of(&datasets::Record {
        // Named by its noon, a day is the one it seems.
        started_at_us: i64::try_from((seconds / 86_400 * 86_400 + 43_200) * 1_000_000).unwrap_or_default(),
        ..datasets::Record::default()
    });
    let of_day = seconds % 86_400;
    format!("{}-{:02}{:02}{:02}", day.replace('-', ""), of_day / 3600, of_day / 60 % 60, of_day % 60)
}

impl Job {
    fn left(&self) -> f64 {
        self.end.saturating_duration_since(Instant::now()).as_secs_f64()
    }

    /// What is left for work: the last sentinels have to fit, too.
    fn left_for_work(&self) -> f64 {
        self.left() - 1.5 * self.sentinels.seconds
    }

    /// Writes the progress. If that fails, a killed run starts from the beginning.
    fn keep_course(&self) {
        let _ = self.kept.write(&self.course);
    }

    fn is_stopped(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }

    fn work(&mut self) -> Result<()> {
        const AGAIN: &str = "default schedules again";
        let is_looked_at = self.course.looked.is_some_and(|(at_us, _)| {
            let ago = now_us().saturating_sub(at_us) as f64 / 60e6;
            ago < self.settings.sentinel_minutes
        });
        if !is_looked_at {
            self.look_at_the_machine()?;
        }
        let again = self.settings.again_share * self.course.seconds;
        self.phase(AGAIN, again, &["--schedules", "1", "--iftune", "false", "--again"])?;
        self.doubts(again - self.course.spent(AGAIN))?;
        self.phase("new work", f64::INFINITY, &[])?;
        if self.settings.variations > 0 {
            let count = self.settings.variations.to_string();
            self.phase("variations", f64::INFINITY, &["--iftune", "false", "--variations", &count])?;
        }
        Ok(())
    }

    /// Slices of one kind of work until it is done or its time is over.
    fn phase(&mut self, name: &'static str, seconds: f64, flags: &[&str]) -> Result<()> {
        if self.course.has_done(name) {
            return Ok(());
        }
        let mut phase = Phase::new(name);
        while let Some(slice) = self.slice(seconds - self.course.spent(name)) {
            let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
            let (is_done, made) = self.one(&mut phase, slice, &flags)?;
            if is_done || made == 0 {
                break;
            }
        }
        self.end_phase(phase);
        Ok(())
    }

    /// Measures once more what regressed tonight, or is not known well.
    fn doubts(&mut self, seconds: f64) -> Result<()> {
        const NAME: &str = "doubts again";
        if self.course.has_done(NAME) {
            return Ok(());
        }
        let mut phase = Phase::new(NAME);
        let mut keys = doubts::of_night(&self.run, &self.course.id, &self.settings)?;
        while !keys.is_empty()
            && let Some(slice) = self.slice(seconds - self.course.spent(NAME))
        {
            let file = tempfile::NamedTempFile::new().map_err(Failure::environment)?;
            let lines: String = keys.iter().map(|key| format!("{key}\n")).collect();
            std::fs::write(file.path(), lines).map_err(Failure::environment)?;
            let only = file.path().display().to_string();
            let (_, made) =
                self.one(&mut phase, slice, &["--iftune", "false", "--again", "--keys", &only].map(str::to_owned))?;
            let left = doubts::not_twice(&self.run, &self.course.id, &keys)?;
            if made == 0 || left.len() == keys.len() {
                break;
            }
            keys = left;
        }
        self.end_phase(phase);
        Ok(())
    }

    /// Marks a phase as completed, unless a signal ended it.
    fn end_phase(&mut self, phase: Phase) {
        if !self.is_stopped() {
            self.course.done.push(phase.name.to_owned());
            self.keep_course();
        }
        self.phases.extend((phase.slices > 0).then_some(phase));
    }

    /// How long the next slice may be; nothing when the time is over.
    fn slice(&self, of_phase: f64) -> Option<f64> {
        // A child whose budget is over has as long to seal as one that is told to.
        let left = Duration::from_secs_f64(self.left_for_work().max(0.0));
        let most = (left - sealing(left)).as_secs_f64();
        let slice = (60.0 * self.settings.sentinel_minutes).min(most).min(of_phase);
        (slice >= SLICE_LEAST && !self.is_stopped()).then_some(slice)
    }

    /// One slice and the sentinels after it: whether nothing is left of its work, and how many attempts were made.
    fn one(&mut self, phase: &mut Phase, slice: f64, flags: &[String]) -> Result<(bool, u64)> {
        let begun = Instant::now();
        let mut arguments: Vec<String> = ["--config".to_owned(), self.run.config.display().to_string()]
            .into_iter()
            .chain(flags.iter().cloned())
            .collect();
        arguments.extend(["--budget".to_owned(), format!("{slice:.3}")]);
        arguments.extend(self.common());
        let deadline = Duration::from_secs_f64((slice + GRACE).min(self.left_for_work().max(SLICE_LEAST)));
        let ended = Child::start(&arguments)?.finish(deadline, &self.signal)?;
        phase.slices += 1;
        let seconds = begun.elapsed().as_secs_f64();
        phase.seconds += seconds;
        self.course.spend(phase.name, seconds);
        self.keep_course();
        let (left, made) = self.hear(phase, &ended)?;
        self.look_at_the_machine()?;
        Ok((left == 0 && !ended.was_told, made))
    }

    fn common(&self) -> [String; 7] {
        let store = self.run.store.display().to_string();
        ["--store", &store, "--night", &self.course.id, "--progress", "0", "--json"].map(str::to_owned)
    }

    /// Adds what a child reports: attempts left, and attempts made.
    fn hear(&mut self, phase: &mut Phase, ended: &Ended) -> Result<(u64, u64)> {
        match (&ended.report, ended.code) {
            (_, Some(2)) => return Err(Failure::usage("a slice of the night was refused; what it said stands above")),
            (_, Some(3)) => {
                return Err(Failure::environment("a slice of the night could not run; what it said stands above"));
            }
            (None, code) => {
                self.has_losses = true;
                let how = code.map_or("a signal".to_owned(), |code| format!("exit code {code}"));
                phase.notes.push(format!("a slice ended with {how} and no report; its records are in the store"));
                return Ok((1, u64::from(ended.was_told)));
            }
            _ => {}
        }
        let report = ended.report.as_ref().expect("looked at above");
        let number = |place: &str| report.pointer(place).and_then(serde_json::Value::as_u64).unwrap_or_default();
        let counts = report["outcomes"]["counts"].as_object();
        let mut made = 0;
        for (outcome, count) in counts.into_iter().flatten() {
            let count = count.as_u64().unwrap_or_default();
            *phase.outcomes.entry(outcome.clone()).or_default() += count;
            made += count;
            self.has_losses |= outcome != "ok" && count > 0;
        }
        phase.left = number("/outcomes/left");
        Ok((phase.left, made))
    }

    /// The sentinels, where there is time for them.
    fn look_at_the_machine(&mut self) -> Result<()> {
        let left = Duration::from_secs_f64(self.left());
        if self.is_stopped() || left.is_zero() {
            return Ok(());
        }
        self.sentinels.look(&self.common(), left, &self.signal)?;
        self.course.looked = Some((now_us(), self.sentinels.seconds));
        self.keep_course();
        Ok(())
    }

    fn report(self, pages: Pages) -> Result<u8> {
        let judging = &self.run.judging;
        let label = self.course.id.trim_start_matches("night-");
        let found = judge_night(&self.run.store, label, self.settings.nights, bounds(judging))?;
        let report = Report {
            night: label,
            store: self.run.store.display().to_string(),
            minutes: self.start.elapsed().as_secs_f64() / 60.0,
            allowed_minutes: self.end.saturating_duration_since(self.start).as_secs_f64() / 60.0,
            phases: &self.phases,
            sentinels: self.sentinels.looks,
            notes: &self.sentinels.notes,
            drift: &found.drift,
            turns: &found.turns,
        };
        let name = format!("Night {label}");
        pages.keep(&name, &found, Some(&report.markdown()))?;
        tell(&[found.drift.notes.clone(), self.sentinels.notes.clone()].concat());
        if judging.json {
            print_json(&report)?
        } else {
            print(&report.render())?
        }
        let signal = self.signal.load(Ordering::Relaxed);
        Ok(match (signal, code(&found.drift, judging)) {
            (0, SLOWER) => SLOWER,
            (0, _) if self.has_losses => DONE_WITH_LOSSES,
            (0, _) => DONE,
            (signal, _) => 128 + u8::try_from(signal).unwrap_or(0),
        })
    }
}

/// A path below the store.
fn below(store: &std::path::Path, name: &str) -> PathBuf {
    store.join("sentinels").join(name)
}
