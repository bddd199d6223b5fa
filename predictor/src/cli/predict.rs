//! `oppredict predict`.

use super::arguments::Predict;
use super::{paper, print, quoted, read_predictor, tell};
use crate::error::{Error, Result};
use crate::origin::Origin;
use crate::queries::{
    self, AssumedThreads, Cell, HeldOutErrors, InPlaceTotal, Operator, OperatorPrediction, Run, Setting, Total,
};
use crate::schedule_list::{self, ListedSchedule, ScheduleList};
use crate::this_host::Calibration;
use crate::{published, this_host};
use learn::cross_validation::CrossValidatedError;
use learn::predictor::{Basis, Prediction, Predictor, Query};
use report::{Table, UNKNOWN, between, duration, figures, percent, words};
use samples::table::{self, Cells, Mapping};
use serde_json::json;
use std::fmt::Write;
use std::fs::File;
use std::path::Path;

/// Answers and prints.
pub fn run(predict: &Predict) -> Result<u8> {
    let shipped = || published::find(predict.device.as_deref(), predict.mapping.is_some());
    let file = predict.predictor.clone().map_or_else(shipped, Ok)?;
    let mut predictor = read_predictor(&file)?;
    let mapping = predict.mapping.as_deref().map(Mapping::read).transpose()?;
    if let Some(mapping) = &mapping {
        queries::describe_devices(&mut predictor, mapping);
    }
    if let Some(path) = &predict.data {
        return batch(&predictor, path, mapping.as_ref(), predict);
    }
    if let Some(path) = &predict.space {
        return best(&predictor, path, predict);
    }
    if predict.op.is_empty() && predict.model.is_empty() {
        return Err(Error::Query("say what to predict: --op, --model or --data".to_owned()));
    }
    let calibration = calibration(predict, &predictor)?;
    let setting = setting(predict)?;
    let cpus_here = calibration.as_ref().and_then(|_| std::thread::available_parallelism().ok()).map(usize::from);
    let threads = queries::assumed_threads(&predictor, &setting, cpus_here)?;
    let setting = Setting { threads: Some(threads.count), ..setting };
    let here = |predictions: &mut Vec<OperatorPrediction>| {
        let Some(known) = &calibration else { return };
        predictions.iter_mut().for_each(|one| known.translate(&mut one.prediction));
    };
    let operators: Vec<Operator> =
        predict.op.iter().map(|text| queries::operator(text, mapping.as_ref())).collect::<Result<_>>()?;
    let (mut predictions, refused) = each(&predictor, operators, &setting);
    here(&mut predictions);
    if let (true, true, Some((_, first))) = (predictions.is_empty(), predict.model.is_empty(), refused.first()) {
        return Err(Error::Query(first.clone()));
    }
    let run = Run { dispatch_ns: 1e3 * predict.dispatch_us, overlap: predict.overlap };
    if !(run.dispatch_ns >= 0.0 && run.dispatch_ns.is_finite() && (0.0..=1.0).contains(&run.overlap)) {
        return Err(Error::Query("--dispatch-us must not be negative, and --overlap lies between 0 and 1".to_owned()));
    }
    if !predictions.is_empty() {
        print(&format!("{}\n{}", of_operators(&predictions), on_threads(&threads)))?;
    }
    tell("warning", refused.iter().map(|(_, reason)| reason));
    let mut has_bounds = false;
    let mut models = Vec::new();
    for name in &predict.model {
        let layers = queries::model_of(predict.modelsource, name, predict.batchsize, predict.sequence)?;
        let mut predictions = queries::predict_model(&predictor, &layers, &setting)?;
        here(&mut predictions);
        let total = queries::total(&layers, &predictions, &run);
        let in_place = queries::in_place_total(&predictor, &layers, &predictions, &setting)?;
        let held_out = queries::held_out_errors(&layers, &predictions);
        let heading = format!("{name}, batch {}, {}", predict.batchsize, on_threads(&threads));
        print(&of_model(&heading, &predictions, &total))?;
        print(&held_out_errors(held_out.as_ref()))?;
        if let Some(in_place) = &in_place {
            print(&in_places(in_place))?;
        }
        has_bounds |= total.bounds_ns > 0.0;
        models.push(json!({
            "model": name, "batch": predict.batchsize, "layers": predictions, "total": total, "in_place": in_place,
            "held_out": held_out,
        }));
    }
    if predict.json {
        let refused: Vec<_> =
            refused.iter().map(|(operator, reason)| json!({ "operator": operator, "reason": reason })).collect();
        let mut document = json!({
            "operators": predictions, "refused": refused, "models": models, "threads": threads,
            "learned_from": Origin::of(&predictor.about),
        });
        if let Some(known) = &calibration {
            document["this_host"] =
                json!({ "host_class": known.host_class, "learned_on": known.learned_on, "distance": known.distance() });
        }
        print(&document.to_string())?;
    }
    Ok(u8::from(has_bounds || !refused.is_empty()))
}

/// How far this machine is, where that is known and asked for; what is not asked for is told.
fn calibration(predict: &Predict, predictor: &Predictor) -> Result<Option<Calibration>> {
    if let Some(path) = &predict.calibration {
        let known = Calibration::read(path)?;
        if known.data_hash != predictor.about.data_hash {
            let problem = format!("the calibration `{}` was made for another predictor", path.display());
            return Err(Error::Query(format!("{problem}; `oppredict adapt --this-host` makes one")));
        }
        tell("note", [how_far(&known)]);
        return Ok(Some(known));
    }
    if predict.predictor.is_some() || predict.device.is_some() {
        return Ok(None);
    }
    let learned_on = this_host::learned_on(predictor)?;
    let here = measure::host::Facts::read().host_class();
    let known = published::calibration(predictor, &here)?;
    let note = match &known {
        Some(known) => how_far(known),
        None if here == learned_on => format!(
            "the predictor that came with the program speaks from machines like this one, `{learned_on}`; how quiet this one is, \
             `oppredict adapt --this-host` finds out in about 20 s"
        ),
        None => format!(
            "the predictor that came with the program speaks from `{learned_on}`, and these are its times; this machine is \
             `{here}`: how far it is, `oppredict adapt --this-host` finds out in about 20 s"
        ),
    };
    tell("note", [note]);
    Ok(known)
}

/// How far this machine is, in words.
pub fn how_far(known: &Calibration) -> String {
    let distance = known.distance();
    format!(
        "times are those of this machine, `{}`: {:.2} times those of `{}`, where the predictor learned ({:.2} to {:.2} times, by {} \
         sentinels)",
        known.host_class,
        distance.factor,
        known.learned_on,
        distance.low,
        distance.high,
        known.known().count()
    )
}

/// Answers for single operators; and those that cannot be answered, with the reason.
fn each(
    predictor: &Predictor,
    operators: Vec<Operator>,
    setting: &Setting,
) -> (Vec<OperatorPrediction>, Vec<(String, String)>) {
    let questions: Vec<_> = operators.into_iter().map(|operator| (operator, setting.clone())).collect();
    let (mut answered, mut refused) = (Vec::new(), Vec::new());
    for (prediction, (operator, _)) in queries::predict_each(predictor, &questions).into_iter().zip(&questions) {
        match prediction {
            Ok(prediction) => {
                answered.push(OperatorPrediction { operator: operator.text.clone(), count: operator.count, prediction })
            }
            Err(error) => refused.push((operator.text.clone(), error.to_string())),
        }
    }
    (answered, refused)
}

/// Answers for every row of a table, as CSV or as one document.
fn batch(predictor: &Predictor, path: &Path, mapping: Option<&Mapping>, predict: &Predict) -> Result<u8> {
    let table = table::read(path)?;
    let usual = setting(predict)?;
    let question = |row: usize| {
        let cells: Vec<_> =
            table.columns.iter().map(|column| (column.name.clone(), cell(&column.cells, row))).collect();
        queries::row(&cells, &usual, mapping).map_err(|error| Error::table(path, format!("row {}: {error}", row + 1)))
    };
    let questions = (0..table.rows).map(question).collect::<Result<Vec<_>>>()?;
    let predictions = queries::predict_each(predictor, &questions);
    let refused = predictions.iter().filter(|prediction| prediction.is_err()).count();
    let mut documents = Vec::new();
    let mut text = "row,operator,time_ns,low_ns,high_ns,reasons,threads,held_out_percent".to_owned();
    for (row, ((operator, _), prediction)) in questions.iter().zip(predictions).enumerate() {
        let reasons = prediction.as_ref().map_or_else(Error::to_string, |prediction| prediction.outside.join("; "));
        if predict.json {
            let prediction = prediction.ok();
            documents.push(json!({ "operator": operator.text, "answer": prediction, "reasons": reasons }));
            continue;
        }
        let (numbers, known) = prediction.map_or((",,".to_owned(), ",".to_owned()), |prediction| {
            let held_out = prediction.held_out.map_or(String::new(), |error| error.median_percent.to_string());
            let numbers = format!("{},{},{}", prediction.time_ns, prediction.low_ns, prediction.high_ns);
            (numbers, format!("{},{held_out}", prediction.threads))
        });
        let _ = write!(text, "\n{},{},{numbers},{},{known}", row + 1, quoted(&operator.text), quoted(&reasons));
    }
    if predict.json {
        text = json!({ "rows": documents, "refused": refused }).to_string();
    }
    print(&text)?;
    if refused > 0 {
        eprintln!("note: {refused} of {} rows have no time; their reasons say why", questions.len());
    }
    Ok(match refused {
        0 => 0,
        some if some < questions.len() => 1,
        _ => 2,
    })
}

fn cell(cells: &Cells, row: usize) -> Cell {
    match cells {
        Cells::Numbers(numbers) if numbers[row].is_nan() => Cell::Absent,
        Cells::Numbers(numbers) => Cell::Number(numbers[row]),
        Cells::Words { words, codes } => match words[codes[row] as usize].as_str() {
            "" => Cell::Absent,
            word => word.parse().map_or_else(|_| Cell::Word(word.to_owned()), Cell::Number),
        },
    }
}

/// The schedules of a space, or of a folder of what was built, that should be fastest.
fn best(predictor: &Predictor, path: &Path, predict: &Predict) -> Result<u8> {
    let wrong = |problem: String| Error::table(path, problem);
    let text = File::open(path).and_then(schedule_list::read_text);
    let text = text.map_err(|error| Error::io("read", path, error))?;
    let list = ScheduleList::parse(&text).map_err(wrong)?;
    let [op] = &predict.op[..] else {
        return Err(Error::Query("--space needs one --op".to_owned()));
    };
    let operator = queries::operator(op, None)?;
    let schedules = list.schedules(&operator.text);
    let none = || Error::table(path, format!("it has no schedule of `{}`", operator.text));
    if schedules.is_empty() {
        return Err(none());
    }
    let setting = setting(predict)?;
    let device = queries::device(predictor, &setting)?;
    let threads = queries::assumed_threads(predictor, &setting, None)?;
    let mut ranked = Vec::new();
    let mut held_out = None;
    for schedule in &schedules {
        let Some((_, extras)) = schedule.read().map_err(wrong)? else { continue };
        let threads = Some(threads.count);
        let query = Query { operator: &operator.name, work: &operator.work, device, threads, extras: &extras };
        let prediction = predictor.predict(&query)?;
        held_out = prediction.held_out;
        ranked.push((prediction.time_ns, schedule));
    }
    if ranked.is_empty() {
        return Err(none());
    }
    ranked.sort_by(|one, two| one.0.total_cmp(&two.0));
    ranked.truncate(predict.best);
    // Only those that are shown become trees of JSON at the same time.
    let shown = |(time_ns, schedule): (f64, &ListedSchedule<'_>)| {
        let read = schedule.read().map_err(wrong)?;
        Ok(read.map(|(knobs, _)| (time_ns, knobs)))
    };
    let ranked = ranked.into_iter().filter_map(|one| shown(one).transpose()).collect::<Result<Vec<_>>>()?;
    let mut table = Table::new([figures("time"), words("schedule")]);
    for (place, (time, schedule)) in ranked.iter().enumerate() {
        let named = schedule.as_object().into_iter().flatten();
        let named: Vec<_> =
            named.map(|(name, value)| format!("{name}={}", value.to_string().replace('"', ""))).collect();
        let time = report::Cell::from(duration(*time));
        table.row([if place == 0 { time.best() } else { time }, named.join(" ").into()]);
    }
    let errors = held_out.map_or_else(|| NOT_RECORDED.to_owned(), |error| format!("held out, off by {}", off(&error)));
    print(&format!("{}\n{}; {errors}", table.on(&paper()), on_threads(&threads)))?;
    if predict.json {
        let best: Vec<_> =
            ranked.into_iter().map(|(time_ns, schedule)| json!({ "time_ns": time_ns, "knobs": schedule })).collect();
        let document = json!({ "operator": operator.text, "best": best, "threads": threads, "held_out": held_out });
        print(&document.to_string())?;
    }
    Ok(0)
}

fn setting(predict: &Predict) -> Result<Setting> {
    let mut setting = Setting {
        device: predict.device.clone(),
        threads: predict.threads.map(f64::from),
        extrapolate: predict.extrapolate,
        ..Setting::default()
    };
    set_knobs(&mut setting, &predict.knob)?;
    Ok(setting)
}

/// Sets knobs that were given as `NAME=VALUE`.
pub fn set_knobs(setting: &mut Setting, knobs: &[String]) -> Result<()> {
    for knob in knobs {
        let (name, value) =
            knob.split_once('=').ok_or_else(|| Error::Query(format!("`--knob {knob}` is not NAME=VALUE")))?;
        let is_same = |other: &&String| other.split_once('=').is_some_and(|(other, _)| other == name);
        if knobs.iter().filter(is_same).count() > 1 {
            return Err(Error::Query(format!("the knob `{name}` is given twice")));
        }
        let cell = value.parse().map_or_else(|_| Cell::Word(value.to_owned()), Cell::Number);
        setting.set_extra(&format!("knob.{name}"), &cell);
    }
    Ok(())
}

/// What is said where a file does not know how far off its answers are, or not on the device.
const NOT_RECORDED: &str = "how far off such answers are for held-out shapes is not recorded";

/// How many threads answers are for, and why.
fn on_threads(threads: &AssumedThreads) -> String {
    let AssumedThreads { count, word, reason, .. } = threads;
    let plural = if *count == 1.0 { "" } else { "s" };
    format!("on {count} {word}{plural} ({reason})")
}

/// An error on held-out shapes.
fn off(error: &CrossValidatedError) -> String {
    format!("{:.1} % ({} shapes)", error.median_percent, error.shapes)
}

/// The same in a column of its own.
fn held_out(prediction: &Prediction) -> report::Cell {
    prediction.held_out.map_or_else(|| report::Cell::from(UNKNOWN), |error| off(&error).into())
}

/// How far off a model's layers are for shapes that were held out.
fn held_out_errors(errors: Option<&HeldOutErrors>) -> String {
    let Some(errors) = errors else { return NOT_RECORDED.to_owned() };
    let of_time = match errors.known_share {
        share if share > 0.999 => String::new(),
        share => format!(" of the {} of it that is known", percent(share)),
    };
    format!(
        "held out, its operators are {:.1} % off, the median of each kind weighted by time{of_time}; worst {}: {}",
        errors.weighted_percent,
        errors.worst,
        off(&errors.worst_error)
    )
}

fn of_operators(predictions: &[OperatorPrediction]) -> String {
    let mut table = Table::new([
        words("operator").least(20),
        figures("time"),
        figures("90 % between"),
        figures("held out, off by"),
        figures("at best").drops(2),
        words("bound by").least(6).drops(1),
        words("remarks"),
    ]);
    for one in predictions {
        let prediction = &one.prediction;
        table.row([
            one.operator.as_str().into(),
            duration(prediction.time_ns).into(),
            interval(prediction),
            held_out(prediction),
            duration(prediction.attainable_ns).into(),
            prediction.bound.into(),
            remarks(prediction),
        ]);
    }
    table.on(&paper())
}

/// The layers of a model that are alike are one line; in the order of the graph.
fn of_model(heading: &str, predictions: &[OperatorPrediction], total: &Total) -> String {
    let mut table = Table::new([
        words("layer").least(20),
        figures("×"),
        figures("each").drops(3),
        figures("90 % between").drops(2),
        figures("held out, off by").drops(4),
        figures("all"),
        figures("share"),
        words("bound by").least(6).drops(1),
        words("remarks"),
    ]);
    for one in predictions {
        let prediction = &one.prediction;
        let all_ns = one.count as f64 * prediction.time_ns;
        table.row([
            one.operator.as_str().into(),
            one.count.to_string().into(),
            duration(prediction.time_ns).into(),
            interval(prediction),
            held_out(prediction),
            duration(all_ns).into(),
            percent(all_ns / total.operators_ns).into(),
            prediction.bound.into(),
            remarks(prediction),
        ]);
    }
    let mut text = format!(
        "{heading}\n{}\ntotal: {} (90 % between {})",
        table.on(&paper()),
        duration(total.time_ns),
        between(total.low_ns, total.high_ns)
    );
    let _ = write!(text, "; {} operators, {} of starting them", total.calls, duration(total.dispatch_ns));
    if total.hidden_ns > 0.0 {
        let _ = write!(text, ", {} of it hidden", duration(total.hidden_ns));
    }
    let share = |part_ns: f64| format!("{:.1} %", 100.0 * part_ns / total.operators_ns);
    let count =
        |basis: Basis| predictions.iter().filter(|one| one.prediction.basis == basis).map(|one| one.count).sum::<u64>();
    if total.extrapolated_ns > 0.0 {
        let (share, calls) = (share(total.extrapolated_ns), count(Basis::Extrapolated));
        let _ = write!(text, "\n{share} of it is extrapolated ({calls} of {} operators)", total.calls);
    }
    if total.bounds_ns > 0.0 {
        let (share, calls) = (share(total.bounds_ns), count(Basis::Bound));
        let _ = write!(
            text,
            "\n{share} of it are bounds, as nothing was learned of {calls} of {} operators: it takes at least as long",
            total.calls
        );
    }
    text
}

/// What the sum of operators alone misses.
fn in_places(total: &InPlaceTotal) -> String {
    let InPlaceTotal { operators_ns, over_alone, beside_ns, learned } = total;
    let worth = format!(
        "of {} operators in {} networks; held out, {} off where times alone are {} off",
        learned.operators,
        learned.networks,
        percent(learned.error_learned),
        percent(learned.error_alone)
    );
    let mut text = match learned.is_worth_it() {
        true => format!("in their places: {}, {over_alone:.2}× of alone ({worth})", duration(*operators_ns)),
        false => format!("in their places: as alone; what was learned {worth}, and is not used"),
    };
    if let Some(beside_ns) = beside_ns {
        let _ = write!(text, ", and {} beside operators", duration(*beside_ns));
    }
    text
}

/// The interval; one that is wider than its time says little.
fn interval(prediction: &Prediction) -> report::Cell {
    let cell = report::Cell::from(between(prediction.low_ns, prediction.high_ns));
    let is_narrow = prediction.high_ns - prediction.low_ns <= prediction.time_ns;
    if is_narrow { cell } else { cell.uncertain() }
}

fn remarks(prediction: &Prediction) -> report::Cell {
    /// Names of kernels may be whole signatures.
    const MOST: usize = 60;
    let short = |name: &String| match name.char_indices().nth(MOST) {
        Some((end, _)) => format!("by `{}…`", &name[..end]),
        None => format!("by `{name}`"),
    };
    let learned_as = prediction.learned_as.iter().map(|name| format!("as `{name}`"));
    let choice = learned_as.chain(prediction.choice.iter().map(short));
    let outside = (!prediction.outside.is_empty()).then(|| match prediction.basis {
        Basis::Learned => format!("outside: {}", prediction.outside.join("; ")),
        Basis::Extrapolated => format!("extrapolated: {}", prediction.outside.join("; ")),
        Basis::Bound => prediction.outside.join("; "),
    });
    let is_beyond = prediction.time_ns < prediction.attainable_ns;
    let beyond = is_beyond.then(|| "faster than at best, as such operators were where they were measured".to_owned());
    let cell = report::Cell::from(choice.chain(outside).chain(beyond).collect::<Vec<_>>().join("; "));
    if prediction.outside.is_empty() { cell } else { cell.uncertain() }
}
