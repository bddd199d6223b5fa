//! Training and evaluation of the overheads of servers.

use crate::{DONE, begin, finish, paper, print_json, print_text};
use models::Choice;
use predictor::{Error, Result};
use report::terminal::print_notes;
use report::{Table, activity, figures, words};
use serde_json::json;
use serving::measured_servers::MeasuredServers;
use serving::server_evaluation::{HeldOutServers, ServerErrors, evaluate};
use std::path::{Path, PathBuf};

/// Evaluates servers with half of them held out, and prints.
pub fn evaluate_servers(paths: &[PathBuf], seeds: u64, as_json: bool) -> Result<u8> {
    let measured = read(paths)?;
    let seeds: Vec<u64> = (0..seeds).collect();
    activity::begin(format!("working on {} servers", measured.servers.len()));
    let errors = evaluate(&measured, HeldOutServers::ALL, &seeds)?;
    print_text(as_json, &describe(&errors))?;
    if as_json {
        let document = json!({ "servers": measured.servers.len(), "left_out": measured.left_out, "errors": errors });
        print_json(&document)?;
    }
    Ok(DONE)
}

/// Learns overheads of servers, and writes them.
pub fn train_servers(paths: &[PathBuf], out: &Path, as_json: bool) -> Result<u8> {
    let output = begin(Some(out))?;
    let measured = read(paths)?;
    let names: Vec<String> =
        paths.iter().filter_map(|path| path.file_name()).map(|name| name.to_string_lossy().into_owned()).collect();
    let overheads = measured.learn(&names.join(", "))?;
    finish(output, || overheads.to_json().into_bytes())?;
    let count = overheads.len();
    print_text(as_json, &format!("learned overheads of {count} servers; wrote `{}`", out.display()))?;
    if as_json {
        print_json(&json!({ "out": out, "rows": count, "left_out": measured.left_out }))?;
    }
    Ok(DONE)
}

fn read(paths: &[PathBuf]) -> Result<MeasuredServers> {
    let [path] = paths else {
        return Err(Error::Query("servers are read from one table; give one --data".to_owned()));
    };
    activity::begin(format!("reading `{}`", path.display()));
    let measured = MeasuredServers::read(path)?;
    print_notes("note", measured.left_out.iter().map(|(reason, count)| format!("{count} rows left out: {reason}")));
    Ok(measured)
}

fn describe(errors: &[ServerErrors]) -> String {
    let mut table = Table::new([
        words("held out"),
        words("of").least(10),
        words("learner").least(6),
        words("group").least(6),
        figures("rows").drops(1),
        figures("median %"),
        figures("p90 %").drops(3),
        figures("90 % holds"),
        figures("high/low").drops(2),
        figures("50, 80, 95 % hold").drops(4),
    ]);
    for one in errors {
        let held = |promised: u32| one.intervals.iter().find(|interval| interval.promised == promised);
        let text = |promised: u32| held(promised).map_or_else(String::new, |interval| format!("{:.0}", interval.held));
        let others = [50, 80, 95].map(text);
        table.row([
            one.held_out.name().to_owned(),
            one.target.to_owned(),
            one.learner.name().to_owned(),
            one.group.clone(),
            one.rows.to_string(),
            format!("{:.1}", one.median),
            format!("{:.1}", one.p90),
            text(90),
            held(90).map_or_else(String::new, |interval| format!("{:.2}", interval.high_over_low)),
            others.join(" ").trim().to_owned(),
        ]);
    }
    table.on(&paper())
}
