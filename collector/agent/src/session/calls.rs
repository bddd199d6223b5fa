//! Call sequences: a whole model is offered as a single function on the board, so that no call waits for the client.

use super::{RequestRefusal, refuse_request};
use crate::native::{Arguments, LibraryKernel, Memory, NativeError};
use remote::wire::Value;
use std::cell::RefCell;
use std::rc::Rc;

const CALLS_MAX: usize = 100_000;

type Call = (LibraryKernel, Vec<Value>);

/// Calls as given by the client. Addresses are resolved before every run, since tensors may have been freed meanwhile.
#[derive(Clone, Default)]
pub struct CallList(Rc<RefCell<Vec<Call>>>);

impl CallList {
    pub fn push_call(&self, kernel: LibraryKernel, arguments: &[Value]) -> Result<(), RequestRefusal> {
        let mut calls = self.0.borrow_mut();
        if calls.len() >= CALLS_MAX {
            return refuse_request(format!("a call sequence has at most {CALLS_MAX} calls"));
        }
        calls.push((kernel, arguments.to_vec()));
        Ok(())
    }

    pub fn resolve_calls(&self, memory: &Memory) -> Result<ResolvedCalls, NativeError> {
        let calls = self.0.borrow();
        let resolved = calls.iter().map(|(kernel, values)| Ok((kernel.clone(), Arguments::new(values, memory)?)));
        Ok(ResolvedCalls(resolved.collect::<Result<_, NativeError>>()?))
    }
}

pub struct ResolvedCalls(Vec<(LibraryKernel, Arguments)>);

impl ResolvedCalls {
    pub fn single_call(kernel: LibraryKernel, arguments: Arguments) -> ResolvedCalls {
        ResolvedCalls(vec![(kernel, arguments)])
    }

    pub fn run_repeatedly(&self, times: u32) -> Result<(), NativeError> {
        // A single kernel uses its own loop.
        if let [(kernel, arguments)] = &self.0[..] {
            return kernel.call_repeatedly(arguments, times);
        }
        for _ in 0..times {
            for (kernel, arguments) in &self.0 {
                kernel.call_repeatedly(arguments, 1)?;
            }
        }
        Ok(())
    }
}
