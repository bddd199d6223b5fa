//! Sentinels: built once for a store and a class of hosts, kept as machine code, and run again and again, bit for bit the same.

use super::super::Result;
use super::super::failure::Failure;
use super::below;
use super::child::Child;
use crate::campaign::RawConfig;
use crate::campaign::config::RawModel;
use drift::SENTINELS;
use job::target::is_llvm;
use measure::host::Facts;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

/// How long building them may take.
const BUILDING: Duration = Duration::from_secs(300);

/// The sentinels of a night.
pub struct Sentinels {
    folder: PathBuf,
    config: RawConfig,
    /// How long the last look took.
    pub seconds: f64,
    /// How often they ran.
    pub looks: usize,
    /// What to know of them.
    pub notes: Vec<String>,
    is_off: bool,
}

impl Sentinels {
    /// Those of a store, for this class of hosts, measured as the night measures.
    pub fn new(store: &Path, raw: &RawConfig, facts: &Facts) -> Sentinels {
        let models = SENTINELS.iter().map(|sentinel| RawModel {
            source: "simple".to_owned(),
            name: sentinel.name.to_owned(),
            ..RawModel::default()
        });
        let config = RawConfig {
            models: models.collect(),
            schedules: Some(1),
            seed: Some(0),
            measure: raw.measure.clone(),
            counters: raw.counters.clone(),
            limits: raw.limits.clone(),
            threads: raw.threads.clone(),
            ..RawConfig::default()
        };
        let is_off = !is_llvm(raw.target.as_deref().unwrap_or("llvm"));
        let notes = match is_off {
            true => vec!["sentinels are code for CPUs, and the target is another: none ran".to_owned()],
            false => Vec::new(),
        };
        let folder = below(store, &facts.host_class());
        Sentinels { folder, config, seconds: 0.0, looks: 0, notes, is_off }
    }

    /// Runs them within some time; one that finds no time is left out.
    pub fn look(&mut self, common: &[String], left: Duration, signal: &AtomicUsize) -> Result<()> {
        if self.is_off {
            return Ok(());
        }
        let begun = Instant::now();
        if !self.folder.exists() {
            self.build(BUILDING.min(left), signal)?;
            if !self.folder.exists() {
                return Ok(());
            }
        }
        let left = left.saturating_sub(begun.elapsed());
        let measured = Instant::now();
        let mut arguments = vec!["run".to_owned(), self.folder.display().to_string(), "--again".to_owned()];
        arguments.extend(common.iter().cloned());
        let ended = Child::start(&arguments)?.finish(left, signal)?;
        match ended.code {
            Some(0 | 1) => self.looks += 1,
            _ if ended.was_told => self.notes.push("the last sentinels ran out of time".to_owned()),
            _ => {
                let folder = self.folder.display();
                return Err(Failure::environment(format!(
                    "the sentinels in `{folder}` did not run; what they said stands above"
                ))
                .with_hint("remove that folder to have them built anew: the machine's course then begins anew, too"));
            }
        }
        self.seconds = measured.elapsed().as_secs_f64();
        Ok(())
    }

    fn build(&mut self, left: Duration, signal: &AtomicUsize) -> Result<()> {
        let parent = self.folder.parent().expect("it lies below the store");
        std::fs::create_dir_all(parent).map_err(Failure::environment)?;
        let file = tempfile::NamedTempFile::new().map_err(Failure::environment)?;
        let text = toml::to_string(&self.config).map_err(Failure::environment)?;
        std::fs::write(file.path(), text).map_err(Failure::environment)?;
        let (config, folder) = (file.path().display().to_string(), self.folder.display().to_string());
        let arguments = ["build", "--config", &config, "--out", &folder].map(str::to_owned);
        let ended = Child::start(&arguments)?.finish(left, signal)?;
        match ended.code {
            Some(0) => Ok(()),
            _ if ended.was_told => {
                self.notes.push("there was no time to build the sentinels".to_owned());
                Ok(())
            }
            _ => Err(Failure::environment("the sentinels could not be built; what was said stands above")),
        }
    }
}
