//! Misbehaving kernels in real workers: each fault has its own outcome, and the next job is unaffected.
//!
//! The kernels are C sources, compiled here, with TVM's entry point.
#![allow(missing_docs)]

#[path = "../../collector/kernel/tests/common/mod.rs"]
mod common;

use bench::{Ability, Bench, Build, Prebuilt, WorkerLimits, Workers};
use common::{PATIENCE, run_job, task};
use datasets::{Outcome, Record};
use engine::campaign::Config;
use expect_test::{Expect, expect};
use job::Packing;
use job::{Artifact, RunReply};
use measure::affinity;
use models::Task;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use targets::Target;
use tests::campaigns::{self, format_outcomes, given, run as run_campaign};
use worker::Fault;

/// A task with an output of 256 bytes, so that the guard page starts where the output ends.
const TASK: &str = r#"unary(f32[64]) function="relu""#;

const KERNEL: &str = r#"
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
typedef struct { int type; int padding; char *pointer; } Any;
extern void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message);
/* A tensor comes as an object with a header, or bare; its first field is the address of its data. */
static float *data(const Any *any) { return *(float **)(any->type == 7 ? any->pointer : any->pointer + 24); }
volatile int zero = 0;
static int deep(volatile char *above) { volatile char here[4096]; here[0] = *above; return deep(here) + here[0]; }
int __tvm_ffi_main(void *self, const Any *arguments, int count, Any *result) {
  float *x = data(&arguments[0]), *y = data(&arguments[1]);
  if (zero) deep((volatile char *)y);
  for (int i = 0; i < 64; i++) y[i] = x[i] > 0 ? x[i] : 0;
  DEED
  return 0;
}
"#;

fn kernel(deed: &str) -> Vec<u8> {
    compile(&KERNEL.replace("DEED", deed))
}

fn compile(source: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let (input, output) = (folder.path().join("kernel.c"), folder.path().join("kernel.o"));
    std::fs::write(&input, source).expect("the source can be written");
    let compiler = Command::new("cc").args(["-c", "-O1", "-fPIC", "-w", "-o"]).arg(&output).arg(&input).output();
    let compiler = compiler.expect("a C compiler can be started");
    assert!(compiler.status.success(), "{source}\n{}", String::from_utf8_lossy(&compiler.stderr));
    std::fs::read(&output).expect("the compiler wrote an object")
}

fn ending(result: Result<RunReply, Fault>) -> String {
    let text = match result {
        Ok(RunReply::Measured(measured)) => {
            format!("measured, off by {}", measured.check.expect("checked").max_abs_error)
        }
        Ok(RunReply::WrongResult(check)) => format!("wrong by {}", check.max_abs_error),
        Ok(RunReply::Failed(why) | RunReply::Unsupported(why)) => format!("failed: {why}"),
        Ok(RunReply::Profiled(_) | RunReply::Together(_)) => unreachable!("one operator alone was asked for"),
        Ok(RunReply::Simulated(_)) => unreachable!("workers measure"),
        Err(fault) => fault.to_string(),
    };
    text.lines().next().unwrap_or_default().trim_end_matches("; end of its output:").to_owned()
}

struct Trial {
    workers: Workers,
    task: Task,
    cpu: usize,
    good: Vec<u8>,
}

impl Trial {
    fn new() -> Trial {
        let cpu = affinity::allowed_cpus().expect("the system tells the CPUs")[0];
        Trial { workers: common::workers(), task: task(TASK), cpu, good: kernel("") }
    }

    fn run(&mut self, object: Vec<u8>, deadline: Duration) -> String {
        let job = run_job(&self.task, object, &[self.cpu]);
        ending(self.workers.run_job(&job, deadline))
    }

    #[track_caller]
    fn check(&mut self, object: Vec<u8>, deadline: Duration, expected: Expect) {
        let ending = self.run(object, deadline);
        expected.assert_eq(&ending);
        if ending.starts_with("wrong") {
            // As in a campaign, the runner is replaced, since the kernel may have corrupted its memory.
            self.workers.recycle_runners();
        }
        assert_eq!(self.run(self.good.clone(), PATIENCE), "measured, off by 0", "after `{ending}`");
    }

    #[track_caller]
    fn check_deed(&mut self, deed: &str, expected: Expect) {
        self.check(kernel(deed), PATIENCE, expected);
    }
}

#[test]
fn a_kernel_that_exits_is_a_crash() {
    let mut trial = Trial::new();
    trial.check_deed("*(volatile int *)8 = 1;", expect!["worker crashed with SIGSEGV (11)"]);
    trial.check_deed("zero = 1; deep((volatile char *)y);", expect!["worker crashed with SIGSEGV (11)"]);
    trial.check_deed("__builtin_trap();", expect!["worker crashed with SIGILL (4)"]);
    trial.check_deed("zero = 1 / zero;", expect!["measured, off by 0"]);
    trial.check_deed("abort();", expect!["worker crashed with SIGABRT (6)"]);
    trial.check_deed("raise(SIGKILL);", expect!["worker crashed with SIGKILL (9)"]);
    trial.check_deed("exit(7);", expect!["worker exited with code 7 instead of answering"]);
    trial.check_deed("_exit(0);", expect!["worker exited with code 0 instead of answering"]);
}

#[test]
fn a_kernel_that_overruns_its_buffers_is_a_crash() {
    let mut trial = Trial::new();
    trial.check_deed("for (int i = 64; i < 68; i++) y[i] = 1;", expect!["worker crashed with SIGSEGV (11)"]);
    trial.check_deed("y[64 - 1024 - 64] = 1;", expect!["worker crashed with SIGSEGV (11)"]);
    trial.check_deed("y[0] += x[64];", expect!["worker crashed with SIGSEGV (11)"]);
}

#[test]
fn an_endless_kernel_ends_at_its_deadline() {
    let mut trial = Trial::new();
    let short = Duration::from_millis(300);
    for deed in ["for (;;) zero = 0;", "for (;;) pause();", "kill(getpid(), SIGSTOP);"] {
        trial.check(kernel(deed), short, expect!["no reply within 300 ms; the worker was killed"]);
    }
}

#[test]
fn wrong_results_are_detected() {
    let mut trial = Trial::new();
    trial.check_deed("y[17] += 0.5f;", expect!["wrong by 0.5"]);
    trial.check_deed("y[63] = -y[63] - 1;", expect!["wrong by 1"]);
    // The runner fills the output with a pattern before the first run, so that an unwritten value is detected.
    let unwritten = KERNEL.replace("i < 64", "i < 63").replace("DEED", "");
    trial.check(compile(&unwritten), PATIENCE, expect!["wrong by inf"]);
    trial.check_deed("y[3] = 0.0f / 0.0f;", expect!["wrong by inf"]);
    trial.check_deed("x[5] = 3;", expect!["wrong by 2.5914478302001953"]);
}

#[test]
fn errors_of_a_kernel_are_reported() {
    let mut trial = Trial::new();
    let raise = r#"TVMFFIErrorSetRaisedFromCStr("ValueError", "the shapes do not agree"); return -1;"#;
    trial.check_deed(raise, expect!["failed: `main` failed: the shapes do not agree"]);
    trial.check_deed("return -1;", expect!["failed: the measuring thread panicked"]);
}

#[test]
fn a_kernel_cannot_reply_for_its_worker() {
    let mut trial = Trial::new();
    trial.check_deed("write(1, y, 256); write(0, y, 256);", expect!["measured, off by 0"]);
    let flood = "for (int file = 3; file < 100; file++) write(file, \"nonsense nonsense nonsense nonsense\", 32);";
    trial.check_deed(flood, expect!["the worker sent an invalid reply: frame of 1936617326 bytes exceeds the limit of 67108864 bytes; the worker was killed"]);
}

#[test]
fn invalid_objects_are_rejected() {
    let mut trial = Trial::new();
    let good = kernel("");
    trial.check(
        Vec::new(),
        PATIENCE,
        expect!["failed: cannot load the artifact: malformed object file: Invalid ELF header size or alignment"],
    );
    trial.check(
        b"not an object".to_vec(),
        PATIENCE,
        expect!["failed: cannot load the artifact: malformed object file: Invalid ELF header size or alignment"],
    );
    trial.check(
        good[..good.len() / 2].to_vec(),
        PATIENCE,
        expect![
            "failed: cannot load the artifact: malformed object file: Invalid ELF section header offset/size/alignment"
        ],
    );
    trial.check(
        compile("int other(void) { return 0; }"),
        PATIENCE,
        expect!["failed: cannot load the artifact: the object defines no function `__tvm_ffi_main`"],
    );
    trial.check(compile("int nowhere(void); int __tvm_ffi_main(void) { return nowhere(); }"), PATIENCE, expect!["failed: cannot load the artifact: no library in this process defines `nowhere`, which the object needs; open the TVM runtime before loading"]);
    trial.check(
        compile("int __tvm_ffi_main = 0;"),
        PATIENCE,
        expect!["failed: cannot load the artifact: the object defines no function `__tvm_ffi_main`"],
    );
}

/// The limit of a run is longer than any stall of a busy machine.
fn config(task: &str, sampler: &str, schedules: usize) -> Config {
    campaigns::config(task, sampler, schedules, 10.0)
}

fn cpu() -> Target {
    targets::llvm_target("x86-64", &[], 1)
}

fn built(deed: &str) -> Build {
    let object = kernel(deed);
    Build::Built(Box::new(Artifact {
        code_bytes: object.len() as u64,
        object,
        instruction_sets: Vec::new(),
        packings: vec![Packing::Plain; 2],
        device: None,
        trace: None,
        listing: None,
        schedule_ms: 1.0,
        lower_ms: 1.0,
        codegen_ms: 1.0,
        features: Default::default(),
    }))
}

#[test]
fn every_attempt_of_a_campaign_ends_in_a_record() {
    let builds = [
        built(""),
        built("*(volatile int *)8 = 1;"),
        built("for (;;) zero = 0;"),
        built("y[0] += 1;"),
        built("TVMFFIErrorSetRaisedFromCStr(\"ValueError\", \"no\"); return -1;"),
        built("exit(3);"),
        Build::Failed("a loop cannot be split".to_owned()),
        Build::Rejected("no such draw".to_owned()),
        Build::Fault(Fault::TimedOut { limit_ms: 60_000 }),
        Build::Fault(Fault::Crashed { signal: 11, stderr: String::new() }),
        Build::Fault(Fault::Corrupt { why: "a frame of 4 GB".to_owned() }),
        built(""),
    ];
    let config = config(TASK, "metaschedule", builds.len());
    let mut workers = common::workers();
    let (outcomes, records) = run_campaign(&config, &cpu(), &mut Prebuilt::new(&mut workers, given(builds)));
    expect![[r#"
        ok: -
        crashed: run: worker crashed with SIGSEGV (11)
        timed_out: run: no reply within 10000 ms; the worker was killed
        wrong_result: differs from the reference by up to 1.000e0 (relative 3.232e0)
        run_failed: `main` failed: no
        crashed: run: worker exited with code 3 instead of answering
        build_failed: a loop cannot be split
        skipped: no such draw
        timed_out: build: no reply within 60000 ms; the worker was killed
        crashed: build: worker crashed with SIGSEGV (11)
        build_failed: build: the worker sent an invalid reply: a frame of 4 GB; the worker was killed
        ok: -
    "#]]
    .assert_eq(&format_outcomes(&records));
    assert_eq!((outcomes.left, outcomes.broken), (0, None));
    let times: Vec<bool> = records.iter().map(|record| record.median_ns.is_some()).collect();
    assert_eq!(times.iter().filter(|has_time| **has_time).count(), 2, "only right results have times");
    assert!(records.iter().all(|record| (record.outcome == Outcome::Ok) == record.median_ns.is_some()));
}

#[test]
fn a_campaign_continues_if_builders_lack_memory() {
    let config = config("conv2d:ci=64,hw=28,co=64,k=3,p=1", "template", 2);
    let mut starving = workers_with_least_memory();
    let (outcomes, records) = run_campaign(&config, &cpu(), &mut starving);
    let is_named = |record: &Record| matches!(record.outcome, Outcome::Crashed | Outcome::BuildFailed);
    assert!(records.iter().all(is_named), "{}", format_outcomes(&records));
    assert_eq!((records.len(), outcomes.counts.values().sum::<usize>(), outcomes.broken), (2, 2, None));
    let (outcomes, records) = run_campaign(&config, &cpu(), &mut common::workers());
    let is_measured = outcomes.counts.keys().all(|name| name == Outcome::Ok.name());
    assert!(is_measured, "{}", format_outcomes(&records));
}

/// Builders with just enough memory to start: compiling a convolution takes twenty megabytes, starting only some.
fn workers_with_least_memory() -> Workers {
    let mut memory_bytes = 4 << 20;
    while memory_bytes < 1 << 30 {
        let limits = WorkerLimits { builders: 1, build_memory_bytes: memory_bytes, ..common::limits() };
        let mut workers = Workers::new(&common::worker(), &limits);
        if workers.capability(Ability::Build).is_ok() {
            return workers;
        }
        memory_bytes += memory_bytes / 4;
    }
    panic!("no builder starts within a gigabyte")
}

#[test]
fn a_campaign_without_workers_ends_with_the_reason() {
    let mut workers = Workers::new(Path::new("/nonexistent/opcollect-worker"), &common::limits());
    let mut given = Prebuilt::new(&mut workers, given([built(""), built("")]));
    let (outcomes, records) = run_campaign(&config(TASK, "metaschedule", 2), &cpu(), &mut given);
    assert_eq!((records.len(), outcomes.left), (0, 2));
    let why = outcomes.broken.expect("a reason");
    assert!(why.contains("/nonexistent/opcollect-worker"), "{why}");
}
