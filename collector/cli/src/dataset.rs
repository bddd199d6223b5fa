//! `dataset`: stores, looked into, moved and cared for.

use super::pace::Pace;
use super::progress::terminal;
use super::{DONE, DONE_WITH_LOSSES, Result, best, paper, print, print_json, revisions, sharing, tell_damage};
use crate::best::BestQuestion;
use crate::values::{some_seconds, whole_mib};
use capture::trace::Bounds;
use clap::Subcommand;
use datasets::sql::Dialect;
use datasets::store::{Damage, MergeReport, QuarantineReport, SealReport};
use datasets::{Choose, Format, SealOptions, Store};
use engine::failure::Failure;
use engine::stores::{failed, note_sealed, open, verify};
use engine::{query, sharing as shared};
use report::{Table, figures, words};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What can be done with stores.
#[derive(Debug, Subcommand)]
pub enum DatasetCommand {
    /// Count a store's records by outcome, source, target, host and operator
    Stats {
        /// The store
        #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
        store: PathBuf,
        /// Of several attempts, count the middle, latest or all
        #[arg(long, value_name = "WHICH", default_value = "middle", value_parser = datasets::Choose::named)]
        choose: datasets::Choose,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Write records to one file
    Export {
        /// The store
        #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
        store: PathBuf,
        /// csv, parquet or jsonl [default: by the file's name]
        #[arg(long, value_name = "FORMAT")]
        format: Option<String>,
        /// The file; it is written beside and renamed into place
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Of several attempts, write the middle, latest or all
        #[arg(long, value_name = "WHICH", default_value = "all", value_parser = datasets::Choose::named)]
        choose: datasets::Choose,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Take the records of a file into a store
    Import {
        /// The store, made if needed
        #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
        store: PathBuf,
        /// csv, parquet or jsonl [default: by the file's name]
        #[arg(long, value_name = "FORMAT")]
        format: Option<String>,
        /// The file
        file: PathBuf,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Take the records of other stores into this one; the order does not matter
    Merge {
        /// The store, made if needed
        #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
        store: PathBuf,
        /// The other stores
        #[arg(required = true)]
        others: Vec<PathBuf>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Turn finished journals into Parquet parts
    Seal {
        /// The store
        #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
        store: PathBuf,
        /// Also seal journals of processes not seen from here, which must have ended
        #[arg(long)]
        take_over: bool,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Merge small parts and drop rows of measurements met twice
    Compact {
        /// The store
        #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
        store: PathBuf,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Read everything and report whatever is damaged
    Verify {
        /// The store
        #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
        store: PathBuf,
        /// Set aside what is damaged, and say what is lost
        #[arg(long)]
        quarantine: bool,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Count records by whether this program still makes the code that was measured
    ///
    /// Exits with 1 where some records are of other code. The campaign that measured them, run again, measures their tasks by
    /// the code of now.
    Revisions {
        /// The store
        #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
        store: PathBuf,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Tell the best known schedule and time of operators, tasks or models, on a host or the nearest that is known
    ///
    /// For this machine, only times of the installed versions count; for another host, those of its newest versions.
    Best(BestQuestion),
    /// Ask all records one question in SQL, answered by SQLite, which this program has inside
    ///
    /// The table is `records`; its columns are those of `opcollect dataset schema`. Columns that the question does not
    /// name are not read. Keys are texts of hexadecimal digits, JSON and lists are texts for `json_extract` and its kind.
    Query {
        /// The store
        #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
        store: PathBuf,
        /// The question, one statement
        #[arg(long, value_name = "STATEMENT")]
        sql: String,
        /// Of several attempts, ask about the middle, latest or all
        #[arg(long, value_name = "WHICH", default_value = "all", value_parser = datasets::Choose::named)]
        choose: datasets::Choose,
        /// Give up after so long
        #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = some_seconds)]
        seconds: f64,
        /// Memory for rows and answer
        #[arg(long, value_name = "MIB", default_value_t = 4096, value_parser = whole_mib)]
        memory_mib: u32,
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Bring parts, configurations and peaks to a folder or a bucket by its address, or a store's records into a database
    ///
    /// What is there already is not written again, so an interrupted push goes on where it ended.
    Push {
        /// The store
        #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
        store: PathBuf,
        /// `file:///folder`; `s3://bucket/place`, which takes `curl` and the usual variables (AWS_ACCESS_KEY_ID,
        /// AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL); or `postgres://user@host/database`, which takes PostgreSQL's
        /// client `psql`
        address: String,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Fetch parts, configurations and peaks that were pushed to a folder or a bucket
    Pull {
        /// The store, made if needed
        #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
        store: PathBuf,
        /// `file:///folder` or `s3://bucket/place`
        address: String,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Print the columns of a record
    Schema {
        /// Print a CREATE TABLE statement: postgres, clickhouse or duckdb
        #[arg(long, value_name = "ENGINE")]
        sql: Option<String>,
    },
}

/// Does one of them.
pub fn run(command: DatasetCommand) -> Result<u8> {
    match command {
        DatasetCommand::Stats { store, choose, json } => stats(&store, choose, json),
        DatasetCommand::Export { store, format, out, choose, json } => {
            export(&store, format.as_deref(), &out, choose, json)
        }
        DatasetCommand::Import { store, format, file, json } => import(&store, format.as_deref(), &file, json),
        DatasetCommand::Merge { store, others, json } => merge(&store, &others, json),
        DatasetCommand::Seal { store, take_over, json } => seal(&store, SealOptions { take_over }, json),
        DatasetCommand::Compact { store, json } => compact(&store, json),
        DatasetCommand::Verify { store, quarantine, json } => print_check(&store, quarantine, json),
        DatasetCommand::Revisions { store, json } => revisions::run(&store, json),
        DatasetCommand::Best(question) => best::run(&question),
        DatasetCommand::Query { store, sql, choose, seconds, memory_mib, json } => {
            let bounds = Bounds { time: Duration::from_secs_f64(seconds), memory_mib, ..Bounds::default() };
            let found = query::query(&store, &sql, choose, bounds, terminal(Pace::default()).as_ref())?;
            match json {
                true => print_json(&found.answer.objects())?,
                false => print(&found.answer.table().on(&paper()))?,
            }
            Ok(if found.has_damage { DONE_WITH_LOSSES } else { DONE })
        }
        DatasetCommand::Push { store, address, json } => sharing::push(&store, &address, json),
        DatasetCommand::Pull { store, address, json } => sharing::pull(&store, &address, json),
        DatasetCommand::Schema { sql } => schema(sql.as_deref()),
    }
}

fn format_of(name: Option<&str>, path: &Path) -> Result<Format> {
    let allowed = "csv, parquet or jsonl";
    match name {
        Some(name) => Format::named(name).map_err(Failure::usage),
        None => Format::of_path(path).ok_or_else(|| {
            Failure::usage(format!("the name `{}` does not say the format", path.display()))
                .with_hint(format!("add `--format` with {allowed}"))
        }),
    }
}

/// Prints a report as one JSON document or in words.
fn answer(report: &impl Serialize, as_json: bool, prose: impl FnOnce() -> String) -> Result<()> {
    if as_json { print_json(report) } else { print(&prose()) }
}

fn stats(path: &Path, choose: Choose, as_json: bool) -> Result<u8> {
    let stats = open(path)?.stats(choose).map_err(failed)?;
    let code = tell_damage(&stats.damage);
    if as_json {
        print_json(&stats)?;
        return Ok(code);
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
        "{} tasks; {} experiments, tried {} times; {} parts of {} bytes, {} journals of {} bytes; {} repeated rows",
        stats.tasks,
        stats.experiments,
        stats.measurements,
        stats.parts.count,
        stats.parts.bytes,
        stats.journals.count,
        stats.journals.bytes,
        stats.duplicates
    ))?;
    Ok(code)
}

fn export(path: &Path, format: Option<&str>, out: &Path, choose: Choose, as_json: bool) -> Result<u8> {
    let format = format_of(format, out)?;
    let done = open(path)?.export(out, format, choose).map_err(failed)?;
    let code = tell_damage(&done.damage);
    answer(&done, as_json, || format!("{} records in `{}`", done.rows, out.display()))?;
    Ok(code)
}

fn import(path: &Path, format: Option<&str>, file: &Path, as_json: bool) -> Result<u8> {
    let format = format_of(format, file)?;
    if !file.is_file() {
        return Err(Failure::usage(format!("cannot read `{}`: it is not a file", file.display())));
    }
    let done = Store::import(path, file, format).map_err(failed)?;
    let prose = || format!("{} records taken into `{}`, in {} parts", done.rows, path.display(), done.parts.len());
    answer(&done, as_json, prose)?;
    Ok(DONE)
}

fn merge(path: &Path, others: &[PathBuf], as_json: bool) -> Result<u8> {
    let merged = shared::merge(path, others, terminal(Pace::default()).as_ref())?;
    let prose = |from: &Path, report: &MergeReport| {
        let MergeReport { parts, known, mended, journal_rows, .. } = report;
        let mut text = format!("`{}`: {parts} parts taken, {known} known before", from.display());
        if *mended > 0 {
            text.push_str(&format!(", {mended} that were damaged here are sound again"));
        }
        if *journal_rows > 0 {
            text.push_str(&format!(", {journal_rows} records from journals"));
        }
        text
    };
    let lines = || merged.iter().map(|one| prose(&one.from, &one.report)).collect::<Vec<_>>().join("\n");
    answer(&merged, as_json, lines)?;
    Ok(code(merged.iter().flat_map(|one| &one.report.damage)))
}

fn seal(path: &Path, options: SealOptions, as_json: bool) -> Result<u8> {
    let done = open(path)?.seal(options).map_err(failed)?;
    let code = tell_sealed(&done);
    let prose = || format!("{} journals became {} parts, {} records", done.journals, done.parts.len(), done.rows);
    answer(&done, as_json, prose)?;
    Ok(code)
}

/// Says what was not sealed, and what was lost by it.
fn tell_sealed(done: &SealReport) -> u8 {
    note_sealed(done, terminal(Pace::default()).as_ref());
    code(&done.damage)
}

/// Any damage is a loss.
fn code<'a>(damage: impl IntoIterator<Item = &'a Damage>) -> u8 {
    if damage.into_iter().next().is_none() { DONE } else { DONE_WITH_LOSSES }
}

fn compact(path: &Path, as_json: bool) -> Result<u8> {
    let done = open(path)?.compact().map_err(failed)?;
    let code = tell_sealed(&done.sealed).max(tell_damage(&done.damage));
    let prose = || format!("{} parts became {}, {} rows", done.parts_before, done.parts_after, done.rows);
    answer(&done, as_json, prose)?;
    Ok(code)
}

fn print_check(path: &Path, quarantine: bool, as_json: bool) -> Result<u8> {
    let check = verify(path, quarantine)?;
    if as_json {
        // As a value, whose fields are sorted.
        print_json(&serde_json::to_value(&check).map_err(Failure::environment)?)?;
    } else {
        let found = &check.found;
        check.quarantine.iter().try_for_each(print_quarantine)?;
        for problem in &found.problems {
            print(&format!("`{}`: {}", problem.file.display(), problem.problem))?;
        }
        let verdict = match found.problems.len() {
            0 => "sound".to_owned(),
            count => format!("{count} problems"),
        };
        print(&format!("{} rows in {} parts and {} journals: {verdict}", found.rows, found.parts, found.journals))?;
        if !found.quarantined.is_empty() {
            let folder = check.quarantine_folder.display();
            print(&format!("{} files were set aside in `{folder}`", found.quarantined.len()))?;
        }
    }
    Ok(if check.is_sound() { DONE } else { DONE_WITH_LOSSES })
}

fn print_quarantine(set_aside: &QuarantineReport) -> Result<()> {
    for aside in &set_aside.files {
        let lost = aside.rows_lost.map_or("nobody knows how many".to_owned(), |rows| rows.to_string());
        let (file, to) = (aside.file.display(), aside.to.display());
        print(&format!("set aside `{file}` as `{to}`, {lost} rows lost: {}", aside.problem))?;
    }
    for damage in &set_aside.sealed.damage {
        print(&format!("set aside: {damage}"))?;
    }
    tell_sealed(&SealReport { damage: Vec::new(), ..set_aside.sealed.clone() });
    Ok(())
}

fn schema(sql: Option<&str>) -> Result<u8> {
    match sql {
        Some(engine) => {
            let engine = Dialect::named(engine).map_err(Failure::usage)?;
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
