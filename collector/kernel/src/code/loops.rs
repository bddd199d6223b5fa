//! Finds the loops of a function: their position, nesting, and iterations if these are constant. Only loops with a
//! counter that starts from a constant, grows by a constant and is compared with a constant have a known count.

use super::step::{Kind, Step, is_comparison, register_operand};
use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register};

/// A loop: the instructions from the target of a backward jump to the jump itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Loop {
    pub first: usize,
    pub last: usize,
    /// Iterations each time the loop is entered; None if the number depends on values at run time.
    pub turns: Option<f64>,
    pub around: Option<usize>,
}

/// Returns the loops of a function, outer loops before inner ones.
pub fn find_loops(steps: &[Step]) -> Vec<Loop> {
    let mut found: Vec<Loop> = Vec::new();
    let address = |step: &Step| step.instruction.ip();
    for (last, step) in steps.iter().enumerate() {
        let Some(target) = step.target.filter(|target| *target <= address(step)) else { continue };
        let Ok(first) = steps.binary_search_by_key(&target, address) else { continue };
        match found.iter_mut().find(|known| known.first == first) {
            Some(known) => known.last = known.last.max(last),
            None => found.push(Loop { first, last, turns: None, around: None }),
        }
    }
    found.sort_by_key(|found| (found.first, std::cmp::Reverse(found.last)));
    for place in 0..found.len() {
        let (before, rest) = found.split_at_mut(place);
        let this = &mut rest[0];
        this.around = before.iter().rposition(|outer| outer.last >= this.last);
        this.turns = count_iterations(steps, this);
    }
    found
}

fn count_iterations(steps: &[Step], this: &Loop) -> Option<f64> {
    /// Limit on iterations, larger than the number of elements of any operator.
    const ITERATIONS_MAX: f64 = 1e9;
    let body = &steps[this.first..=this.last];
    let jump = &body.last()?.instruction;
    let sets_flags = |step: &Step| step.kind == Kind::Integer && step.instruction.rflags_modified() != 0;
    let test_at = body.iter().rposition(sets_flags)?;
    let test = &body[test_at].instruction;
    let counter = register_operand(test, 0)?;
    let (growth, grows_at) = register_growth(body, counter)?;
    let start = start_value(steps, this.first, counter);
    let turns = match test.mnemonic() {
        Mnemonic::Cmp => {
            let bound_before = || start_value(steps, this.first, register_operand(test, 1)?);
            let bound = constant_operand(test, 1).or_else(bound_before)?;
            let distance = (bound - start.unwrap_or(0)) as f64 / growth as f64;
            // A comparison before the increment, or one that is true for the bound itself, adds an iteration.
            let tests_first = grows_at > test_at;
            let passes_bound = matches!(
                jump.condition_code(),
                ConditionCode::le | ConditionCode::be | ConditionCode::ge | ConditionCode::ae
            );
            distance.ceil() + f64::from(u8::from(tests_first)) + f64::from(u8::from(passes_bound))
        }
        // The counter counts down to zero.
        Mnemonic::Add | Mnemonic::Sub | Mnemonic::Inc | Mnemonic::Dec => (-start? as f64 / growth as f64).ceil(),
        _ => return None,
    };
    (1.0..ITERATIONS_MAX).contains(&turns).then_some(turns)
}

/// Returns the increment of a register per iteration, and the index of the instruction that adds it.
fn register_growth(body: &[Step], counter: Register) -> Option<(i64, usize)> {
    let place = last_write(body, counter)?;
    let step = &body[place].instruction;
    let added = |step: &Instruction| {
        let is_sum = step.mnemonic() == Mnemonic::Lea
            && step.memory_base().full_register() == counter
            && step.memory_index() == Register::None;
        is_sum.then(|| step.memory_displacement64() as i64)
    };
    let growth = match step.mnemonic() {
        Mnemonic::Inc => 1,
        Mnemonic::Dec => -1,
        Mnemonic::Add => constant_operand(step, 1)?,
        Mnemonic::Sub => -constant_operand(step, 1)?,
        Mnemonic::Lea => added(step)?,
        // The sum was copied from another register.
        Mnemonic::Mov => added(&body[last_write(&body[..place], register_operand(step, 1)?)?].instruction)?,
        _ => return None,
    };
    (growth != 0).then_some((growth, place))
}

fn start_value(steps: &[Step], first: usize, counter: Register) -> Option<i64> {
    const SEARCHED_STEPS: usize = 400;
    let before = &steps[first.saturating_sub(SEARCHED_STEPS)..first];
    let step = &before[last_write(before, counter)?].instruction;
    match step.mnemonic() {
        Mnemonic::Xor if register_operand(step, 1) == Some(counter) => Some(0),
        Mnemonic::Mov => constant_operand(step, 1),
        _ => None,
    }
}

fn last_write(steps: &[Step], wanted: Register) -> Option<usize> {
    steps.iter().rposition(|step| step.first == wanted && !is_comparison(&step.instruction))
}

fn constant_operand(instruction: &Instruction, place: u32) -> Option<i64> {
    let is_constant = place < instruction.op_count()
        && matches!(
            instruction.op_kind(place),
            OpKind::Immediate8
                | OpKind::Immediate16
                | OpKind::Immediate32
                | OpKind::Immediate64
                | OpKind::Immediate8to16
                | OpKind::Immediate8to32
                | OpKind::Immediate8to64
                | OpKind::Immediate32to64
        );
    is_constant.then(|| instruction.immediate(place) as i64)
}
