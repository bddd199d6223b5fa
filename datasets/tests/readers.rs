//! Tests that pandas, polars and DuckDB read sealed parts and CSV exports; skipped without the Python of `scripts/env`.
#![allow(missing_docs, clippy::print_stderr)] // a skipped test says so

mod common;

use common::{failed, measured};
use datasets::{Choose, Dialect, Format, Json, Origin, Record, Store};
use std::path::{Path, PathBuf};
use std::process::Command;

const SCRIPT: &str = r#"
import datetime, glob, json, sys
import duckdb, pandas, polars

store, csv, schema, queries = sys.argv[1:]
parts = sorted(glob.glob(store + "/dataset/**/*.parquet", recursive=True))
name = store + "/dataset/**/*.parquet"

def text(row):
    plain = lambda value: None if value is None or value != value else value
    times = row["started_at_us"]
    if hasattr(times, "timestamp"):
        times = round(times.timestamp() * 1e6)
    key = row["key"]
    key = bytes(key).hex() if not isinstance(key, str) else key
    samples = row["samples_ns"]
    samples = json.loads(samples) if isinstance(samples, str) else [float(value) for value in samples]
    flag = plain(row["is_virtual_machine"])
    return json.dumps([key, int(times), row["op_kind"], plain(row["median_ns"]), samples, plain(row["reason"]),
                       json.loads(row["input_shapes"]), int(row["n"]), None if flag is None else bool(flag), plain(row["board"])])

def show(reader, rows):
    for line in sorted(text(row) for row in rows):
        print(reader, line)

def of_duckdb(query):
    cursor = duckdb.sql(query)
    return [dict(zip(cursor.columns, row)) for row in cursor.fetchall()]

show("pandas-parquet", (row for part in parts for row in pandas.read_parquet(part).to_dict("records")))
show("pandas-folder", pandas.read_parquet(store + "/dataset").to_dict("records"))
show("polars-parquet", polars.read_parquet(name, hive_partitioning=False).to_dicts())
show("polars-folder", polars.read_parquet(store + "/dataset", hive_partitioning=True).to_dicts())
show("duckdb-parquet", of_duckdb(f"SELECT * REPLACE (epoch_us(started_at_us) AS started_at_us) FROM read_parquet('{name}', hive_partitioning=false)"))
show("duckdb-folder", of_duckdb(f"SELECT * REPLACE (epoch_us(started_at_us) AS started_at_us) FROM read_parquet('{name}', hive_partitioning=true) WHERE part_host_class = 'epyc-2' OR part_target = 'cuda'"))
show("pandas-csv", pandas.read_csv(csv).to_dict("records"))
show("polars-csv", polars.read_csv(csv, infer_schema_length=None).to_dicts())
show("duckdb-csv", of_duckdb(f"SELECT * FROM read_csv('{csv}', sample_size=-1)"))
duckdb.sql(schema)
duckdb.sql(f"INSERT INTO records BY NAME SELECT * FROM read_parquet('{name}', hive_partitioning=false)")
show("duckdb-table", of_duckdb("SELECT * REPLACE (epoch_us(started_at_us) AS started_at_us) FROM records"))
polars.read_parquet(name, hive_partitioning=False).write_parquet(f"{store}/polars.parquet")
hashes = {"task_hash": str, "schedule_hash": str}
pandas.read_csv(csv, float_precision="round_trip", dtype=hashes).to_csv(f"{store}/pandas.csv", index=False)
duckdb.sql(f"COPY (SELECT * FROM read_parquet('{name}', hive_partitioning=false)) TO '{store}/duckdb.parquet'")
for query in queries.split(";")[:-1]:
    query = query.replace("store/dataset", store + "/dataset")
    print("query", duckdb.sql(f"SELECT count(*) FROM ({query}) AS answer").fetchall()[0][0])
"#;

const READERS: [&str; 10] = [
    "pandas-parquet",
    "pandas-folder",
    "polars-parquet",
    "polars-folder",
    "duckdb-parquet",
    "duckdb-folder",
    "pandas-csv",
    "polars-csv",
    "duckdb-csv",
    "duckdb-table",
];

fn python() -> Option<PathBuf> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv/bin/python");
    let probe = Command::new(&python).args(["-c", "import duckdb, pandas, polars, pyarrow"]).output();
    match probe {
        Ok(output) if output.status.success() => Some(python),
        Ok(output) => {
            eprintln!("SKIPPED: a reader is missing: {}", String::from_utf8_lossy(&output.stderr));
            None
        }
        Err(error) => {
            eprintln!("SKIPPED: no Python at {}: {error}", python.display());
            None
        }
    }
}

fn rows() -> Vec<Record> {
    let mut rows = vec![measured(0), measured(1), failed(2), measured(3)];
    rows[1].is_virtual_machine = Some(true);
    rows[1].board = Some("a \"board\", with\nlines, größer".into());
    rows[1].samples_ns = vec![0.1, 1e-300, 12345678901234567.0];
    rows[3].samples_ns = Vec::new();
    rows[3].host_class = "another class".into();
    rows[3].target = datasets::Target::Cuda;
    rows[3].median_ns = Some(1000.1 + 0.2);
    rows[0].input_shapes = Some(Json::parse("[[1, 2]]").unwrap());
    rows.iter_mut().for_each(|row| row.key = row.experiment_key());
    rows
}

fn line(row: &Record) -> String {
    let shapes: serde_json::Value = row.input_shapes.as_ref().unwrap().parse_as().unwrap();
    serde_json::json!([
        row.key,
        row.started_at_us,
        row.op_kind,
        row.median_ns,
        row.samples_ns,
        row.reason,
        shapes,
        row.n,
        row.is_virtual_machine,
        row.board
    ])
    .to_string()
}

#[test]
fn pandas_polars_and_duckdb_read_what_we_write() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = Store::create(&folder.path().join("store")).unwrap();
    let origin = Origin { host: "bench-1".into(), program: "test 0".into(), command: "test".into() };
    let mut journal = store.start_journal(origin).unwrap();
    rows().iter().for_each(|row| journal.append(row).unwrap());
    journal.seal().unwrap();
    let csv = folder.path().join("export.csv");
    store.export(&csv, Format::Csv, Choose::All).unwrap();
    let document = datasets::document::render_document();
    let queries = document.split("```sql\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let mut command = Command::new(python);
    command
        .args(["-c", SCRIPT])
        .arg(store.root())
        .arg(&csv)
        .args([&datasets::sql::create_statement(Dialect::DuckDb), queries]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut expected: Vec<serde_json::Value> =
        rows().iter().map(|row| serde_json::from_str(&line(row)).unwrap()).collect();
    expected.sort_by_key(|row| row[0].to_string());
    for reader in READERS {
        let lines = text.lines().filter_map(|line| line.strip_prefix(reader).and_then(|line| line.strip_prefix(' ')));
        let mut found: Vec<serde_json::Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
        found.sort_by_key(|row| row[0].to_string());
        assert_eq!(found, expected, "{reader}");
    }
    // Records that other programs have rewritten come back as they were.
    let rewritten =
        [("polars.parquet", Format::Parquet), ("duckdb.parquet", Format::Parquet), ("pandas.csv", Format::Csv)];
    for (file, format) in rewritten {
        let again = folder.path().join(file.replace('.', "-"));
        let imported = Store::import(&again, &store.root().join(file), format);
        imported.unwrap_or_else(|error| panic!("{file}: {error}"));
        let records = Store::open(&again).unwrap().select_records(Choose::All).unwrap();
        let mut found: Vec<serde_json::Value> =
            records.map(|record| serde_json::from_str(&line(&record.unwrap())).unwrap()).collect();
        found.sort_by_key(|row| row[0].to_string());
        assert_eq!(found, expected, "{file}");
    }
    // The queries of the document: operators, rows, slowest tasks of one class.
    let answers: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("query ")).collect();
    assert_eq!(answers, ["2", "4", "1"]);
}
