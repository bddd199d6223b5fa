//! One instruction as the cost of a program sees it.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// What an instruction mostly does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Multiply-adds.
    Fma,
    /// Other arithmetic on vectors and floating-point numbers.
    Arithmetic,
    Division,
    /// Numbers changing their place within and between vectors.
    Shuffle,
    /// Elements from all over memory, or to there.
    Gather,
    /// A copy between registers and memory.
    Move,
    /// Addresses, counters, tests.
    Integer,
    Jump,
    Call,
}

/// One instruction.
#[derive(Clone, Debug)]
pub struct Step {
    pub kind: Kind,
    /// Elements it computes at once.
    pub lanes: u32,
    /// Bytes of the vector it works on; 0 for whole numbers.
    pub width: u32,
    /// Bytes it reads from memory.
    pub loaded_bytes: u32,
    /// Bytes it writes to memory.
    pub stored_bytes: u32,
    /// Whether that memory is the stack, where registers are spilled to.
    pub is_stack: bool,
    pub target: Option<u64>,
    /// The whole register whose part it writes, or compares first.
    pub first: Register,
    pub instruction: Instruction,
}

/// The instructions of a function, up to the first bytes that are none.
pub fn decode(code: &[u8]) -> Vec<Step> {
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    std::iter::from_fn(|| decoder.can_decode().then(|| decoder.decode()))
        .take_while(|instruction| !instruction.is_invalid())
        .map(step)
        .collect()
}

fn step(instruction: Instruction) -> Step {
    let places = || 0..instruction.op_count();
    let registers = places()
        .filter(|place| instruction.op_kind(*place) == OpKind::Register)
        .map(|place| instruction.op_register(place));
    let vector = registers.filter(|register| register.is_vector_register()).map(|register| register.size() as u32);
    let vector = vector.max().unwrap_or(0);
    let name = format!("{:?}", instruction.mnemonic());
    let kind = kind(&instruction, &name, vector);
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
        first: register(&instruction, 0).unwrap_or(Register::None),
        instruction,
    }
}

/// The whole register an operand is part of.
pub fn register(instruction: &Instruction, place: u32) -> Option<Register> {
    let is_register = place < instruction.op_count() && instruction.op_kind(place) == OpKind::Register;
    is_register.then(|| instruction.op_register(place).full_register())
}

/// Whether an instruction only sets flags.
pub fn is_comparison(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test)
}

fn is_direct_jump(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch)
}

/// The instruction set has more than a thousand names, which say what they do by how they begin.
fn kind(instruction: &Instruction, name: &str, vector: u32) -> Kind {
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
