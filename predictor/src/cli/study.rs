//! `oppredict correlate`, `explain` and `knee`.

use super::arguments::{Correlate, Data, Explain, KneeOf};
use super::predict::{describe_devices, duration};
use super::{load, new_table, print, right_align};
use crate::asking::{self, Setting};
use crate::bundle;
use crate::correlate::{Correlation, correlate};
use crate::error::{Error, Result};
use crate::explain::{importance, improvements, parts, sweep};
use crate::features::FEATURES;
use crate::knee::{Point, knee};
use crate::learn::predictor::Ask;
use crate::report;
use crate::table::Mapping;
use serde_json::json;

/// Features in a table on the screen; files hold all.
const SHOWN: usize = 12;

/// Prints the strongest correlations and writes all where asked to.
pub fn correlations(arguments: &Correlate) -> Result<u8> {
    let found = correlate(&load(&arguments.data)?);
    let mut table = new_table(&[
        "operator",
        "device",
        "feature",
        "rows",
        "Spearman",
        "Pearson",
        "Kendall",
        "partial",
        "distance",
        "bits",
        "by chance",
    ]);
    let mut shown = 0;
    let mut last = ("", "");
    for one in &found {
        shown = if last == (&*one.operator, &*one.device) { shown + 1 } else { 0 };
        last = (&one.operator, &one.device);
        if shown < SHOWN {
            let numbers = [one.spearman, one.pearson, one.kendall, one.partial, one.distance, one.mutual_information];
            let mut cells = vec![one.operator.clone(), one.device.clone(), one.feature.clone(), one.rows.to_string()];
            cells.extend(numbers.map(|number| format!("{number:.2}")));
            cells.push(format!("{:.1e}", one.chance));
            table.add_row(cells);
        }
    }
    right_align(&mut table, 3..11);
    print(&table.to_string())?;
    if let Some(path) = &arguments.csv {
        report::write(path, &csv(&found))?;
    }
    if let Some(path) = &arguments.html {
        report::write(path, &report::heat_map(&found))?;
    }
    if arguments.json {
        print(&serde_json::to_string(&found).expect("numbers and texts have a JSON form"))?;
    }
    Ok(0)
}

fn csv(found: &[Correlation]) -> String {
    let mut text =
        "operator,device,feature,rows,pearson,spearman,kendall,partial,distance,mutual_information_bits,chance\n"
            .to_owned();
    for one in found {
        let quoted = |word: &str| format!("\"{}\"", word.replace('"', "\"\""));
        text += &format!(
            "{},{},{},{},{},{},{},{},{},{},{}\n",
            quoted(&one.operator),
            quoted(&one.device),
            quoted(&one.feature),
            one.rows,
            one.pearson,
            one.spearman,
            one.kendall,
            one.partial,
            one.distance,
            one.mutual_information,
            one.chance
        );
    }
    text
}

/// Explains one answer, or with data what matters at all.
pub fn explain(arguments: &Explain) -> Result<u8> {
    if !arguments.data.is_empty() {
        let data = Data::of(&arguments.data, arguments.mapping.as_deref());
        return importances(&data, arguments.json);
    }
    let (Some(path), Some(text)) = (&arguments.predictor, &arguments.op) else {
        return Err(Error::Question(
            "say --predictor and --op to explain an answer, or --data to see what matters".to_owned(),
        ));
    };
    let mut predictor = bundle::read(path)?;
    let mapping = arguments.mapping.as_deref().map(Mapping::read).transpose()?;
    if let Some(mapping) = &mapping {
        describe_devices(&mut predictor, mapping);
    }
    let operator = asking::operator(text, mapping.as_ref())?;
    let setting = Setting {
        device: arguments.device.clone(),
        threads: arguments.threads.map(f64::from),
        extrapolate: true,
        ..Setting::default()
    };
    let device = asking::device(&predictor, &setting)?;
    let ask = Ask {
        operator: &operator.name,
        work: &operator.work,
        device,
        threads: setting.threads,
        extras: &setting.extras,
    };
    let answer = predictor.ask(&ask)?;
    let row = predictor.row(&ask)?;
    let (parts, base) = parts(&predictor.learned.operators[&operator.name], &predictor.about.names, &row)?;
    let mut table = new_table(&["feature", "value", "unit", "time ×"]);
    for part in parts.iter().take(SHOWN) {
        let unit = FEATURES.iter().find(|feature| feature.name == part.feature).map_or("", |feature| feature.unit);
        table.add_row([
            part.feature.clone(),
            format!("{:.3}", part.value),
            unit.to_owned(),
            format!("{:.3}", part.factor),
        ]);
    }
    right_align(&mut table, [1, 3]);
    print(&format!(
        "{}: {}, bound by {} at {}; the average of what was learned from takes {base:.3} × its bound, and here\n{table}",
        operator.text,
        duration(answer.time_ns),
        answer.bound,
        duration(answer.attainable_ns)
    ))?;
    let learned = &predictor.learned.operators[&operator.name];
    let better = improvements(learned, &predictor.about.names, &row)?;
    for change in &better {
        print(&format!(
            "with {} = {:.3} it should take {:.2} × the time",
            change.feature, change.value, change.factor
        ))?;
    }
    let mut curve = Vec::new();
    if let Some(feature) = &arguments.vary {
        curve = sweep(learned, &predictor.about.names, &row, feature)?;
        let mut table = new_table(&[feature, "time ×"]);
        for change in &curve {
            table.add_row([format!("{:.3}", change.value), format!("{:.3}", change.factor)]);
        }
        right_align(&mut table, 0..2);
        print(&table.to_string())?;
    }
    if arguments.json {
        let document =
            json!({ "answer": answer, "base": base, "parts": parts, "improvements": better, "varied": curve });
        print(&document.to_string())?;
    }
    Ok(0)
}

fn importances(data: &Data, as_json: bool) -> Result<u8> {
    let found = importance(&load(data)?, 0)?;
    let mut table = new_table(&["operator", "feature", "MAPE + points"]);
    for one in found.iter().take(3 * SHOWN) {
        table.add_row([one.operator.clone(), one.feature.clone(), format!("{:.2}", one.cost)]);
    }
    right_align(&mut table, [2]);
    print(&table.to_string())?;
    if as_json {
        print(&serde_json::to_string(&found).expect("numbers and texts have a JSON form"))?;
    }
    Ok(0)
}

/// Prints the curve over threads and its turning point.
pub fn knees(arguments: &KneeOf) -> Result<u8> {
    let predictor = bundle::read(&arguments.predictor)?;
    let operator = asking::operator(&arguments.op, None)?;
    let setting = |threads: u32| Setting {
        device: arguments.device.clone(),
        threads: Some(f64::from(threads)),
        extrapolate: arguments.extrapolate,
        ..Setting::default()
    };
    let mut curve = Vec::new();
    for threads in 1..=arguments.most_threads {
        let answers = asking::ask(&predictor, std::slice::from_ref(&operator), &setting(threads))?;
        let Some(one) = answers.into_iter().next() else { continue };
        let (time_ns, low_ns, high_ns) = (one.answer.time_ns, one.answer.low_ns, one.answer.high_ns);
        curve.push(Point { threads: f64::from(threads), time_ns, low_ns, high_ns });
    }
    let found = knee(curve).ok_or_else(|| Error::Question("a curve needs at least two thread counts".to_owned()))?;
    let mut table = new_table(&["threads", "time", "90 % between"]);
    for point in &found.curve {
        let interval = format!("{} … {}", duration(point.low_ns), duration(point.high_ns));
        table.add_row([point.threads.to_string(), duration(point.time_ns), interval]);
    }
    right_align(&mut table, 0..3);
    let turns = found.turns_at.map_or("nowhere".to_owned(), |threads| format!("at {threads}"));
    print(&format!(
        "{table}\nfastest with {} threads; {} are within 5 % of it; the curve turns up {turns}; contention {:.3}, coherence {:.4} (law {:.1} % off)",
        found.fastest, found.knee, found.contention, found.coherence, found.law_error
    ))?;
    if let Some(path) = &arguments.html {
        report::write(path, &report::curve(&operator.text, &found))?;
    }
    if arguments.json {
        print(&serde_json::to_string(&found).expect("numbers and texts have a JSON form"))?;
    }
    Ok(0)
}
