//! `dataset push` and `pull`, and `--sink`: records in other places, by their address.
//!
//! A folder or bucket (`bucket.rs`) gets parts as they are: their names are the hashes of their content, so existing parts are
//! skipped and an interrupted push goes on. A database gets rows through `psql`, PostgreSQL's own client: staged by COPY and merged
//! in one transaction, so that a crash of client or server leaves all rows or none. A failed push loses no records: the store keeps
//! them for the next one.

use super::bucket::{Brought, Bucket};
use super::children::{self, Bounds, ChildError};
use super::{DONE, DONE_WITH_LOSSES, Result, print, print_json, tell_damage};
use datasets::{COLUMNS, Choose, Dialect, Format, Kind, SealOptions, Store};
use engine::failure::Failure;
use engine::stores::{failed, open};
use measure::host::command::{split_password, without_password};
use percent_encoding::percent_decode_str;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Where records can be brought.
#[derive(Clone, Debug, PartialEq)]
pub enum Address {
    /// A folder.
    Folder(PathBuf),
    /// A place in a bucket.
    Bucket(Bucket),
    /// A database.
    Postgres(Database),
}

/// Address of a database, and its password.
#[derive(Clone, PartialEq)]
pub struct Database {
    /// Address without the password.
    address: String,
    password: Option<String>,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.address)
    }
}

impl Database {
    /// Reads an address. Every user of a machine can read the arguments of a process, so a password is no part of them.
    fn parse(text: &str) -> Database {
        let (address, password) = split_password(text);
        let password = password.map(|password| percent_decode_str(password).decode_utf8_lossy().into_owned());
        Database { address, password }
    }
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
            Some(("postgres" | "postgresql", _)) => Ok(Address::Postgres(Database::parse(text))),
            _ => Err(Failure::usage(format!(
                "`{}` is no address that records can be brought to",
                without_password(text)
            ))
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
        Address::Postgres(database) => {
            Ok(Done { rows: merge_rows(store, &database)?, address: database.address, parts: 0, known: 0 })
        }
    }
}

/// Fetches what a folder or a bucket has.
pub fn pull(store: &Path, address: &str, as_json: bool) -> Result<u8> {
    let into = || Store::create(store).map_err(failed);
    let mut damaged = 0;
    let done = match Address::parse(address)? {
        Address::Folder(folder) => copy(&open(&folder)?, &into()?, address)?,
        Address::Bucket(bucket) => {
            let brought = bucket.pull(&into()?)?;
            damaged = brought.damaged;
            objects(address, brought)
        }
        Address::Postgres(_) => {
            return Err(Failure::usage("records are pulled from folders and buckets; a database is asked in SQL")
                .with_hint("write `file:///folder` or `s3://bucket/place`, or see docs/queries.md"));
        }
    };
    answer(&done, as_json)?;
    Ok(if damaged == 0 { DONE } else { DONE_WITH_LOSSES })
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

/// Time limit of a server, in seconds, for one statement and for all.
const DATABASE_SECONDS: u64 = 3600;

/// Brings all records of a store into a table of a database; how many were new there.
fn merge_rows(store: &Store, database: &Database) -> Result<u64> {
    let folder = tempfile::tempdir().map_err(Failure::environment)?;
    let table = folder.path().join("records.csv");
    tell_damage(&store.export(&table, Format::Csv, Choose::All).map_err(failed)?.damage);
    let script = script(&table);
    let file = folder.path().join("merge.sql");
    std::fs::write(&file, script).map_err(Failure::environment)?;
    let mut client = Command::new("psql");
    client.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--no-password", "--single-transaction"]);
    client.args(["--set", "ON_ERROR_STOP=1", "--file"]).arg(&file).arg(&database.address);
    // An unreachable server is reported after ten seconds, a silent one at the time limit.
    client.env("PGCONNECT_TIMEOUT", "10");
    client.env("PGOPTIONS", format!("-c statement_timeout={}", 1000 * DATABASE_SECONDS));
    client.envs(database.password.iter().map(|password| ("PGPASSWORD", password)));
    let bounds = Bounds { deadline: Duration::from_secs(DATABASE_SECONDS + 60), most_bytes: 1 << 16, look: &|| None };
    let cannot = |why: &str| {
        Failure::environment(format!("cannot bring records to `{}`: {why}", database.address))
            .with_hint("nothing is lost: the store has all records, and the same command brings them later")
    };
    let said = children::ask(&mut client, b"", &bounds).map_err(|error| match error {
        ChildError::Start(_) => Failure::environment(format!("`psql`, PostgreSQL's client: {error}"))
            .with_hint("install it, on Debian with `apt install postgresql-client`"),
        ChildError::Ended(why) => cannot(&why),
    })?;
    let said = String::from_utf8_lossy(&said);
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
        let database = |text: &str| {
            let found = Database::parse(text);
            assert!(!format!("{found:?}").contains("secret"));
            (found.address, found.password.unwrap_or_default())
        };
        let of = |address: &str, password: &str| (address.to_owned(), password.to_owned());
        assert_eq!(database("postgres://u:secret@h/d"), of("postgres://u@h/d", "secret"));
        assert_eq!(database("postgres://u:se%63ret@1@h/d?a=b"), of("postgres://u@h/d?a=b", "secret@1"));
        assert_eq!(database("postgres://h/d?password=secret%20"), of("postgres://h/d", "secret "));
        assert_eq!(database("postgres:///d"), of("postgres:///d", ""));
    }
}
