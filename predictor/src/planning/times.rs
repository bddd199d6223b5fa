//! Times of operators by number of cores, from records or a predictor, and the shared resources of their host.

use super::coruns::CoRuns;
pub use super::demand::{Time, TimeSource, task_demand};
use super::demand::{bytes_per_ns, cache_bytes};
use super::versions::{select_class, select_versions};
use crate::bundle;
use crate::error::{Error, Result};
use crate::queries::{self, Operator, Setting};
use datasets::store::Damage;
use datasets::{
    CacheState, Choose, Key, Outcome, Peaks, Record, ScheduleSource, Source, Store, choose_records, find_fastest,
    middle_of,
};
use learn::predictor::{Basis, Prediction, Predictor};
use models::{Task, TaskUse};
use planners::interference::{Learned, Machine, Profile};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug)]
pub struct Host {
    /// Store that contains the records.
    pub store: PathBuf,
    pub class: String,
    pub cache_bytes: f64,
    peaks: Peaks,
    coruns: CoRuns,
    profiles: HashMap<String, Profile>,
    /// Schedules with their times, the fastest first; the key is task hash and thread count.
    times: HashMap<(String, usize), Vec<(String, Time)>>,
    pub versions: BTreeSet<String>,
    pub left_out: usize,
    /// Damaged contents of the store, which were skipped.
    pub damage: Vec<Damage>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct RecordChoice<'a> {
    pub class: Option<&'a str>,
    pub any_schedule: bool,
    pub all_versions: bool,
}

/// Sources of operator times: records first, then a predictor.
pub struct Times<'a> {
    pub host: Option<&'a Host>,
    pub predictor: Option<(&'a Predictor, &'a Setting)>,
}

impl Host {
    /// Returns the name of this machine in a predictor file; None if the predictor was not trained on it.
    pub fn device_of_predictor(&self, file: &Path) -> Result<Option<String>> {
        let known = bundle::read_about(file)?.map(|about| about.devices).unwrap_or_default();
        Ok(known.contains_key(&self.class).then(|| self.class.clone()))
    }

    pub fn read_host(path: &Path, choice: RecordChoice<'_>) -> Result<Host> {
        let RecordChoice { class, any_schedule, all_versions } = choice;
        let store = Store::open(path)?;
        let mut by_class: BTreeMap<String, Vec<Record>> = BTreeMap::new();
        let mut together: Vec<Record> = Vec::new();
        let records = store.select_records(Choose::All)?;
        let damage = records.damage().to_vec();
        for record in records {
            let record = record?;
            if CoRuns::is_corun(&record) {
                together.push(record);
                continue;
            }
            let is_of_cores =
                record.device.is_none() && !targets::kind_of_record(&record).is_some_and(|kind| kind.is_library());
            let is_usable = record.outcome == Outcome::Ok
                && record.source == Source::Measured
                && record.is_alone()
                && is_of_cores
                && record.cache_state == Some(CacheState::Warm)
                && (any_schedule || record.schedule_source == Some(ScheduleSource::Default));
            if is_usable {
                by_class.entry(record.host_class.clone()).or_default().push(record);
            }
        }
        let (class, records) = select_class(by_class, class, || {
            format!(
                "`{0}` has no operator times with warm caches; measure some with `opcollect --modelname MODEL --threads 1,2 --store {0}`",
                path.display()
            )
        })?;
        let peaks = Peaks::from_measurements(store.peaks()?.iter().filter(|measured| measured.host_class == class));
        together.retain(|record| record.host_class == class);
        let (together, _) = select_versions(together, all_versions);
        let coruns = CoRuns::from_records(&choose_records(together, Choose::Middle));
        let (records, left_out) = select_versions(records, all_versions);
        let host = Host::from_records(path, class, &records, peaks);
        Ok(Host { profiles: coruns.task_profiles(), coruns, left_out, damage, ..host })
    }

    /// Returns the option of `opcollect` that writes further records into the store.
    pub(crate) fn store_flag(&self) -> String {
        format!(" --store {}", self.store.display())
    }

    fn from_records(store: &Path, class: String, records: &[Record], peaks: Peaks) -> Host {
        let mut attempts: HashMap<(String, usize), Vec<&Record>> = HashMap::new();
        for record in records {
            let Some(threads) = record.threads.and_then(|threads| usize::try_from(threads).ok()) else { continue };
            attempts.entry((record.task_hash.clone(), threads)).or_default().push(record);
        }
        let times = attempts.into_iter().map(|(of, attempts)| (of, rank_schedules(&attempts))).collect();
        let cache_bytes = cache_bytes(records);
        let versions = records.iter().map(Record::version_text).collect();
        let (coruns, profiles) = (CoRuns::default(), HashMap::new());
        let store = store.to_owned();
        Host { store, class, cache_bytes, peaks, times, coruns, profiles, versions, left_out: 0, damage: Vec::new() }
    }

    /// Returns the resources that operators share on `cores` cores, with fitted interference weights.
    pub fn shared_machine(&self, cores: usize) -> Machine {
        let bytes_per_ns = bytes_per_ns(&self.peaks, cores);
        let machine = Machine { cores, bytes_per_ns, cache_bytes: self.cache_bytes, learned: Learned::default() };
        Machine { learned: self.coruns.learn_weights(&machine), ..machine }
    }

    /// Returns the slowdown by core count while all other cores are busy: the peak rate per core over the rate with all
    /// cores busy. The factors are 1 if weights are fitted, because measured slowdowns include this effect.
    pub fn crowding_factors(&self, cores: usize) -> Vec<f64> {
        if !self.shared_machine(cores).learned.is_physical() {
            return vec![1.0; cores];
        }
        let of_one = |cores: usize| self.peaks.flops_per_second(cores as f64).map(|rate| rate / cores as f64);
        let factor = |own: usize| match (of_one(own), of_one(cores)) {
            (Some(alone), Some(beside)) if beside > 0.0 => (alone / beside).max(1.0),
            _ => 1.0,
        };
        (1..=cores).map(factor).collect()
    }

    pub fn task_profile(&self, task: &Task) -> Option<Profile> {
        self.profiles.get(&task.hash()).cloned()
    }

    /// Returns up to `most` schedules measured on every thread count up to `cores`, by their time on all cores.
    pub fn measured_schedules(&self, task: &Task, cores: usize, most: usize) -> Vec<(String, Vec<Time>)> {
        let hash = task.hash();
        let on = |threads: usize| self.times.get(&(hash.clone(), threads)).map_or(&[][..], Vec::as_slice);
        let whole = |(schedule, _): &(String, Time)| {
            let time_on = |threads| on(threads).iter().find(|(known, _)| known == schedule).map(|(_, time)| *time);
            Some((schedule.clone(), (1..=cores).map(time_on).collect::<Option<Vec<Time>>>()?))
        };
        on(cores).iter().filter_map(whole).take(most).collect()
    }

    fn fastest_time(&self, hash: &str, threads: usize) -> Option<Time> {
        self.times.get(&(hash.to_owned(), threads)).and_then(|times| times.first()).map(|(_, time)| *time)
    }
}

fn rank_schedules(attempts: &[&Record]) -> Vec<(String, Time)> {
    let first = find_fastest(attempts.iter().copied()).map(|fastest| fastest.record.key);
    let mut experiments: BTreeMap<Key, Vec<&Record>> = BTreeMap::new();
    for record in attempts {
        experiments.entry(record.key).or_default().push(record);
    }
    let times = experiments.into_iter().filter_map(|(key, attempts)| {
        let record = middle_of(&attempts)?;
        let time_ns = record.median_ns?;
        let half = record.uncertainty().unwrap_or(0.25).min(1.0) * time_ns;
        let time = Time { time_ns, low_ns: time_ns - half, high_ns: time_ns + half, source: TimeSource::Measured };
        let schedule = record.schedule.as_ref().map_or_else(String::new, |schedule| schedule.as_text().to_owned());
        Some((Some(key) != first, schedule, time))
    });
    let mut times: Vec<(bool, String, Time)> = times.collect();
    times
        .sort_by(|(is_later, _, one), (other, _, with)| is_later.cmp(other).then(one.high_ns.total_cmp(&with.high_ns)));
    times.into_iter().map(|(_, schedule, time)| (schedule, time)).collect()
}

/// Fails if predictions for this number of threads are extrapolated, as a prediction of a single operator does.
fn check_threads(predictor: &Predictor, setting: &Setting, threads: usize, cores: usize) -> Result<()> {
    let learned = predictor.learned_threads(queries::find_device(predictor, setting)?);
    let Some((least, most)) = learned.filter(|(_, most)| threads as f64 > *most) else { return Ok(()) };
    let range = if least < most { format!("{least} to {most}") } else { format!("only {most}") };
    Err(Error::Query(format!(
        "--threads {cores} is outside of the training range (threads: {threads}, training range {range}); measure the \
         operators on {threads} threads and give --data, or use at most --threads {most}"
    )))
}

fn predicted_time(prediction: &Prediction) -> Time {
    let Prediction { time_ns, low_ns, high_ns, .. } = *prediction;
    let source = if prediction.basis == Basis::Bound { TimeSource::Bound } else { TimeSource::Predicted };
    Time { time_ns, low_ns, high_ns, source }
}

impl Times<'_> {
    /// Returns the times of each task on one core, two cores, and so on.
    pub fn task_times(&self, tasks: &[TaskUse], cores: usize) -> Result<Vec<Vec<Time>>> {
        let mut found: Vec<Vec<Option<Time>>> = tasks
            .iter()
            .map(|one| {
                let hash = one.task.hash();
                (1..=cores).map(|threads| self.host.and_then(|host| host.fastest_time(&hash, threads))).collect()
            })
            .collect();
        if let Some((predictor, setting)) = self.predictor {
            for threads in 1..=cores {
                let missing: Vec<usize> = (0..tasks.len()).filter(|&task| found[task][threads - 1].is_none()).collect();
                if !missing.is_empty() {
                    check_threads(predictor, setting, threads, cores)?;
                }
                let operators: Vec<Operator> =
                    missing.iter().map(|&task| queries::task_operator(&tasks[task])).collect::<Result<_>>()?;
                let setting = Setting { threads: Some(threads as f64), ..setting.clone() };
                let predictions = queries::predict_model(predictor, &operators, &setting)?;
                for (task, answered) in missing.into_iter().zip(predictions) {
                    found[task][threads - 1] = Some(predicted_time(&answered.prediction));
                }
            }
        }
        let complete = |(one, times): (&TaskUse, Vec<Option<Time>>)| {
            let missing = times.iter().position(Option::is_none);
            match missing {
                None => Ok(times.into_iter().flatten().collect()),
                Some(place) => Err(Error::Query(format!(
                    "no time of `{}` on {} thread(s); measure it with `opcollect --modelname MODEL --schedules 1 --threads {}{}`, \
                     or give a --predictor",
                    one.task.describe(),
                    place + 1,
                    (1..=cores).map(|threads| threads.to_string()).collect::<Vec<_>>().join(","),
                    self.host.map(Host::store_flag).unwrap_or_default()
                ))),
            }
        };
        tasks.iter().zip(found).map(complete).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datasets::Origin;

    fn record(tvm: &str, moment: i64, task: &str, median_ns: f64) -> Record {
        let record = Record {
            host: "host".to_owned(),
            host_class: "class".to_owned(),
            op_kind: "relu".to_owned(),
            op_name: "relu".to_owned(),
            op_text: "relu".to_owned(),
            task_hash: task.to_owned(),
            threads: Some(1),
            cache_state: Some(CacheState::Warm),
            schedule_source: Some(ScheduleSource::Default),
            source: Source::Measured,
            outcome: Outcome::Ok,
            program_version: "0".to_owned(),
            run_id: "run".to_owned(),
            started_at_us: moment,
            tvm_version: Some(tvm.to_owned()),
            n: 1,
            median_ns: Some(median_ns),
            min_ns: Some(median_ns),
            mean_ns: Some(median_ns),
            p95_ns: Some(median_ns),
            ..Record::default()
        };
        Record { key: record.experiment_key(), ..record }
    }

    #[test]
    fn times_of_several_versions_and_devices_are_not_mixed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = Store::create(folder.path()).expect("a new store");
        let origin = Origin { host: "h".to_owned(), program: "p".to_owned(), command: "c".to_owned() };
        let mut journal = store.start_journal(origin).expect("a new store takes journals");
        let on_gpu =
            Record { device: Some("gpu".to_owned()), target: datasets::Target::Cuda, ..record("0.27", 9, "a", 1.0) };
        // A row of an old schema version.
        let oldest = Record { schema_version: 1, ..record("0.25", 1, "a", 4.0) };
        for record in
            [oldest, record("0.26", 2, "a", 5.0), record("0.26", 3, "b", 6.0), record("0.27", 4, "a", 10.0), on_gpu]
        {
            journal.append(&record).expect("the row is sound");
        }
        journal.seal().expect("the journal is sound");
        let read = |all_versions: bool| {
            Host::read_host(folder.path(), RecordChoice { all_versions, ..RecordChoice::default() }).expect("times")
        };
        let ns = |host: &Host, task: &str| host.fastest_time(task, 1).map(|time| time.time_ns);
        let versions = |host: &Host| host.versions.iter().cloned().collect::<Vec<String>>().join("; ");
        let newest = read(false);
        assert_eq!((ns(&newest, "a"), ns(&newest, "b"), newest.left_out), (Some(10.0), None, 3));
        assert_eq!(versions(&newest), "TVM 0.27");
        let all = read(true);
        assert_eq!((ns(&all, "a"), ns(&all, "b"), all.left_out), (Some(4.0), Some(6.0), 0));
        assert_eq!(versions(&all), "TVM 0.25; TVM 0.26; TVM 0.27");
    }
}
