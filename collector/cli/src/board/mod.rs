//! What concerns boards, beside collecting on them.

mod serve;
mod trace;

use super::Result;
use super::arguments::BoardCommand;

/// Does it.
pub fn run(command: &BoardCommand) -> Result<u8> {
    match command {
        BoardCommand::Trace(wanted) => trace::run(wanted),
        BoardCommand::Serve(asked) => serve::run(asked),
    }
}
