//! `dataset`: stores, looked into, moved and cared for.

use super::arguments::DatasetCommand;
use super::failure::{Failure, chain};
use super::{DONE, DONE_WITH_LOSSES, Result, paper, print, print_json};
use datasets::sql::Dialect;
use datasets::{Format, SealOptions, Store};
use report::{Table, figures, words};
use std::collections::BTreeMap;
use std::path::Path;

/// Does one of them.
pub fn run(command: DatasetCommand) -> Result<u8> {
    match command {
        DatasetCommand::Stats { store, json } => stats(&store, json),
        DatasetCommand::Export { store, format, out } => export(&store, format.as_deref(), &out),
        DatasetCommand::Import { store, format, file } => import(&store, format.as_deref(), &file),
        DatasetCommand::Merge { store, others } => merge(&store, &others),
        DatasetCommand::Seal { store } => {
            let report = open(&store)?.seal(SealOptions::default()).map_err(failed)?;
            print_json(&report)?;
            Ok(DONE)
        }
        DatasetCommand::Compact { store } => {
            let report = open(&store)?.compact().map_err(failed)?;
            print(&format!("{} parts became {}, {} rows", report.parts_before, report.parts_after, report.rows))?;
            Ok(DONE)
        }
        DatasetCommand::Verify { store, json } => verify(&store, json),
        DatasetCommand::Schema { sql } => schema(sql.as_deref()),
    }
}

/// A store that must exist.
pub fn open(path: &Path) -> Result<Store> {
    Store::open(path).map_err(failed)
}

/// What is wrong with a store or file that was named.
pub fn failed(error: datasets::Error) -> Failure {
    Failure::usage(chain(&error))
}

fn format_of(name: Option<&str>, path: &Path) -> Result<Format> {
    let allowed = "csv, parquet or jsonl";
    match name {
        Some(name) => Format::from_name(name)
            .ok_or_else(|| Failure::usage(format!("unknown format `{name}`; allowed are {allowed}"))),
        None => Format::of_path(path).ok_or_else(|| {
            Failure::usage(format!("the name `{}` does not say the format", path.display()))
                .with_hint(format!("add `--format` with {allowed}"))
        }),
    }
}

fn stats(path: &Path, as_json: bool) -> Result<u8> {
    let stats = open(path)?.stats().map_err(failed)?;
    if as_json {
        print_json(&stats)?;
        return Ok(DONE);
    }
    let mut table = Table::new([words("what"), figures("records")]);
    table.row(["all".to_owned(), stats.rows.to_string()]);
    let mut group = |name: &str, counts: &BTreeMap<String, u64>| {
        for (label, count) in counts {
            table.row([format!("{name} {label}"), count.to_string()]);
        }
    };
    group("outcome", &stats.by_outcome);
    group("source", &stats.by_source);
    group("target", &stats.by_target);
    group("host", &stats.by_host);
    group("operator", &stats.by_operator);
    print(&table.on(&paper()))?;
    print(&format!(
        "{} tasks; {} parts of {} bytes, {} journals of {} bytes; {} repeated rows",
        stats.tasks, stats.parts.count, stats.parts.bytes, stats.journals.count, stats.journals.bytes, stats.duplicates
    ))?;
    Ok(DONE)
}

fn export(path: &Path, format: Option<&str>, out: &Path) -> Result<u8> {
    let format = format_of(format, out)?;
    let rows = open(path)?.export(out, format).map_err(failed)?;
    print(&format!("{rows} records in `{}`", out.display()))?;
    Ok(DONE)
}

fn import(path: &Path, format: Option<&str>, file: &Path) -> Result<u8> {
    let format = format_of(format, file)?;
    if !file.is_file() {
        return Err(Failure::usage(format!("cannot read `{}`: it is not a file", file.display())));
    }
    let report = Store::create(path).and_then(|store| store.import(file, format)).map_err(failed)?;
    print_json(&report)?;
    Ok(DONE)
}

fn merge(path: &Path, others: &[std::path::PathBuf]) -> Result<u8> {
    let others = others.iter().map(|other| open(other)).collect::<Result<Vec<_>>>()?;
    let store = Store::create(path).map_err(failed)?;
    for other in &others {
        let report = store.merge(other).map_err(failed)?;
        print_json(&report)?;
    }
    Ok(DONE)
}

fn verify(path: &Path, as_json: bool) -> Result<u8> {
    let report = open(path)?.verify().map_err(failed)?;
    let is_sound = report.problems.is_empty();
    if as_json {
        print_json(&report)?;
    } else {
        for problem in &report.problems {
            print(&format!("`{}`: {}", problem.file.display(), problem.problem))?;
        }
        let verdict = if is_sound { "sound".to_owned() } else { format!("{} problems", report.problems.len()) };
        print(&format!("{} rows in {} parts and {} journals: {verdict}", report.rows, report.parts, report.journals))?;
    }
    Ok(if is_sound { DONE } else { DONE_WITH_LOSSES })
}

fn schema(sql: Option<&str>) -> Result<u8> {
    match sql {
        Some(engine) => {
            let engine = Dialect::from_name(engine).ok_or_else(|| {
                Failure::usage(format!("unknown engine `{engine}`; allowed are postgres, clickhouse and duckdb"))
            })?;
            print(datasets::sql::schema(engine).trim_end())?;
        }
        None => {
            let columns =
                [words("column").least(24), words("type").drops(2), words("unit").drops(1), words("meaning").least(24)];
            let mut table = Table::new(columns);
            for column in datasets::COLUMNS {
                table.row([column.name, column.kind.name(), column.unit, column.text()]);
            }
            print(&table.on(&paper()))?;
        }
    }
    Ok(DONE)
}
