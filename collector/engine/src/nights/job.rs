//! Executes the phases of a nightly run: slices of campaigns, each followed by sentinels (tasks with unchanging code).

use super::doubts::{doubtful_keys, keys_measured_once};
use super::options::NightOptions;
use super::progress::NightProgress;
use super::report::NightPhase;
use super::sentinels::Sentinels;
use super::slice::{SliceEnd, SliceProcess, sealing_time};
use crate::Result;
use crate::campaign::Night;
use crate::campaign::record::now_us;
use crate::failure::Failure;
use crate::observer::Observer;
use crate::state::StateFile;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Shortest slice, in seconds; a shorter one would spend most of its time on starting and ending.
const MIN_SLICE: f64 = 5.0;
/// Seconds by which a slice may exceed its budget, for attempts in flight and for measuring the machine's peaks.
const GRACE: f64 = 60.0;

pub struct NightJob<'a> {
    pub options: &'a NightOptions,
    pub settings: Night,
    pub end: Instant,
    /// Stops the run when it becomes non-zero.
    pub signal: &'a AtomicUsize,
    pub observer: &'a dyn Observer,
    pub sentinels: Sentinels,
    pub phases: Vec<NightPhase>,
    /// Whether an attempt has no time, or a slice ended without a report.
    pub has_losses: bool,
    pub progress: NightProgress,
    /// File to which the progress is saved.
    pub file: StateFile,
}

impl NightJob<'_> {
    fn seconds_left(&self) -> f64 {
        self.end.saturating_duration_since(Instant::now()).as_secs_f64()
    }

    /// Returns the seconds left for slices, after time is reserved for the last sentinel run.
    fn seconds_for_work(&self) -> f64 {
        self.seconds_left() - 1.5 * self.sentinels.seconds
    }

    /// Saves the progress. If this fails, a run that is killed later starts from the beginning.
    pub fn save_progress(&self) {
        let _ = self.file.write(&self.progress);
    }

    fn is_stopped(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }

    pub fn run_phases(&mut self) -> Result<()> {
        const AGAIN: &str = "default schedules again";
        let has_sentinels = self.progress.last_sentinels.is_some_and(|(at_us, _)| {
            let ago = now_us().saturating_sub(at_us) as f64 / 60e6;
            ago < self.settings.sentinel_minutes
        });
        if !has_sentinels {
            self.run_sentinels()?;
        }
        let again = self.settings.again_share * self.progress.seconds;
        self.run_phase(AGAIN, again, &["--schedules", "1", "--iftune", "false", "--again"])?;
        self.repeat_doubtful(again - self.progress.phase_seconds(AGAIN))?;
        self.run_phase("new work", f64::INFINITY, &[])?;
        if self.settings.variations > 0 {
            let count = self.settings.variations.to_string();
            self.run_phase("variations", f64::INFINITY, &["--iftune", "false", "--variations", &count])?;
        }
        Ok(())
    }

    /// Runs slices of a phase until the work is complete, a slice makes no progress, or the phase's time is over.
    fn run_phase(&mut self, name: &'static str, seconds: f64, flags: &[&str]) -> Result<()> {
        if self.progress.has_done(name) {
            return Ok(());
        }
        let mut phase = NightPhase::new(name);
        while let Some(slice) = self.slice_seconds(seconds - self.progress.phase_seconds(name)) {
            let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
            let (is_done, made) = self.run_slice(&mut phase, slice, &flags)?;
            if is_done || made == 0 {
                break;
            }
        }
        self.end_phase(phase);
        Ok(())
    }

    fn repeat_doubtful(&mut self, seconds: f64) -> Result<()> {
        const NAME: &str = "doubts again";
        if self.progress.has_done(NAME) {
            return Ok(());
        }
        let mut phase = NightPhase::new(NAME);
        let mut keys = doubtful_keys(self.options, &self.progress, &self.settings, self.observer)?;
        while !keys.is_empty()
            && let Some(slice) = self.slice_seconds(seconds - self.progress.phase_seconds(NAME))
        {
            let file = tempfile::NamedTempFile::new().map_err(Failure::environment)?;
            let lines: String = keys.iter().map(|key| format!("{key}\n")).collect();
            std::fs::write(file.path(), lines).map_err(Failure::environment)?;
            let only = file.path().display().to_string();
            let (_, made) = self.run_slice(
                &mut phase,
                slice,
                &["--iftune", "false", "--again", "--keys", &only].map(str::to_owned),
            )?;
            let left = keys_measured_once(self.options, &self.progress.id, &keys)?;
            if made == 0 || left.len() == keys.len() {
                break;
            }
            keys = left;
        }
        self.end_phase(phase);
        Ok(())
    }

    fn end_phase(&mut self, phase: NightPhase) {
        if !self.is_stopped() {
            self.progress.done.push(phase.name.to_owned());
            self.save_progress();
        }
        self.phases.extend((phase.slices > 0).then_some(phase));
    }

    /// Returns the duration of the next slice in seconds, or None if no time is left.
    fn slice_seconds(&self, of_phase: f64) -> Option<f64> {
        // At the end of its budget, a slice gets as much time for sealing as after SIGTERM.
        let left = Duration::from_secs_f64(self.seconds_for_work().max(0.0));
        let most = (left - sealing_time(left)).as_secs_f64();
        let slice = (60.0 * self.settings.sentinel_minutes).min(most).min(of_phase);
        (slice >= MIN_SLICE && !self.is_stopped()).then_some(slice)
    }

    /// Runs a slice and then the sentinels. Returns whether the phase is complete, and the number of finished attempts.
    fn run_slice(&mut self, phase: &mut NightPhase, slice: f64, flags: &[String]) -> Result<(bool, u64)> {
        let begun = Instant::now();
        let mut arguments: Vec<String> = ["--config".to_owned(), self.options.config.display().to_string()]
            .into_iter()
            .chain(flags.iter().cloned())
            .collect();
        arguments.extend(["--budget".to_owned(), format!("{slice:.3}")]);
        arguments.extend(self.common_flags());
        let deadline = Duration::from_secs_f64((slice + GRACE).min(self.seconds_for_work().max(MIN_SLICE)));
        let ended = SliceProcess::start(&self.options.program, &arguments)?.finish(deadline, self.signal)?;
        phase.slices += 1;
        let seconds = begun.elapsed().as_secs_f64();
        phase.seconds += seconds;
        self.progress.add_seconds(phase.name, seconds);
        self.save_progress();
        let (left, made) = self.add_report(phase, &ended)?;
        self.run_sentinels()?;
        Ok((left == 0 && !ended.was_terminated, made))
    }

    fn common_flags(&self) -> [String; 7] {
        let store = self.options.store.display().to_string();
        ["--store", &store, "--night", &self.progress.id, "--progress", "0", "--json"].map(str::to_owned)
    }

    /// Adds the report of a slice to its phase. Returns the numbers of remaining and of finished attempts.
    fn add_report(&mut self, phase: &mut NightPhase, ended: &SliceEnd) -> Result<(u64, u64)> {
        match (&ended.report, ended.code) {
            (_, Some(2)) => return Err(Failure::usage("a slice of the nightly run was rejected; its error is above")),
            (_, Some(3)) => {
                return Err(Failure::environment("a slice of the nightly run could not run; its error is above"));
            }
            (None, code) => {
                self.has_losses = true;
                let how = code.map_or("a signal".to_owned(), |code| format!("exit code {code}"));
                phase.notes.push(format!("a slice ended with {how} and no report; its records are in the store"));
                return Ok((1, u64::from(ended.was_terminated)));
            }
            _ => {}
        }
        let report = ended.report.as_ref().expect("a slice with a report");
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

    fn run_sentinels(&mut self) -> Result<()> {
        let left = Duration::from_secs_f64(self.seconds_left());
        if self.is_stopped() || left.is_zero() {
            return Ok(());
        }
        self.sentinels.run(&self.common_flags(), left, self.signal)?;
        self.progress.last_sentinels = Some((now_us(), self.sentinels.seconds));
        self.save_progress();
        Ok(())
    }
}
