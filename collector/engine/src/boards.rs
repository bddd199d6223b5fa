//! Connection to boards: addresses and credentials, the facts that boards report, and the target of their code.

use crate::campaign::choices::Backend;
use crate::campaign::{Config, record};
use crate::failure::Failure;
use crate::{Result, machine, trackers};
use bench::{Access, Bench, COLD_ON_ONE_THREAD, Device, DeviceLocation, FabricBoard, Fleet, Linker, NoCore};
use datasets::{CacheState, Record, Source};
use measure::host::Facts;
use remote::Address;
use remote::fabric::FabricKind;
use remote::tracker::QueuePosition;
use std::path::Path;
use std::time::Duration;
use targets::{Fabric, HOST, Kind, Machine, Target};

/// Options that select and describe a board.
#[derive(Clone, Copy, Debug, Default)]
pub struct BoardOptions<'a> {
    /// Name of the board, such as `pynq-z2`.
    pub board: Option<&'a str>,
    /// Command of the C compiler that links the board's programs; by default it follows from the board's architecture.
    pub cross_cc: Option<&'a str>,
    /// Whether the server runs on real hardware; needed only if the server does not report this itself.
    pub on_hardware: bool,
    /// File with a bitstream that contains an accelerator core for the board's FPGA.
    pub bitstream: Option<&'a str>,
}

const SERVER_PORT: u16 = 9090;

/// The server through which a board is reached.
pub enum BoardServer<'a> {
    /// An RPC server on the board itself, given by host and port.
    Host(&'a str, Option<u16>),
    /// A tracker, which assigns boards to clients by the boards' keys.
    Tracker(Address),
}

/// Address and credentials of a board.
pub struct BoardAddress<'a> {
    /// The server through which the board is reached.
    pub server: BoardServer<'a>,
    /// Key that the user gave for the board.
    pub key: Option<&'a str>,
    /// Key by which a tracker selects the board if the user gave none.
    pub default_key: Option<&'a str>,
    /// File with the secret that the server requires.
    pub secret_file: Option<&'a Path>,
    /// Longest wait for a board, in seconds.
    pub wait_seconds: u64,
}

/// Returns the access to a board. Fails if a tracker needs a key and there is none, or if the secret cannot be read.
pub fn resolve_access(address: BoardAddress<'_>) -> Result<Access> {
    let (at, default_key) = match address.server {
        BoardServer::Host(host, port) => {
            let host = remote::host_without_port(host).ok_or_else(|| {
                Failure::usage(format!("`--host` is `{host}`, but a host contains no port"))
                    .with_hint("write `--host HOST --port PORT`")
            })?;
            (DeviceLocation::Server(Address { host: host.to_owned(), port: port.unwrap_or(SERVER_PORT) }), Some(""))
        }
        BoardServer::Tracker(tracker) => (DeviceLocation::Tracker(tracker), address.default_key),
    };
    let key = address.key.or(default_key).ok_or_else(|| {
        Failure::usage("a tracker needs a key to select a device")
            .with_hint("give `--key`; see `opcollect fleet status`")
    })?;
    Ok(Access {
        at,
        key: key.to_owned(),
        secret: address.secret_file.map(trackers::read_secret).transpose()?,
        patience: Duration::from_secs(address.wait_seconds),
        position: QueuePosition::Last,
    })
}

/// The machine that executes the measured code: this machine or a board.
pub struct MeasuredMachine {
    /// Facts about the hardware and software of the machine, such as its CPU model.
    pub facts: Facts,
    /// CPUs of the machine that may be used.
    pub cpus: Vec<usize>,
    /// The board; None if the code runs on this machine.
    pub board: Option<Board>,
}

/// A connected board.
pub struct Board {
    /// Access to this board and to all boards with the same key and processor.
    pub fleet: Fleet,
    name: Option<String>,
    source: Source,
    why_emulated: Option<String>,
    /// Version of this project's agent, if the board runs it.
    agent: Option<String>,
    part: BoardPart,
}

enum BoardPart {
    /// The board's processor, for which a target of this kind generates code.
    Processor(Kind),
    /// An accelerator core in the FPGA. The facts describe the host processor, which affects only times of a real core.
    Fabric(Box<Facts>),
}

impl MeasuredMachine {
    /// Returns the facts and the usable CPUs of this machine.
    pub fn this_machine() -> Result<MeasuredMachine> {
        Ok(MeasuredMachine { facts: Facts::read_facts(), cpus: machine::allowed_cpus()?, board: None })
    }
}

impl Board {
    /// Fills the columns of a record that describe the board.
    pub fn fill_board_columns(&self, record: &mut Record) {
        record.source = self.source;
        record.board.clone_from(&self.name);
        let transport = match self.fleet.access.at {
            DeviceLocation::Server(_) => "rpc",
            DeviceLocation::Tracker(_) => "tracker",
        };
        record.transport = Some(transport.to_owned());
        record.agent_version.clone_from(&self.agent);
        match &self.part {
            BoardPart::Processor(kind) => {
                record.target = kind.record_word();
                record.unit = kind.unit_name().map(str::to_owned);
            }
            BoardPart::Fabric(_) if self.source == Source::Simulated => {
                record.device = record.device.as_ref().map(|device| format!("{device}, simulated by an agent"));
            }
            BoardPart::Fabric(facts) => record::set_host_columns(record, facts),
        }
        if self.agent.is_none() {
            record.thread_mode = Some("pool of the server".to_owned());
            record.spin_count = None;
        }
    }

    /// Returns whether the board's times are measured, emulated or simulated.
    pub fn time_source(&self) -> Source {
        self.source
    }

    /// Returns the name of the board for messages.
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or("the board")
    }

    /// Returns the heading above all tables of the board's times.
    pub fn table_heading(&self) -> String {
        format!("all times below are {}, on {}\n", self.source, self.display_name())
    }

    /// Returns notes that a user needs to interpret the times.
    pub fn timing_notes(&self) -> Vec<String> {
        let why = self.why_emulated.iter();
        let mut notes: Vec<String> = why
            .map(|why| format!("{why}: times are recorded as emulated and do not represent a board's speed"))
            .collect();
        if matches!(self.part, BoardPart::Fabric(_)) {
            notes.push(match self.source {
                Source::Simulated => {
                    "an agent computes the results, which are compared with the reference; times come from the timing \
                     model"
                        .to_owned()
                }
                _ => format!(
                    "the accelerator of {} is timed on the board, from the first register write to completion; this \
                     path is untested on hardware, so check the first results",
                    self.display_name()
                ),
            });
        }
        notes
    }
}

/// Connects to the board, and determines its target and its facts.
pub fn connect_board(
    access: &Access,
    wanted: BoardOptions<'_>,
    config: &Config,
    bench: &mut dyn Bench,
) -> Result<(Target, MeasuredMachine)> {
    if config.backend == Backend::Torch || !config.partners.is_empty() || config.target_kind().runs_on_gpu() {
        return Err(Failure::usage("a board runs only compiled code on its CPU")
            .with_hint("remove `--backend`, and partners and `cuda` from `--target`"));
    }
    if wanted.bitstream.is_some() {
        return Err(Failure::usage("`--bitstream` needs `--unit fpga`").with_hint("remove it, or add `--unit fpga`"));
    }
    // An unknown board name is rejected before a connection is made.
    let named = config.target_kind().board_target(wanted.board, &access.key).transpose().map_err(Failure::usage)?;
    let by_key = targets::BOARDS.iter().map(|board| board.name).find(|name| *name == access.key);
    let name = wanted.board.or(by_key).or(config.target_kind().default_board()).unwrap_or("a board");
    // The first free board represents all boards of its key; boards that differ from it are not
    // used.
    let device = Device::open(access).map_err(trackers::device_failure)?;
    let devices = trackers::usable_devices(access)?;
    let stand_in = named.as_ref().and_then(|board| emulation_reason(board, name, &device));
    let own = match named {
        Some(board) if stand_in.is_none() => board,
        Some(_) => board_target(HOST, &device, bench)?,
        None => board_target(&config.target, &device, bench)?,
    };
    let facts = board_facts(&device, &own);
    check_architecture(&device, &own, &facts)?;
    let cpus = match (&device.description, device.threads) {
        (Some(description), _) => description.facts.allowed_cpus.clone(),
        (None, threads) => (0..threads.unwrap_or(1)).collect(),
    };
    let most = cpus.len();
    if let Some(threads) = config.threads.iter().find(|threads| **threads > most) {
        return Err(Failure::usage(format!("`threads` is {threads}; allowed are 1 to {most} on {}", device.address)));
    }
    reject_cache_states(config, &device)?;
    let linker = match wanted.cross_cc {
        Some(command) => Linker::new(command),
        None => Linker::for_architecture(&targets::target_architecture(&own.text)),
    };
    linker.check_program().map_err(|error| {
        Failure::environment(error).with_hint(
            "install it (on Debian `gcc-aarch64-linux-gnu` or `gcc-arm-linux-gnueabihf`), or name another one with \
             `--cross-cc`",
        )
    })?;
    let why_emulated = match &device.description {
        Some(description) => stand_in.or_else(|| description.emulated.clone()),
        None if wanted.on_hardware => None,
        None => {
            Some("the server cannot report whether it runs on hardware; declare it with `--on-hardware`".to_owned())
        }
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
        agent: device.description.as_ref().map(|description| description.agent_version.clone()),
        part: BoardPart::Processor(config.target_kind()),
    };
    Ok((own, MeasuredMachine { facts, cpus, board: Some(board) }))
}

/// Rejects cache states that a device cannot produce: `network`, and on RPC servers other than this project's agent
/// cold caches on several threads.
fn reject_cache_states(config: &Config, device: &Device) -> Result<()> {
    if config.cache.contains(&CacheState::Network) {
        return Err(Failure::usage("`cache` is \"network\"; only runs on this machine have this state"));
    }
    let is_cold = config.cache.contains(&CacheState::Cold) && config.threads.iter().any(|threads| *threads > 1);
    match device.description {
        None if is_cold => Err(Failure::usage(format!(
            "`cache` is cold with several threads, which {} does not support: {COLD_ON_ONE_THREAD}",
            device.address
        ))
        .with_hint("run `opcollect-board` there, or give `--threads 1`")),
        _ => Ok(()),
    }
}

/// Connects to an accelerator core in a board's FPGA, and determines its target and its facts.
pub fn connect_core(
    access: &Access,
    wanted: BoardOptions<'_>,
    fabric: &Fabric,
    jobs: u32,
) -> Result<(FabricBoard, MeasuredMachine)> {
    const SETUP: &str = "start its agent with `--fpga devmem`, or with `--fpga simulated` on a board without the \
                         accelerator; without `--host` and `--tracker` the accelerator is simulated on this machine";
    let useless = [("--cross-cc", wanted.cross_cc.is_some()), ("--on-hardware", wanted.on_hardware)];
    if let Some((flag, _)) = useless.into_iter().find(|(_, is_given)| *is_given) {
        return Err(Failure::usage(format!("`{flag}` does not apply to `--unit fpga`")));
    }
    let opened = FabricBoard::open(fabric.clone(), access.clone(), wanted.bitstream.map(str::to_owned), jobs);
    let (mut bench, device) = opened.map_err(|error| match error {
        NoCore::Remote(error) => trackers::device_failure(error),
        none @ NoCore::None(_) => Failure::environment(none).with_hint(SETUP),
    })?;
    let description = device
        .description
        .clone()
        .ok_or_else(|| Failure::environment(NoCore::None(device.address.clone())).with_hint(SETUP))?;
    let source = match (bench.fabric_kind(), &description.emulated) {
        (FabricKind::Simulated, _) => Source::Simulated,
        (FabricKind::Devmem, Some(_)) => Source::Emulated,
        (FabricKind::Devmem, None) => Source::Measured,
    };
    let board = Board {
        fleet: Fleet {
            access: access.clone(),
            linker: Linker::for_architecture(&description.facts.architecture),
            devices: 1,
            jobs,
            likeness: device.likeness(),
        },
        name: Some(fabric.board.clone()),
        source,
        why_emulated: description.emulated.filter(|_| source == Source::Emulated),
        agent: Some(description.agent_version),
        part: BoardPart::Fabric(Box::new(description.facts.clone())),
    };
    bench.attach_device(device);
    Ok((bench, MeasuredMachine { facts: description.facts, cpus: vec![0], board: Some(board) }))
}

/// Returns why times are emulated; None unless the agent is an emulator on another architecture than the board's.
fn emulation_reason(board: &Target, name: &str, device: &Device) -> Option<String> {
    let description = device.description.as_ref()?;
    let (is, wanted) = (&description.facts.architecture, targets::target_architecture(&board.text));
    let why = description.emulated.as_ref().filter(|_| *is != wanted)?;
    Some(format!("{why}, with an {is} processor instead of the {wanted} cores of {name}"))
}

fn board_target(requested: &str, device: &Device, bench: &mut dyn Bench) -> Result<Target> {
    if requested != HOST {
        let target = machine::resolve_target(requested, bench)?;
        let architecture = targets::target_architecture(&target.text);
        let like =
            targets::architecture_target(&architecture, &[], 1).filter(|_| architecture != std::env::consts::ARCH);
        return Ok(Target { machine: like.map_or(target.machine, |like| like.machine), ..target });
    }
    let own = machine::resolve_target(HOST, bench)?;
    let local = Facts::read_facts();
    let unknown = || {
        Failure::usage(format!("{} does not report its processor", device.address)).with_hint(
            "give `--target` as TVM's JSON, such as '{\"kind\": \"llvm\", \"mtriple\": \"aarch64-linux-gnu\"}'",
        )
    };
    match (&device.description, &device.llvm) {
        (Some(description), _) => {
            let facts = &description.facts;
            let is_like_this = facts.cpu_model == local.cpu_model && facts.vector_extensions == local.vector_extensions;
            let cores = facts.allowed_cpus.len().max(1);
            match (is_like_this, &own.machine) {
                (true, Machine::Cpu(cpu)) if cpu.cores == i64::try_from(cores).unwrap_or(0) => Ok(own),
                _ => targets::architecture_target(&facts.architecture, &facts.vector_extensions, cores)
                    .ok_or_else(unknown),
            }
        }
        (None, Some((cpu, triple))) => {
            let architecture = targets::target_architecture(&format!(r#"{{"mtriple":"{triple}"}}"#));
            if own.text.contains(&format!("\"{cpu}\"")) {
                return Ok(own);
            }
            targets::architecture_target(&architecture, &[], device.threads.unwrap_or(1)).ok_or_else(unknown)
        }
        (None, None) => Err(unknown()),
    }
}

fn board_facts(device: &Device, target: &Target) -> Facts {
    match &device.description {
        Some(description) => description.facts.clone(),
        None => {
            // A folder that does not exist yields empty facts.
            let nothing = Facts::read_from(std::path::Path::new("/nonexistent"));
            let threads = device.threads.unwrap_or(1);
            Facts {
                hostname: Some(device.address.to_string()),
                architecture: targets::target_architecture(&target.text),
                cpu_model: device.llvm.as_ref().map(|(cpu, _)| cpu.clone()),
                logical_cpus: u32::try_from(threads).unwrap_or(1),
                allowed_cpus: (0..threads).collect(),
                ..nothing
            }
        }
    }
}

fn check_architecture(device: &Device, target: &Target, facts: &Facts) -> Result<()> {
    let wanted = targets::target_architecture(&target.text);
    if device.description.is_none() || wanted == facts.architecture {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "wrong architecture: the target is for {wanted}, and {} is {}",
        device.address, facts.architecture
    ))
    .with_hint(
        "name the board with `--board`, or give `--target llvm` for its own processor; to emulate a board, start the \
         agent with `opcollect board serve --emulated`",
    ))
}
