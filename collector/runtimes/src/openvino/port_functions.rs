//! Inputs and outputs of a compiled model, with their memory.

use super::functions::{Element, OpenVinoFunctions, OpenVinoShape, Status};
use super::opened::{OpenVino, Owned};
use crate::error::{Result, RuntimeError};
use crate::handles::Handle;
use crate::ports::{Memory, Port, bytes_of};
use std::ptr::null_mut;

/// Maximum rank, above that of any tensor of a model.
const RANK_MAX: usize = 64;
const STEP: &str = "describe the inputs or outputs of the model";

pub struct OpenVinoPortFunctions {
    count: unsafe extern "C" fn(Handle, *mut usize) -> Status,
    port: unsafe extern "C" fn(Handle, usize, *mut Handle) -> Status,
    set: unsafe extern "C" fn(Handle, usize, Handle) -> Status,
}

impl OpenVinoPortFunctions {
    pub fn inputs(functions: &OpenVinoFunctions) -> OpenVinoPortFunctions {
        OpenVinoPortFunctions { count: functions.input_count, port: functions.input, set: functions.set_input }
    }

    pub fn outputs(functions: &OpenVinoFunctions) -> OpenVinoPortFunctions {
        OpenVinoPortFunctions { count: functions.output_count, port: functions.output, set: functions.set_output }
    }
}

pub fn bind_ports(
    runtime: &OpenVino,
    compiled: &Owned,
    request: &Owned,
    port_functions: &OpenVinoPortFunctions,
) -> Result<Vec<Port<Owned>>> {
    let functions = runtime.functions();
    let mut count = 0;
    // SAFETY: the model is alive; the pointer refers to a local variable.
    let status = unsafe { (port_functions.count)(compiled.handle, &mut count) };
    functions.check_status(status, STEP)?;
    let mut ports = Vec::new();
    for index in 0..count {
        let mut found = null_mut();
        // SAFETY: as above, and `index` is below the count.
        let status = unsafe { (port_functions.port)(compiled.handle, index, &mut found) };
        functions.check_status(status, STEP)?;
        let found = Owned::new(runtime, found, runtime.functions().release_port);
        let (tensor, memory) = create_tensor(runtime, &found)?;
        // SAFETY: both are alive; the request uses the tensor's memory until it is released, before the port is.
        let status = unsafe { (port_functions.set)(request.handle, index, tensor.handle) };
        functions.check_status(status, "use a tensor")?;
        ports.push(Port::new(tensor, memory));
    }
    Ok(ports)
}

fn create_tensor(runtime: &OpenVino, port: &Owned) -> Result<(Owned, Memory)> {
    let functions = runtime.functions();
    let mut element = 0;
    // SAFETY: the port is alive; the pointer refers to a local variable.
    let status = unsafe { (functions.element)(port.handle, &mut element) };
    functions.check_status(status, STEP)?;
    let mut extents = port_extents(functions, port)?;
    let sized = element_bytes(element).ok_or_else(|| format!("has elements of the unknown type {element}"));
    let bytes = sized.and_then(|size| bytes_of(&extents, size));
    let bytes = bytes.map_err(|why| RuntimeError::Port { name: port_name(functions, port), why })?;
    let memory = Memory::new(bytes);
    let shape = OpenVinoShape { rank: extents.len() as i64, extents: extents.as_mut_ptr() };
    let mut tensor = null_mut();
    // SAFETY: the memory has the size of type and extents and outlives the tensor, which precedes it in the port's
    // drop order; the extents match the rank and are copied.
    let status = unsafe { (functions.make_tensor)(element, shape, memory.address(), &mut tensor) };
    functions.check_status(status, "use a tensor")?;
    Ok((Owned::new(runtime, tensor, runtime.functions().release_tensor), memory))
}

fn port_extents(functions: &OpenVinoFunctions, port: &Owned) -> Result<Vec<i64>> {
    let mut shape = OpenVinoShape { rank: 0, extents: null_mut() };
    // SAFETY: the port is alive; the pointer refers to a local variable.
    let status = unsafe { (functions.shape)(port.handle, &mut shape) };
    functions.check_status(status, STEP)?;
    let rank = usize::try_from(shape.rank).unwrap_or(usize::MAX);
    let extents = match rank {
        0 => Some(Vec::new()),
        1..=RANK_MAX if !shape.extents.is_null() => {
            // SAFETY: the library has stored `rank` extents there.
            Some(unsafe { std::slice::from_raw_parts(shape.extents, rank) }.to_vec())
        }
        _ => None,
    };
    // SAFETY: the library filled the shape in; it has been copied and is released once.
    let status = unsafe { (functions.release_shape)(&mut shape) };
    functions.check_status(status, STEP)?;
    let refused = || RuntimeError::Port {
        name: port_name(functions, port),
        why: format!("has {rank} dimensions, more than the limit of {RANK_MAX}"),
    };
    extents.ok_or_else(refused)
}

/// Returns the name of a port for error messages; some ports have none.
fn port_name(functions: &OpenVinoFunctions, port: &Owned) -> String {
    let mut name = null_mut();
    // SAFETY: the port is alive; the pointer refers to a local variable.
    let status = unsafe { (functions.name)(port.handle, &mut name) };
    match functions.check_status(status, STEP) {
        // SAFETY: the library allocated the text for the caller.
        Ok(()) => unsafe { functions.owned_text(name) },
        Err(_) => "?".to_owned(),
    }
}

/// Returns the element size of one of the library's type codes; types below one byte are not supported.
fn element_bytes(code: Element) -> Option<u64> {
    match code {
        1 | 7 | 16 => Some(1),
        2 | 3 | 8 | 17 => Some(2),
        4 | 9 | 18 => Some(4),
        5 | 10 | 19 => Some(8),
        _ => None,
    }
}
