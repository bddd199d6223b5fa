//! `pynq`: the Arm cores of a board, with the same code as for `llvm`; records also state the board's unit.

use crate::board::{DEFAULT_BOARD, PYNQ};
use crate::fpga::{FPGA, fabric_text};
use crate::kind::{Host, HostCpu, OptionError, Refusal, Resolved, TargetKind, TargetOptions, refuse_first};
use crate::llvm::HOST;
use crate::mali::MALI;
use crate::{BOARDS, Machine, Target, find_board};

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
                "allowed are `{ARM}` (its processor) and `{FPGA}` (an accelerator core in its FPGA); `opcollect build \
                 --target {MALI}` compiles kernels for a Mali GPU"
            );
            return Err(OptionError::NotAllowed { field: "unit", found, allowed });
        }
        refuse_first(
            &[("fpga_config", &fpga_config), ("sim_params", &sim_params)],
            "only the unit `fpga` supports it",
        )?;
        Ok(text)
    }

    fn parse(&self, text: &str) -> Result<Target, String> {
        Err(format!("the board determines the target `{text}`"))
    }

    fn resolve(&self, _text: &str, _host: &mut dyn Host) -> Result<Resolved, Refusal> {
        Err(Refusal::usage("the processor of a board is known only while the board is connected")
            .with_hint("give TVM's JSON description of its processor as `--target`"))
    }

    fn guess_machine(&self, _text: &str, _host: &HostCpu) -> Result<Machine, String> {
        find_board(DEFAULT_BOARD).map(|board| board.cpu_target().machine)
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
    fn units_select_the_kind() {
        let some = |text: &str| Some(text.to_owned());
        check(TargetOptions::default(), expect!["pynq"]);
        check(TargetOptions { unit: some("arm"), board: some("ultra96"), ..TargetOptions::default() }, expect!["pynq"]);
        check(
            TargetOptions { sim_params: some("x"), ..TargetOptions::default() },
            expect!["`sim_params` is x; only the unit `fpga` supports it"],
        );
        check(
            TargetOptions { unit: some("mali"), ..TargetOptions::default() },
            expect![
                "`unit` is mali; allowed are `arm` (its processor) and `fpga` (an accelerator core in its FPGA); \
                 `opcollect build --target mali` compiles kernels for a Mali GPU"
            ],
        );
        check(
            TargetOptions { unit: some("fpga"), fpga_config: some("9x9"), ..TargetOptions::default() },
            expect!["`9x9` is not a valid core: known are `1x16`, `4x8`"],
        );
    }
}
