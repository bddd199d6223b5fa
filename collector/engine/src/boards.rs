//! Boards: which one is meant, what it says of itself, and what code is made for it.

use crate::campaign::choices::{Backend, CacheChoice};
use crate::campaign::{Config, record};
use crate::failure::Failure;
use crate::{Result, machine, trackers};
use bench::{Access, At, Bench, COLD_ON_ONE_THREAD, Device, FabricBoard, Fleet, Linker, NoCore};
use datasets::{Record, Source};
use measure::host::Facts;
use remote::Address;
use remote::fabric::FabricKind;
use remote::tracker::Turn;
use std::path::Path;
use std::time::Duration;
use targets::{Fabric, HOST, Kind, Machine, Target};

/// Options of a board.
#[derive(Clone, Copy, Debug, Default)]
pub struct BoardOptions<'a> {
    /// Its name, such as `pynq-z2`.
    pub board: Option<&'a str>,
    /// The linker for its programs, instead of one by its architecture.
    pub cross_cc: Option<&'a str>,
    /// Whether a server that cannot tell runs on hardware.
    pub on_hardware: bool,
    /// A file with a bitstream, for a core on its fabric.
    pub bitstream: Option<&'a str>,
}

/// Port of TVM's servers.
const SERVER_PORT: u16 = 9090;

/// Where a board is reached.
pub enum BoardServer<'a> {
    /// At a server of its own, by host and port.
    Host(&'a str, Option<u16>),
    /// Through a tracker, which lends boards by their keys.
    Tracker(Address),
}

/// How a board is reached.
pub struct BoardAddress<'a> {
    /// The server.
    pub server: BoardServer<'a>,
    /// The key of the board.
    pub key: Option<&'a str>,
    /// The key at a tracker where none is given.
    pub default_key: Option<&'a str>,
    /// A file with the secret of the server.
    pub secret_file: Option<&'a Path>,
    /// How long to wait for a board, in seconds.
    pub wait_seconds: u64,
}

/// Returns the access to a board.
pub fn access(address: BoardAddress<'_>) -> Result<Access> {
    let (at, default_key) = match address.server {
        BoardServer::Host(host, port) => {
            (At::Server(Address { host: host.to_owned(), port: port.unwrap_or(SERVER_PORT) }), Some(""))
        }
        BoardServer::Tracker(tracker) => (At::Tracker(tracker), address.default_key),
    };
    let key = address.key.or(default_key).ok_or_else(|| {
        Failure::usage("a tracker knows devices by their keys").with_hint("give `--key`; see `opcollect fleet status`")
    })?;
    Ok(Access {
        at,
        key: key.to_owned(),
        secret: address.secret_file.map(trackers::secret).transpose()?,
        patience: Duration::from_secs(address.wait_seconds),
        turn: Turn::Own,
    })
}

/// The machine that code runs on.
pub struct Standing {
    /// What it is.
    pub facts: Facts,
    /// The CPUs that may be used there.
    pub cpus: Vec<usize>,
    /// What is to be known of it where it is not this one.
    pub board: Option<Board>,
}

/// A board that was found.
pub struct Board {
    /// It, and all that are like it.
    pub fleet: Fleet,
    /// The name that was given for it.
    name: Option<String>,
    source: Source,
    /// Why its times count as emulated.
    why_emulated: Option<String>,
    /// Its version, where it is ours.
    agent: Option<String>,
    part: Part,
}

/// What of a board computes.
enum Part {
    /// Its processor, which was asked for by a target of this kind.
    Processor(Kind),
    /// A core on its fabric, beside such a processor; where its agent only simulates one, nothing of that is in its times.
    Fabric(Box<Facts>),
}

impl Standing {
    /// This machine.
    pub fn here() -> Result<Standing> {
        Ok(Standing { facts: Facts::read(), cpus: machine::allowed_cpus()?, board: None })
    }
}

impl Board {
    /// What records say of it.
    pub fn mark(&self, record: &mut Record) {
        record.source = self.source;
        record.board.clone_from(&self.name);
        let transport = match self.fleet.access.at {
            At::Server(_) => "rpc",
            At::Tracker(_) => "tracker",
        };
        record.transport = Some(transport.to_owned());
        record.agent_version.clone_from(&self.agent);
        match &self.part {
            Part::Processor(kind) => {
                record.target = kind.record_word();
                record.unit = kind.unit().map(str::to_owned);
            }
            Part::Fabric(_) if self.source == Source::Simulated => {
                record.device = record.device.as_ref().map(|device| format!("{device}, simulated by an agent"));
            }
            Part::Fabric(facts) => record::beside_core(record, facts),
        }
        if self.agent.is_none() {
            record.thread_mode = Some("pool of the server".to_owned());
            record.spin_count = None;
        }
    }

    /// What its times are.
    pub fn source(&self) -> Source {
        self.source
    }

    /// What it is called.
    pub fn described(&self) -> &str {
        self.name.as_deref().unwrap_or("the board")
    }

    /// What stands above all tables of its times.
    pub fn heading(&self) -> String {
        format!("all times below are {}, on {}\n", self.source, self.described())
    }

    /// What a person should know before reading times.
    pub fn notes(&self) -> Vec<String> {
        let why = self.why_emulated.iter();
        let mut notes: Vec<String> = why
            .map(|why| format!("{why}: these times are recorded as emulated and say nothing of a board's speed"))
            .collect();
        if matches!(self.part, Part::Fabric(_)) {
            notes.push(match self.source {
                Source::Simulated => {
                    "an agent computes each program bit by bit; the result is compared here, and times are \
                                      those of the model here"
                        .to_owned()
                }
                _ => format!(
                    "the core of {} is timed there, from its first register to its end; the way to it was tried on no \
                     hardware, so look at the first results twice",
                    self.described()
                ),
            });
        }
        notes
    }
}

/// Looks at the board: what code is made for it, and what records say of it.
pub fn look(
    access: &Access,
    wanted: BoardOptions<'_>,
    config: &Config,
    bench: &mut dyn Bench,
) -> Result<(Target, Standing)> {
    if config.backend == Backend::Torch || !config.partners.is_empty() || config.kind().runs_on_gpu() {
        return Err(Failure::usage("a board runs compiled code on its CPU, and nothing else")
            .with_hint("leave out `--backend`, partners and `cuda` in `--target`"));
    }
    if wanted.bitstream.is_some() {
        return Err(Failure::usage("`--bitstream` is for a core on a board's fabric, and this is about its processor")
            .with_hint("leave it out, or give `--unit fpga`"));
    }
    // The first that is free speaks for all of a key; one that is unlike it is left alone.
    let device = Device::open(access).map_err(trackers::unreachable)?;
    let devices = trackers::devices(access)?;
    let own = target_of(&device, access, wanted.board, config, bench)?;
    let facts = facts_of(&device, &own);
    check(&device, &own, &facts)?;
    let cpus = match (&device.told, device.threads) {
        (Some(told), _) => told.facts.allowed_cpus.clone(),
        (None, threads) => (0..threads.unwrap_or(1)).collect(),
    };
    let most = cpus.len();
    if let Some(threads) = config.threads.iter().find(|threads| **threads > most) {
        return Err(Failure::usage(format!("`threads` is {threads}; allowed are 1 to {most} on {}", device.address)));
    }
    refuse_cold(config, &device)?;
    let linker = match wanted.cross_cc {
        Some(command) => Linker::new(command),
        None => Linker::of(&targets::architecture(&own.text)),
    };
    linker.check().map_err(|error| {
        Failure::environment(error).with_hint(
            "install it (on Debian `gcc-aarch64-linux-gnu` or `gcc-arm-linux-gnueabihf`), or give another by `--cross-cc`",
        )
    })?;
    let why_emulated = match &device.told {
        Some(told) => told.emulated.clone(),
        None if wanted.on_hardware => None,
        None => Some("the server cannot say whether it runs on hardware; `--on-hardware` says so".to_owned()),
    };
    let board = Board {
        fleet: Fleet {
            access: access.clone(),
            linker,
            devices,
            jobs: config.limits.runner_jobs,
            likeness: device.likeness(),
        },
        name: wanted.board.map(str::to_owned).or_else(|| Some(access.key.clone()).filter(|key| !key.is_empty())),
        source: if why_emulated.is_some() { Source::Emulated } else { Source::Measured },
        why_emulated,
        agent: device.told.as_ref().map(|told| told.agent_version.clone()),
        part: Part::Processor(config.kind()),
    };
    Ok((own, Standing { facts, cpus, board: Some(board) }))
}

/// Refuses what a server that is not our agent cannot do with caches.
fn refuse_cold(config: &Config, device: &Device) -> Result<()> {
    let is_cold = config.cache.contains(&CacheChoice::Cold) && config.threads.iter().any(|threads| *threads > 1);
    match device.told {
        None if is_cold => Err(Failure::usage(format!(
            "`cache` is cold on several threads, and {} cannot do that: {COLD_ON_ONE_THREAD}",
            device.address
        ))
        .with_hint("run `opcollect-board` there, or give `--threads 1`")),
        _ => Ok(()),
    }
}

/// Looks at the core on a board's fabric: where its programs run, and what records say of it.
pub fn look_at_core(
    access: &Access,
    wanted: BoardOptions<'_>,
    fabric: &Fabric,
    jobs: u32,
) -> Result<(FabricBoard, Standing)> {
    const SETUP: &str = "start its agent with `--fpga devmem`, or with `--fpga simulated` for a core that is not there; without \
                         `--host` and `--tracker` a core is simulated here";
    let useless = [("--cross-cc", wanted.cross_cc.is_some()), ("--on-hardware", wanted.on_hardware)];
    if let Some((flag, _)) = useless.into_iter().find(|(_, is_given)| *is_given) {
        return Err(Failure::usage(format!("`{flag}` is for the processor of a board, and this is about its fabric")));
    }
    let opened = FabricBoard::open(fabric.clone(), access.clone(), wanted.bitstream.map(str::to_owned), jobs);
    let (mut bench, device) = opened.map_err(|error| match error {
        NoCore::Remote(error) => trackers::unreachable(error),
        none @ NoCore::None(_) => Failure::environment(none).with_hint(SETUP),
    })?;
    let told = device
        .told
        .clone()
        .ok_or_else(|| Failure::environment(NoCore::None(device.address.clone())).with_hint(SETUP))?;
    let source = match (bench.kind(), &told.emulated) {
        (FabricKind::Simulated, _) => Source::Simulated,
        (FabricKind::Devmem, Some(_)) => Source::Emulated,
        (FabricKind::Devmem, None) => Source::Measured,
    };
    let board = Board {
        fleet: Fleet {
            access: access.clone(),
            linker: Linker::of(&told.facts.architecture),
            devices: 1,
            jobs,
            likeness: device.likeness(),
        },
        name: Some(fabric.board.clone()),
        source,
        why_emulated: told.emulated.filter(|_| source == Source::Emulated),
        agent: Some(told.agent_version),
        part: Part::Fabric(Box::new(told.facts.clone())),
    };
    bench.go_on(device);
    Ok((bench, Standing { facts: told.facts, cpus: vec![0], board: Some(board) }))
}

/// What code for a board is made for.
fn target_of(
    device: &Device,
    access: &Access,
    named: Option<&str>,
    config: &Config,
    bench: &mut dyn Bench,
) -> Result<Target> {
    if let Some(target) = config.kind().board_target(named, &access.key) {
        return target.map_err(Failure::usage);
    }
    if config.target != HOST {
        let asked = machine::target(&config.target, bench)?;
        let architecture = targets::architecture(&asked.text);
        let like = targets::of_architecture(&architecture, &[], 1).filter(|_| architecture != std::env::consts::ARCH);
        return Ok(Target { machine: like.map_or(asked.machine, |like| like.machine), ..asked });
    }
    let own = machine::target(HOST, bench)?;
    let local = Facts::read();
    let unknown = || {
        Failure::usage(format!("{} does not tell what processor it has", device.address)).with_hint(
            "give `--target` as TVM's JSON, such as '{\"kind\": \"llvm\", \"mtriple\": \"aarch64-linux-gnu\"}'",
        )
    };
    match (&device.told, &device.llvm) {
        (Some(told), _) => {
            let facts = &told.facts;
            let is_like_this = facts.cpu_model == local.cpu_model && facts.vector_extensions == local.vector_extensions;
            let cores = facts.allowed_cpus.len().max(1);
            match (is_like_this, &own.machine) {
                (true, Machine::Cpu(cpu)) if cpu.cores == i64::try_from(cores).unwrap_or(0) => Ok(own),
                _ => targets::of_architecture(&facts.architecture, &facts.vector_extensions, cores).ok_or_else(unknown),
            }
        }
        (None, Some((cpu, triple))) => {
            let architecture = targets::architecture(&format!(r#"{{"mtriple":"{triple}"}}"#));
            if own.text.contains(&format!("\"{cpu}\"")) {
                return Ok(own);
            }
            targets::of_architecture(&architecture, &[], device.threads.unwrap_or(1)).ok_or_else(unknown)
        }
        (None, None) => Err(unknown()),
    }
}

/// What is known of the board's machine: all that its agent tells, or what follows from the target.
fn facts_of(device: &Device, target: &Target) -> Facts {
    match &device.told {
        Some(told) => told.facts.clone(),
        None => {
            // Of no folder, nothing is told.
            let nothing = Facts::read_from(std::path::Path::new("/nonexistent"));
            let threads = device.threads.unwrap_or(1);
            Facts {
                hostname: Some(device.address.to_string()),
                architecture: targets::architecture(&target.text),
                cpu_model: device.llvm.as_ref().map(|(cpu, _)| cpu.clone()),
                logical_cpus: u32::try_from(threads).unwrap_or(1),
                allowed_cpus: (0..threads).collect(),
                ..nothing
            }
        }
    }
}

/// That code for the target can run on the board at all.
fn check(device: &Device, target: &Target, facts: &Facts) -> Result<()> {
    let wanted = targets::architecture(&target.text);
    if device.told.is_none() || wanted == facts.architecture {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "wrong architecture: the target is for {wanted}, and {} is {}",
        device.address, facts.architecture
    ))
    .with_hint("give the board that it is by `--board`, or `--target llvm` for whatever it has"))
}
