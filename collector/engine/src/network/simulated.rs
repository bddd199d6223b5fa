//! Counts the events of one call of each task with a simulated processor, `valgrind --tool=cachegrind`.
//!
//! Each task runs alone on one thread, with one call and with three; half of the difference is one call, because the
//! cost of loading is equal. The simulator supports only older instructions, so the code is built again for them. Its
//! counts are not measurements and are never mixed with measured ones.

use crate::processes::{ProcessLimits, read_pipe, wait_or_kill};
use bench::{Bench, Build, worker_program};
use job::{BuildJob, RunJob};
use measure::{Method, Plan as SamplingPlan};
use models::TaskUse;
use profile::data::{SimulatedTask, Simulation};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use targets::Target;

/// Name that selects the simulator in a list of counters.
pub const NAME: &str = "cachegrind";
const PROGRAM: &str = "valgrind";
const LIMIT: Duration = Duration::from_secs(300);
const MAX_ERROR_BYTES: u64 = 4096;
/// Numbers of calls in the two simulations whose counts are subtracted.
const CALLS: [u32; 2] = [1, 3];

/// Events of the simulator, and their names in profiles.
const EVENTS: [(&str, &str); 13] = [
    ("Ir", "instructions"),
    ("I1mr", "l1i_misses"),
    ("ILmr", "llc_instruction_misses"),
    ("Dr", "data_reads"),
    ("D1mr", "l1d_read_misses"),
    ("DLmr", "llc_read_misses"),
    ("Dw", "data_writes"),
    ("D1mw", "l1d_write_misses"),
    ("DLmw", "llc_write_misses"),
    ("Bc", "branches"),
    ("Bcm", "branch_misses"),
    ("Bi", "indirect_branches"),
    ("Bim", "indirect_branch_misses"),
];

/// An installed simulator.
pub struct Simulator {
    version: String,
    worker: PathBuf,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct SimulatedCounts {
    caches: Vec<String>,
    counts: BTreeMap<&'static str, i64>,
}

impl Simulator {
    /// Finds the simulator that is installed on this machine, or returns the reason why it cannot be used.
    pub fn find() -> Result<Simulator, String> {
        let output = Command::new(PROGRAM).arg("--version").stdin(Stdio::null()).output();
        let version = match output {
            Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            Ok(output) => return Err(format!("`{PROGRAM} --version` ended with {}", output.status)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(format!("the program `{PROGRAM}` is not installed"));
            }
            Err(error) => return Err(format!("`{PROGRAM}` cannot be started: {error}")),
        };
        Ok(Simulator { version, worker: worker_program().map_err(|error| error.to_string())? })
    }

    /// Counts one call of each task, several tasks in parallel. Also returns tasks without counts, with reasons.
    pub fn count_tasks(
        &self,
        tasks: &[(&TaskUse, BuildJob)],
        (target, cpus): (&Target, &[usize]),
        bench: &mut dyn Bench,
        folder: &Path,
    ) -> (Simulation, Vec<String>) {
        let jobs: Vec<BuildJob> = tasks.iter().map(|(_, job)| job.clone()).collect();
        let builds = bench.build_jobs(&jobs, &mut || {});
        let method = Method::Sample(SamplingPlan::default());
        let mut work = Vec::new();
        let mut refused = Vec::new();
        for (place, ((one, job), build)) in tasks.iter().zip(builds).enumerate() {
            match build {
                Build::Built(artifact) => {
                    let run = RunJob::library_run(job.task.clone(), vec![cpus[place % cpus.len()]], method.clone())
                        .with_artifact(&artifact);
                    work.push((*one, run, folder.join(format!("simulated-{place}"))));
                }
                Build::Failed(why) | Build::Rejected(why) => refused.push(describe_failure(one, &why)),
                Build::Fault(fault) => refused.push(describe_failure(one, &fault.to_string())),
            }
        }
        let shares = work.chunks(work.len().div_ceil(cpus.len().max(1)).max(1));
        // Nothing here is timed, so one simulation per CPU may run.
        let counted = std::thread::scope(|scope| {
            let one_share = |share| scope.spawn(move || self.count_share(share));
            let threads: Vec<_> = shares.map(one_share).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("simulations do not panic")).collect::<Vec<_>>()
        });
        let mut simulation = Simulation {
            simulator: format!("{NAME} of {}", self.version),
            target: target.text.clone(),
            ..Simulation::default()
        };
        for (one, result) in counted {
            match result {
                Ok(counted) => {
                    simulation.caches = counted.caches;
                    let counts =
                        counted.counts.into_iter().map(|(name, count)| (name.to_owned(), count.max(0) as f64 / 2.0));
                    simulation.tasks.push(SimulatedTask {
                        task: one.task.hash(),
                        text: one.task.describe(),
                        flops: one.task.work().ok().map(|work| work.flops),
                        counts: counts.collect(),
                    });
                }
                Err(why) => refused.push(describe_failure(one, &why)),
            }
        }
        (simulation, refused)
    }

    fn count_share<'a>(
        &self,
        share: &[(&'a TaskUse, RunJob, PathBuf)],
    ) -> Vec<(&'a TaskUse, Result<SimulatedCounts, String>)> {
        share.iter().map(|(one, job, path)| (*one, self.count_two_calls(job, path))).collect()
    }

    /// Returns the counts of two calls: the difference between simulations with three calls and with one.
    fn count_two_calls(&self, job: &RunJob, path: &Path) -> Result<SimulatedCounts, String> {
        let file = path.with_extension("json");
        let text = serde_json::to_vec(job).map_err(|error| error.to_string())?;
        std::fs::write(&file, text).map_err(|error| error.to_string())?;
        let [few, more] = CALLS.map(|times| self.run(&file, &path.with_extension(times.to_string()), times));
        let (few, more) = (few?, more?);
        let passed = |(name, count): (&&'static str, &i64)| Some((*name, count - few.counts.get(*name)?));
        Ok(SimulatedCounts { counts: more.counts.iter().filter_map(passed).collect(), ..more })
    }

    fn run(&self, job: &Path, out: &Path, times: u32) -> Result<SimulatedCounts, String> {
        let log = out.with_extension("log");
        let mut command = Command::new(PROGRAM);
        command.args(["--tool=cachegrind", "--cache-sim=yes", "--branch-sim=yes"]);
        command.arg(format!("--cachegrind-out-file={}", out.display())).arg(format!("--log-file={}", log.display()));
        command.arg(&self.worker).arg("call").arg(std::process::id().to_string()).arg(job).arg(times.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let errors = read_pipe(child.stderr.take().expect("standard error is piped"), MAX_ERROR_BYTES);
        let status = wait_or_kill(&mut child, &ProcessLimits::with_deadline(LIMIT))
            .map_err(|error| format!("the simulator {error}"))?;
        let errors = errors.join().unwrap_or_default();
        if !status.success() {
            let errors = String::from_utf8_lossy(&errors);
            return Err(format!("the simulated program ended with {status}: {}", errors.trim()));
        }
        parse_counts(&std::fs::read_to_string(out).map_err(|error| error.to_string())?)
    }
}

fn describe_failure(one: &TaskUse, why: &str) -> String {
    format!("{}: {why}", one.task.describe())
}

fn parse_counts(text: &str) -> Result<SimulatedCounts, String> {
    let after = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let events = after("events: ").ok_or("the output file of the simulator names no events")?;
    let sums = after("summary: ").ok_or("the output file of the simulator has no sums")?;
    let mut counts = BTreeMap::new();
    for (event, sum) in events.split_whitespace().zip(sums.split_whitespace()) {
        let sum: i64 = sum.parse().map_err(|_| format!("`{sum}` is not a count"))?;
        counts.extend(EVENTS.iter().find(|(name, _)| *name == event).map(|(_, ours)| (*ours, sum)));
    }
    let caches = text.lines().filter_map(|line| line.strip_prefix("desc: "));
    let caches = caches.map(|cache| cache.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    Ok(SimulatedCounts { caches, counts })
}

#[cfg(test)]
mod tests {
    use super::parse_counts;

    #[test]
    fn counts_have_the_names_of_profiles() {
        let text = "desc: D1 cache:         49152 B, 64 B, 12-way associative\ncmd: x\nevents: Ir Dr Bogus D1mr\nfn=a\n1 2 3 4 5\n\
                    summary: 100 20 7 3\n";
        let parsed = parse_counts(text).expect("a file of counts");
        assert_eq!(parsed.caches, ["D1 cache: 49152 B, 64 B, 12-way associative"]);
        assert_eq!(parsed.counts, [("instructions", 100), ("data_reads", 20), ("l1d_read_misses", 3)].into());
        for text in ["", "events: Ir\n", "events: Ir\nsummary: many\n"] {
            super::parse_counts(text).expect_err("it is none");
        }
    }
}
