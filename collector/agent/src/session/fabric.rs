//! Functions by which clients use an accelerator core in the FPGA: access to its memory, and runs of instructions.
//!
//! All addresses in instructions are validated before a run, since nothing else prevents the core from accessing other
//! memory. Blocks are freed when the session ends; there is only one session at a time.

use super::{RequestRefusal, json_text, refuse_request};
use crate::folder::CORE_AT_WORK;
use accelerator::{Bus, Core, INSTRUCTION_BYTES, LaunchError, check_places, launch_program, read_stream};
use remote::fabric::{self, Fabric, FabricKind, FabricStatus, RUN_US_MAX, Ran};
use remote::packet::PACKET_BYTES_MAX;
use remote::wire::Value;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Alignment of memory blocks in bytes: a multiple of all element sizes and of the page size.
const ALIGNMENT: u64 = 4096;
const BLOCKS_MAX: usize = 1024;
const INSTRUCTIONS_MAX: u64 = 1 << 21;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricRequest {
    Program,
    Info,
    Allocate,
    Address,
    Write,
    Read,
    Run,
    Free,
}

impl FabricRequest {
    pub fn from_name(name: &str) -> Option<FabricRequest> {
        Some(match name {
            fabric::PROGRAM => FabricRequest::Program,
            fabric::INFO => FabricRequest::Info,
            fabric::ALLOCATE => FabricRequest::Allocate,
            fabric::ADDRESS => FabricRequest::Address,
            fabric::WRITE => FabricRequest::Write,
            fabric::READ => FabricRequest::Read,
            fabric::RUN => FabricRequest::Run,
            fabric::FREE => FabricRequest::Free,
            _ => return None,
        })
    }
}

pub struct FabricSession {
    kind: FabricKind,
    bus: Box<dyn Bus>,
    core: Option<(String, Core)>,
    blocks: BTreeMap<i64, Range<u64>>,
    next: i64,
    /// Whether a run of the core, in this or an earlier session, did not finish.
    is_stuck: bool,
    /// File that exists while the core may still run, also after the end of the session.
    mark: Option<PathBuf>,
}

impl FabricSession {
    pub fn new(kind: FabricKind, bus: Box<dyn Bus>) -> FabricSession {
        FabricSession { kind, bus, core: None, blocks: BTreeMap::new(), next: 1, is_stuck: false, mark: None }
    }

    /// Adds the path of the file that marks a running core. If it exists, an earlier session left the core running.
    pub(super) fn with_mark_file(self, folder: &Path) -> FabricSession {
        let mark = Some(folder.join(CORE_AT_WORK)).filter(|_| self.kind == FabricKind::Devmem);
        FabricSession { is_stuck: mark.as_ref().is_some_and(|mark| mark.exists()), mark, ..self }
    }

    fn set_stuck(&mut self, is_stuck: bool) -> Result<(), RequestRefusal> {
        self.is_stuck = is_stuck;
        let done = match &self.mark {
            Some(mark) if is_stuck => std::fs::write(mark, ""),
            Some(mark) if mark.exists() => std::fs::remove_file(mark),
            _ => Ok(()),
        };
        done.map_err(|error| RequestRefusal(format!("cannot save the state of the accelerator: {error}")))
    }

    pub(super) fn call_function(&mut self, asked: FabricRequest, arguments: &[Value]) -> Result<Value, RequestRefusal> {
        match (asked, arguments) {
            (FabricRequest::Program, [Value::Text(name)]) => self.select_core(name).map(|()| Value::None),
            (FabricRequest::Info, []) => json_text(&Fabric {
                kind: self.kind,
                core: self.core.as_ref().map(|(name, _)| name.clone()),
                memory_bytes: self.bus.memory_bytes(),
            }),
            (FabricRequest::Allocate, [Value::Int(bytes)]) => self.allocate_block(*bytes).map(Value::Int),
            (FabricRequest::Address, [Value::Int(handle)]) => {
                let address = self.bus.memory_address() + self.find_block(*handle)?.start;
                i64::try_from(address).map(Value::Int).map_err(|error| RequestRefusal(error.to_string()))
            }
            (FabricRequest::Write, [Value::Int(handle), Value::Int(at), Value::Bytes(bytes)]) => {
                let range = self.block_range(*handle, *at, bytes.len() as u64)?;
                self.bus.write_memory(range.start, bytes);
                Ok(Value::None)
            }
            (FabricRequest::Read, [Value::Int(handle), Value::Int(at), Value::Int(count)]) => {
                let count = parse_size(*count)?;
                if count > PACKET_BYTES_MAX / 2 {
                    return refuse_request(format!("{count} bytes exceed the limit of a packet; read them in pieces"));
                }
                let range = self.block_range(*handle, *at, count)?;
                Ok(Value::Bytes(self.bus.read_memory(range.start, count)))
            }
            (FabricRequest::Run, [Value::Int(handle), Value::Int(count), Value::Int(timeout_us)]) => {
                json_text(&self.run_program(*handle, *count, *timeout_us)?)
            }
            (FabricRequest::Free, [Value::Int(handle)]) => match self.blocks.remove(handle) {
                Some(_) => Ok(Value::None),
                None => unknown_handle(*handle),
            },
            (asked, _) => refuse_request(format!("the accelerator function {asked:?} takes other arguments")),
        }
    }

    fn select_core(&mut self, name: &str) -> Result<(), RequestRefusal> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || ['_', '.', '-'].contains(&c);
        if name.len() > 100 || !name.chars().all(is_plain) {
            return refuse_request("the name of a bitstream consists of at most 100 letters, digits, `_`, `-` and `.`");
        }
        let named = name.split(['_', '.']).next().unwrap_or_default();
        let core = Core::find_published(named).map_err(|error| {
            RequestRefusal(format!(
                "the name of the bitstream `{name}` must begin with the name of a core, as in \
                 `1x16_i8w8a32_15_15_18_17.bin`: {error}"
            ))
        })?;
        let file = Some(name).filter(|name| *name != named);
        self.bus.load_core(&core, file).map_err(RequestRefusal)?;
        if file.is_some() {
            self.set_stuck(false)?;
        }
        self.core = Some((named.to_owned(), core));
        Ok(())
    }

    /// Allocates zeroed memory in the first gap that is large enough.
    fn allocate_block(&mut self, bytes: i64) -> Result<i64, RequestRefusal> {
        let wanted = parse_size(bytes)?.max(1);
        if self.blocks.len() >= BLOCKS_MAX {
            return refuse_request(format!("a session has at most {BLOCKS_MAX} blocks of the accelerator's memory"));
        }
        let mut taken: Vec<&Range<u64>> = self.blocks.values().collect();
        taken.sort_by_key(|range| range.start);
        let mut begin = 0u64;
        for range in taken {
            if range.start - begin >= wanted {
                break;
            }
            begin = range.end.next_multiple_of(ALIGNMENT);
        }
        let end = begin.checked_add(wanted).filter(|end| *end <= self.bus.memory_bytes());
        let Some(end) = end else {
            let used: u64 = self.blocks.values().map(|range| range.end - range.start).sum();
            return refuse_request(format!(
                "out of memory: {wanted} contiguous bytes requested, {used} of the accelerator's {} in use",
                self.bus.memory_bytes()
            ));
        };
        self.clear_range(begin..end);
        self.blocks.insert(self.next, begin..end);
        self.next += 1;
        Ok(self.next - 1)
    }

    fn clear_range(&mut self, range: Range<u64>) {
        const PIECE: usize = 1 << 20;
        let zeros = vec![0; PIECE];
        let mut at = range.start;
        while at < range.end {
            let count = usize::try_from(range.end - at).unwrap_or(PIECE).min(PIECE);
            self.bus.write_memory(at, &zeros[..count]);
            at += count as u64;
        }
    }

    fn run_program(&mut self, handle: i64, count: i64, timeout_us: i64) -> Result<Ran, RequestRefusal> {
        let Some((_, core)) = &self.core else {
            return refuse_request(format!("the core in the FPGA is unknown; select it with `{}`", fabric::PROGRAM));
        };
        if self.is_stuck {
            return refuse_request("the accelerator did not finish an earlier run; load a bitstream to reset it");
        }
        if !(1..=RUN_US_MAX).contains(&timeout_us) {
            return refuse_request(format!(
                "the time limit of a run must be 1 to {RUN_US_MAX} microseconds, got {timeout_us}"
            ));
        }
        let count = parse_size(count)?;
        if !(1..=INSTRUCTIONS_MAX).contains(&count) {
            return refuse_request(format!("a program must have 1 to {INSTRUCTIONS_MAX} instructions, got {count}"));
        }
        let own = self.block_range(handle, 0, count * INSTRUCTION_BYTES)?;
        let stream = self.bus.read_memory(own.start, own.end - own.start);
        let stream = read_stream(core, &stream).map_err(|error| RequestRefusal(error.to_string()))?;
        let origin = self.bus.memory_address();
        // Excludes the block of instructions, so that they cannot change after their validation.
        let others = || self.blocks.iter().filter(|(other, _)| **other != handle).map(|(_, range)| range);
        let is_own = |touched: Range<u64>| {
            others().any(|block| origin + block.start <= touched.start && touched.end <= origin + block.end)
        };
        check_places(core, &stream, is_own).map_err(|error| RequestRefusal(error.to_string()))?;
        let address = u32::try_from(origin + own.start).map_err(|error| RequestRefusal(error.to_string()))?;
        let count = u32::try_from(count).map_err(|error| RequestRefusal(error.to_string()))?;
        let limit_ns = timeout_us.unsigned_abs() * 1000;
        // Set before the run, since the session may be killed before the core finishes.
        self.set_stuck(true)?;
        let ran = launch_program(&mut *self.bus, address, count, limit_ns);
        if ran.is_ok() {
            self.set_stuck(false)?;
        }
        Ok(match ran {
            Ok(taken_ns) => Ran(FabricStatus::Done, taken_ns as f64 / 1e3),
            Err(LaunchError::TimedOut(_)) => Ran(FabricStatus::TimedOut, timeout_us as f64),
            Err(LaunchError::StaleDone) => Ran(FabricStatus::StaleDone, 0.0),
        })
    }

    fn find_block(&self, handle: i64) -> Result<&Range<u64>, RequestRefusal> {
        self.blocks.get(&handle).map_or_else(|| unknown_handle(handle), Ok)
    }

    fn block_range(&self, handle: i64, at: i64, count: u64) -> Result<Range<u64>, RequestRefusal> {
        let (block, at) = (self.find_block(handle)?, parse_size(at)?);
        let bytes = block.end - block.start;
        match at.checked_add(count).filter(|end| *end <= bytes) {
            Some(end) => Ok(block.start + at..block.start + end),
            None => refuse_request(format!("{count} bytes at offset {at} exceed the block of {bytes} bytes")),
        }
    }
}

fn unknown_handle<T>(handle: i64) -> Result<T, RequestRefusal> {
    refuse_request(format!("there is no accelerator memory block {handle}"))
}

fn parse_size(number: i64) -> Result<u64, RequestRefusal> {
    u64::try_from(number).map_err(|_| RequestRefusal(format!("{number} is not a valid size")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use accelerator::{BusBlock, HookedBus, Hooks, Instruction, SimulatedBus, encode_instruction, registers};

    struct Board {
        mark: PathBuf,
        hangs: bool,
    }

    impl Hooks for Board {
        fn on_write(&mut self, _: BusBlock, register: u32, _: u32) -> bool {
            let is_start = register == registers::CONTROL;
            assert!(!is_start || self.mark.exists(), "the mark must exist before the core starts");
            !is_start || !self.hangs
        }
    }

    fn session(folder: &Path, kind: FabricKind) -> FabricSession {
        let bus = SimulatedBus::new(Core::find_published("1x16").unwrap(), 0x1000_0000, 1 << 20);
        let mut fabric = FabricSession::new(kind, Box::new(bus)).with_mark_file(folder);
        program(&mut fabric, "1x16");
        fabric
    }

    fn program(fabric: &mut FabricSession, name: &str) {
        fabric.call_function(FabricRequest::Program, &[Value::Text(name.to_owned())]).unwrap();
    }

    fn run(fabric: &mut FabricSession) -> Result<FabricStatus, String> {
        let core = Core::find_published("1x16").unwrap();
        let bytes: Vec<u8> =
            encode_instruction(&core, &Instruction::Finish).into_iter().flat_map(u64::to_le_bytes).collect();
        let block = fabric.call_function(FabricRequest::Allocate, &[Value::Int(4096)]).unwrap();
        fabric.call_function(FabricRequest::Write, &[block.clone(), Value::Int(0), Value::Bytes(bytes)]).unwrap();
        let ran = fabric
            .call_function(FabricRequest::Run, &[block, Value::Int(1), Value::Int(1000)])
            .map_err(|why| why.to_string())?;
        let Value::Text(text) = ran else { panic!("{ran:?}") };
        Ok(serde_json::from_str::<Ran>(&text).unwrap().0)
    }

    #[test]
    fn a_hanging_core_is_known_to_the_next_session() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join(CORE_AT_WORK);
        let mut first = session(folder.path(), FabricKind::Devmem);
        let bus = SimulatedBus::new(Core::find_published("1x16").unwrap(), 0x1000_0000, 1 << 20);
        first.bus = Box::new(HookedBus { bus, hooks: Board { mark: mark.clone(), hangs: true } });
        assert_eq!(run(&mut first), Ok(FabricStatus::TimedOut));
        drop(first);
        let mut next = session(folder.path(), FabricKind::Devmem);
        assert!(run(&mut next).unwrap_err().contains("did not finish an earlier run"));
        // A simulated core ends with its session.
        assert_eq!(run(&mut session(folder.path(), FabricKind::Simulated)), Ok(FabricStatus::Done));
        assert!(mark.exists());
        program(&mut next, "1x16_i8w8a32_15_15_18_17.bin");
        assert!(!mark.exists());
        assert_eq!(run(&mut next), Ok(FabricStatus::Done));
        assert_eq!(run(&mut session(folder.path(), FabricKind::Devmem)), Ok(FabricStatus::Done));
    }
}
