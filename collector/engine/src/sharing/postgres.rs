//! Copies records into PostgreSQL databases through the client program `psql`. Rows are staged by COPY and merged in
//! one transaction, so a crash of client or server leaves all rows or none.

use crate::Result;
use crate::failure::Failure;
use crate::observer::Observer;
use crate::processes::{ProcessError, ProcessLimits, run_for_output};
use crate::stores::{note_damage, store_failure};
use datasets::{COLUMNS, Choose, Dialect, Format, Kind, Store};
use measure::host::command::split_password;
use percent_encoding::percent_decode_str;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

/// Server-side time limit in seconds, for each statement and for all together.
const DATABASE_SECONDS: u64 = 3600;

/// Address of a database, and the password for it.
#[derive(Clone, PartialEq)]
pub struct Database {
    address: String,
    password: Option<String>,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.address)
    }
}

impl Database {
    /// Parses an address and separates the password from it, because all users can read the arguments of a process.
    pub fn parse(text: &str) -> Database {
        let (address, password) = split_password(text);
        let password = password.map(|password| percent_decode_str(password).decode_utf8_lossy().into_owned());
        Database { address, password }
    }

    /// Returns the address without the password.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Copies all records of a store into a table, created if needed. Returns the number of new rows, and whether parts
    /// of the store are damaged.
    pub fn push(&self, store: &Store, signal: &AtomicUsize, observer: &dyn Observer) -> Result<(u64, bool)> {
        let folder = tempfile::tempdir().map_err(Failure::environment)?;
        let table = folder.path().join("records.csv");
        let damage = store.export(&table, Format::Csv, Choose::All).map_err(store_failure)?.damage;
        note_damage(&damage, observer);
        let table = replace_nul(&table, folder.path().join("rows.csv")).map_err(Failure::environment)?;
        let file = folder.path().join("merge.sql");
        std::fs::write(&file, psql_script(&table)).map_err(Failure::environment)?;
        let mut client = Command::new("psql");
        client.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--no-password", "--single-transaction"]);
        client.args(["--set", "ON_ERROR_STOP=1", "--file"]).arg(&file).arg(&self.address);
        // An unreachable server is reported after ten seconds, an unresponsive one at the time
        // limit.
        client.env("PGCONNECT_TIMEOUT", "10");
        client.env("PGOPTIONS", format!("-c statement_timeout={}", 1000 * DATABASE_SECONDS));
        client.envs(self.password.iter().map(|password| ("PGPASSWORD", password)));
        let deadline = Duration::from_secs(DATABASE_SECONDS + 60);
        let limits = ProcessLimits { signal, ..ProcessLimits::with_deadline(deadline) };
        let output = run_for_output(&mut client, b"", &limits).map_err(|error| match error {
            ProcessError::Start(_) => {
                Failure::environment(format!("databases need PostgreSQL's client `psql`: {error}"))
                    .with_hint("install it, on Debian with `apt install postgresql-client`")
            }
            ProcessError::Ended(why) => {
                let why = why.to_string();
                let hint = hint_for(&why);
                Failure::environment(format!("cannot push records to `{}`: {why}", self.address)).with_hint(hint)
            }
        })?;
        let output = String::from_utf8_lossy(&output);
        let rows = output.lines().rev().find_map(|line| line.trim().parse().ok()).unwrap_or_default();
        Ok((rows, !damage.is_empty()))
    }
}

/// Copies a table of rows with replacement characters instead of the character NUL, which PostgreSQL cannot store.
fn replace_nul(table: &Path, copy: PathBuf) -> std::io::Result<PathBuf> {
    let mut rows = BufReader::new(File::open(table)?);
    let mut written = BufWriter::new(File::create(&copy)?);
    let mut line = Vec::new();
    while rows.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        written.write_all(text.replace('\0', "\u{fffd}").replace("\\u0000", "\\ufffd").as_bytes())?;
        line.clear();
    }
    written.flush()?;
    Ok(copy)
}

/// Returns what helps after a failed push. A server that refuses the records refuses them at the next try, too.
fn hint_for(why: &str) -> &'static str {
    match why {
        _ if why.contains("ON CONFLICT") || why.contains("violates unique constraint") => {
            "the table `records` has another primary key than `opcollect dataset schema --sql postgres` states; rename \
             the table, and push again"
        }
        _ if why.contains("ERROR:") => {
            "correct this in the database; the store has all records, so the same command pushes them then"
        }
        _ => "the store has all records; run the same command later to push them",
    }
}

/// Builds the `psql` commands that create a missing table, stage rows as text, and insert new rows with typed columns.
/// A lock lets concurrent pushes wait for each other, because two cannot create the table at the same time. A role that
/// may not create tables can fill an existing one.
fn psql_script(table: &Path) -> String {
    let schema = datasets::sql::create_statement(Dialect::Postgres);
    let key = datasets::sql::PRIMARY_KEY;
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
        "SET client_min_messages = warning;\n\
         SELECT pg_advisory_xact_lock(hashtext('opcollect records'));\n\
         SELECT to_regclass('records') IS NULL AS is_missing \\gset\n\
         \\if :is_missing\n{schema}\\endif\n\
         CREATE TEMPORARY TABLE staged ({texts}) ON COMMIT DROP;\n\
         \\copy staged FROM '{path}' WITH (FORMAT csv, HEADER true)\n\
         WITH brought AS (INSERT INTO records ({names}) SELECT {typed}\n  FROM staged ON CONFLICT ({key}) DO NOTHING \
         RETURNING 1)\n\
         SELECT count(*) FROM brought;\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_do_not_contain_passwords() {
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
