//! `scripts/opcollect` calls cargo only if a source has changed, and then always.
#![allow(missing_docs)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use tests::program;
use tests::workspace::{members, root};

/// A fake cargo that logs its arguments and builds a program that prints the sources it was built from.
const CARGO: &str = r#"#!/bin/sh
[ "$1" != tree ] || { printf 'a\nb\n'; exit; }
[ "$1" != --version ] || { [ -e ../toolchain ] || echo "error: no default toolchain" >&2; [ -e ../toolchain ]; exit; }
echo "$*" >>../asked
[ ! -e ../messages ] || cat ../messages >&2
[ ! -e models/broken ] || exit 101
sources=$(for file in models/src/*.rs configs/* Cargo.lock; do printf '%s ' "$(cat "$file")"; done)
[ ! -e ../meanwhile ] || mv ../meanwhile models/src/lib.rs
while [ "$1" != --target-dir ]; do shift; done
mkdir -p "$2/release"
printf '#!/bin/sh\necho "%s"\n' "$sources" >"$2/release/opcollect.new"
chmod +x "$2/release/opcollect.new"
mv "$2/release/opcollect.new" "$2/release/opcollect"
"#;

struct Checkout {
    folder: tempfile::TempDir,
}

impl Checkout {
    fn new() -> Checkout {
        let checkout = Checkout { folder: tempfile::tempdir().expect("a temporary folder can be made") };
        for name in ["build", "build-and-run", "opcollect", "oppredict", "nightly"] {
            let script = fs::read_to_string(root().join("scripts").join(name)).expect("the script is there");
            checkout.write_program(&format!("root/scripts/{name}"), &script);
        }
        checkout.write_program("root/scripts/setup", "#!/bin/sh\n");
        checkout.write_program("bin/cargo", CARGO);
        checkout.write("toolchain", "");
        checkout.write("root/Cargo.toml", "[workspace]\nmembers = [\"models\", \"tests\"]\n");
        checkout.write("root/tests/Cargo.toml", "");
        checkout.write("root/Cargo.lock", "lock");
        checkout.write("root/configs/a.json", "config");
        checkout.write("root/requirements.txt", "a wheel");
        checkout.write("root/models/src/lib.rs", "old");
        checkout
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it lies in the folder")).expect("a folder can be made");
        fs::write(&path, text).expect("the file can be written");
    }

    fn write_program(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it lies in the folder")).expect("a folder can be made");
        tests::write_program(&path, text);
    }

    fn tools(&self) -> String {
        format!("{}:/usr/bin:/bin", self.path("bin").display())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.path("root/scripts/opcollect"));
        command.env_clear().env("HOME", self.folder.path()).env("PATH", self.tools()).current_dir(self.path("root"));
        command
    }

    /// Starts the script. Returns the program's output or the exit code, and whether cargo was called.
    fn start(&self, mut command: Command) -> (Result<String, Option<i32>>, bool) {
        let output = command.output().expect("the script can be started");
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let was_asked = fs::remove_file(self.path("asked")).is_ok();
        (if output.status.success() { Ok(said) } else { Err(output.status.code()) }, was_asked)
    }

    /// Checks that the program is built from these sources, and then started twice without a build.
    #[track_caller]
    fn expect_built(&self, sources: &str, when: &str) {
        assert_eq!(self.start(self.command()), (Ok(sources.to_owned()), true), "{when}");
        for _ in 0..2 {
            assert_eq!(self.start(self.command()), (Ok(sources.to_owned()), false), "after it was built: {when}");
        }
    }
}

#[test]
fn a_change_of_sources_is_built_and_nothing_else() {
    let checkout = Checkout::new();
    checkout.expect_built("old config lock", "the first time");
    let lib = checkout.path("root/models/src/lib.rs");
    let written = lib.metadata().and_then(|metadata| metadata.modified()).expect("the file has a time");
    fs::write(&lib, "new").expect("the file can be written");
    fs::File::open(&lib).and_then(|file| file.set_modified(written)).expect("a time can be set back");
    checkout.expect_built("new config lock", "another content of the same size and time");
    checkout.write("root/models/src/more.rs", "more");
    checkout.expect_built("new more config lock", "a new file");
    fs::rename(checkout.path("root/models/src/more.rs"), checkout.path("root/models/src/again.rs")).expect("renamed");
    checkout.expect_built("more new config lock", "a file with another name");
    fs::remove_file(checkout.path("root/models/src/again.rs")).expect("it is there");
    checkout.expect_built("new config lock", "a file less");
    checkout.write("other/lib.rs", "branch");
    fs::remove_dir_all(checkout.path("root/models/src")).expect("it is there");
    symlink(checkout.path("other"), checkout.path("root/models/src")).expect("a link can be made");
    checkout.expect_built("branch config lock", "other files in the place of these");
    checkout.write("other/lib.rs", "link");
    checkout.expect_built("link config lock", "a change behind a link");
    checkout.write("root/configs/a.json", "configuration");
    checkout.expect_built("link configuration lock", "a file that sources include");
    checkout.write("root/Cargo.lock", "other lock");
    checkout.expect_built("link configuration other lock", "other dependencies");
    checkout.write("root/notes.txt", "no source");
    assert_eq!(checkout.start(checkout.command()), (Ok("link configuration other lock".to_owned()), false));
}

#[test]
fn other_build_inputs_are_detected() {
    let checkout = Checkout::new();
    checkout.expect_built("old config lock", "the first time");
    checkout.write("root/.venv-torch/stamp", "wheels");
    checkout.expect_built("old config lock", "another feature");
    checkout.write("root/.venv/stamp-run", "wheels");
    checkout.expect_built("old config lock", "other wheels");
    checkout.write("root/.cargo/config.toml", "");
    checkout.expect_built("old config lock", "settings of this checkout");
    checkout.write("root/requirements.txt", "another wheel");
    checkout.expect_built("old config lock", "other requirements");
    checkout.write_program("root/target/release/opcollect", "#!/bin/sh\necho by hand\n");
    checkout.expect_built("old config lock", "a program of unknown origin");
    fs::remove_file(checkout.path("root/target/release/opcollect")).expect("it is there");
    checkout.expect_built("old config lock", "no program");
    let elsewhere = || {
        let mut command = checkout.command();
        command.env("CARGO_TARGET_DIR", checkout.path("elsewhere"));
        command
    };
    assert!(checkout.start(elsewhere()).1 && !checkout.start(elsewhere()).1, "another folder");
    assert!(checkout.path("elsewhere/release/opcollect").exists());
    assert!(!checkout.start(checkout.command()).1, "each folder has its own");
    let mut build = Command::new(checkout.path("root/scripts/build"));
    build.env_clear().env("HOME", checkout.folder.path()).env("PATH", checkout.tools());
    assert!(build.status().expect("the script can be started").success());
    let asked = fs::read_to_string(checkout.path("asked")).expect("cargo was asked");
    let of_agent = asked.lines().filter(|line| line.contains("--package kernel --package agent"));
    assert_eq!((asked.lines().count(), of_agent.count()), (2, 1), "{asked}");
}

/// A built program starts without a toolchain, in other environments, through links and for another user.
#[test]
fn a_built_program_needs_neither_a_toolchain_nor_an_environment() {
    let checkout = Checkout::new();
    checkout.expect_built("old config lock", "the first time");
    checkout.write_program("bin/rustc", "#!/bin/sh\necho rustc 1.91.0\n");
    checkout.write(".cargo/config.toml", "");
    let link = checkout.path("linked");
    symlink(checkout.path("root/scripts/opcollect"), &link).expect("a link can be made");
    let folder = checkout.path("linked-root");
    symlink(checkout.path("root"), &folder).expect("a link can be made");
    let bare = |script: &Path| {
        let mut command = Command::new(script);
        command.env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
        command
    };
    let script = checkout.path("root/scripts/opcollect");
    let with = |name: &str, value: &str| {
        let mut command = checkout.command();
        command.env(name, value);
        command
    };
    let mut cases = vec![
        ("an empty environment", bare(&script)),
        ("a link to the script", bare(&link)),
        ("a link to the checkout", bare(&folder.join("scripts/opcollect"))),
        ("another home", with("HOME", "/nonexistent")),
        ("another compiler", with("CC", "gcc")),
        ("other flags", with("RUSTFLAGS", "-C target-cpu=native")),
    ];
    if nix::unistd::geteuid().is_root() {
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(checkout.folder.path(), open).expect("the folder can be opened");
        let mut command = bare(&script);
        std::os::unix::process::CommandExt::uid(&mut command, 65534);
        cases.push(("another user", command));
    }
    for (case, command) in cases {
        assert_eq!(checkout.start(command), (Ok("old config lock".to_owned()), false), "{case}");
    }
    let nightly = bare(&checkout.path("root/scripts/nightly"));
    assert_eq!(checkout.start(nightly), (Ok("old config lock".to_owned()), false), "a night under cron");
}

/// A failed build ends with what is missing and what to do, in one or two lines.
#[test]
fn a_build_without_a_toolchain_says_what_to_do() {
    let checkout = Checkout::new();
    let errors = |command: &mut Command| {
        let output = command.output().expect("the script can be started");
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        String::from_utf8(output.stderr).expect("messages are text").replace('\n', " ")
    };
    let missing = errors(checkout.command().env("PATH", "/usr/bin:/bin"));
    assert!(missing.starts_with("error: opcollect is not built yet, and cargo is missing; install"), "{missing}");
    checkout.expect_built("old config lock", "the first time");
    checkout.write("root/models/src/lib.rs", "new");
    let missing = errors(checkout.command().env("PATH", "/usr/bin:/bin"));
    assert!(missing.starts_with("error: the programs of opcollect are older than their sources, and"), "{missing}");
    fs::remove_file(checkout.path("toolchain")).expect("it is there");
    let broken = errors(&mut checkout.command());
    assert!(broken.contains("cargo cannot run: error: no default toolchain hint: HOME (/"), "{broken}");
    // Cron has no PATH to rustup's folder; the build finds cargo there.
    checkout.write("toolchain", "");
    checkout.write_program(".cargo/bin/cargo", CARGO);
    let mut cron = checkout.command();
    cron.env("PATH", "/usr/bin:/bin");
    assert_eq!(checkout.start(cron), (Ok("new config lock".to_owned()), true));
}

#[test]
fn failed_and_disturbed_builds_leave_no_outdated_program() {
    let checkout = Checkout::new();
    checkout.expect_built("old config lock", "the first time");
    checkout.write("root/models/src/lib.rs", "wrong");
    checkout.write("root/models/broken", "");
    assert_eq!(checkout.start(checkout.command()), (Err(Some(3)), true));
    assert_eq!(checkout.start(checkout.command()), (Err(Some(3)), true), "it fails as long as it is wrong");
    fs::remove_file(checkout.path("root/models/broken")).expect("it is there");
    checkout.write("root/models/src/lib.rs", "old");
    checkout.write("meanwhile", "new");
    assert_eq!(checkout.start(checkout.command()), (Ok("old config lock".to_owned()), true));
    checkout.expect_built("new config lock", "a change while cargo read");
}

#[test]
fn a_first_build_shows_its_progress_and_all_messages() {
    let checkout = Checkout::new();
    let messages = "       Fresh c v1\n   Compiling a v1\n     Running `rustc`\nwarning: a is old\n   Compiling b v1\n  \
                    process didn't exit successfully: `rustc --crate-name b` (signal: 9)\n";
    checkout.write("messages", &format!("{messages}    Finished `release` profile\n"));
    let output = checkout.command().output().expect("the script can be started");
    let errors = "building opcollect for the first time: 2 crates, up to 8 minutes on two cores\nwarning: a is old\n  \
                  process didn't exit successfully: the compiler (signal: 9)\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), errors);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "old config lock \n");
    // Later builds print less, and show what they compile.
    checkout.write("root/models/src/lib.rs", "new");
    checkout.write("messages", "   Compiling a v1\nwarning: a is old\n");
    let output = checkout.command().output().expect("the script can be started");
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("   Compiling a v1\nwarning"));
}

fn plain(path: &str) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in Path::new(path).components() {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

/// The script's list of sources contains every file that the compiler reads.
#[test]
fn every_source_is_listed() {
    let root = root();
    let script = fs::read_to_string(root.join("scripts/build-and-run")).expect("the script is there");
    let listed = script.split_once("\nSOURCES=(").expect("it lists sources").1.split_once(')').expect("and ends").0;
    let members = members();
    let folders = members.iter().map(|member| member.folder.as_str());
    let listed: Vec<PathBuf> = listed.split(' ').chain(folders).map(|path| root.join(path)).collect();
    assert!(listed.iter().all(|path| path.exists()), "{listed:?}");
    for name in ["opcollect", "opcollect-worker", "oppredict"] {
        let read = fs::read_to_string(program(name).with_extension("d")).expect("cargo lists sources");
        let sources: Vec<PathBuf> = read.split_whitespace().skip(1).map(plain).collect();
        assert!(sources.len() > 50, "{read}");
        // Files that `scripts/setup` reads or creates are checked separately.
        let apart = [root.join(".venv"), root.join("requirements.txt")];
        let is_apart = |source: &PathBuf| apart.iter().any(|path| source.starts_with(path));
        for source in sources.into_iter().filter(|source| !is_apart(source)) {
            assert!(listed.iter().any(|path| source.starts_with(path)), "{} is not listed", source.display());
        }
    }
}
