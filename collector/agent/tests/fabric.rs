//! Tests of a simulated accelerator core, served by the real program: exact results of programs, and rejection of
//! invalid requests. No test uses a board.
#![allow(missing_docs)]

mod common;

use accelerator::{
    Core, CoreImage, Instruction, Knobs, Memory, Multiply, Pads, Program, Steps, Tokens, default_knobs,
    encode_instruction, external_result, generate_program, layer_of, result_place,
};
use common::Agent;
use models::Task;
use nix::sys::signal::{Signal, kill};
use reference::Tensor;
use remote::fabric::{ADDRESS, ALLOCATE, FREE, Fabric, FabricKind, FabricStatus, INFO, PROGRAM, READ, RUN, Ran, WRITE};
use remote::wire::Value;
use remote::{RemoteError, Session};
use std::process::Command;
use std::time::Duration;

const CONVOLUTION: &str = r#"conv(i8[1,16,5,5], const i8[32,16,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1 | binary(_, const i32[32,1,1]) function="shift_right" | clip(_) low=-128.0 high=127.0 | cast(_) to="i8""#;
const DENSE: &str = r#"dense(i8[5,96], const i8[40,96]) | bias_add(_, const i32[40]) axis=1 | binary(_, const i32[40]) function="shift_right" | clip(_) low=-128.0 high=127.0 | cast(_) to="i8""#;

fn simulated() -> Agent {
    Agent::start(&["--fpga", "simulated", "--memory-mib", "16"])
}

fn number(session: &mut Session, name: &str, numbers: &[i64]) -> i64 {
    match session.call_named(name, numbers.iter().copied().map(Value::Int).collect()) {
        Ok(Value::Int(number)) => number,
        other => panic!("{name}: {other:?}"),
    }
}

fn refusal(session: &mut Session, name: &str, numbers: &[i64]) -> String {
    refused(session.call_named(name, numbers.iter().copied().map(Value::Int).collect()))
}

fn refused(result: Result<Value, RemoteError>) -> String {
    match result {
        Err(RemoteError::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}

fn program(session: &mut Session, name: &str) {
    session.call_named(PROGRAM, vec![Value::Text(name.to_owned())]).expect("the core is known");
}

fn write(session: &mut Session, handle: i64, at: u64, bytes: &[u8]) {
    let arguments = vec![Value::Int(handle), Value::Int(at as i64), Value::Bytes(bytes.to_vec())];
    session.call_named(WRITE, arguments).expect("it fits");
}

fn read(session: &mut Session, handle: i64, at: u64, count: u64) -> Vec<u8> {
    match session.call_named(READ, [handle, at as i64, count as i64].map(Value::Int).to_vec()) {
        Ok(Value::Bytes(bytes)) => bytes,
        other => panic!("{other:?}"),
    }
}

fn ran(session: &mut Session, instructions: i64, count: usize) -> Ran {
    match session.call_named(RUN, [instructions, count as i64, 1_000_000].map(Value::Int).to_vec()) {
        Ok(Value::Text(text)) => serde_json::from_str(&text).expect("how it ended"),
        other => panic!("{other:?}"),
    }
}

fn made(text: &str, core: &str) -> (Program, Vec<Tensor>, Tensor) {
    let (core, task) = (Core::find_published(core).expect("a core"), Task::from_text(text).expect("a task"));
    let layer = layer_of(&task).expect("a layer");
    let knobs: Knobs = default_knobs(&core, &layer).expect("a tiling that fits");
    let program = generate_program(&core, &layer, &knobs).expect("a program");
    let inputs = reference::random_inputs(&task, 3).expect("inputs");
    let wanted = reference::evaluate_task(&task, &inputs).expect("a result");
    (program, inputs, wanted)
}

fn upload(session: &mut Session, program: &Program, inputs: &[Tensor]) -> (i64, i64) {
    let memory = number(session, ALLOCATE, &[program.memory_bytes() as i64]);
    let address = number(session, ADDRESS, &[memory]) as u64;
    let operands: Vec<&[u8]> = inputs.iter().map(Tensor::as_bytes).collect();
    let image = CoreImage::new(program, &operands, address).expect("an image");
    for (at, bytes) in &image.parts {
        write(session, memory, *at, bytes);
    }
    let instructions = number(session, ALLOCATE, &[image.instructions.len() as i64]);
    write(session, instructions, 0, &image.instructions);
    (memory, instructions)
}

#[test]
fn layers_are_exact_in_repeated_runs() {
    let agent = simulated();
    for (core, text) in [("1x16", CONVOLUTION), ("4x8", CONVOLUTION), ("1x16", DENSE), ("4x8", DENSE)] {
        let (layer, inputs, wanted) = made(text, core);
        let mut session = agent.session();
        program(&mut session, core);
        let Ok(Value::Text(reply)) = session.call_named(INFO, vec![]) else { panic!("no information") };
        let reply: Fabric = serde_json::from_str(&reply).expect("JSON");
        let fabric = Fabric { kind: FabricKind::Simulated, core: Some(core.to_owned()), memory_bytes: 16 << 20 };
        assert_eq!(reply, fabric);
        // A preceding block makes relocation necessary.
        number(&mut session, ALLOCATE, &[4097]);
        let (memory, instructions) = upload(&mut session, &layer, &inputs);
        let (at, bytes) = result_place(&layer);
        for _ in 0..2 {
            write(&mut session, memory, at, &vec![0x55; bytes as usize]);
            let ended = ran(&mut session, instructions, layer.instructions.len());
            assert_eq!(ended.0, FabricStatus::Done);
            let packed = read(&mut session, memory, at, bytes);
            assert_eq!(external_result(&layer, &packed).expect("a result"), wanted.as_bytes(), "{core} {text}");
        }
    }
}

#[test]
fn invalid_requests_are_rejected_and_the_session_continues() {
    let agent = simulated();
    let mut session = agent.session();
    let (layer, inputs, _) = made(CONVOLUTION, "1x16");
    let (memory, instructions) = upload(&mut session, &layer, &inputs);
    let count = layer.instructions.len() as i64;
    assert!(refusal(&mut session, RUN, &[instructions, count, 1000]).contains("the core in the FPGA is unknown"));
    for name in ["2x2", "", "../1x16", "/dev/mem", "1x16_\n"] {
        assert!(!refused(session.call_named(PROGRAM, vec![Value::Text(name.to_owned())])).is_empty(), "{name}");
    }
    program(&mut session, "1x16_i8w8a32_15_15_18_17.bin");
    for (name, numbers, says) in [
        (ADDRESS, vec![99], "no accelerator memory block 99"),
        (FREE, vec![-1], "no accelerator memory block -1"),
        (RUN, vec![99, 1, 1000], "no accelerator memory block 99"),
        (READ, vec![99, 0, 1], "no accelerator memory block 99"),
        (READ, vec![memory, 0, i64::MAX], "exceed the limit of a packet"),
        (READ, vec![memory, i64::MAX, 1], "exceed the block"),
        (READ, vec![memory, -1, 1], "-1 is not a valid size"),
        (READ, vec![instructions, 16 * count, 1], "exceed the block"),
        (ALLOCATE, vec![1 << 40], "out of memory"),
        (ALLOCATE, vec![i64::MAX], "out of memory"),
        (ALLOCATE, vec![-1], "-1 is not a valid size"),
        (RUN, vec![instructions, count + 1, 1000], "exceed the block"),
        (RUN, vec![instructions, 0, 1000], "instructions, got 0"),
        (RUN, vec![instructions, i64::MAX, 1000], "a program must have 1 to"),
        (RUN, vec![instructions, count, 0], "microseconds, got 0"),
        (RUN, vec![instructions, count, 1 << 40], "microseconds"),
        (RUN, vec![instructions, count - 1, 1000], "must end with the only `finish`"),
        (RUN, vec![instructions], "takes other arguments"),
        (INFO, vec![1], "takes other arguments"),
    ] {
        let why = refusal(&mut session, name, &numbers);
        assert!(why.contains(says), "{name} {numbers:?}: {why}");
    }
    let long = vec![Value::Int(memory), Value::Int(1), Value::Bytes(vec![0; layer.memory_bytes() as usize])];
    assert!(refused(session.call_named(WRITE, long)).contains("exceed the block"));
    // A freed block becomes part of another block, so the program may no longer access it.
    number(&mut session, ALLOCATE, &[1]);
    session.call_named(FREE, vec![Value::Int(memory)]).expect("it was there");
    assert!(refusal(&mut session, FREE, &[memory]).contains("no accelerator memory block"));
    assert!(refusal(&mut session, RUN, &[instructions, count, 1000]).contains("outside of the session's blocks"));
    let again = upload(&mut session, &layer, &inputs);
    assert_eq!(ran(&mut session, again.1, layer.instructions.len()).0, FabricStatus::Done);
    for _ in 0..1023 {
        if session.call_named(ALLOCATE, vec![Value::Int(1)]).is_err() {
            break;
        }
    }
    assert!(refusal(&mut session, ALLOCATE, &[1]).contains("at most 1024 blocks"));
}

fn slow(core: &Core) -> Vec<u8> {
    let steps = Steps { begin: 0, end: 1, outer: 16_383, inner: 16_383 };
    let (tokens, none) = (Tokens::default(), [0; 2]);
    let multiply = Multiply { tokens, is_reset: false, steps, sum: none, data: none, weight: none };
    let stream = [Instruction::Multiply(multiply), Instruction::Multiply(multiply), Instruction::Finish];
    stream.iter().flat_map(|one| encode_instruction(core, one)).flat_map(u64::to_le_bytes).collect()
}

#[test]
fn a_hanging_core_is_unusable_until_a_bitstream_is_loaded() {
    let agent = simulated();
    let mut session = agent.session();
    let core = Core::find_published("1x16").expect("a core");
    program(&mut session, "1x16");
    // Waits for a token that is never pushed.
    let tokens = Tokens { pop_next: true, ..Tokens::default() };
    let buffer = accelerator::Buffer::Data;
    let (rows, columns, stride, pads) = (0, 0, 0, Pads::default());
    let waits = Instruction::Load(Memory { tokens, buffer, on_core: 0, in_memory: 0, rows, columns, stride, pads });
    let stream = [waits, Instruction::Finish];
    let stream: Vec<u8> =
        stream.iter().flat_map(|one| encode_instruction(&core, one)).flat_map(u64::to_le_bytes).collect();
    let handle = number(&mut session, ALLOCATE, &[stream.len() as i64]);
    write(&mut session, handle, 0, &stream);
    assert_eq!(ran(&mut session, handle, 2), Ran(FabricStatus::TimedOut, 1e6));
    program(&mut session, "1x16");
    assert!(refusal(&mut session, RUN, &[handle, 2, 1000]).contains("did not finish an earlier run"));
    program(&mut session, "1x16_i8w8a32_15_15_18_17.bin");
    let (layer, inputs, _) = made(DENSE, "1x16");
    let (_, instructions) = upload(&mut session, &layer, &inputs);
    assert_eq!(ran(&mut session, instructions, layer.instructions.len()).0, FabricStatus::Done);
}

#[test]
fn a_session_that_is_killed_leaves_nothing_behind() {
    let agent = simulated();
    let core = Core::find_published("1x16").expect("a core");
    let mut session = agent.session();
    program(&mut session, "1x16");
    let stream = slow(&core);
    let handle = number(&mut session, ALLOCATE, &[stream.len() as i64]);
    write(&mut session, handle, 0, &stream);
    number(&mut session, ALLOCATE, &[(16 << 20) - 4096]);
    assert!(refusal(&mut session, ALLOCATE, &[1]).contains("out of memory"));
    let process = agent.process_of_session();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        kill(process, Signal::SIGKILL).expect("it was there");
    });
    let arguments = [handle, 3, 60_000_000].map(Value::Int).to_vec();
    let why = refused(session.call_named(RUN, arguments));
    killer.join().expect("it only kills");
    assert!(why.contains("the session crashed with SIGKILL"), "{why}");
    let mut session = agent.session();
    assert!(refusal(&mut session, FREE, &[handle]).contains("no accelerator memory block"));
    number(&mut session, ALLOCATE, &[16 << 20]);
    // A client may also leave without freeing its blocks.
    drop(session);
    number(&mut agent.session(), ALLOCATE, &[16 << 20]);
}

#[test]
fn an_agent_without_a_core_has_no_accelerator_functions() {
    let agent = Agent::start(&[]);
    let mut session = agent.session();
    for name in [PROGRAM, INFO, ALLOCATE, ADDRESS, WRITE, READ, RUN, FREE] {
        assert_eq!(session.find_function(name), Ok(None), "{name}");
    }
}

#[test]
fn unavailable_cores_are_reported_at_start() {
    let board = env!("CARGO_BIN_EXE_opcollect-board");
    let says = |kind: &str| {
        let ran = Command::new(board).args(["serve", "--port", "0", "--fpga", kind]).output().expect("it was built");
        (ran.status.code(), String::from_utf8_lossy(&ran.stderr).into_owned())
    };
    assert!(matches!(says("x"), (Some(2), said) if said.contains("allowed are `none`, `devmem` and `simulated`")));
    if !["arm", "aarch64"].contains(&std::env::consts::ARCH) {
        assert!(matches!(says("devmem"), (Some(3), said) if said.contains("accelerator's registers are unknown on")));
    }
}
