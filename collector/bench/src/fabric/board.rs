//! Upload, execution and read-back of a program for the accelerator in a board's FPGA, through the agent's functions.

use crate::boards::Stop;
use accelerator::{CoreImage, ImageError, LayoutError, Program, external_result, result_place};
use anyhow::Context;
use remote::fabric::{ADDRESS, ALLOCATE, FREE, FabricStatus, READ, RUN, RUN_US_MAX, Ran, WRITE};
use remote::packet::PIECE_BYTES;
use remote::wire::Value;
use remote::{RemoteError, Session};
use std::time::{Duration, Instant};

pub struct LoadedProgram<'a> {
    program: &'a Program,
    memory: i64,
    instructions: i64,
    run: u64,
}

impl From<ImageError> for Stop {
    fn from(error: ImageError) -> Stop {
        Stop::Here(error.into())
    }
}

impl From<LayoutError> for Stop {
    fn from(error: LayoutError) -> Stop {
        Stop::Here(error.into())
    }
}

impl<'a> LoadedProgram<'a> {
    /// Uploads a program with its operands and poisons the result memory.
    pub fn new(session: &mut Session, program: &'a Program, operands: &[&[u8]]) -> Result<LoadedProgram<'a>, Stop> {
        let memory = allocate_block(session, program.memory_bytes())?;
        let address = expect_number(session.call_named(ADDRESS, vec![Value::Int(memory)])?)?;
        let image = CoreImage::new(program, operands, address.unsigned_abs())?;
        let instructions = allocate_block(session, image.instructions.len() as u64)?;
        for (at, bytes) in &image.parts {
            write_block(session, memory, *at, bytes)?;
        }
        write_block(session, instructions, 0, &image.instructions)?;
        let run = session.find_function(RUN)?.ok_or(RemoteError::Ended)?;
        let loaded = LoadedProgram { program, memory, instructions, run };
        loaded.poison_result(session)?;
        Ok(loaded)
    }

    pub fn poison_result(&self, session: &mut Session) -> Result<(), Stop> {
        let (at, bytes) = result_place(self.program);
        let pattern: Vec<u8> = (0..bytes).map(|place| (place.wrapping_mul(31) % 251) as u8).collect();
        Ok(write_block(session, self.memory, at, &pattern)?)
    }

    /// Runs the program until it ends or the time is up. Returns the duration that the board reports.
    pub fn run_until(&self, session: &mut Session, until: Instant) -> Result<Duration, RunError> {
        let left = i64::try_from(until.saturating_duration_since(Instant::now()).as_micros()).unwrap_or(RUN_US_MAX);
        let count = self.program.instructions.len() as i64;
        let arguments = [self.instructions, count, left.clamp(1, RUN_US_MAX)].map(Value::Int);
        let Value::Text(text) = session.call(self.run, arguments.to_vec())? else {
            return Err(RemoteError::Malformed("expected the state of a run as text".to_owned()).into());
        };
        let malformed =
            |why: &dyn std::fmt::Display| RemoteError::Malformed(format!("the state of the run is invalid: {why}"));
        let Ran(status, microseconds) = serde_json::from_str(&text).map_err(|error| malformed(&error))?;
        match status {
            FabricStatus::Done => {
                Duration::try_from_secs_f64(microseconds / 1e6).map_err(|error| malformed(&error).into())
            }
            FabricStatus::TimedOut => Err(RunError::TimedOut),
            FabricStatus::StaleDone => Err(RunError::StaleDone),
        }
    }

    pub fn read_result(&self, session: &mut Session) -> Result<Vec<u8>, Stop> {
        let (at, bytes) = result_place(self.program);
        Ok(external_result(self.program, &read_block(session, self.memory, at, bytes)?)?)
    }

    pub fn free_memory(self, session: &mut Session) -> Result<(), RemoteError> {
        session.release_handle(self.run)?;
        for handle in [self.memory, self.instructions] {
            session.call_named(FREE, vec![Value::Int(handle)])?;
        }
        Ok(())
    }
}

pub enum RunError {
    Remote(RemoteError),
    TimedOut,
    StaleDone,
}

impl From<RemoteError> for RunError {
    fn from(error: RemoteError) -> RunError {
        RunError::Remote(error)
    }
}

impl From<RunError> for Stop {
    fn from(error: RunError) -> Stop {
        match error {
            RunError::Remote(error) => Stop::Remote(error),
            RunError::TimedOut => Stop::Here(anyhow::anyhow!(
                "the accelerator did not finish; load its bitstream again with `--bitstream` before another run"
            )),
            RunError::StaleDone => Stop::Here(anyhow::anyhow!(
                "the accelerator reports completion before its start; load its bitstream again with `--bitstream`"
            )),
        }
    }
}

fn allocate_block(session: &mut Session, bytes: u64) -> Result<i64, Stop> {
    let bytes = i64::try_from(bytes).context("the block is too large")?;
    Ok(expect_number(session.call_named(ALLOCATE, vec![Value::Int(bytes)])?)?)
}

fn write_block(session: &mut Session, handle: i64, at: u64, bytes: &[u8]) -> Result<(), RemoteError> {
    let function = session.find_function(WRITE)?.ok_or(RemoteError::Ended)?;
    for (piece, at) in bytes.chunks(PIECE_BYTES as usize).zip((at..).step_by(PIECE_BYTES as usize)) {
        let at = i64::try_from(at).unwrap_or(i64::MAX);
        session.call(function, vec![Value::Int(handle), Value::Int(at), Value::Bytes(piece.to_vec())])?;
    }
    session.release_handle(function)
}

fn read_block(session: &mut Session, handle: i64, at: u64, bytes: u64) -> Result<Vec<u8>, RemoteError> {
    let (mut all, end) = (Vec::new(), at + bytes);
    for at in (at..end).step_by(PIECE_BYTES as usize) {
        let count = PIECE_BYTES.min(end - at);
        let arguments = [handle, i64::try_from(at).unwrap_or(i64::MAX), count as i64].map(Value::Int);
        match session.call_named(READ, arguments.to_vec())? {
            Value::Bytes(bytes) if bytes.len() as u64 == count => all.extend(bytes),
            _ => {
                return Err(RemoteError::Malformed(format!(
                    "the agent did not return the requested {count} bytes of memory"
                )));
            }
        }
    }
    Ok(all)
}

fn expect_number(answer: Value) -> Result<i64, RemoteError> {
    match answer {
        Value::Int(number) if number >= 0 => Ok(number),
        other => Err(RemoteError::Malformed(format!("expected a number, got {other:?}"))),
    }
}
