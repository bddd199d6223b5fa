//! `pynq`: the Arm cores of a board, through LLVM.
//! Code is the same as for `llvm`; records also state the board's unit.

use crate::board::{DEFAULT_BOARD, PYNQ};
use crate::fpga::{FPGA, fabric_text};
use crate::kind::{Host, HostCpu, OptionError, Refusal, Resolved, TargetKind, TargetOptions, refuse_first};
use crate::llvm::{HOST, cpu_target};
use crate::mali::MALI;
use crate::{BOARDS, Machine, Target, find_board};

/// Unit of a board: its Arm cores.
pub const ARM: &str = "arm";

pub struct Pynq;

impl TargetKind for Pynq {
    fn name(&self) -> &'static str {
        PYNQ
    }

    fn code_name(&self) -> &'static str {
        HOST
    }

    fn apply_options(&self, text: String, options: TargetOptions) -> Result<String, OptionError> {
        options.refuse_architectures()?;
        let TargetOptions { unit, board, fpga_config, sim_params, .. } = options;
        if unit.as_deref() == Some(FPGA) {
            let text = fabric_text(board.as_deref(), fpga_config.as_deref(), sim_params.as_deref());
            return text.map_err(OptionError::Description);
        }
        if let Some(found) = unit.filter(|unit| unit != ARM) {
            let allowed = format!(
                "`{ARM}`, its cores, and `{FPGA}`, a core on its fabric; kernels for a Mali GPU are what `opcollect build --target \
                 {MALI}` makes"
            );
            return Err(OptionError::NotAllowed { field: "unit", found, allowed });
        }
        refuse_first(&[("fpga_config", &fpga_config), ("sim_params", &sim_params)], "only the unit `fpga` takes it")?;
        Ok(text)
    }

    fn parse(&self, text: &str) -> Result<Target, String> {
        Err(format!("target `{text}`: the board determines the target"))
    }

    fn resolve(&self, _text: &str, _host: &mut dyn Host) -> Result<Resolved, Refusal> {
        Err(Refusal::usage("a board reports its cores when operators are collected on it")
            .with_hint("give TVM's JSON of its processor as `--target`"))
    }

    fn guess_machine(&self, _text: &str, host: &HostCpu) -> Result<Machine, String> {
        Ok(cpu_target(host).machine)
    }

    fn board_target(&self, name: Option<&str>, key: &str) -> Option<Result<Target, String>> {
        let by_key = BOARDS.iter().map(|board| board.name).find(|name| *name == key);
        Some(find_board(name.or(by_key).unwrap_or(DEFAULT_BOARD)).map(|board| board.cpu_target()))
    }

    fn default_board(&self) -> Option<&'static str> {
        Some(DEFAULT_BOARD)
    }

    fn record_word(&self) -> datasets::Target {
        datasets::Target::Pynq
    }

    fn unit_name(&self) -> Option<&'static str> {
        Some(ARM)
    }
}

#[cfg(test)]
mod tests {
    use super::Pynq;
    use crate::{OptionError, TargetKind, TargetOptions};
    use expect_test::{Expect, expect};

    #[track_caller]
    fn check(options: TargetOptions, expected: Expect) {
        let completed = match Pynq.apply_options("pynq".to_owned(), options) {
            Ok(text) => text,
            Err(OptionError::NotAllowed { field, found, allowed }) => format!("`{field}` is {found}; {allowed}"),
            Err(OptionError::Description(why)) => why,
        };
        expected.assert_eq(&completed);
    }

    #[test]
    fn units_decide_what_a_board_is() {
        let some = |text: &str| Some(text.to_owned());
        check(TargetOptions::default(), expect!["pynq"]);
        check(TargetOptions { unit: some("arm"), board: some("ultra96"), ..TargetOptions::default() }, expect!["pynq"]);
        check(
            TargetOptions { sim_params: some("x"), ..TargetOptions::default() },
            expect!["`sim_params` is x; only the unit `fpga` takes it"],
        );
        check(
            TargetOptions { unit: some("mali"), ..TargetOptions::default() },
            expect![
                "`unit` is mali; `arm`, its cores, and `fpga`, a core on its fabric; kernels for a Mali GPU are what `opcollect build --target mali` makes"
            ],
        );
        check(
            TargetOptions { unit: some("fpga"), fpga_config: some("9x9"), ..TargetOptions::default() },
            expect!["`9x9` is no core: known are `1x16`, `4x8`"],
        );
    }
}
