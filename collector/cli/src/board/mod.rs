//! What concerns boards, beside collecting on them.

mod serve;
mod trace;

use super::Result;
use crate::board::serve::{BOARD_SERVE_EXAMPLES, BoardServe};
use crate::board::trace::{BOARD_TRACE_EXAMPLES, BoardTrace};
use clap::Subcommand;

/// What is done for boards.
#[derive(Clone, Debug, Subcommand)]
pub enum BoardCommand {
    /// Simulate one operator on a core's fabric, and write what its modules did when, for Perfetto
    ///
    /// Nothing is measured: all times are simulated. There is a line for each module, for fetching instructions, and for what
    /// waits for memory.
    #[command(after_help = BOARD_TRACE_EXAMPLES)]
    Trace(Box<BoardTrace>),
    /// Serve this machine as a board: what `opcollect-board serve` does, which needs neither Python nor TVM
    #[command(after_help = BOARD_SERVE_EXAMPLES)]
    Serve(BoardServe),
}

/// Does it.
pub fn run(command: &BoardCommand) -> Result<u8> {
    match command {
        BoardCommand::Trace(wanted) => trace::run(wanted),
        BoardCommand::Serve(asked) => serve::run(asked),
    }
}
