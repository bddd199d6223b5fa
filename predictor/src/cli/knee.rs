//! `oppredict knee`.

use super::arguments::KneeOf;
use super::predict::set_knobs;
use super::{begin, finish, paper, print, read_predictor};
use crate::error::{Error, Result};
use crate::explain::thread_counts;
use crate::knee::{Knee, Point, Posterior, Probe, knee};
use crate::pages;
use crate::probe::{collector, measure};
use crate::queries::{self, Operator, Setting};
use learn::predictor::{Prediction, Predictor};
use report::{Cell, Table, between, duration, figures, words};
use serde_json::json;
use std::time::Duration;

/// Measurements that may be taken.
const MOST_PROBES: usize = 3;

/// Prints each curve and its turning point.
pub fn run(arguments: &KneeOf) -> Result<u8> {
    let page = begin(arguments.html.as_deref())?;
    let predictor = read_predictor(&arguments.predictor)?;
    let operator = queries::operator(&arguments.op, None)?;
    let mut usual = Setting {
        device: arguments.device.clone(),
        threads: arguments.threads.map(f64::from),
        extrapolate: arguments.extrapolate,
        ..Setting::default()
    };
    set_knobs(&mut usual, &arguments.knob)?;
    let device = queries::device(&predictor, &usual)?.to_owned();
    let mut knees = Vec::new();
    for over in &arguments.over {
        let found = match over.as_str() {
            "threads" => over_threads(&predictor, &operator, &usual, &device, arguments)?,
            knob => over_knob(&predictor, &operator, &usual, knob, arguments.probe)?,
        };
        print(&overview(&operator, &found))?;
        knees.push(found);
    }
    finish(page, || pages::curves(&operator.text, &device, &knees).into_bytes())?;
    if arguments.json {
        print(&json!({ "operator": operator.text, "device": device, "knees": knees }).to_string())?;
    }
    Ok(0)
}

fn over_threads(
    predictor: &Predictor,
    operator: &Operator,
    usual: &Setting,
    device: &str,
    arguments: &KneeOf,
) -> Result<Knee> {
    let learned = thread_counts(predictor, &operator.name)?.into_iter().map(f64::from).fold(1.0, f64::max);
    let most = arguments.most_threads.map_or(learned, f64::from) as u32;
    let settings =
        (1..=most).map(|threads| (f64::from(threads), Setting { threads: Some(f64::from(threads)), ..usual.clone() }));
    let predicted = curve(predictor, operator, settings)?;
    let mut posterior = Posterior::of(&predicted);
    let mut probes = Vec::new();
    while arguments.probe && probes.len() < MOST_PROBES {
        let Some(at) = posterior.next() else { break };
        let program = arguments.opcollect.clone().unwrap_or_else(collector);
        let measured = measure(&program, &arguments.op, at as u32, Duration::from_secs(arguments.deadline))?;
        if measured.device != device {
            return Err(Error::Query(format!(
                "the probe ran on `{}`, and the question is about `{device}`; ask about this machine, or leave --probe out",
                measured.device
            )));
        }
        let known = predicted.iter().find(|point| point.at == at).map_or(f64::NAN, |point| point.time_ns);
        let (cv, uncertainty) = (measured.cv, measured.uncertainty);
        let probe = Probe { at, predicted_ns: known, measured_ns: measured.time_ns, cv, uncertainty };
        posterior.condition(at, probe.measured_ns, probe.known_to());
        probes.push(probe);
    }
    let updated = if probes.is_empty() { predicted } else { posterior.curve() };
    let found = knee("threads", updated).ok_or_else(|| {
        Error::Query("only one thread count was learned from; say --most-threads and --extrapolate".to_owned())
    })?;
    Ok(Knee { probes, ..found })
}

fn over_knob(predictor: &Predictor, operator: &Operator, usual: &Setting, knob: &str, probe: bool) -> Result<Knee> {
    if probe {
        return Err(Error::Query("--probe measures thread counts, not knobs; leave --over out".to_owned()));
    }
    let knob = knob.strip_prefix("knob.").unwrap_or(knob);
    let schedules = &predictor.operator(&operator.name)?.statistics.schedules;
    let refused = |problem: String| Error::Query(format!("`{}`: {problem}", operator.text));
    let settings = schedules.settings(&operator.work, queries::device(predictor, usual)?, knob).map_err(refused)?;
    if let Some((word, _)) = settings.iter().find(|(feature, _)| feature.contains('=')) {
        let problem = format!("the knob `{knob}` takes words such as `{word}`; a curve goes over numbers");
        return Err(refused(problem.replace(&format!("knob.{knob}="), "")));
    }
    let (places, questions): (Vec<f64>, Vec<_>) = settings
        .into_iter()
        .map(|(feature, value)| {
            let mut setting = usual.clone();
            setting.extras.insert(feature, value);
            (value, (operator.clone(), setting))
        })
        .unzip();
    let curve = points(places, queries::predict_schedules(predictor, &questions))?;
    knee(knob, curve)
        .ok_or_else(|| refused(format!("the knob `{knob}` has fewer than two settings in what was learned")))
}

fn curve(
    predictor: &Predictor,
    operator: &Operator,
    settings: impl Iterator<Item = (f64, Setting)>,
) -> Result<Vec<Point>> {
    let (places, questions): (Vec<f64>, Vec<_>) =
        settings.map(|(at, setting)| (at, (operator.clone(), setting))).unzip();
    points(places, queries::predict_each(predictor, &questions))
}

fn points(places: Vec<f64>, predictions: Vec<Result<Prediction>>) -> Result<Vec<Point>> {
    let point = |(prediction, at): (Result<Prediction>, f64)| {
        prediction.map(|prediction| Point {
            at,
            time_ns: prediction.time_ns,
            low_ns: prediction.low_ns,
            high_ns: prediction.high_ns,
        })
    };
    predictions.into_iter().zip(places).map(point).collect()
}

fn overview(operator: &Operator, found: &Knee) -> String {
    let mut table = Table::new([figures(&found.over), figures("time"), figures("90 % between"), words("remarks")]);
    for point in &found.curve {
        let probe = found.probes.iter().find(|probe| probe.at == point.at);
        let mut remark = probe.map_or(String::new(), |probe| {
            let known =
                probe.uncertainty.map_or(String::new(), |half| format!(", its median known to {:.1} %", 100.0 * half));
            let spread = probe.cv.map_or(String::new(), |cv| format!(" (spread {:.0} %{known})", 100.0 * cv));
            format!("measured {}{spread}, predicted {}", duration(probe.measured_ns), duration(probe.predicted_ns))
        });
        if point.at == found.knee {
            remark = format!("knee {remark}").trim_end().to_owned();
        }
        let time = Cell::from(duration(point.time_ns));
        table.row([
            point.at.to_string().into(),
            if point.at == found.knee { time.best() } else { time },
            between(point.low_ns, point.high_ns).into(),
            remark.into(),
        ]);
    }
    format!("{}\n{}\n{}\n", operator.text, table.on(&paper()), pages::summary(found))
}
