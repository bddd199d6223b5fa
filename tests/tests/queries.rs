//! Runs the statements of `docs/guide/queries.md` with each installed engine, and kills a PostgreSQL during a push.
#![allow(missing_docs)]

use nix::unistd::Uid;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tests::workspace::{root, text};
use tests::{Bench, Ran, run, skip};

const FEW: &str = "--modelsource simple --modelname relu:shape=1x64 --modelname softmax:shape=3x17 \
                   --schedules 5 --config quick.toml --store store --json";

fn blocks(fence: &str) -> Vec<String> {
    let document = text("docs/guide/queries.md");
    let parts = document.split("```").skip(1).step_by(2);
    let of_fence = parts.filter_map(|part| part.split_once('\n')).filter(|(first, _)| *first == fence);
    let found: Vec<String> = of_fence.map(|(_, rest)| rest.to_owned()).collect();
    assert!(!found.is_empty(), "there is a block of `{fence}`");
    found
}

fn python() -> PathBuf {
    root().join(".venv/bin/python")
}

/// Runs a Python program that needs a module; does nothing if the module is not installed.
fn through_python(bench: &Bench, module: &str, program: &str) -> Option<Ran> {
    let has = Command::new(python()).args(["-c", &format!("import {module}")]).stderr(Stdio::null()).status();
    if !has.is_ok_and(|status| status.success()) {
        skip(&format!("`{module}` is not in .venv; `{}` installs it", installs(module)));
        return None;
    }
    bench.write("program.py", program);
    Some(run(bench.command(&python(), "program.py")).expect(0))
}

fn installs(module: &str) -> &'static str {
    // `chdb` is larger than all other modules together.
    if module == "chdb" { ".venv/bin/pip install chdb" } else { "scripts/setup --test" }
}

fn store(bench: &Bench) {
    run(bench.opcollect(FEW)).expect(0);
}

#[test]
fn own_commands() {
    let bench = Bench::new();
    store(&bench);
    for line in blocks("sh").iter().flat_map(|block| block.lines()) {
        let line = line.replace("STORE", "store");
        let (before, sql) =
            line.split_once(" --sql ").map_or((line.as_str(), None), |(before, sql)| (before, Some(sql)));
        let mut command = bench.opcollect(before.trim_start_matches("opcollect "));
        if let Some(sql) = sql {
            command.arg("--sql").arg(sql.trim_matches('"'));
        }
        let ran = run(command).expect(0);
        assert!(ran.stdout.contains("softmax"), "{ran}");
    }
}

#[test]
fn duckdb() {
    let bench = Bench::new();
    store(&bench);
    for sql in blocks("sql duckdb") {
        let sql = sql.replace("STORE", "store");
        let program = format!("import duckdb\nrows = duckdb.sql('''{sql}''').fetchall()\nprint(len(rows), rows)\n");
        let Some(ran) = through_python(&bench, "duckdb", &program) else { return };
        assert!(ran.stdout.contains("'relu'") || ran.stdout.contains("relu f32"), "{ran}");
        assert!(ran.stdout.contains("softmax"), "{ran}");
    }
}

#[test]
fn clickhouse() {
    let bench = Bench::new();
    store(&bench);
    for sql in blocks("sql clickhouse") {
        let program = format!("import chdb\nprint(chdb.query(\"\"\"{}\"\"\"))\n", sql.replace("STORE", "store"));
        let Some(ran) = through_python(&bench, "chdb", &program) else { return };
        assert!(ran.stdout.contains("softmax"), "{ran}");
    }
}

#[test]
fn polars() {
    let bench = Bench::new();
    store(&bench);
    for program in blocks("python polars") {
        let Some(ran) = through_python(&bench, "polars", &program.replace("STORE", "store")) else { return };
        assert!(ran.stdout.contains("softmax"), "{ran}");
    }
}

#[test]
fn a_delta_table_over_the_same_parts() {
    let bench = Bench::new();
    store(&bench);
    run(bench.opcollect(&format!("dataset push --store store file://{}", bench.path("copy").display()))).expect(0);
    for program in blocks("python deltalake") {
        let Some(ran) = through_python(&bench, "deltalake", &program.replace("STORE", "copy")) else { return };
        assert!(ran.stdout.contains("softmax"), "{ran}");
    }
    // Delta's log next to the parts is ignored.
    run(bench.opcollect("dataset verify --store copy")).expect(0);
}

/// A PostgreSQL server in a folder of the test; stopped on drop.
struct Server {
    process: std::process::Child,
    folder: tempfile::TempDir,
    port: u16,
}

impl Server {
    /// Starts the server; prints a message and returns None if PostgreSQL is not installed.
    fn begin() -> Option<Server> {
        let Some(programs) = programs() else {
            skip("there is no PostgreSQL; on Debian `apt install postgresql` brings one");
            return None;
        };
        let folder = tempfile::tempdir().expect("a temporary folder");
        // PostgreSQL does not run as root.
        let user = Uid::current().is_root().then_some("postgres");
        if let Some(user) = user {
            let given = Command::new("chown").arg(user).arg(folder.path()).status();
            if !given.is_ok_and(|status| status.success()) {
                skip("there is no user `postgres` to run PostgreSQL as");
                return None;
            }
        }
        let data = folder.path().join("data");
        let command = |name: &str| {
            let mut command = match user {
                Some(user) => {
                    let mut command = Command::new("setpriv");
                    command.arg(format!("--reuid={user}")).arg(format!("--regid={user}")).arg("--clear-groups");
                    command.arg(programs.join(name));
                    command
                }
                None => Command::new(programs.join(name)),
            };
            command.current_dir(folder.path()).stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
            command
        };
        let made = command("initdb").arg("-D").arg(&data).args(["-A", "trust", "-U", "lab", "-N"]).status();
        if !made.is_ok_and(|status| status.success()) {
            skip("PostgreSQL's `initdb` does not work here");
            return None;
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).ok()?.port();
        let mut server = command("postgres");
        server.arg("-D").arg(&data).arg("-k").arg(folder.path()).arg("-p").arg(port.to_string()).arg("-F");
        let process = server.spawn().expect("PostgreSQL starts");
        let server = Server { process, folder, port };
        let end = Instant::now() + Duration::from_secs(60);
        while server.ask("select 1").is_none() {
            assert!(Instant::now() < end, "PostgreSQL does not answer");
            std::thread::sleep(Duration::from_millis(100));
        }
        Some(server)
    }

    fn address(&self) -> String {
        format!("postgres://lab@127.0.0.1:{}/postgres", self.port)
    }

    fn ask(&self, sql: &str) -> Option<String> {
        let asked = Command::new("psql").args(["-qtAX", "-c", sql]).arg(self.address()).stderr(Stdio::null()).output();
        let asked = asked.ok().filter(|asked| asked.status.success())?;
        Some(String::from_utf8_lossy(&asked.stdout).trim().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // Its child processes end by themselves after it.
        let _ = self.folder.path();
    }
}

fn programs() -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = Path::new("/usr/lib/postgresql")
        .read_dir()
        .map(|entries| entries.flatten().map(|entry| entry.path().join("bin")).collect())
        .unwrap_or_default();
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    folders.into_iter().find(|folder| folder.join("postgres").is_file() && folder.join("initdb").is_file())
}

#[test]
fn postgresql_stores_every_record_once() {
    let Some(server) = Server::begin() else { return };
    let bench = Bench::new();
    // Stores are shared, so a password must not be stored.
    let with_password = server.address().replace("lab@", "lab:se%63ret@") + "?password=secret";
    let ran = run(bench.opcollect(&format!("{FEW} --sink {with_password}"))).expect(0);
    assert!(!ran.stdout.contains("secret") && !ran.stderr.contains("secret"), "{ran}");
    for file in tests::stores::files(&bench.path("store")) {
        let bytes = std::fs::read(&file).expect("a file");
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("secret") && !text.contains("se%63ret"), "{}", file.display());
    }
    let all = tests::stores::records(&bench.path("store")).len().to_string();
    assert_eq!(server.ask("select count(*) from records"), Some(all.clone()));
    let push = || run(bench.opcollect(&format!("dataset push --store store {} --json", server.address())));
    assert_eq!(push().expect(0).json()["rows"], 0, "what is there is not brought again");
    for sql in blocks("sql postgres") {
        let answer = server.ask(&sql).expect("the statement is sound");
        assert!(!answer.is_empty(), "{sql}");
    }
    // The server ends the session during the merge: all rows or none are stored, and the next push adds the others.
    server.ask("delete from records").expect("records can be deleted");
    let slow =
        "create function wait() returns trigger as $$ begin perform pg_sleep(0.5); return new; end $$ language plpgsql;
                create trigger slow before insert on records for each row execute function wait()";
    server.ask(slow).expect("a trigger can be made");
    let mut pushing = tests::start(bench.opcollect(&format!("dataset push --store store {}", server.address())));
    let ended = "select count(pg_terminate_backend(pid)) from pg_stat_activity where query like 'WITH brought%'";
    pushing.until(|_| server.ask(ended).filter(|count| count == "1"));
    let ran = pushing.finish().expect(3);
    assert!(ran.stderr.contains("hint: the store has all records"), "{ran}");
    assert_eq!(server.ask("select count(*) from records"), Some("0".to_owned()));
    server.ask("drop trigger slow on records").expect("a trigger can be dropped");
    assert_eq!(push().expect(0).json()["rows"].to_string(), all);
}

#[test]
fn a_table_of_the_printed_schema_takes_pushes_at_the_same_time() {
    let Some(server) = Server::begin() else { return };
    let bench = Bench::new();
    run(bench.opcollect(FEW)).expect(0);
    run(bench.opcollect(&format!("{FEW} --again"))).expect(0);
    // Two attempts of each experiment, of which `records` returns one.
    let all = (2 * tests::stores::records(&bench.path("store")).len()).to_string();
    let push = || bench.opcollect(&format!("dataset push --store store {}", server.address()));
    // The first pushes find no table; each creates it or waits.
    let pushing: Vec<_> = (0..4).map(|_| tests::start(push())).collect();
    pushing.into_iter().for_each(|one| drop(one.finish().expect(0)));
    assert_eq!(server.ask("select count(*) from records"), Some(all.clone()));

    server.ask("drop table records").expect("a table can be dropped");
    let schema = run(bench.opcollect("dataset schema --sql postgres")).expect(0).stdout;
    server.ask(&schema).expect("the schema is sound");
    run(push()).expect(0);
    assert_eq!(server.ask("select count(*) from records"), Some(all.clone()), "attempts do not identify records");

    // A table of another program: no record is left out silently.
    server.ask("alter table records drop constraint records_pkey; delete from records").expect("a key can be dropped");
    let ran = run(push()).expect(3);
    assert!(ran.stderr.contains("hint: the table `records` has another primary key"), "{ran}");
    assert_eq!(server.ask("select count(*) from records"), Some("0".to_owned()));
}
