//! Calls in a row: a whole model on a board is one function, so that nothing of it waits for a client.

use super::{Refusal, refuse};
use crate::native::{Arguments, Kernel, Memory, NativeError};
use remote::wire::Value;
use std::cell::RefCell;
use std::rc::Rc;

/// No model has more.
const CALLS_MAX: usize = 100_000;

/// What is called, and with what.
type Call = (Kernel, Vec<Value>);

/// Calls as a client named them. Tensors may be given back meanwhile, so where they lie is looked up for every run.
#[derive(Clone, Default)]
pub struct Calls(Rc<RefCell<Vec<Call>>>);

impl Calls {
    /// Adds one.
    pub fn push(&self, kernel: Kernel, arguments: &[Value]) -> Result<(), Refusal> {
        let mut calls = self.0.borrow_mut();
        if calls.len() >= CALLS_MAX {
            return refuse(format!("a row has at most {CALLS_MAX} calls"));
        }
        calls.push((kernel, arguments.to_vec()));
        Ok(())
    }

    /// The calls on tensors that lie in this memory.
    pub fn laid(&self, memory: &Memory) -> Result<Laid, NativeError> {
        let calls = self.0.borrow();
        let laid = calls.iter().map(|(kernel, values)| Ok((kernel.clone(), Arguments::new(values, memory)?)));
        Ok(Laid(laid.collect::<Result<_, NativeError>>()?))
    }
}

/// Calls that can be made.
pub struct Laid(Vec<(Kernel, Arguments)>);

impl Laid {
    /// A single one.
    pub fn one(kernel: Kernel, arguments: Arguments) -> Laid {
        Laid(vec![(kernel, arguments)])
    }

    /// Makes all of them, so many times.
    pub fn run(&self, times: u32) -> Result<(), NativeError> {
        // The loop of a single kernel is that kernel's own.
        if let [(kernel, arguments)] = &self.0[..] {
            return kernel.call(arguments, times);
        }
        for _ in 0..times {
            for (kernel, arguments) in &self.0 {
                kernel.call(arguments, 1)?;
            }
        }
        Ok(())
    }
}
