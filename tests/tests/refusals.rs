//! Wrong usage, bad input and broken installations: the exit code, one clear error, and nothing written.
#![allow(missing_docs)]

use expect_test::{Expect, expect};
use std::fs::File;
use std::path::Path;
use std::process::Command;
use tests::{Bench, Ran, install_with_worker, program, run, stores};

/// Checks exit code and error text of a rejected command, and that the folder is unchanged.
#[track_caller]
fn check_command(bench: &Bench, command: Command, code: i32, expected: Expect) -> Ran {
    check_refused(bench, command, code, |said| {
        expected.assert_eq(said);
        true
    })
}

/// Like `check_command`, but `is_right` checks the error text, for example only a part of it.
#[track_caller]
fn check_refused(bench: &Bench, command: Command, code: i32, is_right: impl FnOnce(&str) -> bool) -> Ran {
    let before = listing(bench);
    let ran = run(command).expect(code);
    assert!(is_right(&anywhere(bench, &ran.stderr)), "{ran}");
    assert_eq!(ran.stderr.matches("error:").count(), 1, "one error\n{ran}");
    assert_eq!(ran.stdout, "", "results only\n{ran}");
    assert_eq!(listing(bench), before, "nothing is written");
    ran
}

/// Replaces what differs between machines: the folders of the test and the programs, and the number of CPUs.
fn anywhere(bench: &Bench, text: &str) -> String {
    let programs = program("opcollect").with_file_name("").display().to_string();
    let cpus = std::thread::available_parallelism().expect("the system tells the CPUs");
    let text = text.replace(&bench.path("").display().to_string(), "DIR/").replace(&programs, "PROGRAMS/");
    text.replace(&format!("1 to {cpus} on the CPUs"), "1 to N on the CPUs")
}

fn listing(bench: &Bench) -> Vec<(String, Vec<u8>)> {
    let files = stores::files(&bench.path("")).into_iter();
    let mut files: Vec<_> =
        files.map(|path| (path.display().to_string(), std::fs::read(&path).expect("readable"))).collect();
    files.extend(bench.entries().into_iter().map(|name| (name, Vec::new())));
    files.sort();
    files
}

#[track_caller]
fn check(arguments: &str, expected: Expect) {
    let bench = Bench::new();
    check_command(&bench, bench.opcollect(arguments), 2, expected);
}

#[track_caller]
fn check_says(arguments: &str, beginning: &str) {
    let bench = Bench::new();
    check_refused(&bench, bench.opcollect(arguments), 2, |said| said.starts_with(beginning));
}

#[track_caller]
fn check_mlp(arguments: &str, expected: Expect) {
    check(&format!("--modelsource local --modelname mlp --store store {arguments}"), expected);
}

const BAD: &str = "--modelsource local --modelname mlp --store store --config bad.toml";

#[track_caller]
fn check_configuration(text: &str, expected: Expect) {
    let bench = Bench::new();
    bench.write("bad.toml", text);
    check_command(&bench, bench.opcollect(BAD), 2, expected);
}

#[track_caller]
fn check_configuration_says(text: &str, beginning: &str) {
    let bench = Bench::new();
    bench.write("bad.toml", text);
    check_refused(&bench, bench.opcollect(BAD), 2, |said| said.starts_with(beginning));
}

#[test]
fn invalid_models() {
    check(
        "--modelsource local --modelname resnet-19 --store store",
        expect![[r#"
        error: cannot use model `resnet-19`: unknown model `resnet-19`; did you mean `resnet-18`, `r3d-18` or `resnet-101`?
    "#]],
    );
    check(
        "--modelsource local --modelname qqqqqqqqq --store store",
        expect![[r#"
            error: cannot use model `qqqqqqqqq`: unknown model `qqqqqqqqq`; `opcollect list` shows all names
        "#]],
    );
    check_says(
        "--modelsource moon --modelname mlp --store store",
        "error: invalid value 'moon' for '--modelsource <SOURCE>'\n  [possible values: local, simple",
    );
    check(
        "--modelsource local --modelname net.onnx --store store",
        expect![[r#"
        error: the zoo has no model `net.onnx`
        hint: the name belongs to another source: give `--modelsource onnx`, or remove that option
    "#]],
    );
    check(
        "datset --store store",
        expect![[r#"
        error: `datset` is neither a command nor a model
        hint: did you mean `dataset`? `opcollect --help` shows all commands, `opcollect list` all models
    "#]],
    );
    check(
        "zzz-nothing --store store",
        expect![[r#"
        error: no source has a model `zzz-nothing`
        hint: `opcollect list` shows all models; `--modelsource` sets the format of a file
    "#]],
    );
    check(
        "absent.json --store store",
        expect![[r#"
        error: cannot read `absent.json`: no such file
        hint: check the path; relative paths start in the working folder
    "#]],
    );
    check_says(
        "mlp --budget soon --store store",
        "error: invalid value 'soon' for '--budget <SECONDS>': `soon` is not a duration; write it as `90`, `30m` or `2h`",
    );
    check_says(
        "profile mlp --seed 9223372036854775808",
        "error: invalid value '9223372036854775808' for '--seed <N>': 9223372036854775808 is not in 0..9223372036854775808",
    );
    check(
        "--modelsource simple --modelname conv2d:ci=3,hw=7,k=3 --store store",
        expect![[r#"
        error: cannot use model `conv2d:ci=3,hw=7,k=3`: simple operator `conv2d:ci=3,hw=7,k=3`: `co` is missing; for example `conv2d:n=1,ci=64,hw=56,co=64,k=3,s=1,p=1,bias=1,act=relu`
    "#]],
    );
    check(
        "--modelsource simple --modelname conv2d:ci=3,co=4,hw=7,k=9 --store store",
        expect![[r#"
        error: cannot use model `conv2d:ci=3,co=4,hw=7,k=9`: simple operator `conv2d:ci=3,co=4,hw=7,k=9`: `conv` does not fit its inputs (f32[1,3,7,7], f32[4,3,9,9]): a window of 9 does not fit into 7 + 0 + 0 elements of spatial dimension 0; for example `conv2d:n=1,ci=64,hw=56,co=64,k=3,s=1,p=1,bias=1,act=relu`
    "#]],
    );
    check(
        "--modelsource simple --modelname relu:shape=3,stride=2 --store store",
        expect![[r#"
        error: cannot use model `relu:shape=3,stride=2`: simple operator `relu:shape=3,stride=2`: unknown key `stride`; known: `dtype`, `shape`
    "#]],
    );
    check(
        "tasks --modelsource local --modelname resnet-19",
        expect![[r#"
        error: cannot use model `resnet-19`: unknown model `resnet-19`; did you mean `resnet-18`, `r3d-18` or `resnet-101`?
    "#]],
    );
}

#[test]
fn negative_numbers() {
    check_mlp(
        "--batchsize -1",
        expect![[r#"
        error: `batch` is -1; allowed are 1 to 65536
    "#]],
    );
    check_mlp(
        "--threads -1",
        expect![[r#"
        error: invalid value '-1' for '--threads <N,…>': invalid digit found in string

        For more information, try '--help'.
        hint: give a whole number of at least 0
    "#]],
    );
}

#[test]
fn settings_out_of_range() {
    check_mlp(
        "--sequence 128",
        expect![[r#"
        error: `sequence` is [128]; it applies only to models from `transformers` and ONNX files
    "#]],
    );
    check(
        "tasks --modelsource transformers --modelname bert-base --phase decode",
        expect![[r#"
        error: cannot use model `bert-base`: model `bert-base`: `bert` is not a decoder, so it has no decoding steps
    "#]],
    );
    check_mlp(
        "--batchsize 0",
        expect![[r#"
        error: `batch` is 0; allowed are 1 to 65536
    "#]],
    );
    check_mlp(
        "--batchsize eight",
        expect![[r#"
        error: invalid value 'eight' for '--batchsize <N,…>': invalid digit found in string

        For more information, try '--help'.
        hint: give a whole number
    "#]],
    );
    check_mlp(
        "--threads 0",
        expect![[r#"
            error: `threads` is 0; allowed are 1 to N on the CPUs that this process may use
        "#]],
    );
    check_mlp(
        "--threads 100000",
        expect![[r#"
        error: `threads` is 100000; allowed are 1 to N on the CPUs that this process may use
    "#]],
    );
    check_mlp(
        "--threads one",
        expect![[r#"
        error: invalid value 'one' for '--threads <N,…>': invalid digit found in string

        For more information, try '--help'.
        hint: give a whole number
    "#]],
    );
    check_mlp(
        "--schedules 0",
        expect![[r#"
        error: `schedules` is 0; allowed are 1 to 1000000
    "#]],
    );
    check_mlp(
        "--budget 0",
        expect![[r#"
        error: `budget_seconds` is 0.0; it must be above 0 and at most 31622400, a year
    "#]],
    );
    check_mlp(
        "--precision 1",
        expect![[r#"
        error: measuring plan: `precision` is 1, but must be between 0 and 1
    "#]],
    );
    for (count, more) in [(1001, ""), (1, "--executor vm")] {
        check_says(
            &format!("--modelsource local --modelname mlp --variations {count} {more}"),
            &format!("error: `variations` is {count}; allowed are 0 to 1000, and only 0 with the executor `vm`"),
        );
    }
    check_mlp(
        "--builders 1000",
        expect![[r#"
        error: `limits.builders` is 1000; allowed are 0 to 256
    "#]],
    );
    check_mlp(
        "--target vax",
        expect![[r#"
            error: `target` is "vax"; give `llvm`, `cuda`, `pynq`, `mali` (only for `build`), or TVM's JSON description of such a target
        "#]],
    );
    check_mlp(
        "--sampler oracle",
        expect![[r#"
        error: invalid value 'oracle' for '--sampler <SAMPLER>'
          [possible values: template, metaschedule]

        For more information, try '--help'.
    "#]],
    );
    check_mlp(
        "--frobnicate",
        expect![[r#"
        error: unexpected argument '--frobnicate' found

          tip: to pass '--frobnicate' as a value, use '-- --frobnicate'

        Usage: opcollect --modelsource <SOURCE> --modelname <NAME> --store <DIR> [MODEL]...

        For more information, try '--help'.
        hint: `opcollect --help` lists its commands and options
    "#]],
    );
}

#[test]
fn invalid_shards() {
    check_mlp(
        "--shard 3/2",
        expect![[r#"
        error: `3/2` is not a shard
        hint: write `i/n`, from `1/n` to `n/n`, for example `2/8`
    "#]],
    );
    check_mlp(
        "--shard 0/2",
        expect![[r#"
        error: `0/2` is not a shard
        hint: write `i/n`, from `1/n` to `n/n`, for example `2/8`
    "#]],
    );
    check_mlp(
        "--shard half",
        expect![[r#"
        error: `half` is not a shard
        hint: write `i/n`, from `1/n` to `n/n`, for example `2/8`
    "#]],
    );
    let bench = Bench::new();
    let mut command = bench.opcollect("--modelsource local --modelname mlp --store store");
    command.env("SLURM_ARRAY_TASK_ID", "two").env("SLURM_ARRAY_TASK_COUNT", "2");
    check_command(
        &bench,
        command,
        2,
        expect![[r#"
        error: `SLURM_ARRAY_TASK_ID` is `two`: not a number
        hint: set it to a number, or give `--shard i/n`
    "#]],
    );
}

#[test]
fn invalid_configurations() {
    check_configuration(
        "threads = [1\nseed = 3\n",
        expect![[r#"
        error: `bad.toml` is not a configuration: TOML parse error at line 2, column 1
          |
        2 | seed = 3
          | ^
        missing comma between array elements, expected `,`
        hint: compare it with the examples in `configs/`
    "#]],
    );
    check_configuration_says(
        "seed = 3\nschedles = 3\n",
        "error: `bad.toml` is not a configuration: TOML parse error at line 2, column 1\n  |\n2 | schedles = 3\n  | ^^^^^^^^\n\
         unknown field `schedles`, expected one of `arch`, `attention`",
    );
    check_configuration_says(
        "[measure]\nprecison = 0.1\n",
        "error: `bad.toml` is not a configuration: TOML parse error at line 2, column 1\n  |\n2 | precison = 0.1\n  | ^^^^^^^^\n\
         unknown field `precison`, expected one of `visits`",
    );
    check_configuration(
        "[limits]\nbuild_seconds = -1.0\n",
        expect![[r#"
        error: `limits.build_seconds` is -1.0; allowed are 0.001 to 86400, a day
    "#]],
    );
    check_configuration(
        "[measure]\nsamples_min = 9\nsamples_max = 3\n",
        expect![[r#"
        error: measuring plan: `samples_max` is 3, but must be at least `samples_min`, 9
    "#]],
    );
    check_configuration(
        "seed = 'three'\n",
        expect![[r#"
        error: `bad.toml` is not a configuration: TOML parse error at line 1, column 8
          |
        1 | seed = 'three'
          |        ^^^^^^^
        invalid type: string "three", expected u64
        hint: compare it with the examples in `configs/`
    "#]],
    );
    check_mlp(
        "--config absent.toml",
        expect![[r#"
        error: cannot read `absent.toml`: No such file or directory (os error 2)
        hint: check the path; relative paths start in the working folder
    "#]],
    );
    check_mlp(
        "--config .",
        expect![[r#"
        error: cannot read `.`: Is a directory (os error 21)
        hint: give the path of a file, not of a folder
    "#]],
    );
    let source = "models = [{ source = 'moon', name = 'mlp' }]\n";
    let bench = Bench::new();
    bench.write("bad.toml", source);
    let command = bench.opcollect("--config bad.toml --store store");
    check_refused(&bench, command, 2, |said| {
        said.starts_with("error: unknown model source `moon`; this version has `local`")
    });
}

#[test]
fn invalid_stores() {
    // Even root cannot write there.
    check(
        "--modelsource local --modelname mlp --store /proc/store",
        expect![[r#"
        error: failed while creating `/proc/store`: No such file or directory (os error 2)
        hint: choose another folder, or create its parent first
    "#]],
    );
    let bench = Bench::new();
    std::fs::create_dir(bench.path("photos")).expect("a folder can be made");
    bench.write("photos/holiday.txt", "sun");
    let collect = |store: &str| bench.opcollect(&format!("--modelsource local --modelname mlp --store {store}"));
    check_command(
        &bench,
        collect("photos"),
        2,
        expect![[r#"
        error: `photos` is not a dataset store: the folder has no `opcollect-store.json`, but other files
        hint: name an existing store, or an empty or new folder to create one
    "#]],
    );
    check_command(
        &bench,
        collect("quick.toml"),
        2,
        expect![[r#"
            error: failed while listing `quick.toml`: Not a directory (os error 20)
            hint: give the path of a folder, not of a file
        "#]],
    );
    check_command(
        &bench,
        bench.opcollect("dataset stats --store photos"),
        2,
        expect![[r#"
        error: `photos` is not a dataset store: the folder has no `opcollect-store.json`
        hint: name an existing store, or an empty or new folder to create one
    "#]],
    );
    check_command(
        &bench,
        bench.opcollect("dataset stats --store absent"),
        2,
        expect![[r#"
        error: `absent` is not a dataset store: the folder does not exist
        hint: name an existing store, or an empty or new folder to create one
    "#]],
    );
    check_command(
        &bench,
        bench.opcollect("dataset merge --store new photos"),
        2,
        expect![[r#"
        error: `photos` is not a dataset store: the folder has no `opcollect-store.json`
        hint: name an existing store, or an empty or new folder to create one
    "#]],
    );
    std::fs::create_dir(bench.path("newer")).expect("a folder can be made");
    bench.write("newer/opcollect-store.json", r#"{"store":"opcollect dataset","schema_version":999}"#);
    check_command(
        &bench,
        collect("newer"),
        2,
        expect![[r#"
            error: `newer` has schema version 999, but this program supports only versions up to 7
            hint: update the program; nothing was changed
        "#]],
    );
    bench.write("newer/opcollect-store.json", "{");
    check_command(
        &bench,
        collect("newer"),
        2,
        expect![[r#"
        error: `newer` is not a dataset store: `opcollect-store.json` is unreadable: EOF while parsing an object at line 1 column 1
        hint: name an existing store, or an empty or new folder to create one
    "#]],
    );
}

#[test]
fn invalid_files() {
    let bench = Bench::new();
    bench.write("rows.csv", "colour\nred\n");
    bench.write("rows.jsonl", "{\"colour\": \"red\"}\n");
    bench.write("rows.parquet", "not really");
    let import = |file: &str| bench.opcollect(&format!("dataset import --store store {file}"));
    check_command(
        &bench,
        import("absent.csv"),
        2,
        expect![[r#"
        error: cannot read `absent.csv`: No such file or directory (os error 2)
        hint: check the path; relative paths start in the working folder
    "#]],
    );
    std::fs::create_dir(bench.path("folder.csv")).expect("a folder can be made");
    let folder = run(import("folder.csv")).expect(2);
    assert!(folder.stderr.contains("cannot read `folder.csv`: it is not a file"), "{folder}");
    for name in ["rows.csv", "rows.jsonl", "rows.parquet"] {
        let ran = run(import(name)).expect(2);
        assert!(ran.stderr.starts_with("error: cannot read") && ran.stderr.contains(name), "{ran}");
        assert!(!bench.path("store").exists(), "an import that fails leaves no store behind");
    }
    check_command(
        &bench,
        bench.opcollect("dataset export --store store --out rows.xls"),
        2,
        expect![[r#"
        error: the file format is unknown, because `rows.xls` has no known extension
        hint: add `--format` with csv, parquet or jsonl
    "#]],
    );
    check_command(
        &bench,
        bench.opcollect("dataset export --store store --out x.csv --format xls"),
        2,
        expect![[r#"
        error: unknown format `xls`; known: `csv`, `parquet`, `jsonl`
    "#]],
    );
    check_command(
        &bench,
        bench.opcollect("dataset schema --sql oracle"),
        2,
        expect![[r#"
        error: unknown engine `oracle`; known: `postgres`, `clickhouse`, `duckdb`
    "#]],
    );
    check_command(
        &bench,
        bench.opcollect("run absent"),
        2,
        expect![[r#"
        error: cannot use `absent/plan.json`: No such file or directory (os error 2)
        hint: create the folder with `opcollect build --out`, and copy all of it
    "#]],
    );
    // An earlier format with other fields.
    std::fs::create_dir(bench.path("earlier")).expect("a folder can be made");
    std::fs::write(bench.path("earlier/plan.json"), r#"{"format": 1, "tasks": []}"#).expect("it can be written");
    check_command(
        &bench,
        bench.opcollect("run earlier"),
        2,
        expect![[r#"
        error: cannot use `earlier/plan.json`: its format version is 1, but this program reads version 6
        hint: create the folder with `opcollect build --out`, and copy all of it
    "#]],
    );
    check_command(
        &bench,
        bench.opcollect("build --modelsource local --modelname mlp --out earlier"),
        2,
        expect![[r#"
        error: `earlier` exists and is not an empty folder
        hint: choose another `--out`, or remove the folder
    "#]],
    );
    check_command(
        &bench,
        bench.opcollect("replay --key 12 --store store"),
        2,
        expect![[r#"
        error: `12` is not a key
        hint: a key has 32 hexadecimal digits; see the column `key`
    "#]],
    );
}

#[test]
fn a_full_device_for_results_is_an_error() {
    let bench = Bench::new();
    let mut command = bench.opcollect("list");
    command.stdout(File::create("/dev/full").expect("Linux has such a device"));
    let output = command.output().expect("the program starts");
    assert_eq!(output.status.code(), Some(3));
    expect![[r#"
        error: cannot write to standard output: No space left on device (os error 28)
    "#]]
    .assert_eq(&String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_full_device_for_output_files_is_named_once() {
    let bench = Bench::new();
    bench.write("t.json", r#"{"traceEvents": [{"name": "a", "ph": "X", "ts": 0, "dur": 5, "pid": 1, "tid": 1}]}"#);
    std::os::unix::fs::symlink("/dev/full", bench.path("full.json")).expect("a link can be made");
    let ran = run(bench.opcollect("trace convert t.json full.json")).expect(3);
    expect![[r#"
        error: no space left while writing `full.json`: No space left on device (os error 28)
        hint: free space or raise the limit, then run again; finished records are kept
    "#]]
    .assert_eq(&ran.stderr);
}

const RELU: &str = "--modelsource simple --modelname relu:shape=64 --config quick.toml --store store";

/// Checks a broken environment: exit code 3, a hint, and no store.
#[track_caller]
fn check_environment(bench: &Bench, command: Command, expected: Expect) {
    let ran = check_command(bench, command, 3, expected);
    assert!(ran.stderr.contains("\nhint: run `scripts/setup`"), "{ran}");
}

fn wheel(bench: &Bench, version: &str, libraries: &[(&str, &str)]) -> std::path::PathBuf {
    let packages = bench.path("packages");
    for folder in ["tvm/lib".to_owned(), format!("apache_tvm-{version}.dist-info")] {
        std::fs::create_dir_all(packages.join(folder)).expect("a folder can be made");
    }
    for (name, content) in libraries {
        bench.write(&format!("packages/tvm/lib/{name}"), content);
    }
    packages.join("tvm/lib")
}

fn collect_with_tvm(bench: &Bench, folder: &Path) -> Command {
    let mut command = bench.opcollect(RELU);
    command.env("OPCOLLECT_TVM", folder);
    command
}

#[test]
fn tvm_missing_or_another() {
    let bench = Bench::new();
    check_environment(
        &bench,
        collect_with_tvm(&bench, &bench.path("packages/tvm/lib")),
        expect![[r#"
        error: cannot start a worker: `PROGRAMS/opcollect-worker`: worker exited with code 3 instead of answering; end of its output:
        cannot find `libtvm_runtime.so`; looked in `DIR/packages/tvm/lib`
        hint: run `scripts/setup`, which installs the pinned TVM; `opcollect doctor` lists what is missing
    "#]],
    );
    let bench = Bench::new();
    let folder = wheel(&bench, "0.26.1", &[("libtvm_runtime.so", "")]);
    check_environment(
        &bench,
        collect_with_tvm(&bench, &folder),
        expect![[r#"
        error: cannot start a worker: `PROGRAMS/opcollect-worker`: worker exited with code 3 instead of answering; end of its output:
        TVM in `DIR/packages/tvm/lib` has version 0.26.1, but this program needs 0.27.0.post1
        hint: run `scripts/setup`, which installs the pinned TVM; `opcollect doctor` lists what is missing
    "#]],
    );
    let bench = Bench::new();
    let folder = wheel(&bench, "0.27.0.post1", &[("libtvm_runtime.so", "no library")]);
    check_environment(
        &bench,
        collect_with_tvm(&bench, &folder),
        expect![[r#"
        error: cannot start a worker: `PROGRAMS/opcollect-worker`: worker exited with code 3 instead of answering; end of its output:
        cannot open `DIR/packages/tvm/lib/libtvm_runtime.so`: DIR/packages/tvm/lib/libtvm_runtime.so: file too short
        hint: run `scripts/setup`, which installs the pinned TVM; `opcollect doctor` lists what is missing
    "#]],
    );
}

#[test]
fn too_little_memory_for_tvm() {
    let bench = Bench::new();
    let mut command = bench.command(Path::new("sh"), "-c");
    command.arg(format!("ulimit -S -v 200000; exec {} {RELU}", program("opcollect").display()));
    let ran = run(command).expect(3);
    assert!(ran.stderr.contains("\nhint: allow this process at least 512 MiB of memory"), "{ran}");
}

#[track_caller]
fn check_worker(script: &str, expected: Expect) {
    let bench = Bench::new();
    let program = install_with_worker(&bench, script);
    check_environment(&bench, bench.command(&program, RELU), expected);
}

#[test]
fn invalid_workers() {
    check_worker(
        "exit 7",
        expect![[r#"
        error: cannot start a worker: `DIR/bin/opcollect-worker`: worker exited with code 7 instead of answering
        hint: run `scripts/setup`, which installs the pinned TVM; `opcollect doctor` lists what is missing
    "#]],
    );
    check_worker(
        "echo 'cannot find my library' >&2; exit 1",
        expect![[r#"
        error: cannot start a worker: `DIR/bin/opcollect-worker`: worker exited with code 1 instead of answering; end of its output:
        cannot find my library
        hint: run `scripts/setup`, which installs the pinned TVM; `opcollect doctor` lists what is missing
    "#]],
    );
    check_worker(
        "kill -SEGV $$",
        expect![[r#"
        error: cannot start a worker: `DIR/bin/opcollect-worker`: worker crashed with SIGSEGV (11)
        hint: run `scripts/setup`, which installs the pinned TVM; `opcollect doctor` lists what is missing
    "#]],
    );
    check_worker(
        "echo 'this is not a frame, but it is long enough' >&0; exec sleep 100",
        expect![[r#"
        error: cannot start a worker: `DIR/bin/opcollect-worker`: the worker sent an invalid reply: frame of 1936287860 bytes exceeds the limit of 67108864 bytes; the worker was killed
        hint: run `scripts/setup`, which installs the pinned TVM; `opcollect doctor` lists what is missing
    "#]],
    );
    // A valid greeting with the next protocol version.
    check_worker(
        r"printf '\004\000\000\000\003\002\000\000' >&0; exec sleep 100",
        expect![[r#"
        error: cannot start a worker: `DIR/bin/opcollect-worker`: the worker uses protocol 3, this program 2; install both from one build
        hint: run `scripts/setup`, which installs the pinned TVM; `opcollect doctor` lists what is missing
    "#]],
    );
}

#[test]
fn a_worker_with_an_invalid_library() {
    let bench = Bench::new();
    let program = install_with_worker(&bench, "LD_LIBRARY_PATH=${0%/*}/lib exec REAL $@");
    std::fs::create_dir(bench.path("bin/lib")).expect("a folder can be made");
    bench.write("bin/lib/libtvm_ffi.so", "no library");
    check_environment(
        &bench,
        bench.command(&program, RELU),
        expect![[r#"
        error: cannot start a worker: `DIR/bin/opcollect-worker`: worker exited with code 127 instead of answering; end of its output:
        PROGRAMS/opcollect-worker: error while loading shared libraries: DIR/bin/lib/libtvm_ffi.so: file too short
        hint: run `scripts/setup`, which installs the pinned TVM; `opcollect doctor` lists what is missing
    "#]],
    );
}

#[test]
fn a_worker_that_is_missing_or_hangs() {
    let bench = Bench::new();
    let program = install_with_worker(&bench, "");
    std::fs::remove_file(bench.path("bin/opcollect-worker")).expect("the worker was there");
    check_command(
        &bench,
        bench.command(&program, RELU),
        3,
        expect![[r#"
        error: cannot start a worker: `DIR/bin/opcollect-worker`: No such file or directory (os error 2)
        hint: the worker program must lie in the same folder as `opcollect`: the wheel contains both, and `scripts/opcollect` builds both
    "#]],
    );
    let doctor = run(bench.command(&program, "doctor --json")).expect(3).json();
    assert_eq!((&doctor[0]["topic"], &doctor[0]["status"]), (&"worker program".into(), &"missing".into()), "{doctor}");
    let bench = Bench::new();
    let program = install_with_worker(&bench, "exec sleep 1000");
    bench.write("quick.toml", &format!("{}start_seconds = 0.5\n", tests::QUICK));
    check_environment(
        &bench,
        bench.command(&program, RELU),
        expect![[r#"
        error: cannot start a worker: `DIR/bin/opcollect-worker`: no reply within 500 ms; the worker was killed
        hint: run `scripts/setup`, which installs the pinned TVM; `opcollect doctor` lists what is missing
    "#]],
    );
}

#[test]
fn a_runner_that_never_starts_ends_the_campaign() {
    let bench = Bench::new();
    let program = install_with_worker(&bench, "[ $1 = run ] && exit 7; exec REAL $@");
    let ran = run(bench.command(&program, RELU)).expect(3);
    let error = ran.stderr.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
    assert!(error.starts_with("error: cannot start a worker") && error.contains("code 7"), "{ran}");
    assert_eq!(stores::records(&bench.path("store")).len(), 0, "no record of an attempt that was not made");
    // With a working worker, the same command succeeds.
    run(bench.opcollect(RELU)).expect(0);
    run(bench.opcollect("dataset verify --store store")).expect(0);
}

#[test]
fn a_partner_that_is_not_built() {
    let bench = Bench::new();
    // An installation without the library's worker, regardless of what else was built.
    let program = install_with_worker(&bench, "exec REAL \"$@\"");
    let said = || {
        expect![[r#"
            error: 4 of 4 tasks belong to PyTorch's library (`cpu-vendor`), and its worker `opcollect-torch` is not built
            hint: run `scripts/setup --torch`, which installs PyTorch's library, then `scripts/opcollect`, which builds with it; see docs/guide/torch.md
        "#]]
    };
    for options in [["--target", "cpu-vendor, llvm"], ["--backend", "torch"]] {
        let mut command = bench.command(&program, "--modelsource local --modelname mlp --store store");
        command.args(options);
        check_command(&bench, command, 3, said());
    }
    check(
        "--modelsource local --modelname mlp --backend torch --target cuda --arch sm_80",
        expect![[r#"
            error: `backend` is "torch"; `torch` computes on this machine's CPU: remove `target` and `executor`
        "#]],
    );
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("torchscript/two-inputs.pt");
    let arguments = format!("tasks --modelsource torch --modelname {}", script.display());
    check_says(&arguments, "error: cannot use model `");
    let ran = run(bench.opcollect(&arguments)).expect(2);
    assert!(ran.stderr.contains("TorchScript does not state shapes; give those of x, indices with `--shape`"), "{ran}");
    let mut command = bench.opcollect("--modelsource local --modelname mlp --store store");
    command.args(["--target", "bnns, llvm"]);
    check_command(
        &bench,
        command,
        2,
        expect![[r#"
        error: `bnns` in target `bnns, llvm` is not a partner library; known partner libraries: cpu-vendor
    "#]],
    );
}
