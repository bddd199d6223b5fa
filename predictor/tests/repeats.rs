//! Tests the selection of measurements by uncertainty, the flags that relax it, and repeats, which become one sample.
#![allow(missing_docs)]

use datasets::{Json, NETWORK, Outcome, Record, ScheduleSource, Source};
use learn::Learner;
use predictor::evaluate::{Plan, Protocol, evaluate};
use samples::features::Work;
use samples::records::{Policy, gather_samples, read_samples};

fn record(elements: usize, median_ns: f64) -> Record {
    record_on("here", elements, median_ns)
}

fn record_on(host_class: &str, elements: usize, median_ns: f64) -> Record {
    let graph = zoo::simple::build_operator(&format!("relu:shape=1x{elements}")).expect("an operator");
    let task = models::distinct_tasks(&graph, models::Fuse::Epilogue).expect("tasks").remove(0).task;
    let record = Record {
        task_hash: task.hash(),
        outcome: Outcome::Ok,
        source: Source::Measured,
        schedule_source: Some(ScheduleSource::Default),
        host_class: host_class.to_owned(),
        op_kind: task.anchor_kind().to_owned(),
        op_name: task.name(),
        task: Some(Json::from(serde_json::to_value(&task).expect("tasks have a JSON form"))),
        threads: Some(1),
        median_ns: Some(median_ns),
        // Rows of before visits were told apart.
        schema_version: 5,
        median_interval_ns: Some(median_ns / 100.0),
        cv: Some(median_ns / 10_000.0),
        ..Record::default()
    };
    Record { key: record.experiment_key(), ..record }
}

fn strict() -> Policy {
    Policy { max_uncertainty: Some(0.02), ..Policy::default() }
}

#[test]
fn visits_that_disagree_are_left_out_although_each_is_precise() {
    let visits = |elements: usize, medians: [f64; 3]| {
        let visit = |(at, median_ns): (i64, f64)| Record {
            schema_version: datasets::SCHEMA_VERSION,
            started_at_us: at,
            noise_floor: Some(0.002),
            ..record(elements, median_ns)
        };
        (1..).zip(medians).map(visit).collect::<Vec<Record>>()
    };
    let agree = visits(64, [100.0, 100.3, 100.1]);
    let disagree = visits(128, [200.0, 260.0, 230.0]);
    let samples = gather_samples(&[agree, disagree].concat(), &[], &Policy::default()).expect("samples");
    assert_eq!((samples.rows.len(), samples.rows[0].time_ns), (1, 100.1));
    assert_eq!(samples.left_out["median with an uncertainty above 10 %"], 3);
}

#[test]
fn rows_of_overlapping_tables_are_read_once() {
    let complete = |place: usize| {
        let record = record(64 * (place + 1), 100.0 + place as f64);
        let (time, known) = (record.median_ns, || "known".to_owned());
        Record {
            attempt: 1,
            started_at_us: 1,
            n: 9,
            min_ns: time,
            mean_ns: time,
            p95_ns: time,
            run_id: known(),
            op_text: known(),
            host: known(),
            program_version: known(),
            ..record
        }
    };
    let records: Vec<Record> = (0..20).map(complete).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, rows: &[Record]| {
        let path = folder.path().join(name);
        let file = std::fs::File::create(&path).expect("a file");
        let mut writer = datasets::Writer::new(&path, datasets::Format::JsonLines, file).expect("a writer");
        rows.iter().for_each(|row| writer.write(row).expect("a row is written"));
        writer.finish().expect("all rows are written");
        path
    };
    let tables = [write("all.jsonl", &records), write("some.jsonl", &records[..5])];
    let once = read_samples(&tables[..1], &strict()).expect("samples");
    let both = read_samples(&tables, &strict()).expect("samples");
    assert_eq!((once.rows.len(), both.rows.len()), (20, 20));
    assert!(both.rows.iter().all(|sample| sample.max_deviation().is_none()), "no row is a repeat of itself");
    assert_eq!(both.left_out["copy of another row"], 5);
}

#[test]
fn measurements_of_one_experiment_are_one_sample() {
    let records = [record(64, 100.0), record(128, 210.0), record(64, 130.0), record(64, 110.0)];
    let samples = gather_samples(&records, &[], &strict()).expect("samples");
    let times: Vec<f64> = samples.rows.iter().map(|sample| sample.time_ns).collect();
    assert_eq!(times, [110.0, 210.0]);
    assert_eq!(samples.rows[0].measured_ns, [100.0, 110.0, 130.0]);
    assert_eq!(samples.rows[0].cv, Some(0.011));
    assert_eq!(samples.rows[0].max_deviation(), Some(130.0 / 110.0 - 1.0));
    assert_eq!(samples.rows[1].max_deviation(), None, "it was measured once");

    let floor =
        evaluate(&samples, &Plan::for_protocol(Protocol::P0, &[])).expect("repeats").repeats.expect("one was repeated");
    assert_eq!(floor.candidates, 1);
    assert!((floor.mape - (10.0 / 110.0 + 20.0 / 110.0) / 3.0 * 100.0).abs() < 1e-9, "{floor:?}");
}

#[test]
fn the_middle_of_measurements_is_the_one_that_stores_choose() {
    let at = |started_at_us, median_ns| Record { started_at_us, ..record(64, median_ns) };
    for times in [vec![130.0, 100.0], vec![90.0, 130.0, 100.0, 140.0], vec![100.0, 130.0]] {
        let records: Vec<Record> = (1..).zip(&times).map(|(second, time)| at(second, *time)).collect();
        let samples = gather_samples(&records, &[], &strict()).expect("samples");
        let chosen = datasets::choose_records(records, datasets::Choose::Middle).remove(0);
        assert_eq!((Some(samples.rows[0].time_ns), samples.rows[0].cv), (chosen.median_ns, chosen.cv), "{times:?}");
        assert!(times.contains(&samples.rows[0].time_ns), "it is a measurement: {times:?}");
    }
}

#[test]
fn another_machine_is_another_experiment() {
    let records = [record(64, 100.0), record_on("there", 64, 300.0)];
    let samples = gather_samples(&records, &[], &strict()).expect("samples");
    assert_eq!(samples.rows.iter().map(|sample| sample.time_ns).collect::<Vec<_>>(), [100.0, 300.0]);
}

#[test]
fn a_whole_network_is_no_sample() {
    let network = Record {
        op_kind: NETWORK.to_owned(),
        task: None,
        model_source: Some("local".to_owned()),
        model_name: Some("mlp".to_owned()),
        ..record(64, 1.0)
    };
    let samples = gather_samples(&[record(64, 100.0), network], &[], &strict()).expect("samples");
    assert_eq!(samples.rows.iter().map(|sample| sample.time_ns).collect::<Vec<_>>(), [100.0]);
    assert_eq!(samples.left_out.get("whole network, not an operator"), Some(&1));
    assert!(samples.networks.is_empty(), "none of its operators was measured");
}

#[test]
fn only_what_measurements_agree_about_is_asked() {
    let twice = |elements, one, other| [record(elements, one), record(elements, other)];
    let records = [twice(64, 100.0, 102.0), twice(128, 200.0, 300.0), twice(256, 400.0, 404.0)].concat();
    let samples = gather_samples(&records, &[], &strict()).expect("samples");
    let plan = Plan { folds: Some(3), ..Plan::for_protocol(Protocol::P1, &[Learner::Roofline]) };
    let asked = |most| {
        let found = evaluate(&samples, &Plan { score_apart: most, ..plan.clone() }).expect("an evaluation");
        found.learners["roofline"].rows
    };
    assert_eq!((asked(None), asked(Some(0.03)), asked(Some(0.5))), (3, 2, 3));
    assert!(evaluate(&samples, &Plan { score_apart: Some(0.001), ..plan }).is_err());
}

/// Schedules of one task are ranked only within a split; the same rows in several splits are not further schedules.
#[test]
fn schedules_are_ranked_within_a_split() {
    let records: Vec<Record> = (0..6).map(|step| record(64 << step, 100.0 + f64::from(step))).collect();
    let samples = gather_samples(&records, &[], &strict()).expect("samples");
    let plan = Plan { seeds: (0..5).collect(), ..Plan::for_protocol(Protocol::P1, &[Learner::Roofline]) };
    let found = evaluate(&samples, &plan).expect("an evaluation");
    assert_eq!(found.learners["roofline"].rows, 30);
    assert!(found.ranking.is_empty(), "no task has two schedules: {:?}", found.ranking);
}

/// Returns a record with a median of this relative uncertainty and widely scattered runs, as on a busy machine.
fn known_to(elements: usize, share: Option<f64>) -> Record {
    let record = record(elements, 100.0);
    Record { cv: Some(0.6), median_interval_ns: share.map(|share| 100.0 * share), ..record }
}

#[test]
fn measurements_are_taken_whose_median_is_known_whatever_their_spread() {
    let records: Vec<Record> = [Some(0.001), Some(0.02), Some(0.021), None]
        .into_iter()
        .zip(6..)
        .map(|(share, size)| known_to(1 << size, share))
        .collect();
    let taken = |policy: Policy| gather_samples(&records, &[], &policy).expect("samples");
    let usual = taken(strict());
    assert_eq!((usual.rows.len(), usual.left_out["median with an uncertainty above 2 %"]), (2, 1));
    assert_eq!(usual.left_out["too few runs or visits to estimate the uncertainty of the median"], 1);
    assert_eq!(usual.filter_hints, None, "not most of them");
    assert_eq!(taken(Policy { max_uncertainty: Some(f64::INFINITY), ..strict() }).rows.len(), 4);
    let error = gather_samples(&records, &[], &Policy { max_cv: Some(0.5), ..strict() }).expect_err("all are spread");
    assert!(error.to_string().contains("4 rows: spread (CV) above 50 %"), "{error}");
}

/// Returns ten records of which `precise` have an uncertainty of 5 %, and the others the given one.
fn partly_precise(precise: usize, others: Option<f64>) -> Vec<Record> {
    (0..10).map(|place| known_to(64 << place, if place < precise { Some(0.05) } else { others })).collect()
}

#[test]
fn without_a_limit_at_least_half_of_the_measurements_are_taken() {
    let taken = |records: &[Record]| gather_samples(records, &[], &Policy::default()).expect("samples");
    let quiet = taken(&partly_precise(5, Some(0.15)));
    assert_eq!((quiet.rows.len(), quiet.warnings.len()), (5, 0), "{:?}", quiet.warnings);
    let busy = taken(&partly_precise(4, Some(0.15)));
    assert_eq!(busy.rows.len(), 10);
    assert!(busy.warnings[0].starts_with("medians with an uncertainty of up to 20 % are used"), "{:?}", busy.warnings);
    let unknown = taken(&partly_precise(4, None));
    assert_eq!(unknown.rows.len(), 10);
    assert!(unknown.warnings[0].starts_with("all medians are used"), "{:?}", unknown.warnings);
    let absent = read_samples(&["absent.csv".into()], &Policy::default()).expect_err("no file");
    assert!(absent.to_string().starts_with("cannot open `absent.csv`"), "{absent}");
    // A requested limit is never raised.
    let strict = gather_samples(&partly_precise(4, None), &[], &strict());
    assert!(strict.is_err());
}

#[test]
fn where_most_is_left_out_the_flag_that_brings_it_back_is_named() {
    let of = |share| (0..4).map(move |step| known_to(if share < 0.06 { 64 } else { 1024 } << step, Some(share)));
    let mut records: Vec<Record> = of(0.04).chain(of(0.07)).collect();
    let error = gather_samples(&records, &[], &strict()).expect_err("nothing is known well enough").to_string();
    let offer = "hint: 8 of 8 measurements are skipped; `--max-uncertainty 0.05` includes 4 of them, `--max-uncertainty 0.1` includes 8 of them";
    assert!(error.ends_with(offer), "{error}");

    records.push(known_to(32, Some(0.001)));
    records.push(known_to(16, Some(0.001)));
    records.push(Record { source: Source::Simulated, ..known_to(8, Some(0.001)) });
    let version = |place: usize| Some(if place == 8 { "2" } else { "1" }.to_owned());
    let records: Vec<Record> = records
        .into_iter()
        .enumerate()
        .map(|(place, record)| Record { tvm_version: version(place), ..record })
        .collect();
    let samples = gather_samples(&records, &[], &strict()).expect("samples");
    let hints = samples.filter_hints.expect("most are left out");
    assert_eq!((hints.measured, hints.left_out, samples.rows.len()), (11, 10, 1));
    let flags: Vec<(&str, usize)> = hints.flags.iter().map(|(flag, rows)| (flag.as_str(), *rows)).collect();
    let expected =
        [("--max-uncertainty 0.05", 4), ("--max-uncertainty 0.1", 8), ("--all-versions", 1), ("--source simulated", 1)];
    assert_eq!(flags, expected);
}

#[test]
fn default_schedules_are_known_where_their_times_are_not() {
    let record = |elements: usize, vector: u64, source: ScheduleSource, share: f64| {
        let schedule = serde_json::json!({ "from": "template", "knobs": { "vector": vector, "parallel": 1 } });
        Record {
            schedule: Some(Json::from(schedule)),
            schedule_source: Some(source),
            ..known_to(elements, Some(share))
        }
    };
    let mut records: Vec<Record> = (0..4).map(|step| record(64 << step, 4, ScheduleSource::Template, 0.01)).collect();
    records.extend((0..4).map(|step| record(64 << step, 16, ScheduleSource::Default, 0.5)));
    let records: Vec<Record> =
        records.into_iter().map(|record| Record { key: record.experiment_key(), ..record }).collect();
    let samples = gather_samples(&records, &[], &strict()).expect("samples");
    assert_eq!((samples.rows.len(), samples.left_out.values().sum::<u64>()), (4, 4));
    let work = Work::pointwise_work(1.0, 128.0, 1.0);
    let complete = |knobs: &[(&str, f64)]| {
        let given = knobs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        samples.schedules[&records[0].op_kind].complete_schedule(&work, "here", &given)
    };
    let named = complete(&[("knob.vector", 4.0)]).expect("a schedule");
    assert!(named.knobs["knob.parallel"] == 1.0 && !named.is_default, "{named:?}");
    assert!(complete(&[("knob.vector", 16.0)]).expect("a schedule").is_default, "its own setting is one it may have");
    let error = complete(&[("knob.vector", 32.0)]).expect_err("no such setting");
    assert!(error.contains("for these sizes; known settings: 4"), "{error}");
}
