//! Tests of searches with synthetic times: which attempts count, which known records are reused, where trials go.

use super::*;
use crate::campaign::attempt::planned_tasks;
use crate::campaign::graphs::LoadedModels;
use crate::campaign::{Finals, Settings, record};
use crate::report::learning::summarise_searches;
use datasets::{Json, Outcome, ScheduleSource, Source as Origin};
use job::revision::Revisions;
use std::path::Path;
use targets::llvm_target;

struct Made {
    config: Config,
    tasks: Vec<PlannedTask>,
    target: Target,
    bases: Bases,
    breeder: Breeder,
}

fn made(text: &str) -> Made {
    let products = "{ source = 'simple', name = 'matmul:m=32,n=64,k=32' }, \
                    { source = 'simple', name = 'matmul:m=512,n=512,k=512' }";
    made_of(products, text)
}

fn made_of(models: &str, text: &str) -> Made {
    let models = format!("models = [{models}]\nthreads = [1]\n");
    let config = Settings::parse(&format!("{models}{text}")).unwrap().check(1).unwrap();
    let tasks = planned_tasks(&config, &LoadedModels::default()).unwrap();
    let target = llvm_target("x86-64", &[], 1);
    let compiled = Record {
        config_hash: Some(config.hash()),
        target_text: Some(target.text.clone()),
        source: Origin::Measured,
        ..Record::default()
    };
    let bases = Bases { library: compiled.clone(), compiled, revisions: Revisions::embedded_table().clone() };
    let breeder = Breeder::new(Path::new("none of these tests breeds"), Duration::ZERO, 0, || false);
    Made { config, tasks, target, bases, breeder }
}

impl Made {
    fn inputs(&self) -> SearchInputs<'_> {
        SearchInputs {
            tasks: &self.tasks,
            modules: &[],
            target: &self.target,
            config: &self.config,
            bases: &self.bases,
            cpus: &[0],
            flush_bytes: 0,
            breeder: &self.breeder,
        }
    }

    fn tuning(&self, is_ours: impl Fn(&Attempt) -> bool) -> Tuning {
        Tuning::new(&self.inputs(), self.config.tune.as_ref().expect("a search"), is_ours).expect("searches")
    }
}

fn answer(attempt: &Attempt, number: i64) -> Record {
    let record = record::attempt_record(attempt).unwrap();
    let digest = blake3::hash(record.schedule_hash.as_deref().unwrap_or_default().as_bytes());
    let median_ns = (attempt.task * 100_000) as f64 + 1000.0 + f64::from(digest.as_bytes()[0]);
    Record {
        outcome: Outcome::Ok,
        median_ns: Some(median_ns),
        median_interval_ns: Some(0.0),
        started_at_us: number,
        ..record
    }
}

fn tune(tuning: &mut Tuning, most: usize) -> Vec<Record> {
    let mut records = Vec::new();
    while records.len() < most {
        let proposed = tuning.propose(32);
        if proposed.is_empty() {
            break;
        }
        for attempt in proposed.into_iter().take(most - records.len()) {
            let record = answer(&attempt, records.len() as i64);
            tuning.observe(&attempt, &record);
            records.push(record);
        }
    }
    records
}

fn keys(records: &[Record]) -> HashSet<Key> {
    records.iter().map(|record| record.key).collect()
}

#[test]
fn a_resumed_search_makes_the_remaining_trials_without_duplicates() {
    let made = made("[tune]\ntuner = 'random'\ntrials = 20");
    let whole = tune(&mut made.tuning(|_| true), usize::MAX);
    assert_eq!((whole.len(), keys(&whole).len()), (40, 40), "20 for each model");
    assert_eq!(whole, tune(&mut made.tuning(|_| true), usize::MAX), "the same again");
    let first = tune(&mut made.tuning(|_| true), 15);
    let mut second = made.tuning(|_| true);
    second.resume(&first, |_| true);
    assert_eq!((second.known_count(), second.attempts_left()), (15, 25));
    let rest = tune(&mut second, usize::MAX);
    assert_eq!((rest.len(), keys(&[first, rest].concat()).len()), (25, 40));
}

/// A schedule counts as the cause of crashes only after several crashes.
#[test]
fn crashed_trials_are_retried_first() {
    let made = made("[tune]\ntuner = 'random'\ntrials = 20");
    let lose = |(place, record): (usize, Record)| match place % 5 {
        2 => Record { outcome: Outcome::Crashed, median_ns: None, ..record },
        _ => record,
    };
    let first: Vec<Record> = tune(&mut made.tuning(|_| true), 15).into_iter().enumerate().map(lose).collect();
    let lost = keys(&first.iter().filter(|record| record.outcome == Outcome::Crashed).cloned().collect::<Vec<_>>());
    assert_eq!(lost.len(), 3);
    let mut second = made.tuning(|_| true);
    second.resume(&first, |_| false);
    assert_eq!((second.known_count(), second.attempts_left()), (12, 28));
    let rest = tune(&mut second, usize::MAX);
    assert_eq!((rest.len(), keys(&[first.clone(), rest.clone()].concat()).len()), (28, 40));
    assert!(lost.is_subset(&keys(&rest[..10])), "first of all");
    let mut third = made.tuning(|_| true);
    third.resume(&first, |_| true);
    assert_eq!((third.known_count(), third.attempts_left()), (15, 25), "often enough");
}

fn build(attempt: &Attempt) -> (Record, f64) {
    let record = answer(attempt, 0);
    let ns = 1000.0 + 20.0 * (record.median_ns.unwrap() % 1000.0);
    let figures = datasets::Json::new(&BTreeMap::from([("code_cycles", ns), ("lower_ms", 1.0)]));
    (Record { features: Some(figures.unwrap()), outcome: Outcome::Skipped, median_ns: None, ..record }, ns)
}

fn build_and_tune(tuning: &mut Tuning, most: usize) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    while records.len() < most {
        let proposed = tuning.propose(32);
        if proposed.is_empty() {
            break;
        }
        for attempt in proposed.into_iter().take(most - records.len()) {
            let (built, ns) = build(&attempt);
            let passed_over = tuning.reject_candidate(&attempt, &built).is_some();
            let outcome = if passed_over { Outcome::PassedOver } else { Outcome::Ok };
            let median_ns = (!passed_over).then_some(ns);
            let record = Record { outcome, median_ns, started_at_us: records.len() as i64, ..built };
            tuning.observe(&attempt, &record);
            records.push(record);
        }
    }
    records
}

#[test]
fn rejected_candidates_are_not_trials_and_not_built_again() {
    let made = made("[tune]\ntuner = 'draft'\ntrials = 60\npatience = 0");
    let is_passed_over = |record: &&Record| record.outcome == Outcome::PassedOver;
    let whole = build_and_tune(&mut made.tuning(|_| true), usize::MAX);
    let (passed_over, tried): (Vec<&Record>, Vec<&Record>) = whole.iter().partition(is_passed_over);
    assert_eq!((tried.len(), keys(&whole).len()), (120, whole.len()), "60 for each model, none twice");
    assert!((10..=tried.len()).contains(&passed_over.len()), "{}", passed_over.len());
    // Candidates that were rejected must be slower on average.
    let mean = |records: &[&Record]| {
        let cycles = records.iter().filter_map(|record| {
            let figures: Features = record.features.as_ref()?.parse_as().ok()?;
            figures.get("code_cycles").copied()
        });
        let cycles: Vec<f64> = cycles.collect();
        cycles.iter().sum::<f64>() / cycles.len() as f64
    };
    assert!(mean(&passed_over) > mean(&tried), "{} {}", mean(&passed_over), mean(&tried));
    assert!(
        code_features(&whole[0]).is_some_and(|figures| figures.len() == 1),
        "how long building took is no figure of it"
    );

    let first = build_and_tune(&mut made.tuning(|_| true), 90);
    let known = first.iter().filter(|record| !is_passed_over(record)).count();
    assert!(known < 90, "some were passed over");
    let mut second = made.tuning(|_| true);
    second.resume(&first, |_| true);
    assert_eq!((second.known_count(), second.attempts_left()), (known, 120 - known));
    let rest = build_and_tune(&mut second, usize::MAX);
    let all = [first.clone(), rest].concat();
    assert_eq!(all.iter().filter(|record| !is_passed_over(record)).count(), 120);
    assert_eq!(keys(&all).len(), all.len());
    // A search with another configuration rejects candidates independently.
    let other = |record: &Record| Record { config_hash: Some("another".to_owned()), ..record.clone() };
    let mut third = made.tuning(|_| true);
    third.resume(&first.iter().filter(is_passed_over).map(other).collect::<Vec<_>>(), |_| true);
    assert_eq!((third.known_count(), third.attempts_left()), (0, 120));
    let again = keys(&build_and_tune(&mut third, usize::MAX));
    assert!(first.iter().filter(is_passed_over).any(|record| again.contains(&record.key)));
}

#[test]
fn records_of_other_campaigns_cost_no_trials_unless_their_code_differs() {
    let made = made("[tune]\ntuner = 'random'\ntrials = 10");
    let known = tune(&mut made.tuning(|_| true), 12);
    let other = |record: &Record| Record { config_hash: Some("another".to_owned()), ..record.clone() };
    let others: Vec<Record> = known.iter().map(other).collect();
    let mut tuning = made.tuning(|_| true);
    tuning.resume(&others, |_| true);
    assert_eq!((tuning.known_count(), tuning.attempts_left()), (12, 20));
    let records = tune(&mut tuning, usize::MAX);
    assert_eq!(records.len(), 20);
    assert!(keys(&records).is_disjoint(&keys(&known)));
}

type Change = fn(Record) -> Record;

const OTHER_EXPERIMENTS: [Change; 11] = [
    |record| Record { code_revision: Some("0123456789abcdef".to_owned()), ..record },
    |record| Record { host_class: "there".to_owned(), ..record },
    |record| Record { source: Origin::Simulated, ..record },
    |record| Record { threads: Some(2), ..record },
    |record| Record { tvm_version: Some("0.26.0".to_owned()), ..record },
    |record| Record { llvm_version: Some("15".to_owned()), ..record },
    |record| Record { clock_policy: Some("powersave".to_owned()), ..record },
    |record| Record { cpus: Some(Json::parse("[1]").expect("JSON")), ..record },
    |record| Record { plan: Some(Json::parse(r#"{"another":"plan"}"#).expect("JSON")), ..record },
    |record| Record { seed: Some(7), ..record },
    |record| Record { driver_version: Some("1".to_owned()), ..record },
];

#[test]
fn records_of_other_experiments_are_ignored() {
    let made = made("[tune]\ntuner = 'random'\ntrials = 10");
    let own = tune(&mut made.tuning(|_| true), usize::MAX);
    for (number, change) in OTHER_EXPERIMENTS.into_iter().enumerate() {
        // Half the time would be reported as the best if the record counted.
        let halved =
            |record: &Record| change(Record { median_ns: record.median_ns.map(|ns| ns / 2.0), ..record.clone() });
        let with_key = |record: Record| Record { key: record.experiment_key(), ..record };
        let other: Vec<Record> = own.iter().map(halved).collect();
        // A modified row may have kept its key.
        for records in [other.clone(), other.into_iter().map(with_key).collect::<Vec<Record>>()] {
            let mut tuning = made.tuning(|_| true);
            tuning.resume(&records, |_| true);
            assert_eq!((tuning.known_count(), tuning.attempts_left()), (0, 20), "change {number}");
            assert_eq!(tune(&mut tuning, usize::MAX), own, "change {number}");
            let all = [records, own.clone()].concat();
            let finals = Finals::new(&tuning, &all);
            let found = summarise_searches(&tuning, &finals, &all, &made.tasks, &made.target);
            let alone = summarise_searches(&tuning, &Finals::new(&tuning, &own), &own, &made.tasks, &made.target);
            assert_eq!(found, alone, "change {number}");
        }
    }
}

#[test]
fn times_of_several_versions_are_not_compared_with_each_other() {
    let made = made("[tune]\ntuner = 'draft'\ntrials = 20");
    let known = tune(&mut made.tuning(|_| true), 24);
    let lesson_count = |records: &[Record]| {
        let mut tuning = made.tuning(|_| true);
        let mut lessons = Lessons::new(tuning.searches(), &made.target).expect("keys of the searches");
        records.iter().for_each(|record| lessons.add_record(record));
        tuning.learn_lessons(&lessons, &made.target)
    };
    let is_default = |record: &&Record| record.schedule_source == Some(ScheduleSource::Default);
    for (number, change) in OTHER_EXPERIMENTS.into_iter().enumerate() {
        let there =
            |record: &Record| Record { host: "there".to_owned(), board: Some("b".to_owned()), ..record.clone() };
        let defaults: Vec<Record> = known.iter().filter(is_default).map(there).collect();
        let others: Vec<Record> =
            known.iter().filter(|record| !is_default(record)).map(|record| change(there(record))).collect();
        assert_eq!(lesson_count(&others), 0, "change {number}: there is no default schedule");
        assert_eq!(lesson_count(&[defaults.clone(), others].concat()), lesson_count(&defaults), "change {number}");
    }
}

#[test]
fn a_schedule_that_failed_at_first_enters_with_its_later_time() {
    let made = made("[tune]\ntuner = 'random'\ntrials = 6");
    let mut tuning = made.tuning(|attempt| attempt.task == 0);
    let own = tune(&mut tuning, usize::MAX);
    let fastest = own.iter().min_by(|one, other| one.median_ns.partial_cmp(&other.median_ns).expect("times"));
    let fastest = fastest.expect("trials").clone();
    let crashed = Record {
        outcome: Outcome::Crashed,
        median_ns: None,
        median_interval_ns: None,
        started_at_us: -1,
        ..fastest.clone()
    };
    let trials = own.len();
    let records = [vec![crashed], own].concat();
    let mut finals = Finals::new(&tuning, &records);
    let [found] = &summarise_searches(&tuning, &finals, &records, &made.tasks, &made.target)[..] else {
        panic!("one search")
    };
    assert_eq!((found.trials, found.without_time, found.best_ns), (trials, 0, fastest.median_ns));
    assert!(finals.propose(32).iter().any(|attempt| attempt.key == fastest.key), "its time is the lowest");
}

#[test]
fn records_of_other_hosts_are_lessons_but_not_trials() {
    let made = made("[tune]\ntuner = 'draft'\ntrials = 20");
    let known = tune(&mut made.tuning(|_| true), 24);
    let taught = |records: &[Record]| {
        let mut tuning = made.tuning(|_| true);
        let mut lessons = Lessons::new(tuning.searches(), &made.target).expect("keys of the searches");
        records.iter().for_each(|record| lessons.add_record(record));
        let lesson_count = tuning.learn_lessons(&lessons, &made.target);
        (tuning, lesson_count)
    };
    let there: Vec<Record> =
        known.iter().map(|record| Record { host_class: "there".to_owned(), ..record.clone() }).collect();
    let (mut tuning, lesson_count) = taught(&there);
    assert_eq!(
        (lesson_count, tuning.known_count(), tuning.attempts_left()),
        (48, 0, 40),
        "both searches learn from both products"
    );
    assert_ne!(tune(&mut tuning, usize::MAX), tune(&mut made.tuning(|_| true), usize::MAX));
    assert_eq!(taught(&known).1, 0, "own times are no lessons");
    let nothing: Vec<Record> = there.into_iter().map(|record| Record { task: None, ..record }).collect();
    assert_eq!(taught(&nothing).1, 0, "records without a task are no lessons");
}

#[test]
fn a_filter_leaves_some_schedules_and_the_default_one() {
    let refused = |text: &str| {
        let made = made(text);
        let inputs = made.inputs();
        let tune = made.config.tune.as_ref().expect("a search");
        Tuning::new(&inputs, tune, |_| true).map(drop).expect_err("nothing is left").to_string()
    };
    let made_of = made("[tune]\ntuner = 'random'\ntrials = 20\nonly = { vectorize = ['no'] }");
    let records = tune(&mut made_of.tuning(|_| true), usize::MAX);
    let is_one =
        |record: &&Record| record.schedule.as_ref().is_some_and(|text| text.as_text().contains(r#""vectorize":"no""#));
    assert_eq!((records.len(), records.iter().filter(is_one).count()), (40, 38));
    assert!(refused("[tune]\nonly = { tile_x = [999] }").starts_with("`only` leaves no schedule of `matmul"));
}

#[test]
fn trials_go_to_slow_tasks_and_shards_divide_the_searches() {
    let net = made_of("{ source = 'local', name = 'mlp' }", "[tune]\ntuner = 'random'\ntrials = 60");
    let records = tune(&mut net.tuning(|_| true), usize::MAX);
    let slow = records.iter().filter(|record| record.median_ns > Some(50_000.0)).count();
    assert!(slow > 40 && slow < 60, "{slow} of {}: the fast one is begun, too", records.len());
    // Models share the trials, although one takes longer.
    let made = made("[tune]\ntuner = 'random'\ntrials = 30");
    let records = tune(&mut made.tuning(|_| true), usize::MAX);
    let slow = records.iter().filter(|record| record.median_ns > Some(50_000.0)).count();
    assert!((15..=45).contains(&slow) && records.len() == 60, "{slow} of {}", records.len());
    let defaults: Vec<Key> = records[..2].iter().map(|record| record.key).collect();
    let ours = made.tuning(|attempt| attempt.key == defaults[0]);
    assert_eq!(ours.searches().len(), 1);
    assert!(!ours.is_empty() && made.tuning(|_| false).is_empty());
}

/// One thread takes ten times as long as two here, which makes its schedules no more important.
#[test]
fn trials_are_divided_between_numbers_of_threads() {
    let mut made = made("[tune]\ntuner = 'random'\ntrials = 40\n");
    made.config.threads = vec![1, 2];
    let inputs = SearchInputs { cpus: &[0, 1], ..made.inputs() };
    let mut tuning = Tuning::new(&inputs, made.config.tune.as_ref().expect("a search"), |_| true).expect("searches");
    let mut counts = BTreeMap::new();
    loop {
        let proposed = tuning.propose(8);
        if proposed.is_empty() {
            break;
        }
        for (number, attempt) in proposed.iter().enumerate() {
            let mut record = answer(attempt, number as i64);
            if attempt.cpus.len() == 1 {
                record.median_ns = record.median_ns.map(|ns| 10.0 * ns);
            }
            *counts.entry(attempt.cpus.len()).or_insert(0) += 1;
            tuning.observe(attempt, &record);
        }
    }
    let (one, two) = (counts[&1], counts[&2]);
    assert!(one + two == 80 && two > 30 && one > 30, "{counts:?}");
}

#[test]
fn a_search_ends_by_space_patience_or_trial_limit() {
    let of = |text: &str| {
        let mut tuning = made(text).tuning(|_| true);
        let tried = tune(&mut tuning, usize::MAX).len();
        (tried, tuning.stop_reasons(), tuning.attempts_left())
    };
    let (tried, stops, left) = of("[tune]\ntuner = 'random'\ntrials = 1000\ntrials_per_task = 6");
    assert_eq!((tried, stops, left), (12, vec![Stop::TrialsPerTask; 2], 0));
    let (tried, stops, _) = of("[tune]\ntuner = 'random'\ntrials = 1000\npatience = 12");
    assert_eq!(stops, [Stop::Patience; 2]);
    assert!(tried < 400, "{tried}");
    // Trials that were proposed together count as well.
    let (tried, stops, _) = of("[tune]\ntuner = 'gridsearch'\ntrials = 1000\npatience = 1");
    assert_eq!(stops, [Stop::Patience; 2]);
    assert!(tried < 20, "{tried}");
    let (tried, stops, _) = of("[tune]\ntuner = 'gridsearch'\ntrials = 3");
    assert_eq!((tried, stops), (6, vec![Stop::Trials; 2]));
    let mut stopped = made("[tune]\ntuner = 'gridsearch'\ntrials = 6").tuning(|_| true);
    assert_eq!((tune(&mut stopped, 5).len(), stopped.stop_reasons()), (5, vec![Stop::Interrupted; 2]));
}

#[test]
fn trials_of_other_processes_are_not_waited_for() {
    let made = made("[tune]\ntuner = 'ga'\ntrials = 50");
    let mut tuning = made.tuning(|_| true);
    let mut forgone = 0;
    loop {
        let proposed = tuning.propose(8);
        if proposed.is_empty() {
            break;
        }
        for (place, attempt) in proposed.iter().enumerate() {
            if place % 2 == 0 {
                tuning.skip_attempt(attempt);
                forgone += 1;
            } else {
                tuning.observe(attempt, &answer(attempt, 0));
            }
        }
    }
    assert_eq!((tuning.attempts_left(), forgone >= 40), (0, true));
}
