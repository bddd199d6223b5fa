//! `dataset`: queries, conversions and maintenance of stores.

use super::pace::Pace;
use super::progress::terminal_observer;
use super::{
    DONE, DONE_WITH_LOSSES, Result, best, print_json, print_notes, print_text, report_damage, revisions, sharing,
    stdout_paper,
};
use crate::best::BestQuestion;
use crate::values::{positive_seconds, whole_mib};
use capture::trace::QueryBounds;
use clap::Subcommand;
use datasets::sql::Dialect;
use datasets::store::{Damage, MergeReport, QuarantineReport, SealReport};
use datasets::{Choose, Format, SealOptions};
use engine::failure::Failure;
use engine::stores::{self, DEFAULT_STORE, describe_torn, note_sealed, open_existing, store_failure, verify_store};
use engine::{query, sharing as shared};
use report::{Table, format_count, number_column, text_column};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub enum DatasetCommand {
    /// Count records by outcome, source, target, host and operator
    Stats {
        /// Store
        #[arg(long, value_name = "DIR", default_value = DEFAULT_STORE)]
        store: PathBuf,
        /// Which attempts of each experiment are counted
        #[arg(long, value_name = "WHICH", default_value = "middle", value_parser = datasets::Choose::parse_name)]
        choose: datasets::Choose,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Write records to a file
    Export {
        /// Store
        #[arg(long, value_name = "DIR", default_value = DEFAULT_STORE)]
        store: PathBuf,
        /// File format: csv, parquet or jsonl [default: by extension]
        #[arg(long, value_name = "FORMAT")]
        format: Option<String>,
        /// Output file, replaced only when complete
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Which attempts of each experiment are written
        #[arg(long, value_name = "WHICH", default_value = "all", value_parser = datasets::Choose::parse_name)]
        choose: datasets::Choose,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Add the records of a file to a store
    Import {
        /// Store, created if absent
        #[arg(long, value_name = "DIR", default_value = DEFAULT_STORE)]
        store: PathBuf,
        /// File format: csv, parquet or jsonl [default: by extension]
        #[arg(long, value_name = "FORMAT")]
        format: Option<String>,
        file: PathBuf,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Merge other stores into this one, in any order
    Merge {
        /// Store, created if absent
        #[arg(long, value_name = "DIR", default_value = DEFAULT_STORE)]
        store: PathBuf,
        /// Stores to read
        #[arg(required = true)]
        others: Vec<PathBuf>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Convert finished journals to Parquet parts
    Seal {
        /// Store
        #[arg(long, value_name = "DIR", default_value = DEFAULT_STORE)]
        store: PathBuf,
        /// Also seal journals of processes that cannot be seen from here
        ///
        /// Such processes must have ended.
        #[arg(long)]
        take_over: bool,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Merge small Parquet parts and remove duplicate rows
    Compact {
        /// Store
        #[arg(long, value_name = "DIR", default_value = DEFAULT_STORE)]
        store: PathBuf,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Read the whole store and report damage
    Verify {
        /// Store
        #[arg(long, value_name = "DIR", default_value = DEFAULT_STORE)]
        store: PathBuf,
        /// Move damaged files aside and report the lost records
        #[arg(long)]
        quarantine: bool,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Count records by whether their generated code is still current
    ///
    /// The exit code is 1 if some records are of other code. To replace them, run the campaign again that measured
    /// them.
    Revisions {
        /// Store
        #[arg(long, value_name = "DIR", default_value = DEFAULT_STORE)]
        store: PathBuf,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Show the fastest known schedules of operators, tasks or models
    ///
    /// For this machine, only times of the installed versions count; for another host, times of its newest versions.
    /// Tasks that this machine has not measured are shown with times of the most similar host.
    Best(BestQuestion),
    /// Query all records with SQL, using the built-in SQLite
    ///
    /// The table is `records`; `opcollect dataset schema` lists its columns. Only columns that the query names are
    /// read. Keys are hexadecimal text; lists and JSON values are text for functions such as `json_extract`.
    Query {
        /// Store
        #[arg(long, value_name = "DIR", default_value = DEFAULT_STORE)]
        store: PathBuf,
        /// SQL query, one statement
        #[arg(long, value_name = "STATEMENT")]
        sql: String,
        /// Which attempts of each experiment are queried
        #[arg(long, value_name = "WHICH", default_value = "all", value_parser = datasets::Choose::parse_name)]
        choose: datasets::Choose,
        /// Time limit of the query in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = positive_seconds)]
        seconds: f64,
        /// Memory limit for rows and result in MiB
        #[arg(long, value_name = "MIB", default_value_t = 4096, value_parser = whole_mib)]
        memory_mib: u32,
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Push a store to a folder or bucket, or its records to a database
    ///
    /// Pushes Parquet parts, configurations and peaks. Existing files are not written again, so an interrupted push
    /// continues.
    Push {
        /// Store
        #[arg(long, value_name = "DIR", default_value = DEFAULT_STORE)]
        store: PathBuf,
        /// Destination: file:///folder, s3://bucket/prefix or postgres://…
        ///
        /// `s3` needs `curl` and the usual variables (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION,
        /// AWS_ENDPOINT_URL). `postgres://user@host/database` needs PostgreSQL's client `psql`.
        address: String,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Fetch parts, configurations and peaks from a folder or bucket
    Pull {
        /// Store, created if absent
        #[arg(long, value_name = "DIR", default_value = DEFAULT_STORE)]
        store: PathBuf,
        /// Source: file:///folder or s3://bucket/prefix
        address: String,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Print the columns of records
    Schema {
        /// Print a CREATE TABLE statement for postgres, clickhouse or duckdb
        #[arg(long, value_name = "ENGINE")]
        sql: Option<String>,
    },
}

pub fn run(command: DatasetCommand) -> Result<u8> {
    match command {
        DatasetCommand::Stats { store, choose, json } => print_stats(&store, choose, json),
        DatasetCommand::Export { store, format, out, choose, json } => {
            export_store(&store, format.as_deref(), &out, choose, json)
        }
        DatasetCommand::Import { store, format, file, json } => import_records(&store, format.as_deref(), &file, json),
        DatasetCommand::Merge { store, others, json } => merge_stores(&store, &others, json),
        DatasetCommand::Seal { store, take_over, json } => seal_journals(&store, SealOptions { take_over }, json),
        DatasetCommand::Compact { store, json } => compact_store(&store, json),
        DatasetCommand::Verify { store, quarantine, json } => print_check(&store, quarantine, json),
        DatasetCommand::Revisions { store, json } => revisions::run(&store, json),
        DatasetCommand::Best(question) => best::run(&question),
        DatasetCommand::Query { store, sql, choose, seconds, memory_mib, json } => {
            let bounds = QueryBounds { time: Duration::from_secs_f64(seconds), memory_mib, ..QueryBounds::default() };
            let found = query::run_query(&store, &sql, choose, bounds, terminal_observer(Pace::default()).as_ref())?;
            match json {
                true => print_json(&query::json_rows(&found.answer)?)?,
                false => print_text(&found.answer.to_table().format_for(&stdout_paper()))?,
            }
            Ok(if found.has_damage { DONE_WITH_LOSSES } else { DONE })
        }
        DatasetCommand::Push { store, address, json } => sharing::push_store(&store, &address, json),
        DatasetCommand::Pull { store, address, json } => sharing::pull_store(&store, &address, json),
        DatasetCommand::Schema { sql } => print_schema(sql.as_deref()),
    }
}

fn format_of(name: Option<&str>, path: &Path) -> Result<Format> {
    let allowed = "csv, parquet or jsonl";
    match name {
        Some(name) => Format::parse_name(name).map_err(Failure::usage),
        None => Format::of_path(path).ok_or_else(|| {
            Failure::usage(format!("the file format is unknown, because `{}` has no known extension", path.display()))
                .with_hint(format!("add `--format` with {allowed}"))
        }),
    }
}

fn print_report(report: &impl Serialize, as_json: bool, prose: impl FnOnce() -> String) -> Result<()> {
    if as_json { print_json(report) } else { print_text(&prose()) }
}

fn print_stats(path: &Path, choose: Choose, as_json: bool) -> Result<u8> {
    let stats = open_existing(path)?.stats(choose).map_err(store_failure)?;
    let code = report_damage(&stats.damage);
    if as_json {
        print_json(&stats)?;
        return Ok(code);
    }
    let mut table = Table::new([text_column("what"), number_column("records")]);
    table.add_row(["all".to_owned(), stats.rows.to_string()]);
    let mut group = |name: &str, counts: &BTreeMap<String, u64>| {
        for (label, count) in counts {
            table.add_row([format!("{name} {label}"), count.to_string()]);
        }
    };
    group("outcome", &stats.by_outcome);
    group("source", &stats.by_source);
    group("target", &stats.by_target);
    group("host", &stats.by_host);
    group("operator", &stats.by_operator);
    print_text(&table.format_for(&stdout_paper()))?;
    print_text(&format!(
        "{}; {} with {}; {} of {}, {} of {}; {}",
        format_count(stats.tasks, "task"),
        format_count(stats.experiments, "experiment"),
        format_count(stats.measurements, "attempt"),
        format_count(stats.parts.count, "part"),
        format_count(stats.parts.bytes, "byte"),
        format_count(stats.journals.count, "journal"),
        format_count(stats.journals.bytes, "byte"),
        format_count(stats.duplicates, "repeated row")
    ))?;
    Ok(code)
}

fn export_store(path: &Path, format: Option<&str>, out: &Path, choose: Choose, as_json: bool) -> Result<u8> {
    let format = format_of(format, out)?;
    let done = open_existing(path)?.export(out, format, choose).map_err(store_failure)?;
    let code = report_damage(&done.damage);
    print_report(&done, as_json, || format!("{} in `{}`", format_count(done.rows, "record"), out.display()))?;
    Ok(code)
}

fn import_records(path: &Path, format: Option<&str>, file: &Path, as_json: bool) -> Result<u8> {
    let format = format_of(format, file)?;
    let done = stores::import_file(path, file, format)?;
    if done.rows == 0 {
        print_notes("warning", [format!("the table `{}` has no rows", file.display())]);
        if !as_json {
            return Ok(DONE);
        }
    }
    let prose = || match done.rows - done.new_rows {
        0 => format!("added {} to `{}`", format_count(done.rows, "record"), path.display()),
        known => format!(
            "added {} to `{}`; {known} of {} in the file were already present",
            format_count(done.new_rows, "record"),
            path.display(),
            format_count(done.rows, "record")
        ),
    };
    print_report(&done, as_json, prose)?;
    Ok(DONE)
}

fn merge_stores(path: &Path, others: &[PathBuf], as_json: bool) -> Result<u8> {
    let merged = shared::merge_stores(path, others, terminal_observer(Pace::default()).as_ref())?;
    let prose = |from: &Path, report: &MergeReport| {
        let MergeReport { parts, known, mended, journal_rows, .. } = report;
        let parts = format_count(*parts, "part");
        let mut text = format!("`{}`: added {parts}, {known} already present", from.display());
        if *mended > 0 {
            text.push_str(&format!("; repaired {}", format_count(*mended, "damaged file")));
        }
        if *journal_rows > 0 {
            text.push_str(&format!(", {} from journals", format_count(*journal_rows, "record")));
        }
        text
    };
    let lines = || merged.iter().map(|one| prose(&one.from, &one.report)).collect::<Vec<_>>().join("\n");
    print_report(&merged, as_json, lines)?;
    Ok(damage_code(merged.iter().flat_map(|one| &one.report.damage)))
}

fn seal_journals(path: &Path, options: SealOptions, as_json: bool) -> Result<u8> {
    let done = open_existing(path)?.seal_journals(options).map_err(store_failure)?;
    let code = report_sealed(&done);
    let prose = || {
        let journals = format_count(done.journals, "journal");
        let (parts, records) = (format_count(done.parts.len(), "part"), format_count(done.rows, "record"));
        format!("sealed {journals} into {parts} with {records}")
    };
    print_report(&done, as_json, prose)?;
    Ok(code)
}

/// Reports journals that were not sealed, and lost records. Returns the exit code.
fn report_sealed(done: &SealReport) -> u8 {
    note_sealed(done, terminal_observer(Pace::default()).as_ref());
    damage_code(&done.damage)
}

/// Returns the exit code. Any damage counts as a loss.
fn damage_code<'a>(damage: impl IntoIterator<Item = &'a Damage>) -> u8 {
    if damage.into_iter().next().is_none() { DONE } else { DONE_WITH_LOSSES }
}

fn compact_store(path: &Path, as_json: bool) -> Result<u8> {
    let done = open_existing(path)?.compact().map_err(store_failure)?;
    let code = report_sealed(&done.sealed).max(report_damage(&done.damage));
    let damaged = done.damage.len() as u64;
    let prose = || {
        let before = format_count(done.parts_before - damaged, "part");
        let (after, rows) = (done.parts_after - damaged, format_count(done.rows, "row"));
        let left = match damaged {
            0 => String::new(),
            _ => format!("; {} left unchanged", format_count(damaged, "damaged part")),
        };
        format!("merged {before} into {after} with {rows}{left}")
    };
    print_report(&done, as_json, prose)?;
    Ok(code)
}

fn print_check(path: &Path, quarantine: bool, as_json: bool) -> Result<u8> {
    let check = verify_store(path, quarantine)?;
    if as_json {
        // Converted to a value first, because the fields of a value are sorted.
        print_json(&serde_json::to_value(&check).map_err(Failure::environment)?)?;
    } else {
        let found = &check.found;
        check.quarantine.iter().try_for_each(print_quarantine)?;
        for problem in &found.problems {
            print_text(&format!("`{}`: {}", problem.file.display(), problem.problem))?;
        }
        found.torn.iter().try_for_each(|torn| print_text(&describe_torn(torn)))?;
        let verdict = match found.problems.len() {
            0 => "sound".to_owned(),
            count => format_count(count, "problem"),
        };
        print_text(&format!(
            "{} in {} and {}: {verdict}",
            format_count(found.rows, "row"),
            format_count(found.parts, "part"),
            format_count(found.journals, "journal")
        ))?;
        if !found.quarantined.is_empty() {
            let folder = check.quarantine_folder.display();
            let files = format_count(found.quarantined.len(), "damaged file");
            print_text(&format!("`{folder}` has {files}, which no command reads"))?;
        }
    }
    Ok(if check.is_sound() { DONE } else { DONE_WITH_LOSSES })
}

fn print_quarantine(set_aside: &QuarantineReport) -> Result<()> {
    for aside in &set_aside.files {
        let lost = aside.rows_lost.map_or("an unknown number of rows".to_owned(), |rows| format_count(rows, "row"));
        let (file, to) = (aside.file.display(), aside.to.display());
        print_text(&format!("moved `{file}` to `{to}`, {lost} lost: {}", aside.problem))?;
    }
    for damage in &set_aside.sealed.damage {
        print_text(&format!("set aside: {damage}"))?;
    }
    report_sealed(&SealReport { damage: Vec::new(), ..set_aside.sealed.clone() });
    Ok(())
}

fn print_schema(sql: Option<&str>) -> Result<u8> {
    match sql {
        Some(engine) => {
            let engine = Dialect::parse_name(engine).map_err(Failure::usage)?;
            print_text(datasets::sql::create_statement(engine).trim_end())?;
        }
        None => {
            let columns = [
                text_column("column").min_width(24),
                text_column("type").drop_order(2),
                text_column("unit").drop_order(1),
                text_column("meaning").min_width(24),
            ];
            let mut table = Table::new(columns);
            for column in datasets::COLUMNS {
                table.add_row([column.name, column.kind.name(), column.unit, column.trimmed_doc()]);
            }
            print_text(&table.format_for(&stdout_paper()))?;
        }
    }
    Ok(DONE)
}
