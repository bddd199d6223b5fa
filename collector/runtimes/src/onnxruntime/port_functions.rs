//! Inputs and outputs of a loaded model, with their memory.

use super::functions::{OnnxRuntimeFunctions, Status};
use super::opened::{OnnxRuntime, Owned};
use crate::error::{Result, RuntimeError};
use crate::handles::Handle;
use crate::ports::{Memory, Port, bytes_of};
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::null_mut;

const ARENA: c_int = 1;
const DEFAULT_MEMORY: c_int = 0;
/// Maximum rank, above that of any tensor of a model.
const RANK_MAX: usize = 64;

pub struct Tensor {
    pub name: CString,
    pub value: Owned,
}

pub struct PortFunctions {
    count: unsafe extern "C" fn(Handle, *mut usize) -> Status,
    name: unsafe extern "C" fn(Handle, usize, Handle, *mut *mut c_char) -> Status,
    ty: unsafe extern "C" fn(Handle, usize, *mut Handle) -> Status,
}

impl PortFunctions {
    pub fn inputs(functions: &OnnxRuntimeFunctions) -> PortFunctions {
        PortFunctions { count: functions.input_count, name: functions.input_name, ty: functions.input_type }
    }

    pub fn outputs(functions: &OnnxRuntimeFunctions) -> PortFunctions {
        PortFunctions { count: functions.output_count, name: functions.output_name, ty: functions.output_type }
    }
}

pub fn read_ports(runtime: &OnnxRuntime, session: &Owned, port_functions: &PortFunctions) -> Result<Vec<Port<Tensor>>> {
    const STEP: &str = "describe the inputs or outputs of the model";
    let functions = runtime.functions();
    let mut count = 0;
    // SAFETY: the session is alive; the pointer refers to a local variable.
    let status = unsafe { (port_functions.count)(session.handle, &mut count) };
    functions.check_status(status, STEP)?;
    let mut ports = Vec::new();
    for index in 0..count {
        let mut ty = null_mut();
        // SAFETY: as above, and `index` is below the count.
        let status = unsafe { (port_functions.ty)(session.handle, index, &mut ty) };
        functions.check_status(status, STEP)?;
        let ty = Owned::new(runtime, ty, runtime.functions().release_type);
        ports.push(create_port(runtime, port_name(runtime, session, port_functions, index)?, &ty)?);
    }
    Ok(ports)
}

fn port_name(runtime: &OnnxRuntime, session: &Owned, port_functions: &PortFunctions, index: usize) -> Result<CString> {
    let functions = runtime.functions();
    let (mut allocator, mut found) = (null_mut(), null_mut());
    // SAFETY: the pointer refers to a local variable; the allocator belongs to the library and is never released.
    let status = unsafe { (functions.allocator)(&mut allocator) };
    functions.check_status(status, "return a port name")?;
    // SAFETY: session and allocator are alive, and `index` is below the count.
    let status = unsafe { (port_functions.name)(session.handle, index, allocator, &mut found) };
    functions.check_status(status, "return a port name")?;
    // SAFETY: the text ends with a zero byte and is copied before it is returned to its allocator.
    let (name, status) = unsafe {
        let name = CStr::from_ptr(found).to_owned();
        (name, (functions.free)(allocator, found.cast()))
    };
    functions.check_status(status, "free a port name")?;
    Ok(name)
}

fn create_port(runtime: &OnnxRuntime, name: CString, ty: &Owned) -> Result<Port<Tensor>> {
    const STEP: &str = "describe the types of the inputs or outputs";
    let functions = runtime.functions();
    let refused = |why: String| RuntimeError::Port { name: name.to_string_lossy().into_owned(), why };
    let (mut tensor, mut element, mut rank) = (null_mut(), 0, 0);
    // SAFETY: the type is alive; the result belongs to it and is not released; the pointers refer to local variables.
    let status = unsafe { (functions.tensor_type)(ty.handle, &mut tensor) };
    functions.check_status(status, STEP)?;
    if tensor.is_null() {
        return Err(refused("is not a tensor".to_owned()));
    }
    // SAFETY: the tensor type lives as long as the type.
    let status = unsafe { (functions.element_type)(tensor, &mut element) };
    functions.check_status(status, STEP)?;
    // SAFETY: as above.
    let status = unsafe { (functions.rank)(tensor, &mut rank) };
    functions.check_status(status, STEP)?;
    if rank > RANK_MAX {
        return Err(refused(format!("has {rank} dimensions, more than the limit of {RANK_MAX}")));
    }
    let mut extents = vec![0i64; rank];
    // SAFETY: as above; the buffer has one element per dimension.
    let status = unsafe { (functions.extents)(tensor, extents.as_mut_ptr(), rank) };
    functions.check_status(status, STEP)?;
    let size = element_bytes(element).ok_or_else(|| refused(format!("has elements of the unknown type {element}")))?;
    let bytes = bytes_of(&extents, size).map_err(refused)?;
    let memory = Memory::new(bytes);
    let mut info = null_mut();
    // SAFETY: the pointer refers to a local variable.
    let status = unsafe { (functions.make_memory_info)(ARENA, DEFAULT_MEMORY, &mut info) };
    functions.check_status(status, STEP)?;
    let info = Owned::new(runtime, info, runtime.functions().release_memory_info);
    let mut value = null_mut();
    // SAFETY: the memory has the given size and outlives the value, which precedes it in the port's drop order; the
    // extents have the given count and are copied.
    let status = unsafe {
        (functions.make_tensor)(
            info.handle,
            memory.address(),
            memory.bytes(),
            extents.as_ptr(),
            rank,
            element,
            &mut value,
        )
    };
    functions.check_status(status, "create a tensor")?;
    let value = Owned::new(runtime, value, runtime.functions().release_value);
    Ok(Port::new(Tensor { name, value }, memory))
}

fn element_bytes(code: c_int) -> Option<u64> {
    match code {
        2 | 3 | 9 => Some(1),
        4 | 5 | 10 | 16 => Some(2),
        1 | 6 | 12 => Some(4),
        7 | 11 | 13 => Some(8),
        _ => None,
    }
}
