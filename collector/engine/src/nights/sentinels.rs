//! Sentinels: tasks that are built once per store and host class, and measured repeatedly with identical machine code,
//! so that a change of their times is a change of the machine. Other machines may write to a store, so this one runs
//! only a copy that matches its hash, in a private folder.

use super::options::NightOptions;
use super::slice::SliceProcess;
use crate::Result;
use crate::atomic_folder::AtomicFolder;
use crate::campaign::settings::SweepSettings;
use crate::campaign::{ModelEntry, Settings, record};
use crate::failure::{Failure, Kind};
use crate::state::StateFile;
use drift::SENTINELS;
use measure::host::Facts;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};
use targets::HOST;
use tempfile::TempDir;

const BUILD_TIME_LIMIT: Duration = Duration::from_secs(300);

pub struct Sentinels {
    folder: PathBuf,
    program: PathBuf,
    file: StateFile,
    config: Settings,
    /// Folder of the verified copy of the sentinels, which is run.
    private: Option<TempDir>,
    /// Duration of the last run, in seconds.
    pub seconds: f64,
    pub runs: usize,
    pub notes: Vec<String>,
    is_off: bool,
}

impl Sentinels {
    /// Creates the sentinels of a store for this host class, with the nightly run's measurement plan.
    pub fn new(options: &NightOptions, raw: &Settings, facts: &Facts) -> Sentinels {
        let models = SENTINELS.iter().map(|sentinel| ModelEntry {
            source: "simple".to_owned(),
            name: sentinel.name.to_owned(),
            ..ModelEntry::default()
        });
        let config = Settings {
            models: models.collect(),
            sweep: SweepSettings {
                schedules: Some(1),
                seed: Some(0),
                threads: raw.sweep.threads.clone(),
                ..SweepSettings::default()
            },
            measure: raw.measure.clone(),
            counters: raw.counters.clone(),
            limits: raw.limits.clone(),
            ..Settings::default()
        };
        let is_off =
            !targets::find_kind(raw.model.target.as_deref().unwrap_or(HOST)).is_some_and(|kind| kind.runs_on_cpus());
        let notes = match is_off {
            true => vec!["sentinels run only on CPUs: none ran for this target".to_owned()],
            false => Vec::new(),
        };
        let folder = options.store.join("sentinels").join(facts.host_class());
        let file = StateFile::new(&options.state, "sentinels", &folder);
        let program = options.program.clone();
        Sentinels { folder, program, file, config, private: None, seconds: 0.0, runs: 0, notes, is_off }
    }

    /// Runs the sentinels if enough time is left.
    pub fn run(&mut self, common: &[String], left: Duration, signal: &AtomicUsize) -> Result<()> {
        if self.is_off {
            return Ok(());
        }
        let begun = Instant::now();
        let Some(folder) = self.prepare_copy(BUILD_TIME_LIMIT.min(left), signal)? else { return Ok(()) };
        let left = left.saturating_sub(begun.elapsed());
        let measured = Instant::now();
        let mut arguments = vec!["run".to_owned(), folder.display().to_string(), "--again".to_owned()];
        arguments.extend(common.iter().cloned());
        let ended = SliceProcess::start(&self.program, &arguments)?.finish(left, signal)?;
        match ended.code {
            Some(0 | 1) => self.runs += 1,
            _ if ended.was_terminated => self.notes.push("the last sentinels ran out of time".to_owned()),
            code => {
                let folder = self.folder.display();
                let failure =
                    Failure::environment(format!("the sentinels in `{folder}` did not run; the error is above"));
                // Removing the folder helps only if the folder itself is the cause.
                let is_of_folder = code == Some(Kind::Use.exit_code().into());
                let hint = "remove that folder to have them rebuilt; the series of their times then starts again";
                return Err(if is_of_folder { failure.with_hint(hint) } else { failure });
            }
        }
        self.seconds = measured.elapsed().as_secs_f64();
        Ok(())
    }

    /// Returns the folder of the verified sentinels. The first call copies them from the store, or builds them; None if
    /// no time was left to build.
    fn prepare_copy(&mut self, left: Duration, signal: &AtomicUsize) -> Result<Option<PathBuf>> {
        const NAME: &str = "sentinels";
        if let Some(private) = &self.private {
            return Ok(Some(private.path().join(NAME)));
        }
        let private = tempfile::tempdir().map_err(Failure::environment)?;
        let folder = private.path().join(NAME);
        if !self.has_own_copy(&folder)? {
            self.move_aside()?;
            self.build_sentinels(&folder, left, signal)?;
            if !folder.exists() {
                return Ok(None);
            }
            self.store_built(&folder)?;
        }
        self.private = Some(private);
        Ok(Some(folder))
    }

    /// Copies the store's sentinels, if there are any. Returns whether their hash proves that this machine built them.
    fn has_own_copy(&self, copy: &Path) -> Result<bool> {
        let Some(known) = self.file.read::<String>().filter(|_| self.folder.exists()) else { return Ok(false) };
        let has_own_copy =
            copy_files(&self.folder, copy).and_then(|()| hash_files(copy)).is_ok_and(|found| found == known);
        if !has_own_copy && copy.exists() {
            std::fs::remove_dir_all(copy).map_err(Failure::of_file("remove", copy))?;
        }
        Ok(has_own_copy)
    }

    fn store_built(&self, built: &Path) -> Result<()> {
        self.file.write(&hash_files(built)?)?;
        let parent = self.folder.parent().expect("the folder of sentinels is below the store");
        std::fs::create_dir_all(parent).map_err(Failure::of_file("create", parent))?;
        let atomic_folder = AtomicFolder::create_temporary(&self.folder)?;
        copy_files(built, atomic_folder.path())?;
        atomic_folder.finish(&self.folder)
    }

    /// Renames the store's sentinels, because this machine did not build them.
    fn move_aside(&mut self) -> Result<()> {
        if !self.folder.exists() {
            return Ok(());
        }
        let stamp = format!("set-aside-{}", record::now_us());
        let aside = self.folder.with_file_name(stamp);
        std::fs::rename(&self.folder, &aside).map_err(Failure::of_file("move", &self.folder))?;
        self.notes.push(format!(
            "the store's sentinels were not built on this machine, or were changed: they were moved to `{}` and \
             rebuilt, so their series of times starts again",
            aside.display()
        ));
        Ok(())
    }

    fn build_sentinels(&mut self, folder: &Path, left: Duration, signal: &AtomicUsize) -> Result<()> {
        let file = tempfile::NamedTempFile::new().map_err(Failure::environment)?;
        let text = toml::to_string(&self.config).map_err(Failure::environment)?;
        std::fs::write(file.path(), text).map_err(Failure::of_file("write", file.path()))?;
        let (config, folder) = (file.path().display().to_string(), folder.display().to_string());
        let arguments = ["build", "--config", &config, "--out", &folder].map(str::to_owned);
        let ended = SliceProcess::start(&self.program, &arguments)?.finish(left, signal)?;
        match ended.code {
            Some(0) => Ok(()),
            _ if ended.was_terminated => {
                self.notes.push("there was no time to build the sentinels".to_owned());
                Ok(())
            }
            _ => Err(Failure::environment("the sentinels could not be built; the error is above")),
        }
    }
}

/// Lists the files of a sentinel folder, sorted. Fails for subfolders, links, large files or too many files.
fn list_files(folder: &Path) -> Result<Vec<PathBuf>> {
    const MAX_FILES: usize = 1000;
    const MAX_BYTES: u64 = 64 << 20;
    let (mut paths, mut bytes) = (Vec::new(), 0);
    for entry in std::fs::read_dir(folder).map_err(Failure::of_file("list", folder))? {
        let entry = entry.map_err(Failure::of_file("list", folder))?;
        let found = entry.path().symlink_metadata().map_err(Failure::of_file("read", &entry.path()))?;
        bytes += found.len();
        paths.push(entry.path());
        if !found.is_file() || paths.len() > MAX_FILES || bytes > MAX_BYTES {
            return Err(Failure::environment(format!(
                "the folder of sentinels `{}` contains other files",
                folder.display()
            )));
        }
    }
    paths.sort();
    Ok(paths)
}

fn copy_files(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).map_err(Failure::of_file("create", to))?;
    for path in list_files(from)? {
        let name = path.file_name().unwrap_or_default();
        std::fs::copy(&path, to.join(name)).map_err(Failure::of_file("write", &to.join(name)))?;
    }
    Ok(())
}

fn hash_files(folder: &Path) -> Result<String> {
    let names = list_files(folder)?;
    let mut hasher = blake3::Hasher::new();
    for path in names {
        let bytes = std::fs::read(&path).map_err(Failure::of_file("read", &path))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        hasher.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes());
        hasher.update(&(bytes.len() as u64).to_le_bytes()).update(&bytes);
    }
    Ok(hasher.finalize().to_hex().to_string())
}
