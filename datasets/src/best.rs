//! The best known schedule and time of each task, on a given host or the most similar one. [`crate::fastest`] ranks the
//! attempts. Times of several hosts are never mixed: each task uses the records of the most similar host that has any.
//! Only records of a host's newest versions count, unless all versions are requested.

use crate::fastest::{Fastest, find_fastest};
use crate::record::json::Json;
use crate::record::key::Key;
use crate::record::standing::keep_newest_conditions;
use crate::record::table::Record;
use crate::record::words::{CacheState, Outcome, ScheduleSource, Source, Target};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A query for best schedules. A field that is None does not restrict the result.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Question {
    /// Kind of the anchor operator.
    pub operator: Option<String>,
    /// Part of the task's text, or a prefix of its hash.
    pub task: Option<String>,
    /// Name of a model.
    pub model: Option<String>,
    /// Number of threads.
    pub threads: Option<i64>,
    /// Name or class of the host.
    pub host: Option<String>,
    /// Whether times of all versions count, not only of each host's newest versions.
    pub all_versions: bool,
}

/// The result of a query.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// Best schedule of each task; the slowest task comes first.
    pub tasks: Vec<Best>,
    /// Number of times left out because of their versions.
    pub left_out: usize,
}

/// The best known schedule of one task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Best {
    /// Kind of the anchor operator.
    pub op_kind: String,
    /// Task as readable text.
    pub task: String,
    /// Hash of the task.
    pub task_hash: String,
    /// Target that the schedule was compiled for.
    pub target: Target,
    /// Number of threads.
    pub threads: Option<i64>,
    /// State of the caches at the start of a sample, such as `warm`; None if not recorded.
    pub cache_state: Option<&'static str>,
    /// Median time of one run.
    pub median_ns: f64,
    /// 95 % confidence interval of the median over processes (visits), if their scatter is known.
    pub interval_ns: Option<(f64, f64)>,
    /// Knob values or trace of the best schedule, if recorded.
    pub schedule: Option<Json>,
    /// Hash of the schedule.
    pub schedule_hash: Option<String>,
    /// Source of the schedule.
    pub schedule_source: Option<ScheduleSource>,
    /// Key of the experiment.
    pub key: Key,
    /// Number of schedules of the task with a time on this host.
    pub schedules: usize,
    /// Number of occurrences of the task in the requested model.
    pub count: Option<i64>,
    /// Batch size of the model that contained the task.
    pub batch: Option<i64>,
    /// Name of the host that measured the schedule.
    pub host: String,
    /// Class of the host.
    pub host_class: String,
    /// Device that ran the task, if it was not the CPU.
    pub device: Option<String>,
    /// Version of TVM.
    pub tvm_version: Option<String>,
    /// Version of LLVM inside TVM.
    pub llvm_version: Option<String>,
    /// Version of the accelerator's driver.
    pub driver_version: Option<String>,
    /// Clock governor of the host.
    pub clock_policy: Option<String>,
    /// Revision of the generated code.
    pub code_revision: Option<String>,
    /// Versions that the time depends on, and the code revision, as text.
    pub versions: String,
    /// Dissimilarity to the requested host; 0 for the same host.
    pub distance: f64,
}

/// Fields in which records must agree to be compared: task, target, device, board, threads and cache state.
type TaskPlace<'a> = (&'a str, Target, Option<&'a str>, Option<&'a str>, Option<i64>, Option<CacheState>);

/// Returns the best schedule of each task that matches a query, measured on the host most similar to that of `here`.
pub fn best_records(records: &[Record], question: &Question, here: &Record) -> Answer {
    let asked: Vec<&Record> = records.iter().filter(|record| question.is_about(record)).collect();
    let (asked, left_out) = match question.all_versions {
        true => (asked, 0),
        false => keep_newest_conditions(asked, machine_key),
    };
    let mut found: BTreeMap<TaskPlace<'_>, Vec<&Record>> = BTreeMap::new();
    for record in asked {
        let machine = (record.device.as_deref(), record.board.as_deref());
        let place = (&*record.task_hash, record.target, machine.0, machine.1, record.threads, record.cache_state);
        found.entry(place).or_default().push(record);
    }
    let mut tasks: Vec<Best> =
        found.into_values().filter_map(|attempts| best_on_nearest_host(&attempts, here)).collect();
    tasks.sort_by(|one, other| {
        other.median_ns.total_cmp(&one.median_ns).then_with(|| one.task_hash.cmp(&other.task_hash))
    });
    Answer { tasks, left_out }
}

/// Returns the key of a machine. A host name alone is not unique, for example in containers.
fn machine_key(record: &Record) -> (String, String, Target, Option<String>, Option<String>) {
    (record.host.clone(), record.host_class.clone(), record.target, record.device.clone(), record.board.clone())
}

/// Returns the names and classes of the hosts in some records.
pub fn host_names<'a>(records: impl IntoIterator<Item = &'a Record>) -> BTreeSet<&'a str> {
    records.into_iter().flat_map(|record| [record.host.as_str(), record.host_class.as_str()]).collect()
}

impl Question {
    /// Returns whether a record has a measured time that matches the query.
    pub fn is_about(&self, record: &Record) -> bool {
        record.source == Source::Measured && self.matches_time(record)
    }

    /// Returns whether a record has a time of any source that matches the query.
    pub fn matches_time(&self, record: &Record) -> bool {
        record.outcome == Outcome::Ok && record.median_ns.is_some() && self.matches_attempt(record)
    }

    /// Returns whether a record is an attempt, with or without a time, that matches the query.
    pub fn matches_attempt(&self, record: &Record) -> bool {
        let Question { operator, task, model, threads, host, all_versions: _ } = self;
        record.is_alone()
            && operator.as_ref().is_none_or(|kind| record.op_kind == *kind)
            && task.as_ref().is_none_or(|text| record.op_text.contains(text) || record.task_hash.starts_with(text))
            && model.as_ref().is_none_or(|name| is_of_model(record, name))
            && threads.is_none_or(|threads| record.threads == Some(threads))
            && host.as_ref().is_none_or(|host| record.host == *host || record.host_class == *host)
    }
}

/// Returns whether a record belongs to a model, given by name, alias or another spelling.
fn is_of_model(record: &Record, name: &str) -> bool {
    let is_of_zoo = || record.model_source.as_deref() == Some("local");
    record.model_name.as_deref() == Some(name) || (is_of_zoo() && record.model_name == zoo::canonical_name(name))
}

fn from_fastest(fastest: Fastest<'_>, schedules: usize, here: &Record) -> Option<Best> {
    let record = fastest.record;
    let median_ns = record.median_ns?;
    Some(Best {
        op_kind: record.op_kind.clone(),
        task: record.op_text.clone(),
        task_hash: record.task_hash.clone(),
        target: record.target,
        threads: record.threads,
        cache_state: record.cache_state.map(|state| state.name()),
        median_ns,
        interval_ns: fastest.over_visits.interval_ns,
        schedule: record.schedule.clone(),
        schedule_hash: record.schedule_hash.clone(),
        schedule_source: record.schedule_source,
        key: record.key,
        schedules,
        count: record.place_count,
        batch: record.batch,
        host: record.host.clone(),
        host_class: record.host_class.clone(),
        device: record.device.clone(),
        tvm_version: record.tvm_version.clone(),
        llvm_version: record.llvm_version.clone(),
        driver_version: record.driver_version.clone(),
        clock_policy: record.clock_policy.clone(),
        code_revision: record.code_revision.clone(),
        versions: record.versions_and_code(),
        distance: host_distance(record, here),
    })
}

fn best_on_nearest_host(attempts: &[&Record], here: &Record) -> Option<Best> {
    let far = |record: &Record| host_distance(record, here);
    let by_distance =
        |one: &&&Record, other: &&&Record| far(one).total_cmp(&far(other)).then_with(|| one.host.cmp(&other.host));
    let host = attempts.iter().min_by(by_distance)?;
    let is_there = |record: &&Record| record.host == host.host && record.host_class == host.host_class;
    let there: Vec<&Record> = attempts.iter().copied().filter(is_there).collect();
    let schedules = there.iter().map(|record| &record.schedule_hash).collect::<BTreeSet<_>>().len();
    from_fastest(find_fastest(there)?, schedules, here)
}

/// Returns the dissimilarity of two hosts: 0 for the same host, below 1 for hosts of the same class.
pub fn host_distance(record: &Record, here: &Record) -> f64 {
    if record.host == here.host && record.host_class == here.host_class {
        return 0.0;
    }
    if record.host_class == here.host_class {
        return 0.5;
    }
    let unlike = |one: &Option<String>, other: &Option<String>, weight: f64| if one == other { 0.0 } else { weight };
    let far = |one: Option<i64>, other: Option<i64>| match (one, other) {
        (Some(one), Some(other)) if one > 0 && other > 0 => (one as f64 / other as f64).log2().abs().min(8.0),
        _ => 1.0,
    };
    1.0 + unlike(&record.cpu_arch, &here.cpu_arch, 100.0)
        + unlike(&record.cpu_model, &here.cpu_model, 4.0)
        + far(record.logical_cpus, here.logical_cpus)
        + far(record.l2_bytes, here.l2_bytes)
        + far(record.l3_bytes, here.l3_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::words::Covers;

    fn record(host: &str, task: &str, schedule: &str, median_ns: f64, half: Option<f64>) -> Record {
        Record {
            host: host.to_owned(),
            host_class: format!("class of {host}"),
            op_kind: "matmul".to_owned(),
            op_text: format!("matmul {task}"),
            task_hash: task.to_owned(),
            schedule_hash: Some(schedule.to_owned()),
            key: Key::of_bytes(format!("{host} {task} {schedule}").as_bytes()),
            model_name: Some("net".to_owned()),
            threads: Some(1),
            source: Source::Measured,
            outcome: Outcome::Ok,
            median_ns: Some(median_ns),
            median_interval_ns: half,
            interval_covers: Some(Covers::Visits),
            ..Record::default()
        }
    }

    #[test]
    fn the_best_is_known_to_be_good_and_of_the_nearest_host() {
        let records = vec![
            record("a", "1", "x", 100.0, Some(1.0)),
            record("a", "1", "y", 98.0, Some(9.0)),
            record("b", "1", "z", 10.0, Some(0.1)),
            record("b", "2", "z", 20.0, None),
            Record { outcome: Outcome::Crashed, median_ns: None, ..record("a", "3", "x", 1.0, None) },
            Record { source: Source::Simulated, ..record("a", "1", "x", 1.0, None) },
        ];
        let here = record("a", "", "", 0.0, None);
        let ask = |question: Question| best_records(&records, &question, &here).tasks;
        let all = ask(Question::default());
        let told: Vec<_> = all
            .iter()
            .map(|best| (best.task_hash.as_str(), best.median_ns, best.host.as_str(), best.schedules))
            .collect();
        assert_eq!(told, [("1", 100.0, "a", 2), ("2", 20.0, "b", 1)]);
        let (any, simulated) = (Question::default(), records.last().expect("a record"));
        assert!(any.matches_time(simulated) && !any.is_about(simulated));
        assert!(all[0].distance == 0.0 && all[1].distance > 0.0);
        let on_b = ask(Question {
            host: Some("class of b".to_owned()),
            task: Some("matmul 1".to_owned()),
            ..Question::default()
        });
        assert_eq!((on_b.len(), on_b[0].median_ns), (1, 10.0));
        // Networks of the zoo are found by any of their names.
        let of_zoo = |name: &str| Record {
            model_source: Some("local".to_owned()),
            model_name: Some(name.to_owned()),
            ..record("a", "1", "x", 100.0, None)
        };
        for (name, found) in [("mlp", 1), ("MLP", 1), ("resnet", 0)] {
            let question = Question { model: Some(name.to_owned()), ..Question::default() };
            assert_eq!(best_records(&[of_zoo("mlp")], &question, &here).tasks.len(), found, "{name}");
        }
        for nothing in [
            Question { operator: Some("conv2d".to_owned()), ..Question::default() },
            Question { threads: Some(2), ..Question::default() },
            Question { model: Some("other".to_owned()), ..Question::default() },
        ] {
            assert_eq!(ask(nothing), []);
        }
    }

    #[test]
    fn versions_of_a_host_are_not_mixed() {
        let by = |tvm: &str, moment: i64, record: Record| Record {
            tvm_version: Some(tvm.to_owned()),
            started_at_us: moment,
            ..record
        };
        let records = [
            by("0.26", 1, record("a", "1", "x", 50.0, Some(1.0))),
            by("0.27", 2, record("a", "1", "y", 100.0, Some(1.0))),
            by("0.26", 3, record("b", "1", "x", 10.0, Some(1.0))),
            by("0.26", 1, record("a", "2", "x", 20.0, Some(1.0))),
        ];
        let check = |all_versions: bool, here: &str, wanted: &[(&str, f64, &str, &str)], left_out: usize| {
            let question = Question { all_versions, ..Question::default() };
            let answer = best_records(&records, &question, &record(here, "", "", 0.0, None));
            let told = answer.tasks.iter();
            let told: Vec<_> = told
                .map(|one| (one.task_hash.as_str(), one.median_ns, one.host.as_str(), one.versions.as_str()))
                .collect();
            assert_eq!((told.as_slice(), answer.left_out), (wanted, left_out));
        };
        check(false, "a", &[("1", 100.0, "a", "TVM 0.27")], 2);
        check(false, "b", &[("1", 10.0, "b", "TVM 0.26")], 2);
        check(true, "a", &[("1", 50.0, "a", "TVM 0.26"), ("2", 20.0, "a", "TVM 0.26")], 0);
    }

    #[test]
    fn devices_of_a_host_are_not_mixed() {
        let on = |device: &str, record: Record| Record { device: Some(device.to_owned()), ..record };
        let records =
            [on("one", record("a", "1", "x", 100.0, Some(1.0))), on("two", record("a", "1", "y", 50.0, Some(1.0)))];
        let answer = best_records(&records, &Question::default(), &record("a", "", "", 0.0, None));
        let told: Vec<_> = answer.tasks.iter().map(|one| (one.device.as_deref(), one.median_ns)).collect();
        assert_eq!((told.as_slice(), answer.left_out), (&[(Some("one"), 100.0), (Some("two"), 50.0)][..], 0));
    }
}
