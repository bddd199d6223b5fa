//! `board`: serve this machine as a board, or simulate an operator on the accelerator in a board's FPGA.

mod serve;
mod trace;

use super::Result;
use crate::board::serve::{BOARD_SERVE_EXAMPLES, BoardServe};
use crate::board::trace::{BOARD_TRACE_EXAMPLES, BoardTrace};
use clap::Subcommand;

#[derive(Clone, Debug, Subcommand)]
pub enum BoardCommand {
    /// Simulate one operator on a board's FPGA accelerator, as a trace
    ///
    /// All times are simulated. The trace for Perfetto has a track for each module, for instruction fetches and for
    /// memory stalls.
    #[command(after_help = BOARD_TRACE_EXAMPLES)]
    Trace(Box<BoardTrace>),
    /// Serve this machine as a board, as `opcollect-board serve` does
    ///
    /// The separate program `opcollect-board` needs neither Python nor TVM.
    #[command(after_help = BOARD_SERVE_EXAMPLES)]
    Serve(BoardServe),
}

pub fn run(command: &BoardCommand) -> Result<u8> {
    match command {
        BoardCommand::Trace(wanted) => trace::run(wanted),
        BoardCommand::Serve(arguments) => serve::run(arguments),
    }
}
