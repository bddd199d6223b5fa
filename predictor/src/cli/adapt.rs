//! `oppredict adapt` and `oppredict suggest`.

use super::arguments::{Adapt, Suggest};
use super::{begin, finish, load_from, load_unmeasured, paper, policy, print};
use crate::error::{Error, Result};
use crate::this_host::Calibration;
use crate::{bundle, probe, published};
use learn::adaptation;
use report::{Cell, Table, UNKNOWN, duration, figures, words};
use serde_json::json;
use std::time::Duration;

/// Corrects a predictor for other devices and writes it.
pub fn run(arguments: &Adapt) -> Result<u8> {
    if arguments.this_host {
        return this_host(arguments);
    }
    let (Some(predictor), Some(path)) = (&arguments.predictor, &arguments.out) else {
        return Err(Error::Query("say what to correct and where to write it: --predictor and --out".to_owned()));
    };
    let out = begin(Some(path))?;
    let mut predictor = bundle::read(predictor)?;
    let samples = load_from(&arguments.data, arguments.mapping.as_deref(), policy(&arguments.filter)?)?;
    let changes = adaptation::adapt(&mut predictor, samples)?;
    finish(out, || bundle::to_bytes(&predictor))?;
    let mut table = Table::new([
        words("operator"),
        words("device"),
        figures("measurements").drops(1),
        figures("off before"),
        figures("off after"),
    ]);
    for change in &changes {
        let after = match change.after {
            None => Cell::from(UNKNOWN).uncertain(),
            Some(after) if after > change.before => Cell::from(format!("{after:.1} %")).bad(),
            Some(after) => Cell::from(format!("{after:.1} %")),
        };
        table.row([
            change.operator.as_str().into(),
            change.device.as_str().into(),
            change.rows.to_string().into(),
            format!("{:.1} %", change.before).into(),
            after,
        ]);
    }
    print(&format!(
        "{}\n`off after` is what each half of the measurements is off by when only the other half was seen; wrote `{}`",
        table.on(&paper()),
        path.display()
    ))?;
    if arguments.json {
        print(&json!({ "out": path, "changes": changes }).to_string())?;
    }
    Ok(0)
}

/// Measures how far this machine is, and keeps it.
fn this_host(arguments: &Adapt) -> Result<u8> {
    let predictor = bundle::read(&arguments.predictor.clone().map_or_else(|| published::find(None, false), Ok)?)?;
    let host_class = measure::host::Facts::read().host_class();
    let kept = arguments.out.clone().or_else(|| published::calibration_file(&host_class)).ok_or_else(|| {
        Error::Query("there is no folder for what is kept, as HOME is not set: say where with --out FILE".to_owned())
    })?;
    if let Some(folder) = kept.parent().filter(|_| arguments.out.is_none()) {
        std::fs::create_dir_all(folder).map_err(|error| Error::io("make", folder, error))?;
    }
    let out = begin(Some(&kept))?;
    let deadline = Duration::from_secs(arguments.seconds);
    let known = Calibration::measure(&probe::collector(), &predictor, &host_class, deadline)?;
    finish(out, || serde_json::to_vec(&known).expect("numbers and texts have a JSON form"))?;
    let mut table = Table::new([
        words("operator").least(20),
        figures("threads"),
        words("bound by").drops(1),
        figures("measured"),
        figures("±").drops(2),
        figures("predicted"),
        figures("ratio"),
    ]);
    for one in &known.sentinels {
        let half = one.uncertainty.map_or(UNKNOWN.to_owned(), |half| format!("{:.1} %", 100.0 * half));
        table.row([
            one.operator.clone(),
            one.threads.to_string(),
            one.bound.clone(),
            duration(one.measured_ns),
            half,
            duration(one.predicted_ns),
            if one.is_known() { format!("{:.2}", one.measured_ns / one.predicted_ns) } else { UNKNOWN.to_owned() },
        ]);
    }
    print(&table.on(&paper()))?;
    let disturbed = known.sentinels.len() - known.known().count();
    if disturbed > 0 {
        eprintln!("warning: {disturbed} sentinels were disturbed and do not count; a quieter machine says more");
    }
    print(&format!("{}\nkept in `{}`", super::predict::how_far(&known), kept.display()))?;
    if arguments.json {
        print(&json!({ "out": kept, "distance": known.distance(), "calibration": known }).to_string())?;
    }
    Ok(0)
}

/// Says which shapes to measure on a new device.
pub fn suggest(arguments: &Suggest) -> Result<u8> {
    let predictor = bundle::read(&arguments.predictor)?;
    let suggestions = adaptation::suggest(&predictor, load_unmeasured(&arguments.data)?, arguments.count.get())?;
    for of_operator in suggestions.chunk_by(|one, two| one.operator == two.operator) {
        let sizes = of_operator[0].sizes.iter().map(|(name, _)| *name);
        let mut table = Table::new([words("operator")].into_iter().chain(sizes.map(figures)));
        for one in of_operator {
            let sizes = one.sizes.iter().map(|(_, size)| size.to_string());
            table.row([one.operator.clone()].into_iter().chain(sizes));
        }
        print(&table.on(&paper()))?;
    }
    print("the most telling first; measure them on the new device, then give them to `oppredict adapt`")?;
    if arguments.json {
        print(&json!({ "suggestions": suggestions }).to_string())?;
    }
    Ok(0)
}
