//! A decoded instruction with the properties that determine its cost.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Fma,
    /// Vector and floating-point arithmetic other than multiply-adds and divisions.
    Arithmetic,
    Division,
    Shuffle,
    Gather,
    Move,
    Integer,
    Jump,
    Call,
}

#[derive(Clone, Debug)]
pub struct Step {
    pub kind: Kind,
    pub lanes: u32,
    /// Vector width in bytes; 0 for scalar integers.
    pub width: u32,
    pub loaded_bytes: u32,
    pub stored_bytes: u32,
    /// Whether the memory operand is on the stack, where spilled registers are stored.
    pub is_stack: bool,
    pub target: Option<u64>,
    /// Full-width register of the first operand, which is written or compared.
    pub first: Register,
    pub instruction: Instruction,
}

/// Decodes a function up to the first invalid instruction.
pub fn decode_steps(code: &[u8]) -> Vec<Step> {
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    std::iter::from_fn(|| decoder.can_decode().then(|| decoder.decode()))
        .take_while(|instruction| !instruction.is_invalid())
        .map(describe_step)
        .collect()
}

fn describe_step(instruction: Instruction) -> Step {
    let places = || 0..instruction.op_count();
    let registers = places()
        .filter(|place| instruction.op_kind(*place) == OpKind::Register)
        .map(|place| instruction.op_register(place));
    let vector = registers.filter(|register| register.is_vector_register()).map(|register| register.size() as u32);
    let vector = vector.max().unwrap_or(0);
    let name = format!("{:?}", instruction.mnemonic());
    let kind = classify_mnemonic(&instruction, &name, vector);
    let is_scalar = name.ends_with("ss") || name.ends_with("sd");
    let element = if name.ends_with("pd") || name.ends_with("sd") { 8 } else { 4 };
    let names_memory = !matches!(instruction.mnemonic(), Mnemonic::Lea | Mnemonic::Nop)
        && places().any(|place| instruction.op_kind(place) == OpKind::Memory);
    let size = instruction.memory_size();
    let bytes = if instruction.is_broadcast() { size.element_size() } else { size.size() } as u32;
    let writes = names_memory && instruction.op_kind(0) == OpKind::Memory && !is_comparison(&instruction);
    let reads = names_memory && (!writes || kind == Kind::Integer);
    let base = instruction.memory_base().full_register();
    let is_frame = base == Register::RBP && instruction.memory_index() == Register::None;
    Step {
        kind,
        lanes: if is_scalar || vector == 0 { 1 } else { vector / element },
        width: if is_scalar { element } else { vector },
        loaded_bytes: if reads { bytes } else { 0 },
        stored_bytes: if writes { bytes } else { 0 },
        is_stack: names_memory && (base == Register::RSP || is_frame),
        target: is_direct_jump(&instruction).then(|| instruction.near_branch_target()),
        first: register_operand(&instruction, 0).unwrap_or(Register::None),
        instruction,
    }
}

pub fn register_operand(instruction: &Instruction, place: u32) -> Option<Register> {
    let is_register = place < instruction.op_count() && instruction.op_kind(place) == OpKind::Register;
    is_register.then(|| instruction.op_register(place).full_register())
}

pub fn is_comparison(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test)
}

fn is_direct_jump(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch)
}

/// Classifies an instruction by the prefix of its mnemonic, because there are more than a thousand mnemonics.
fn classify_mnemonic(instruction: &Instruction, name: &str, vector: u32) -> Kind {
    const FMA: &[&str] = &["Vfmadd", "Vfnmadd", "Vfmsub", "Vfnmsub", "Vpdp"];
    const DIVISION: &[&str] = &["Vdiv", "Div", "Vsqrt", "Sqrt", "Idiv"];
    const GATHER: &[&str] = &["Vgather", "Vpgather", "Vscatter", "Vpscatter"];
    const MOVE: &[&str] = &["Vmov", "Mov", "Vlddqu", "Vbroadcast", "Vpbroadcast"];
    const SHUFFLE: &[&str] = &[
        "Vperm",
        "Vunpck",
        "Vpunpck",
        "Vshuf",
        "Vpshuf",
        "Vinsert",
        "Vpinsr",
        "Vextract",
        "Vpextr",
        "Vblend",
        "Vpblend",
        "Vpack",
        "Valign",
        "Vpalign",
        "Vcompress",
        "Vexpand",
        "Vpcompress",
        "Vpexpand",
    ];
    let begins = |words: &[&str]| words.iter().any(|word| name.starts_with(word));
    let extends = begins(&["Movsx", "Movzx"]);
    match instruction.flow_control() {
        FlowControl::Call | FlowControl::IndirectCall => return Kind::Call,
        FlowControl::IndirectBranch => return Kind::Jump,
        _ if is_direct_jump(instruction) => return Kind::Jump,
        _ => {}
    }
    match () {
        () if begins(FMA) => Kind::Fma,
        () if begins(DIVISION) => Kind::Division,
        () if begins(GATHER) => Kind::Gather,
        () if begins(MOVE) && !extends => Kind::Move,
        () if begins(SHUFFLE) => Kind::Shuffle,
        () if vector > 0 => Kind::Arithmetic,
        () => Kind::Integer,
    }
}
