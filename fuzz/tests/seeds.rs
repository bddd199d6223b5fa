//! Runs every fuzz target on its seeds and on random mutations of them.
//!
//! `OPCOLLECT_FUZZ_SECONDS` sets the duration (default 2); the number of inputs depends on the machine. A finding is
//! written to `fuzz/artifacts/<target>`.
#![allow(missing_docs)]
#![allow(clippy::print_stderr, reason = "the number of inputs is for people, and decides nothing")]

#[path = "../../tests/damage.rs"]
mod damage;

use damage::Damage;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::io::Write;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

const MAX_INPUT_TIME: Duration = Duration::from_secs(60);
/// Maximum length of an input in bytes; a longer input is truncated.
const MAX_INPUT_BYTES: usize = 1 << 20;

/// Numbers and text fragments that often break parsers.
const WORDS: [&[u8]; 16] = [
    b"\x00",
    b"\xff",
    b"\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"\x00\x00\x00\x80",
    b"\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"0",
    b"-1",
    b"1e309",
    b"4294967296",
    b"9223372036854775807",
    b"18446744073709551616",
    b"[[[[[[[[",
    b"{\"\":",
];

#[derive(Clone, Debug)]
enum Mutation {
    Damage(Damage),
    /// Replaces the end of the input by the end of another seed.
    Splice(prop::sample::Index, Vec<u8>),
}

impl Mutation {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Mutation::Damage(damage) => damage.apply(bytes),
            Mutation::Splice(at, end) => {
                bytes.truncate(at.index(bytes.len() + 1));
                bytes.extend(end);
            }
        }
    }
}

fn mutations(seeds: &[Vec<u8>]) -> impl Strategy<Value = Vec<Mutation>> + use<> {
    let index = any::<prop::sample::Index>;
    let copy = (index(), index(), 1..64usize).prop_map(|(from, to, count)| Damage::Copy { from, to, count });
    let insert = (index(), prop::sample::select(&WORDS[..])).prop_map(|(at, word)| Damage::Insert(at, word.to_vec()));
    let end = (prop::sample::select(seeds.to_vec()), index())
        .prop_map(|(seed, from)| seed[from.index(seed.len() + 1)..].to_vec());
    let mutation = prop_oneof![
        8 => damage::with_words(&WORDS).prop_map(Mutation::Damage),
        2 => insert.prop_map(Mutation::Damage),
        1 => copy.prop_map(Mutation::Damage),
        1 => (index(), end).prop_map(|(at, end)| Mutation::Splice(at, end)),
    ];
    prop::collection::vec(mutation, 1..6)
}

fn read_seeds(folder: &Path) -> Vec<Vec<u8>> {
    let entries = folder.read_dir().unwrap_or_else(|error| panic!("`{}`: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("a seed")).collect()
}

fn write_finding(target: &str, kind: &str, input: &[u8]) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("artifacts").join(target);
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join(format!("{kind}-{}", &blake3::hash(input).to_hex()[..16]));
    std::fs::write(&path, input).expect("a file");
    path
}

/// Aborts the process if an input takes too long. An input has ended when the next is received or the channel closes.
fn watch(target: &str, inputs: &Receiver<Vec<u8>>) {
    let mut running: Option<Vec<u8>> = None;
    loop {
        match (inputs.recv_timeout(MAX_INPUT_TIME), &running) {
            (Ok(input), _) => running = Some(input),
            (Err(RecvTimeoutError::Timeout), Some(input)) => {
                let path = write_finding(target, "slow", input);
                let line = format!("\n{target}: an input takes longer than {MAX_INPUT_TIME:?}: {}\n", path.display());
                // `eprintln!` would be captured and lost.
                let _ = std::io::stderr().write_all(line.as_bytes());
                std::process::abort();
            }
            (Err(RecvTimeoutError::Timeout), None) => {}
            (Err(RecvTimeoutError::Disconnected), _) => return,
        }
    }
}

fn feed(target: &fuzz::Target, input: Vec<u8>, watcher: &Sender<Vec<u8>>) {
    watcher.send(input.clone()).expect("the watcher waits");
    if catch_unwind(|| (target.run)(&input)).is_err() {
        let path = write_finding(target.name, "crash", &input);
        panic!("{} panics with the input `{}`", target.name, path.display());
    }
}

/// Puts temporary files into memory if possible, because stores wait for disk syncs.
fn use_memory() {
    let memory = Path::new("/dev/shm");
    if tempfile::tempfile_in(memory).is_ok() {
        // Fails if another test has done it already.
        let _ = tempfile::env::override_temp_dir(memory);
    }
}

fn check(name: &str) {
    use_memory();
    let target = fuzz::find_target(name).expect("a target");
    let seeds = read_seeds(&Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(name));
    assert!(!seeds.is_empty(), "fuzz/seeds/{name} is empty");
    let seconds = std::env::var("OPCOLLECT_FUZZ_SECONDS").map_or(2.0, |text| text.parse().expect("seconds"));
    let (watcher, inputs) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || watch(name, &inputs));
        seeds.iter().for_each(|seed| feed(target, seed.clone(), &watcher));
        let (mutations, mut runner) = (mutations(&seeds), TestRunner::deterministic());
        let began = Instant::now();
        let mut count = 0;
        while began.elapsed() < Duration::from_secs_f64(seconds) {
            let mut input = seeds[count % seeds.len()].clone();
            let mutations = mutations.new_tree(&mut runner).expect("mutations").current();
            mutations.iter().for_each(|mutation| mutation.apply(&mut input));
            input.truncate(MAX_INPUT_BYTES);
            feed(target, input, &watcher);
            count += 1;
        }
        drop(watcher);
        eprintln!("{name}: {} seeds, {count} mutants", seeds.len());
    });
}

macro_rules! tests {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )*
    };
}

fuzz::for_each_target!(tests);
