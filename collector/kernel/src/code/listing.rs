//! Disassembles machine code and lists its loops with the estimated share of each.

use super::{Body, Nest, loop_weights, loops, split_bodies, step};
use iced_x86::{Formatter, Instruction, IntelFormatter};
use job::listing::{Line, ListedFunction, ListedLoop};

pub fn list_functions<'a>(functions: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Vec<ListedFunction> {
    let mut listed: Vec<ListedFunction> = functions.into_iter().map(|(name, code)| list_function(name, code)).collect();
    normalise_shares(&mut listed);
    listed
}

/// Disassembles a function. The field `estimated_share` of its loops holds cycles until the caller divides them.
fn list_function(name: &str, code: &[u8]) -> ListedFunction {
    let steps = step::decode_steps(code);
    let found = loops::find_loops(&steps);
    let (bodies, _) = split_bodies(&steps, &found);
    let mut formatter = IntelFormatter::new();
    formatter.options_mut().set_space_after_operand_separator(true);
    let mut line = |instruction: &Instruction| {
        let mut text = String::new();
        formatter.format(instruction, &mut text);
        Line { offset: instruction.ip(), text }
    };
    let lines = steps.iter().map(|step| line(&step.instruction)).collect();
    let cycles = |((this, body), weight): ((&loops::Loop, &Body), f64)| {
        let mut nest = Nest::default();
        nest.add_loop(this, body, weight);
        ListedLoop {
            first: this.first,
            last: this.last,
            around: this.around,
            turns: this.turns,
            estimated_share: nest.cycles,
        }
    };
    let loops = found.iter().zip(&bodies).zip(loop_weights(&found)).map(cycles).collect();
    ListedFunction { name: name.to_owned(), lines, loops }
}

fn normalise_shares(functions: &mut [ListedFunction]) {
    let all: f64 = functions.iter().flat_map(|function| &function.loops).map(|one| one.estimated_share).sum();
    for one in functions.iter_mut().flat_map(|function| &mut function.loops).filter(|_| all > 0.0) {
        one.estimated_share /= all;
    }
}
