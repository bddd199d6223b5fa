//! `dataset push` and `pull`, and `--sink`: records in other places, by their address.
//!
//! A folder gets parts as they are: their names are the hashes of what they hold, so what is there is not written again, and
//! an interrupted push goes on; a bucket (`bucket.rs`) gets them the same way. A database gets rows through `psql`, PostgreSQL's own client: staged by COPY and merged in one
//! transaction, so that a client or server that dies leaves all or nothing. The store stays the truth: what could not be
//! pushed is pushed the next time.

use super::bucket::{Brought, Bucket};
use super::failure::Failure;
use super::stores::{failed, open, tell_damage};
use super::{Result, print, print_json};
use datasets::{COLUMNS, Choose, Dialect, Format, Kind, SealOptions, Store};
use serde::Serialize;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where records can be brought.
#[derive(Clone, Debug, PartialEq)]
pub enum Address {
    /// A folder.
    Folder(PathBuf),
    /// A place in a bucket.
    Bucket(Bucket),
    /// A database, by the address that its client takes.
    Postgres(String),
}

/// What was done.
#[derive(Serialize)]
struct Done {
    address: String,
    parts: u64,
    known: u64,
    rows: u64,
}

impl Address {
    /// Reads an address.
    pub fn parse(text: &str) -> Result<Address> {
        match text.split_once("://") {
            Some(("file", path)) if path.starts_with('/') => Ok(Address::Folder(PathBuf::from(path))),
            Some(("s3", rest)) => Bucket::parse(rest).map(Address::Bucket).map_err(|why| {
                Failure::usage(format!("`{text}` is no address that records can be brought to: {why}"))
                    .with_hint("write `s3://bucket/place`; AWS_ENDPOINT_URL names a server other than Amazon's")
            }),
            Some(("postgres" | "postgresql", _)) => Ok(Address::Postgres(text.to_owned())),
            _ => Err(Failure::usage(format!("`{text}` is no address that records can be brought to"))
                .with_hint("write `file:///folder`, `s3://bucket/place` or `postgres://user@host/database`")),
        }
    }
}

/// Brings what a store has to an address.
pub fn push(store: &Path, address: &str, as_json: bool) -> Result<u8> {
    Address::parse(address)?;
    let store = open(store)?;
    // What other processes are writing is not sealed, and comes with the next push.
    let code = tell_damage(&store.seal(SealOptions::default()).map_err(failed)?.damage);
    answer(&brought(&store, address)?, as_json)?;
    Ok(code)
}

/// The same at the end of a campaign; what was done, in words.
pub fn bring(store: &Store, address: &str) -> Result<String> {
    brought(store, address).map(|done| done.prose())
}

fn brought(store: &Store, address: &str) -> Result<Done> {
    match Address::parse(address)? {
        Address::Folder(folder) => copy(store, &Store::create(&folder).map_err(failed)?, address),
        Address::Bucket(bucket) => bucket.push(store).map(|brought| objects(address, brought)),
        Address::Postgres(address) => {
            Ok(Done { rows: merge_rows(store, &address)?, address: shown(&address), parts: 0, known: 0 })
        }
    }
}

/// Fetches what a folder or a bucket has.
pub fn pull(store: &Path, address: &str, as_json: bool) -> Result<u8> {
    let into = || Store::create(store).map_err(failed);
    let done = match Address::parse(address)? {
        Address::Folder(folder) => copy(&open(&folder)?, &into()?, address)?,
        Address::Bucket(bucket) => objects(address, bucket.pull(&into()?)?),
        Address::Postgres(_) => {
            return Err(Failure::usage("records are pulled from folders and buckets; a database is asked in SQL")
                .with_hint("write `file:///folder` or `s3://bucket/place`, or see docs/queries.md"));
        }
    };
    answer(&done, as_json)?;
    Ok(super::DONE)
}

fn objects(address: &str, brought: Brought) -> Done {
    Done { address: address.to_owned(), parts: brought.new, known: brought.known, rows: 0 }
}

fn copy(from: &Store, to: &Store, address: &str) -> Result<Done> {
    let report = to.merge(from).map_err(failed)?;
    tell_damage(&report.damage);
    Ok(Done {
        address: address.to_owned(),
        parts: report.parts + report.mended,
        known: report.known,
        rows: report.journal_rows,
    })
}

fn answer(done: &Done, as_json: bool) -> Result<()> {
    if as_json { print_json(done) } else { print(&done.prose()) }
}

impl Done {
    fn prose(&self) -> String {
        let Done { address, parts, known, rows } = self;
        match address.starts_with("postgres") {
            true => format!("`{address}`: {rows} records that were new there"),
            false if address.starts_with("s3:") => {
                format!("`{address}`: {parts} objects brought, {known} known before")
            }
            false => format!("`{address}`: {parts} parts brought, {known} known before"),
        }
    }
}

/// An address without the password in it.
fn shown(address: &str) -> String {
    match address.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.split_once('@')?))) {
        Some((scheme, (user, host))) => format!("{scheme}://{}@{host}", user.split(':').next().unwrap_or_default()),
        None => address.to_owned(),
    }
}

/// Brings all records of a store into a table of a database; how many were new there.
fn merge_rows(store: &Store, address: &str) -> Result<u64> {
    let folder = tempfile::tempdir().map_err(Failure::environment)?;
    let table = folder.path().join("records.csv");
    tell_damage(&store.export(&table, Format::Csv, Choose::All).map_err(failed)?.damage);
    let script = script(&table);
    let file = folder.path().join("merge.sql");
    std::fs::write(&file, script).map_err(Failure::environment)?;
    let missing = |error: std::io::Error| {
        Failure::environment(format!("cannot start `psql`, PostgreSQL's client: {error}"))
            .with_hint("install it, on Debian with `apt install postgresql-client`")
    };
    let mut client = Command::new("psql");
    client.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--no-password", "--single-transaction"]);
    client.args(["--set", "ON_ERROR_STOP=1", "--file"]).arg(&file).arg(address);
    // Who is away is told soon.
    client.env("PGCONNECT_TIMEOUT", "10").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut client = client.spawn().map_err(missing)?;
    let mut errors = client.stderr.take().expect("standard error is piped");
    let heard = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = errors.by_ref().take(1 << 16).read_to_end(&mut text);
        let _ = std::io::copy(&mut errors, &mut std::io::sink());
        String::from_utf8_lossy(&text).into_owned()
    });
    let mut said = String::new();
    let output = client.stdout.take().expect("standard output is piped");
    output.take(1 << 16).read_to_string(&mut said).map_err(Failure::environment)?;
    let status = client.wait().map_err(Failure::environment)?;
    let errors = heard.join().unwrap_or_default();
    if !status.success() {
        let why = errors.lines().find(|line| !line.is_empty()).unwrap_or("it did not say why").to_owned();
        return Err(Failure::environment(format!("cannot bring records to `{}`: {why}", shown(address)))
            .with_hint("nothing is lost: the store has all records, and the same command brings them later"));
    }
    Ok(said.lines().rev().find_map(|line| line.trim().parse().ok()).unwrap_or_default())
}

/// What the client is told: the table if it is missing, rows as texts, and those that are new in their types.
fn script(table: &Path) -> String {
    let schema = datasets::sql::schema(Dialect::Postgres)
        .replace("CREATE TABLE records", "CREATE TABLE IF NOT EXISTS records")
        // Numbers of attempts are given when they are read, so two stores may give the same; when and by which run tells.
        .replace("PRIMARY KEY (\"key\", \"attempt\")", "PRIMARY KEY (\"key\", \"started_at_us\", \"run_id\")");
    let names: Vec<String> = COLUMNS.iter().map(|column| format!("\"{}\"", column.name)).collect();
    let texts: Vec<String> = names.iter().map(|name| format!("{name} text")).collect();
    let typed = COLUMNS.iter().map(|column| {
        let name = format!("\"{}\"", column.name);
        match column.kind {
            Kind::Key => format!("decode({name}, 'hex')"),
            Kind::Time => format!("to_timestamp({name}::numeric / 1000000)"),
            Kind::Bool => format!("{name}::boolean"),
            Kind::Integer => format!("{name}::bigint"),
            Kind::Float => format!("{name}::double precision"),
            Kind::Json => format!("{name}::jsonb"),
            Kind::List => {
                format!("coalesce((select array_agg(value::double precision) from jsonb_array_elements_text({name}::jsonb)), '{{}}')")
            }
            Kind::Text | Kind::Label => name,
        }
    });
    let typed: Vec<String> = typed.collect();
    let (names, texts, typed) = (names.join(", "), texts.join(", "), typed.join(",\n  "));
    let path = table.display().to_string().replace('\'', "''");
    format!(
        "SET client_min_messages = warning;\n{schema}\nCREATE TEMPORARY TABLE staged ({texts}) ON COMMIT DROP;\n\
         \\copy staged FROM '{path}' WITH (FORMAT csv, HEADER true)\n\
         WITH brought AS (INSERT INTO records ({names}) SELECT {typed}\n  FROM staged ON CONFLICT DO NOTHING RETURNING 1)\n\
         SELECT count(*) FROM brought;\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_passwords_are_not_told() {
        let parse = |text: &str| Address::parse(text).map_err(|failure| failure.message().to_owned());
        assert_eq!(parse("file:///a/b"), Ok(Address::Folder(PathBuf::from("/a/b"))));
        assert!(parse("postgres://u:p@h/d").is_ok());
        for wrong in ["file://a", "s3://UPPER", "/a/b", ""] {
            assert!(parse(wrong).is_err_and(|why| why.contains(wrong)));
        }
        assert_eq!(shown("postgres://u:secret@h/d"), "postgres://u@h/d");
        assert_eq!(shown("postgres:///d"), "postgres:///d");
    }
}
