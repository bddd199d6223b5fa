//! The trait that declares a kind of target.

use crate::fields::Form;
use crate::{Architecture, Machine, Target};
use accelerator::CpuReason;
use datasets::Record;
use models::Task;

/// A kind of target. Other crates call its methods and never compare kinds; the defaults describe most kinds.
pub trait TargetKind: Sync {
    /// Returns the kind's value of `--target`, or else the name of the board's unit or of the backend that selects it.
    fn name(&self) -> &'static str;

    /// Returns whether the name alone is a value of `--target`.
    fn has_word(&self) -> bool {
        true
    }

    /// Returns the name that is used in code revisions, artifact plans and the `kind` of JSON descriptions.
    fn code_name(&self) -> &'static str {
        self.name()
    }

    /// Returns the fields that a JSON description may have next to `kind`; none if descriptions are not checked.
    fn description_fields(&self) -> &'static [(&'static str, Form)] {
        &[]
    }

    fn is_named_by(&self, text: &str) -> bool {
        let is_described = |json: serde_json::Value| json["kind"] == self.code_name();
        (self.has_word() && text == self.name())
            || (!self.description_fields().is_empty() && serde_json::from_str(text).is_ok_and(is_described))
    }

    /// Adds options to the text of `--target`; rejects options that the kind does not support.
    fn apply_options(&self, text: String, options: TargetOptions) -> Result<String, OptionError> {
        options.refuse_board()?;
        options.refuse_architectures()?;
        Ok(text)
    }

    /// Parses a description that needs no facts of this machine.
    fn parse(&self, text: &str) -> Result<Target, String>;

    /// Creates the target of a description; takes missing facts from the host.
    fn resolve(&self, text: &str, host: &mut dyn Host) -> Result<Resolved, Refusal>;

    /// Returns the machine facts that a schedule space depends on, without starting a program.
    fn guess_machine(&self, text: &str, host: &HostCpu) -> Result<Machine, String>;

    /// Parses the description in a record measured on this host; None if this program does not measure the kind.
    fn read_record(&self, _text: &str, _host: Machine) -> Option<Result<Target, String>> {
        None
    }

    /// Returns the target of a board, found by name or else by its server's key; None if the kind needs no board.
    fn board_target(&self, _name: Option<&str>, _key: &str) -> Option<Result<Target, String>> {
        None
    }

    /// Returns the board that is used if none is named, or None if the kind needs no board.
    fn default_board(&self) -> Option<&'static str> {
        None
    }

    fn has_artifacts_for(&self, machine: &Machine) -> bool {
        match self.code_generator() {
            Some(Generator::Llvm) => matches!(machine, Machine::Cpu(_)),
            Some(Generator::CudaC | Generator::OpenclC) => matches!(machine, Machine::Gpu(_)),
            None => false,
        }
    }

    fn least_capability(&self) -> i64 {
        0
    }

    /// Returns TVM's code generator, or None if TVM generates no code.
    fn code_generator(&self) -> Option<Generator> {
        None
    }

    fn bench_kind(&self) -> BenchKind {
        BenchKind::Workers
    }

    /// Returns why code of this kind cannot run on this machine, or None if it can.
    fn run_refusal(&self) -> Option<Refusal> {
        None
    }

    /// Returns whether TVM's pool on this machine's CPUs runs the code, so that campaigns vary the number of threads.
    fn runs_on_cpus(&self) -> bool {
        false
    }

    /// Returns whether a GPU runs the code, which one host thread launches, so that CPU counters do not describe it.
    fn runs_on_gpu(&self) -> bool {
        false
    }

    /// Returns whether a library computes tasks and nothing is compiled.
    fn is_library(&self) -> bool {
        false
    }

    fn occupies_cpus(&self) -> bool {
        true
    }

    /// Returns whether the measured peak rates of the host are upper bounds of the target's performance.
    fn has_host_peaks(&self) -> bool {
        false
    }

    /// Returns the conversion of tasks to the target's form, if one is needed; rejected tasks stay on the CPU.
    fn task_form(&self) -> Option<TaskForm> {
        None
    }

    fn timing_note(&self, _text: &str) -> Option<String> {
        None
    }

    /// Returns the settings of a campaign that must keep their defaults, each with the reason or the allowed values.
    fn fixed_settings(&self) -> &'static [(Setting, &'static str)] {
        &[]
    }

    fn refuse_tuner(&self, _tuner: &TunerNeeds) -> Option<String> {
        None
    }

    fn record_word(&self) -> datasets::Target;

    fn unit_name(&self) -> Option<&'static str> {
        None
    }

    fn time_source(&self) -> datasets::Source {
        datasets::Source::Measured
    }

    fn fill_columns(&self, _text: &str, _record: &mut Record) -> Result<(), String> {
        Ok(())
    }
}

pub type TaskForm = fn(&Task) -> Result<Task, CpuReason>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generator {
    Llvm,
    /// CUDA C, compiled to machine code by NVIDIA's compiler.
    CudaC,
    /// OpenCL C, compiled to machine code by the driver of the device.
    OpenclC,
}

/// Ways to run and measure operators. A table in the crate `engine` defines how each is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchKind {
    Workers,
    /// An accelerator on a board's FPGA, simulated or real.
    Core,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    Threads,
    Samplers,
    Cache,
    Executor,
    Partners,
}

#[derive(Clone, Copy, Debug)]
pub struct TunerNeeds {
    pub name: &'static str,
    pub learns_cpu_loops: bool,
    /// Whether the tuner samples from TVM's own space.
    pub draws: bool,
}

#[derive(Clone, Debug, Default)]
pub struct TargetOptions {
    pub arch: Option<Vec<String>>,
    pub unit: Option<String>,
    pub board: Option<String>,
    pub fpga_config: Option<String>,
    pub sim_params: Option<String>,
}

#[derive(Debug)]
pub enum OptionError {
    NotAllowed { field: &'static str, found: String, allowed: String },
    Description(String),
}

impl TargetOptions {
    pub(crate) fn refuse_board(&self) -> Result<(), OptionError> {
        let options = [
            ("unit", &self.unit),
            ("board", &self.board),
            ("fpga_config", &self.fpga_config),
            ("sim_params", &self.sim_params),
        ];
        refuse_first(&options, "only the target `pynq` supports it")
    }

    pub(crate) fn refuse_architectures(&self) -> Result<(), OptionError> {
        let names = self.arch.as_ref().map(|names| names.join(","));
        refuse_first(&[("arch", &names)], "only the target `cuda` supports it; a JSON description contains its own")
    }
}

pub(crate) fn refuse_first(options: &[(&'static str, &Option<String>)], allowed: &str) -> Result<(), OptionError> {
    match options.iter().find_map(|(field, given)| Some((*field, given.as_ref()?))) {
        Some((field, found)) => {
            Err(OptionError::NotAllowed { field, found: found.clone(), allowed: allowed.to_owned() })
        }
        None => Ok(()),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Whether the machine or the installation lacks a requirement; otherwise the request was wrong.
    pub is_of_environment: bool,
    pub message: String,
    pub hint: Option<String>,
}

impl Refusal {
    pub fn usage(message: impl Into<String>) -> Refusal {
        Refusal { is_of_environment: false, message: message.into(), hint: None }
    }

    pub fn with_hint(self, hint: impl Into<String>) -> Refusal {
        Refusal { hint: Some(hint.into()), ..self }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCpu {
    pub name: String,
    pub extensions: Vec<String>,
    pub cores: usize,
}

/// This machine and its compilers, which supply the facts that a description lacks.
pub trait Host {
    /// Returns the CPU, under the compiler's name for it.
    fn host_cpu(&mut self) -> Result<HostCpu, Refusal>;

    /// Returns the compute capability of the GPU, such as `90`.
    fn gpu_capability(&mut self) -> Result<String, Refusal>;

    fn check_architectures(&mut self, architectures: &[Architecture]) -> Result<(), Refusal>;
}

#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    pub target: Target,
    /// Whether the target is the host itself, for which code is known to compile.
    pub is_host: bool,
}
