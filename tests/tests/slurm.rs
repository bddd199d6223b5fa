//! The job array of `configs/slurm` on a real Slurm of one node: a shard is requeued and the node drained, without lost
//! or duplicated records. Also checks manifests without a cluster.
#![allow(missing_docs)]

use datasets::Key;
use nix::unistd::Uid;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tests::workspace::root;
use tests::{Bench, program, run, skip, stores};

const MODELS: &str = "--modelsource simple --modelname relu:shape=1x64 --modelname softmax:shape=3x17 \
                      --modelname matmul:m=16,n=16,k=16 --schedules 40 --config quick.toml";

/// Daemons of this test; stopped on drop.
struct Cluster {
    daemons: Vec<Child>,
    folder: tempfile::TempDir,
    node: String,
}

impl Cluster {
    /// Starts the daemons; prints a message and returns None if there is no Slurm or the test may not start one.
    fn begin() -> Option<Cluster> {
        let has = |name: &str| {
            let folders = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&folders).chain(["/usr/sbin".into()]).any(|folder| folder.join(name).is_file())
        };
        if !["munged", "slurmctld", "slurmd", "sbatch", "scontrol"].into_iter().all(has) {
            skip("there is no Slurm; on Debian `apt install slurm-wlm munge` brings one");
            return None;
        }
        if !Uid::current().is_root() {
            skip("only root starts the daemons of Slurm");
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let node = nix::unistd::gethostname().ok()?.to_string_lossy().split('.').next()?.to_owned();
        std::fs::write(folder.path().join("slurm.conf"), settings(folder.path(), &node)).expect("settings");
        for name in ["state", "spool"] {
            std::fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let mut cluster = Cluster { daemons: Vec::new(), folder, node };
        let at = |name: &str| cluster.folder.path().join(name).display().to_string();
        let munge: Vec<String> = [
            ("key-file", "key"),
            ("socket", "socket"),
            ("pid-file", "pid"),
            ("log-file", "log"),
            ("seed-file", "seed"),
        ]
        .iter()
        .map(|(flag, name)| format!("--{flag}={}", at(name)))
        .collect();
        std::fs::write(at("key"), [7u8; 1024]).expect("a key");
        Command::new("chmod").arg("600").arg(at("key")).status().ok()?;
        let arguments: Vec<&str> =
            ["--foreground", "--force"].into_iter().chain(munge.iter().map(String::as_str)).collect();
        cluster.daemon("munged", &arguments);
        std::thread::sleep(Duration::from_millis(500));
        cluster.daemon("slurmctld", &["-D"]);
        cluster.daemon("slurmd", &["-D"]);
        if !cluster.waits(60, |cluster| cluster.ask("sinfo", &["-h", "-o", "%T"]).trim() == "idle") {
            skip("Slurm's daemons do not come up here");
            return None;
        }
        Some(cluster)
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        command.env("SLURM_CONF", self.folder.path().join("slurm.conf")).env("PATH", path).stdin(Stdio::null());
        command
    }

    fn daemon(&mut self, name: &str, arguments: &[&str]) {
        let mut command = self.command(name);
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        self.daemons.push(command.spawn().expect("a daemon starts"));
    }

    fn ask(&self, name: &str, arguments: &[&str]) -> String {
        let asked = self.command(name).args(arguments).output().expect("Slurm's programs start");
        String::from_utf8_lossy(&asked.stdout).into_owned()
    }

    fn waits(&self, seconds: u64, is_so: impl Fn(&Cluster) -> bool) -> bool {
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end {
            if is_so(self) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        false
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.ask("scancel", &["--full", "--user=root"]);
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

fn settings(folder: &Path, node: &str) -> String {
    let folder = folder.display();
    let port = |name: &str| {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        format!("{name}={}", socket.local_addr().expect("an address").port())
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "ClusterName=test\nSlurmctldHost={node}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\n\
         AuthInfo=socket={folder}/socket,cred_expire=5\nCryptoType=crypto/munge\n{}\n{}\nStateSaveLocation={folder}/state\n\
         SlurmdSpoolDir={folder}/spool\nSlurmctldPidFile={folder}/ctld.pid\nSlurmdPidFile={folder}/d.pid\n\
         SlurmctldLogFile={folder}/ctld.log\nSlurmdLogFile={folder}/d.log\nProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/none\nSelectType=select/cons_tres\nReturnToService=2\nKillWait=30\nMinJobAge=600\n\
         SchedulerParameters=sched_interval=2,sched_min_interval=0\n\
         NodeName={node} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN\n\
         PartitionName=all Nodes={node} Default=YES MaxTime=INFINITE State=UP\n",
        port("SlurmctldPort"),
        port("SlurmdPort"),
    )
}

#[test]
fn an_array_whose_shard_is_requeued_and_whose_node_is_drained_loses_nothing() {
    let Some(cluster) = Cluster::begin() else { return };
    let bench = Bench::new();
    run(bench.opcollect(&format!("{MODELS} --store whole --json"))).expect(0);
    let wanted: BTreeSet<Key> = stores::keys(&stores::records(&bench.path("whole"))).into_iter().collect();
    let mut submit = cluster.command("sbatch");
    submit.args(["--parsable", "--array=1-2", "--export=ALL"]).arg(root().join("configs/slurm/array.sbatch"));
    submit.args(MODELS.split_whitespace()).current_dir(bench.path("."));
    submit
        .env("STORE", bench.path("store"))
        .env("OPCOLLECT", program("opcollect"))
        .env("OPCOLLECT_LOCKS", bench.locks());
    let submitted = submit.output().expect("sbatch starts");
    let job = String::from_utf8_lossy(&submitted.stdout).trim().to_owned();
    assert!(submitted.status.success(), "{}", String::from_utf8_lossy(&submitted.stderr));
    let lines = || stores::journal_lines(&bench.path("store")).len();
    let begun = cluster.waits(120, |_| lines() > 2);
    assert!(begun, "{}\n{}", cluster.ask("squeue", &[]), cluster.ask("scontrol", &["show", "job", &job]));
    cluster.ask("scontrol", &["requeue", &format!("{job}_1")]);
    let node = format!("NodeName={}", cluster.node);
    cluster.ask("scontrol", &["update", &node, "State=DRAIN", "Reason=test"]);
    assert!(cluster.waits(120, |cluster| cluster.ask("sinfo", &["-h", "-o", "%T"]).trim() == "drained"));
    let at_rest = stores::chosen(&bench.path("store"), datasets::Choose::All).len();
    assert!(at_rest > 0, "what was measured before the node was drained is kept");
    cluster.ask("scontrol", &["update", &node, "State=RESUME"]);
    assert!(
        cluster.waits(240, |cluster| cluster.ask("squeue", &["-h"]).trim().is_empty()),
        "{}",
        cluster.ask("squeue", &[])
    );
    let all = stores::chosen(&bench.path("store"), datasets::Choose::All);
    let keys: BTreeSet<Key> = stores::keys(&all).into_iter().collect();
    assert_eq!((keys.len(), &keys), (all.len(), &wanted), "nothing is lost, and nothing measured twice");
}

/// Validates the API's schema if its package is installed; the behaviour of a cluster is not tested.
#[test]
fn the_manifest_matches_the_api_schema() {
    let python = root().join(".venv/bin/python");
    let has = |module: &str| {
        let asked = Command::new(&python).args(["-c", &format!("import {module}")]).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    let text = tests::workspace::text("configs/kubernetes/job.yaml");
    // Wrong usage must not be retried. The code of an unsuitable machine is also that of a full disk.
    for part in
        ["completionMode: Indexed", "backoffLimitPerIndex", "values: [2]", "restartPolicy: Never", "JOB_COMPLETIONS"]
    {
        assert!(text.contains(part), "{part}");
    }
    let number = |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name)?.trim().parse::<u32>().ok());
    assert_eq!(number("completions:"), number("parallelism:"));
    if !has("kubernetes_validate") {
        return skip("`kubernetes_validate` is not in .venv: the manifest was not held against the API's schema");
    }
    let bench = Bench::new();
    let manifest = root().join("configs/kubernetes/job.yaml");
    let mut command = bench.command(&python, "-m kubernetes_validate");
    command.arg(manifest);
    run(command).expect(0);
}
