//! `pynq` with the unit `fpga`: an accelerator on a board's FPGA,
//! which runs programs of this project's own generator.

use crate::board::{DEFAULT_BOARD, PYNQ};
use crate::kind::{BenchKind, Host, HostCpu, Refusal, Resolved, Setting, TargetKind, TaskForm, TunerNeeds};
use crate::{Machine, Target};
use accelerator::{Core, FabricBoard, REVISION, TimingSet, fabric_boards, in_core_form, timing_sets};
use datasets::Record;
use serde::{Deserialize, Serialize};

/// Unit of a board: its FPGA.
pub const FPGA: &str = "fpga";

pub struct Fpga;

impl TargetKind for Fpga {
    fn name(&self) -> &'static str {
        FPGA
    }

    fn has_word(&self) -> bool {
        false
    }

    fn code_name(&self) -> &'static str {
        PYNQ
    }

    fn is_named_by(&self, text: &str) -> bool {
        let is_described = |json: serde_json::Value| json["kind"] == PYNQ && json["unit"] == FPGA;
        serde_json::from_str(text).is_ok_and(is_described)
    }

    fn parse(&self, text: &str) -> Result<Target, String> {
        parse_fabric(text)
    }

    fn resolve(&self, _text: &str, _host: &mut dyn Host) -> Result<Resolved, Refusal> {
        Err(Refusal::usage("no whole model or artifact is made for a core on a board's fabric").with_hint(
            "collect its operators by `opcollect --target pynq --unit fpga`, or look at one by `opcollect board trace`",
        ))
    }

    fn guess_machine(&self, text: &str, _host: &HostCpu) -> Result<Machine, String> {
        Ok(parse_fabric(text)?.machine)
    }

    fn bench_kind(&self) -> BenchKind {
        BenchKind::Core
    }

    fn occupies_cpus(&self) -> bool {
        false
    }

    fn task_form(&self) -> Option<TaskForm> {
        Some(in_core_form)
    }

    fn timing_note(&self, text: &str) -> Option<String> {
        Some(format!("{}; its times are not measured", Fabric::parse_text(text).ok()?.describe()))
    }

    fn fixed_settings(&self) -> &'static [(Setting, &'static str)] {
        &[
            (Setting::Threads, "the threads of a core on a board's fabric are knobs: leave it out"),
            (Setting::Samplers, "the space of a core on a board's fabric is `template`"),
            (Setting::Cache, "there is no cache of a core on a board's fabric"),
            (Setting::Executor, "programs of a core on a board's fabric have one size: leave it out"),
            (Setting::Partners, "`pynq` has no partners"),
        ]
    }

    fn refuse_tuner(&self, tuner: &TunerNeeds) -> Option<String> {
        (tuner.learns_cpu_loops || tuner.draws).then(|| {
            format!(
                "`{}` learns from code that TVM makes, and a core on a board's fabric runs our own; `draft`, `xgb_knob`, `ga`, \
                 `random` and `gridsearch` search there",
                tuner.name
            )
        })
    }

    fn record_word(&self) -> datasets::Target {
        datasets::Target::Pynq
    }

    fn unit_name(&self) -> Option<&'static str> {
        Some(FPGA)
    }

    fn time_source(&self) -> datasets::Source {
        datasets::Source::Simulated
    }

    /// Fills in board and device, and clears the facts of this machine, on which simulated times do not depend.
    fn fill_columns(&self, text: &str, record: &mut Record) -> Result<(), String> {
        let fabric = Fabric::parse_text(text)?;
        *record = Record {
            device: Some(format!("{} {}", fabric.board, fabric.core)),
            board: Some(fabric.board),
            unit: Some(FPGA.to_owned()),
            transport: Some("local".to_owned()),
            thread_mode: Some("threads of the schedule".to_owned()),
            host_class: "simulated".to_owned(),
            cpu_model: None,
            cpu_arch: None,
            logical_cpus: None,
            physical_cores: None,
            l1d_bytes: None,
            l2_bytes: None,
            l3_bytes: None,
            memory_bytes: None,
            clock_policy: None,
            is_virtual_machine: None,
            kernel: None,
            ..std::mem::take(record)
        };
        Ok(())
    }
}

/// An accelerator on a board's FPGA, with the parameters of its timing model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fabric {
    kind: String,
    unit: String,
    pub board: String,
    pub core: String,
    pub clock_mhz: u32,
    /// Name and version of the parameter set of the timing model.
    pub timing: String,
    /// Revision of the program generator.
    pub revision: u32,
    /// Whether the timing parameters were compared with times of real hardware.
    pub calibrated: bool,
}

/// Returns the target description of an accelerator on a board; missing parts get the board's defaults.
pub fn fabric_text(board: Option<&str>, core: Option<&str>, timing: Option<&str>) -> Result<String, String> {
    let list =
        |names: &mut dyn Iterator<Item = &'static str>| names.map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
    let board_name = board.unwrap_or(DEFAULT_BOARD);
    let board: &FabricBoard = fabric_boards().iter().find(|board| board.name == board_name).ok_or_else(|| {
        format!(
            "no core is known for the board `{board_name}`; known are {}",
            list(&mut fabric_boards().iter().map(|b| b.name))
        )
    })?;
    let core = core.unwrap_or(board.cores[0]);
    Core::find_published(core).map_err(|error| error.to_string())?;
    if !board.cores.contains(&core) {
        return Err(format!("`{core}` is on no `{board_name}`; it has {}", list(&mut board.cores.iter().copied())));
    }
    let timing = timing.unwrap_or(board.timing);
    let set = TimingSet::find_set(timing).ok_or_else(|| {
        format!(
            "no parameters are called `{timing}`; there are {}",
            list(&mut timing_sets().iter().map(|set| set.name))
        )
    })?;
    let fabric = Fabric {
        kind: PYNQ.to_owned(),
        unit: FPGA.to_owned(),
        board: board.name.to_owned(),
        core: core.to_owned(),
        clock_mhz: board.clock_mhz,
        timing: set.record_label(),
        revision: REVISION,
        calibrated: set.is_calibrated && set.name == board.timing,
    };
    Ok(serde_json::to_string(&fabric).expect("words and numbers"))
}

impl Fabric {
    pub fn time_ns(&self, cycles: u64) -> f64 {
        cycles as f64 * 1e3 / f64::from(self.clock_mhz)
    }

    /// Parses a target description. Fails unless it is exactly what this program writes for that target.
    pub fn parse_text(text: &str) -> Result<Fabric, String> {
        let fabric: Fabric = serde_json::from_str(text).map_err(|error| format!("target `{text}`: {error}"))?;
        let name = fabric.timing.split('@').next().unwrap_or_default();
        let written = fabric_text(Some(&fabric.board), Some(&fabric.core), Some(name))?;
        if written != text {
            return Err(format!("target `{text}` differs from the simulated target `{written}`"));
        }
        Ok(fabric)
    }

    pub fn core(&self) -> Core {
        Core::find_published(&self.core).expect("it was read")
    }

    pub fn timing_set(&self) -> &'static TimingSet {
        let name = self.timing.split('@').next().unwrap_or_default();
        TimingSet::find_set(name).expect("it was read")
    }

    /// Describes the accelerator, with the qualification that must accompany all of its times, such as "simulated".
    pub fn describe(&self) -> String {
        let doubt = if self.calibrated { "" } else { ", not calibrated" };
        format!("simulated: {} at {} MHz by {}{doubt}", self.plain_name(), self.clock_mhz, self.timing)
    }

    /// Describes the accelerator without the qualification of its times.
    pub fn plain_name(&self) -> String {
        format!("core {} of {}", self.core, self.board)
    }
}

pub fn parse_fabric(text: &str) -> Result<Target, String> {
    let fabric = Fabric::parse_text(text)?;
    Ok(Target { kind: &Fpga, text: text.to_owned(), machine: Machine::Core(fabric.core()) })
}

#[cfg(test)]
mod tests {
    use super::{Fabric, Fpga, fabric_text, parse_fabric};
    use crate::TargetKind;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let text = fabric_text(None, None, None).unwrap();
        assert!(Fpga.is_named_by(&text));
        assert!(!["pynq", "llvm", r#"{"kind": "pynq"}"#].iter().any(|other| Fpga.is_named_by(other)));
        assert!(
            Fabric::parse_text(&text).unwrap().describe().starts_with("simulated: core 1x16 of pynq-z1 at 100 MHz")
        );
        assert!(
            parse_fabric(&text.replace("100,", "1000,")).unwrap_err().contains("differs from the simulated target")
        );
        assert!(parse_fabric("{").is_err());
        let other = fabric_text(Some("ultra96"), None, None).unwrap();
        assert!(Fabric::parse_text(&other).unwrap().describe().ends_with("not calibrated"));
    }

    #[test]
    fn names_that_do_not_exist_are_refused_with_those_that_do() {
        let refused = |board, core, timing| fabric_text(board, core, timing).unwrap_err();
        assert!(refused(Some("kv260"), None, None).contains("known are `pynq-z1`"));
        assert!(refused(Some("ultra96"), Some("4x8"), None).contains("it has `1x16`"));
        assert!(refused(None, Some("2x2"), None).contains("`2x2` is no core"));
        assert!(refused(None, None, Some("fast")).contains("there are `pynq-hls-100`"));
    }
}
