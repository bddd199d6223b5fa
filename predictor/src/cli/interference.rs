//! `oppredict interference`.

use super::arguments::InterferenceOf;
use super::{begin, finish, paper, print, tell_left_out};
use crate::error::{Error, Result};
use crate::pages;
use crate::planning::coruns::{CoRuns, Scores};
use crate::planning::demand::{bytes_per_ns, cache_bytes};
use datasets::{Peaks, Store};
use planners::interference::{Learned, Machine};
use report::{Table, figures, words};
use serde_json::json;

/// Evaluates on held-out operators, and shows all slowdowns.
pub fn run(arguments: &InterferenceOf) -> Result<u8> {
    let page = begin(arguments.html.as_deref())?;
    let (coruns, records, left_out) =
        CoRuns::read(&arguments.data, arguments.hardware.as_deref(), arguments.all_versions)?;
    tell_left_out(left_out);
    let class = records.first().map(|record| record.host_class.clone()).unwrap_or_default();
    let store = Store::open(&arguments.data)?;
    let peaks = Peaks::of(store.peaks()?.iter().filter(|measured| measured.host_class == class));
    let cores = records.iter().filter_map(|record| usize::try_from(record.logical_cpus?).ok()).max().unwrap_or(1);
    let (bytes_per_ns, cache_bytes) = (bytes_per_ns(&peaks, cores), cache_bytes(&records));
    let machine = Machine { cores, bytes_per_ns, cache_bytes, learned: Learned::default() };
    if coruns.beside.is_empty() {
        let problem = "has operators beside synthetic partners alone; make pairs with `sizes = [2]` in `[corun]`";
        return Err(Error::Query(format!("`{}` {problem}", arguments.data.display())));
    }
    let scores = coruns.scores(&machine, arguments.seed)?;
    if coruns.left_out > 0 {
        eprintln!("note: {} slowdowns left out: not known to 5 %", coruns.left_out);
    }
    print(&describe(&scores, &machine))?;
    finish(page, || pages::slowdowns(&coruns, &scores).into_bytes())?;
    if arguments.json {
        let partners = &coruns.partners;
        let report = json!({ "host_class": class, "machine": machine, "scores": scores, "partners": partners,
            "operators": coruns.operators, "beside": coruns.beside });
        print(&report.to_string())?;
    }
    Ok(0)
}

fn describe(scores: &Scores, machine: &Machine) -> String {
    let mut table = Table::new([words("rule"), figures("MAPE"), figures("median"), figures("90th percentile")]);
    for one in &scores.rules {
        let percent = |value: f64| format!("{value:.2} %");
        table.row([one.rule.to_owned(), percent(one.mape), percent(one.median), percent(one.p90)]);
    }
    format!(
        "{}\n{} slowdowns of {} operators, each asked when its operator was held out; the middle one is {:.3}, known to ± {:.2} %\n\
         {} cores, {:.1} bytes/ns, {:.0} MB of last cache",
        table.on(&paper()),
        scores.asked,
        scores.operators,
        scores.middle,
        scores.noise,
        machine.cores,
        machine.bytes_per_ns,
        machine.cache_bytes / 1e6
    )
}
