//! Flags that select a board.

use super::Result;
use super::fleet::tracker_of_environment;
use crate::options::{BoardFlags, Models};
use bench::Access;
use engine::boards::{BoardAddress, BoardOptions, BoardServer};
use engine::failure::Failure;

#[derive(Clone, Copy)]
pub struct BoardRequest<'a> {
    pub boards: &'a BoardFlags,
    /// Models, and the settings that contain the target and the board.
    pub models: &'a Models,
}

impl<'a> BoardRequest<'a> {
    pub fn of_board(self) -> BoardOptions<'a> {
        let BoardFlags { cross_cc, on_hardware, bitstream, .. } = self.boards;
        BoardOptions {
            board: self.models.settings.board.as_deref(),
            cross_cc: cross_cc.as_deref(),
            on_hardware: *on_hardware,
            bitstream: bitstream.as_deref(),
        }
    }
}

/// Returns the access to the board that the flags select; None if the command measures on this machine.
pub fn board_access(wanted: BoardRequest<'_>) -> Result<Option<Access>> {
    let BoardFlags { host, port, tracker, key, secret_file, board_wait, .. } = wanted.boards;
    let settings = &wanted.models.settings;
    let kind = settings.target.as_deref().and_then(|target| targets::find_unit(target, settings.unit.as_deref()));
    let default_board = kind.and_then(|kind| kind.default_board());
    let needs_board = default_board.is_some();
    let server = match (host, tracker) {
        (Some(host), _) => BoardServer::Host(host, *port),
        (None, Some(tracker)) => BoardServer::Tracker(tracker.parse().map_err(Failure::usage)?),
        (None, None) => match tracker_of_environment()? {
            Some(tracker) if needs_board || key.is_some() => BoardServer::Tracker(tracker),
            _ => return refuse_missing_board(wanted.boards, needs_board).map(|()| None),
        },
    };
    let access = engine::boards::resolve_access(BoardAddress {
        server,
        key: key.as_deref(),
        default_key: settings.board.as_deref().or(default_board),
        secret_file: secret_file.as_deref(),
        wait_seconds: *board_wait,
    });
    access.map(Some)
}

/// Returns an error if board flags are given without a board, or if the target needs a board.
fn refuse_missing_board(boards: &BoardFlags, needs_board: bool) -> Result<()> {
    const HINT: &str = "give `--host` and `--port`, or `--tracker` and `--key`, or `--unit fpga` for a simulated FPGA \
                        accelerator; docs/guide/boards.md describes the setup of a board";
    if needs_board {
        return Err(Failure::usage("measuring the cores of a board needs a board").with_hint(HINT));
    }
    let given = [
        ("--key", boards.key.is_some()),
        ("--secret-file", boards.secret_file.is_some()),
        ("--cross-cc", boards.cross_cc.is_some()),
        ("--on-hardware", boards.on_hardware),
        ("--bitstream", boards.bitstream.is_some()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => Err(Failure::usage(format!("`{flag}` needs a board")).with_hint(HINT)),
        None => Ok(()),
    }
}
