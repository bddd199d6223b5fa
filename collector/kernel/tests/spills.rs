//! Tests, by reading machine code, that default schedules keep accumulators in registers and align stack slots.

mod common;

use iced_x86::Register;
use job::listing::ListedLoop;
use job::space::{self, Knobs, Schedule, Setting};
use kernel::apply::{SpaceCache, apply_schedule};
use kernel::code::list_functions;
use kernel::code::step::{Kind, Step, decode_steps};
use kernel::lower::{Form, lower_task};
use kernel::tvm::compile::{CompileTarget, compile_module};
use kernel::tvm::names::NameRole;
use kernel::tvm::{library, object as loader};
use models::Task;
use object::{Object, ObjectSection};
use targets::Target;

struct Bench {
    target: Target,
    compiled: CompileTarget,
}

impl Bench {
    fn new(target: Target) -> Bench {
        let compiled = CompileTarget::from_json(&target.text).expect("TVM knows the target");
        Bench { target, compiled }
    }

    fn default(&self, task: &Task) -> Knobs {
        space::task_space(task, &self.target.machine).default
    }

    fn object(&self, task: &Task, knobs: Knobs) -> Vec<u8> {
        let schedule = Schedule::Template { knobs };
        let lowered = lower_task(task, Form::for_schedule(&schedule, &self.compiled)).expect("the task can be lowered");
        let moves =
            apply_schedule(&lowered, &schedule, &self.compiled, &mut SpaceCache::default()).expect("the moves fit");
        let module = moves.current_module().expect("a module");
        compile_module(&module, &self.compiled, schedule.function_variants(), false).expect("the module compiles").bytes
    }
}

fn x86(cpu: &str, feature: &str) -> Bench {
    Bench::new(targets::llvm_target(cpu, &[feature.to_owned()], 2))
}

/// Returns the functions of an x86-64 object that compute; its other functions check arguments and raise errors.
fn computing(object: &[u8]) -> Vec<(String, Vec<u8>)> {
    let functions = loader::object_functions(object).expect("an object for x86-64");
    functions.into_iter().filter(|(name, _)| !name.starts_with("__")).collect()
}

fn unaligned(object: &[u8]) -> (Vec<String>, usize) {
    let (mut wrong, mut all) = (Vec::new(), 0);
    for (name, code) in computing(object) {
        let steps = decode_steps(&code);
        let text = |step: &Step| format!("{name}: {}", step.instruction);
        let alignment = steps.iter().find_map(stack_alignment).unwrap_or(16);
        let is_vector = |step: &&Step| step.is_stack && step.loaded_bytes.max(step.stored_bytes) >= 32;
        for step in steps.iter().filter(is_vector) {
            all += 1;
            let bytes = u64::from(step.loaded_bytes.max(step.stored_bytes));
            let offset = step.instruction.memory_displacement64();
            let is_aligned = alignment >= bytes && offset % bytes == 0;
            if !is_aligned {
                wrong.push(text(step));
            }
        }
    }
    (wrong, all)
}

/// Returns the alignment that an instruction like `and rsp, -64` gives the stack.
fn stack_alignment(step: &Step) -> Option<u64> {
    let is_and = step.instruction.mnemonic() == iced_x86::Mnemonic::And;
    let is_of_stack = step.first == Register::RSP;
    (is_and && is_of_stack).then(|| step.instruction.immediate(1).wrapping_neg())
}

#[test]
fn vectors_on_the_stack_are_aligned_to_their_size() {
    library::open_libraries(NameRole::Builder).expect("TVM is there");
    for (bench, block) in [(x86("haswell", "avx2"), 32), (x86("skylake-avx512", "avx512f"), 64)] {
        let product = common::task("dense:m=128,n=256,k=256");
        let mut knobs = bench.default(&product);
        // A tile of 32 accumulators leaves no register for operands.
        for (name, setting) in [("block", block), ("tile_c", 1), ("tile_x", 8), ("split_r", 1)] {
            knobs.0.insert(name.to_owned(), Setting::Number(setting));
        }
        // Attention has buffers on the stack.
        let attention = common::task("attention:b=1,h=4,s=128,d=64");
        let default = bench.default(&attention);
        for (task, knobs) in [(product, knobs), (attention, default)] {
            let (wrong, all) = unaligned(&bench.object(&task, knobs));
            let text = format!("{} for {}", task.to_text(), bench.target.text);
            assert!(wrong.is_empty() && all > 0, "{} of {all}: {text}:\n{}", wrong.len(), wrong.join("\n"));
        }
    }
}

#[test]
fn a_tile_prefetches_the_lines_of_the_next_tile() {
    use iced_x86::Mnemonic;
    library::open_libraries(NameRole::Builder).expect("TVM is there");
    let bench = x86("skylake-avx512", "avx512f");
    for (operator, tile, lines) in
        [("conv2d:ci=256,hw=14,co=1024,k=1", None, 1), ("conv2d:ci=192,hw=28,co=32,k=1", Some(28), 2)]
    {
        let task = common::task(operator);
        let mut knobs = bench.default(&task);
        for (name, setting) in [("tile_x", tile), ("block", tile.map(|_| 16)), ("split_r", Some(1))] {
            setting.map(|setting| knobs.0.insert(name.to_owned(), Setting::Number(setting)));
        }
        let count = |knobs: &Knobs| {
            let functions = computing(&bench.object(&task, knobs.clone()));
            let all = functions.iter().flat_map(|(_, code)| decode_steps(code));
            all.filter(|step| step.instruction.mnemonic() == Mnemonic::Prefetcht0).count()
        };
        assert_eq!(knobs.choice("prefetch"), Some("yes"), "{operator}");
        assert_eq!(count(&knobs), lines, "{operator}");
        knobs.0.remove("prefetch");
        assert_eq!(count(&knobs), 0, "{operator}");
    }
}

const SHAPES: &[&str] = &[
    "dense:m=128,n=256,k=256",
    "dense:m=127,n=255,k=129",
    "dense:m=1,n=1000,k=512,bias=1",
    "dense:m=64,n=768,k=768,bias=1,act=gelu",
    "dense:m=128,n=2048,k=11008",
    "matmul:m=512,n=512,k=512",
    "matmul:m=127,n=255,k=63",
    "matmul:b=12,m=197,n=197,k=64",
    "matmul:m=8,n=1024,k=1024",
    "einsum:equation=bhqd;bhkd->bhqk,shape=1x4x32x64,other=1x4x32x64",
    "conv2d:ci=64,hw=56,co=64,k=3,p=1",
    "conv2d:ci=512,hw=7,co=512,k=3,p=1",
    "conv2d:ci=128,hw=28,co=128,k=3,p=1",
    "conv2d:ci=128,hw=56,co=128,k=3,p=1,s=2",
    "conv2d:ci=3,hw=224,co=64,k=7,p=3,s=2",
    "conv2d:ci=16,hw=27,co=24,k=5,p=2",
    "conv2d:ci=96,hw=27,co=256,k=5,p=2",
    "conv2d:ci=64,hw=56,co=256,k=1",
    "conv2d:ci=256,hw=28,co=512,k=1,s=2",
    "conv2d:ci=256,hw=14,co=1024,k=1",
    "conv2d:ci=24,hw=13,co=20,k=1",
    "conv2d:ci=768,hw=7,co=768,k=1",
    "conv2d:ci=960,hw=7,co=160,k=1",
    "conv2d:ci=256,hw=28,co=128,k=1",
    "conv2d:ci=128,hw=28,co=320,k=1,s=2",
    "conv2d:ci=80,hw=14,co=480,k=1,bias=1,act=silu",
    "conv2d:ci=96,hw=14,co=576,k=1,bias=1,act=relu",
    "conv2d:ci=512,hw=14,co=24,k=1,bias=1,act=relu",
    "conv2d:ci=128,hw=56,co=128,k=3,g=32,p=1",
    "conv2d:ci=256,hw=28,co=256,k=3,g=32,p=1",
    "conv2d:ci=128,hw=28,co=128,k=3,p=4,d=4",
    "conv2d:ci=32,hw=14,co=64,k=3,g=4,p=1",
    "conv1d:ci=80,size=1500,co=384,k=3,p=1",
    "conv_transpose2d:ci=64,hw=8,co=32,k=4,s=2,p=1",
    "depthwise_conv2d:c=64,hw=56,k=3,p=1",
    "depthwise_conv2d:c=96,hw=112,k=3,p=1,s=2",
    "depthwise_conv2d:c=240,hw=28,k=5,p=2",
    "depthwise_conv2d:c=960,hw=7,k=3,p=1",
    "attention:b=1,h=4,s=128,d=64",
    "attention:b=1,h=4,s=128,d=32,causal=1,window=64",
    "attention:b=1,h=4,s=96,d=128,causal=1",
    "attention:b=1,h=3,s=197,d=64",
    "attention:b=1,h=8,s=77,d=64",
    "attention:b=1,h=12,s=50,d=64",
    "q_dense:m=128,n=768,k=768,xz=5",
    "q_conv2d:ci=64,hw=28,co=64,k=3,p=1,xz=5",
];

const ALLOWED: &[(&str, &str, usize)] = &[
    // Winograd's transforms of windows have more values than there are registers.
    ("haswell", "conv2d:ci=512,hw=7,co=512,k=3,p=1", 60),
    ("skylake-avx512", "conv2d:ci=128,hw=28,co=128,k=3,p=1", 30),
    ("znver5", "conv2d:ci=128,hw=28,co=128,k=3,p=1", 30),
    // Rows of seven columns are assembled from parts of vectors.
    ("haswell", "depthwise_conv2d:c=240,hw=28,k=5,p=2", 12),
    ("skylake-avx512", "depthwise_conv2d:c=240,hw=28,k=5,p=2", 4),
    ("znver5", "depthwise_conv2d:c=240,hw=28,k=5,p=2", 4),
    ("haswell", "depthwise_conv2d:c=960,hw=7,k=3,p=1", 1),
    ("skylake-avx512", "depthwise_conv2d:c=960,hw=7,k=3,p=1", 5),
    ("znver5", "depthwise_conv2d:c=960,hw=7,k=3,p=1", 5),
    // A weight or an input of one of several unrolled steps; tiles without spills are slower.
    ("haswell", "conv2d:ci=768,hw=7,co=768,k=1", 1),
    ("skylake-avx512", "conv2d:ci=768,hw=7,co=768,k=1", 1),
    // Without a dot-product instruction bytes are unpacked first; smaller tiles unpack them more often and are slower.
    ("haswell", "q_dense:m=128,n=768,k=768,xz=5", 25),
    ("skylake-avx512", "q_dense:m=128,n=768,k=768,xz=5", 35),
    ("skylake-avx512", "q_conv2d:ci=64,hw=28,co=64,k=3,p=1,xz=5", 1),
];

/// Minimum share of all estimated cycles of the loops that are checked.
const SHARE: f64 = 0.1;

/// Maximum number of instructions per multiply-add in the loop of a product; loops of exponentials have more.
const INSTRUCTIONS_PER_PRODUCT: usize = 4;

/// Returns how many vectors the worst hot loop stores to constant stack addresses; loads could also be from buffers.
fn spilled(object: &[u8]) -> usize {
    let functions = computing(object);
    let listed = list_functions(functions.iter().map(|(name, code)| (name.as_str(), code.as_slice())));
    let mut most = 0;
    for (function, (_, code)) in listed.iter().zip(&functions) {
        let steps = decode_steps(code);
        for this in function.loops.iter().filter(|this| this.estimated_share >= SHARE) {
            let is_inner = |other: &&ListedLoop| *other != this && this.first <= other.first && other.last <= this.last;
            let inner: Vec<&ListedLoop> = function.loops.iter().filter(is_inner).collect();
            let is_own = |place: &usize| !inner.iter().any(|other| (other.first..=other.last).contains(place));
            let own: Vec<&Step> = (this.first..=this.last).filter(is_own).map(|place| &steps[place]).collect();
            let products = own.iter().filter(|step| multiplies(step)).count();
            if INSTRUCTIONS_PER_PRODUCT * products >= own.len() {
                most = most.max(own.iter().filter(|step| is_spill(step)).count());
            }
        }
    }
    most
}

fn multiplies(step: &Step) -> bool {
    step.kind == Kind::Fma || format!("{:?}", step.instruction.mnemonic()).starts_with("Vpmadd")
}

fn is_spill(step: &Step) -> bool {
    let is_vector = step.stored_bytes >= 16 && step.kind == Kind::Move;
    step.is_stack && is_vector && step.instruction.memory_index() == Register::None
}

/// Returns the spills of the worst innermost loop on AArch64, where LLVM unrolls and a few spills are accepted.
fn spilled_on_arm(object: &[u8]) -> usize {
    let file = object::File::parse(object).expect("an object file");
    let sections = file.sections().filter(|section| section.kind() == object::SectionKind::Text);
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    let spills = |code: &[u8]| spilled_words(&code.chunks_exact(4).map(word).collect::<Vec<_>>());
    sections.filter_map(|section| section.data().ok().map(spills)).max().unwrap_or(0)
}

fn spilled_words(words: &[u32]) -> usize {
    /// Multiply-adds per accepted spill.
    const FEW: usize = 16;
    let loops: Vec<(usize, usize)> =
        words.iter().enumerate().filter_map(|(last, &word)| Some((jump_back(word, last)?, last))).collect();
    let is_innermost =
        |this: &&(usize, usize)| !loops.iter().any(|other| other != *this && this.0 <= other.0 && other.1 <= this.1);
    let spills = |&(first, last): &(usize, usize)| {
        let body = &words[first..=last];
        let products = body.iter().filter(|&&word| is_multiply_add(word)).count();
        let spills = body.iter().filter(|&&word| is_store_to_stack(word)).count();
        let is_product = INSTRUCTIONS_PER_PRODUCT * products >= body.len();
        if is_product && FEW * spills > products { spills } else { 0 }
    };
    loops.iter().filter(is_innermost).map(spills).max().unwrap_or(0)
}

fn is_multiply_add(word: u32) -> bool {
    word & 0xbfa0_fc00 == 0x0e20_cc00 || word & 0xbf80_f400 == 0x0f80_1000
}

fn is_store_to_stack(word: u32) -> bool {
    const STORES: [(u32, u32); 3] =
        [(0xffc0_0000, 0x3d80_0000), (0xffe0_0c00, 0x3c80_0000), (0xffc0_0000, 0xad00_0000)];
    let is_store = STORES.iter().any(|(mask, code)| word & mask == *code);
    is_store && matches!(word >> 5 & 31, 29 | 31)
}

fn jump_back(word: u32, place: usize) -> Option<usize> {
    let (bits, field) = match word {
        _ if word & 0xfc00_0000 == 0x1400_0000 => (26, word),
        // `b.cond`, and `cbz` and `cbnz`.
        _ if word & 0xff00_0010 == 0x5400_0000 || word & 0x7e00_0000 == 0x3400_0000 => (19, word >> 5),
        // `tbz` and `tbnz`.
        _ if word & 0x7e00_0000 == 0x3600_0000 => (14, word >> 5),
        _ => return None,
    };
    let unused = 32 - bits;
    let offset = (field << unused).cast_signed() >> unused;
    let back = usize::try_from(-i64::from(offset)).ok()?;
    place.checked_sub(back)
}

fn excess(bench: &Bench, cpu: &str, spilled: fn(&[u8]) -> usize) -> Vec<String> {
    let allowed = |text: &str| {
        let entry = ALLOWED.iter().find(|entry| (entry.0, entry.1) == (cpu, text));
        entry.map_or(0, |(_, _, most)| *most)
    };
    let of_shape = |text: &&str| {
        let task = common::task(text);
        let knobs = bench.default(&task);
        let schedule = knobs.0.iter().map(|(name, setting)| format!("{name}={setting}")).collect::<Vec<_>>().join(" ");
        let found = spilled(&bench.object(&task, knobs));
        (found > allowed(text)).then(|| format!("{found} for {cpu}: {text}: {schedule}"))
    };
    SHAPES.iter().filter_map(of_shape).collect()
}

#[test]
fn loops_that_take_the_time_spill_nothing() {
    library::open_libraries(NameRole::Builder).expect("TVM is there");
    let on_x86 = [("haswell", "avx2"), ("skylake-avx512", "avx512f"), ("znver5", "avx512f")];
    let wrong = std::thread::scope(|threads| {
        let mut running: Vec<_> = on_x86
            .into_iter()
            .map(|(cpu, feature)| threads.spawn(move || excess(&x86(cpu, feature), cpu, spilled)))
            .collect();
        let arm = || Bench::new(targets::find_board("ultra96").expect("a board").cpu_target());
        running.push(threads.spawn(move || excess(&arm(), "cortex-a53", spilled_on_arm)));
        running.into_iter().flat_map(|one| one.join().expect("every shape is built")).collect::<Vec<_>>()
    });
    assert!(wrong.is_empty(), "vectors are spilled in {} loops:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn loops_of_another_processor_are_read() {
    // again: fmla v0.4s, v1.4s, v2.s[0]; fmla (the same); str q0, [sp, #16]; subs x0, x0, #1; b.ne again;
    // str q0, [sp]; ret
    let words = [0x4f82_1020, 0x4f82_1020, 0x3d80_07e0, 0xf100_0400, 0x54ff_ff81, 0x3d80_03e0, 0xd65f_03c0];
    assert_eq!(spilled_words(&words), 1);
    assert_eq!((jump_back(words[4], 4), jump_back(words[0], 0)), (Some(0), None));
    // A loop without multiply-adds is not a product.
    let others = [words[2], words[2], words[2], words[3], words[4]];
    assert_eq!(spilled_words(&others), 0);
}
