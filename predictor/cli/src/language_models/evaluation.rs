//! Training and evaluation of the overheads of language-model servers.

use crate::{DONE, create_output, print_json, print_text, stdout_paper, write_output};
use models::Choice;
use predictor::{Error, Result};
use report::terminal::print_notes;
use report::{Table, activity, format_count, number_column, text_column};
use serde_json::json;
use serving::measured_servers::MeasuredServers;
use serving::server_evaluation::{HeldOutServers, ServerErrors, evaluate_overheads};
use std::path::{Path, PathBuf};

/// Evaluates server predictions with half of the servers held out, and prints the errors.
pub fn evaluate_servers(paths: &[PathBuf], seeds: u64, as_json: bool) -> Result<u8> {
    let measured = read_servers(paths)?;
    let seeds: Vec<u64> = (0..seeds).collect();
    activity::begin_activity(format!("working on {} servers", measured.servers.len()));
    let errors = evaluate_overheads(&measured, HeldOutServers::ALL, &seeds)?;
    print_text(as_json, &describe_errors(&errors))?;
    if as_json {
        let document = json!({ "servers": measured.servers.len(), "left_out": measured.left_out, "errors": errors });
        print_json(&document)?;
    }
    Ok(DONE)
}

pub fn train_servers(paths: &[PathBuf], out: &Path, as_json: bool) -> Result<u8> {
    let output = create_output(Some(out))?;
    let measured = read_servers(paths)?;
    let names: Vec<String> =
        paths.iter().filter_map(|path| path.file_name()).map(|name| name.to_string_lossy().into_owned()).collect();
    let overheads = measured.learn_overheads(&names.join(", "))?;
    write_output(output, || overheads.to_json().into_bytes())?;
    let count = overheads.len();
    print_text(as_json, &format!("trained overheads on {count} servers; wrote `{}`", out.display()))?;
    if as_json {
        print_json(&json!({ "out": out, "rows": count, "left_out": measured.left_out }))?;
    }
    Ok(DONE)
}

fn read_servers(paths: &[PathBuf]) -> Result<MeasuredServers> {
    let [path] = paths else {
        return Err(Error::Query("give exactly one --data, a table of servers".to_owned()));
    };
    activity::begin_activity(format!("reading `{}`", path.display()));
    let measured = MeasuredServers::read_table(path)?;
    print_notes(
        "note",
        measured.left_out.iter().map(|(reason, count)| format!("skipped {}: {reason}", format_count(*count, "row"))),
    );
    Ok(measured)
}

fn describe_errors(errors: &[ServerErrors]) -> String {
    let mut table = Table::new([
        text_column("held out"),
        text_column("of").min_width(10),
        text_column("learner").min_width(6),
        text_column("group").min_width(6),
        number_column("rows").drop_order(1),
        number_column("median %"),
        number_column("p90 %").drop_order(3),
        number_column("90 % coverage"),
        number_column("high/low").drop_order(2),
        number_column("50, 80, 95 % coverage").drop_order(4),
    ]);
    for one in errors {
        let held = |promised: u8| one.intervals.iter().find(|interval| interval.promised == promised);
        let text = |promised: u8| held(promised).map_or_else(String::new, |interval| format!("{:.0}", interval.held));
        let others = [50, 80, 95].map(text);
        table.add_row([
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
    table.format_for(&stdout_paper())
}
