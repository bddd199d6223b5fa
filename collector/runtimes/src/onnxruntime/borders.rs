//! Inputs and outputs of a loaded model, with their memory.

use super::functions::{OnnxRuntimeFunctions, Status};
use super::opened::{OnnxRuntime, Owned};
use crate::error::{Result, RuntimeError};
use crate::handles::Handle;
use crate::ports::{Memory, Port, bytes_of};
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::null_mut;

const ARENA: c_int = 1;
const USUAL_MEMORY: c_int = 0;
/// Maximum rank, above that of any tensor of a model.
const RANK_MAX: usize = 64;

/// A tensor over a port's memory, with its name in the model.
pub struct Tensor {
    pub name: CString,
    pub value: Owned,
}

/// Library functions that query either the inputs or the outputs of a model.
pub struct Border {
    count: unsafe extern "C" fn(Handle, *mut usize) -> Status,
    name: unsafe extern "C" fn(Handle, usize, Handle, *mut *mut c_char) -> Status,
    ty: unsafe extern "C" fn(Handle, usize, *mut Handle) -> Status,
}

impl Border {
    pub fn inputs(functions: &OnnxRuntimeFunctions) -> Border {
        Border { count: functions.input_count, name: functions.input_name, ty: functions.input_type }
    }

    pub fn outputs(functions: &OnnxRuntimeFunctions) -> Border {
        Border { count: functions.output_count, name: functions.output_name, ty: functions.output_type }
    }
}

pub fn read_ports(runtime: &OnnxRuntime, session: &Owned, border: &Border) -> Result<Vec<Port<Tensor>>> {
    const ASKING: &str = "describe the inputs of the model";
    let functions = runtime.functions();
    let mut count = 0;
    // SAFETY: the session is alive; the pointer refers to a local variable.
    let status = unsafe { (border.count)(session.handle, &mut count) };
    functions.check_status(status, ASKING)?;
    let mut ports = Vec::new();
    for index in 0..count {
        let mut ty = null_mut();
        // SAFETY: as above, and `index` is below the count.
        let status = unsafe { (border.ty)(session.handle, index, &mut ty) };
        functions.check_status(status, ASKING)?;
        let ty = Owned::new(runtime, ty, runtime.functions().release_type);
        ports.push(create_port(runtime, port_name(runtime, session, border, index)?, &ty)?);
    }
    Ok(ports)
}

fn port_name(runtime: &OnnxRuntime, session: &Owned, border: &Border, index: usize) -> Result<CString> {
    let functions = runtime.functions();
    let (mut allocator, mut found) = (null_mut(), null_mut());
    // SAFETY: the pointer refers to a local variable; the allocator belongs to the library and is never released.
    let status = unsafe { (functions.allocator)(&mut allocator) };
    functions.check_status(status, "give names")?;
    // SAFETY: session and allocator are alive, and `index` is below the count.
    let status = unsafe { (border.name)(session.handle, index, allocator, &mut found) };
    functions.check_status(status, "give names")?;
    // SAFETY: the text ends with a zero byte and is copied before it is returned to its allocator.
    let (name, status) = unsafe {
        let name = CStr::from_ptr(found).to_owned();
        (name, (functions.free)(allocator, found.cast()))
    };
    functions.check_status(status, "take names back")?;
    Ok(name)
}

fn create_port(runtime: &OnnxRuntime, name: CString, ty: &Owned) -> Result<Port<Tensor>> {
    const ASKING: &str = "describe the types of the model";
    let functions = runtime.functions();
    let refused = |why: String| RuntimeError::Port { name: name.to_string_lossy().into_owned(), why };
    let (mut tensor, mut element, mut rank) = (null_mut(), 0, 0);
    // SAFETY: the type is alive; the result belongs to it and is not released; the pointers refer to local variables.
    let status = unsafe { (functions.tensor_type)(ty.handle, &mut tensor) };
    functions.check_status(status, ASKING)?;
    if tensor.is_null() {
        return Err(refused("is no tensor".to_owned()));
    }
    // SAFETY: the tensor type lives as long as the type.
    let status = unsafe { (functions.element_type)(tensor, &mut element) };
    functions.check_status(status, ASKING)?;
    // SAFETY: as above.
    let status = unsafe { (functions.rank)(tensor, &mut rank) };
    functions.check_status(status, ASKING)?;
    if rank > RANK_MAX {
        return Err(refused(format!("has {rank} dimensions")));
    }
    let mut extents = vec![0i64; rank];
    // SAFETY: as above; the buffer has one element per dimension.
    let status = unsafe { (functions.extents)(tensor, extents.as_mut_ptr(), rank) };
    functions.check_status(status, ASKING)?;
    let size = element_bytes(element).ok_or_else(|| refused(format!("has elements of the unknown type {element}")))?;
    let bytes = bytes_of(&extents, size).map_err(refused)?;
    let memory = Memory::new(bytes);
    let mut info = null_mut();
    // SAFETY: the pointer refers to a local variable.
    let status = unsafe { (functions.make_memory_info)(ARENA, USUAL_MEMORY, &mut info) };
    functions.check_status(status, ASKING)?;
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
    functions.check_status(status, "take a tensor")?;
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
