//! Loading of kernel libraries and calls of their functions.

use super::{Memory, NativeError, exports};
use libloading::os::unix::{RTLD_LOCAL, RTLD_NOW};
use remote::wire::{Tensor, Value};
use std::ffi::{CString, c_void};
use std::path::Path;
use std::rc::Rc;

const PREFIX: &str = "__tvm_ffi_";
/// Symbol that a library exports if it embeds modules, which need TVM's runtime.
const IMPORTS: &str = "__tvm_ffi__library_bin";

#[repr(C)]
#[derive(Clone, Copy)]
struct ArgumentCell {
    kind: i32,
    zero: u32,
    value: u64,
}

/// Tensor in TVM's calling convention (DLPack).
#[repr(C)]
struct RawTensor {
    data: *mut c_void,
    device: [i32; 2],
    rank: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

type Entry = unsafe extern "C" fn(*mut c_void, *const ArgumentCell, i32, *mut ArgumentCell) -> i32;

#[derive(Clone)]
pub struct Library(Rc<libloading::os::unix::Library>);

#[derive(Clone)]
pub struct LibraryKernel {
    entry: Entry,
    name: String,
    _library: Library,
}

/// Arguments for repeated calls. Tensors lie in vectors, because moving a box would invalidate pointers into the box.
pub struct Arguments {
    cells: Vec<ArgumentCell>,
    _tensors: Vec<RawTensor>,
    _extents: Vec<[Vec<i64>; 2]>,
}

impl Library {
    /// Loads a library. A crash while loading affects only this process, which serves a single session.
    pub fn load_library(path: &Path) -> Result<Library, NativeError> {
        check_machine(path)?;
        // SAFETY: loading executes uploaded code, which is the purpose of a session; the session has its own process.
        let library = unsafe { libloading::os::unix::Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
        let library = Library(Rc::new(library.map_err(|error| {
            let cause = std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string);
            NativeError(format!("cannot load the library: {cause}"))
        })?));
        if library.find_symbol(IMPORTS).is_some() {
            let why = "the library embeds modules that need TVM's runtime, which the board agent does not have";
            return Err(NativeError(why.to_owned()));
        }
        for (slot, function) in exports::runtime_slots() {
            if let Some(slot) = library.find_symbol(slot) {
                // SAFETY: TVM's code generator defines these symbols as variables of pointer size, and no code of the
                // library runs yet.
                unsafe { slot.cast::<usize>().write_unaligned(function) };
            }
        }
        Ok(library)
    }

    pub fn find_kernel(&self, name: &str) -> Option<LibraryKernel> {
        let symbol = self.find_symbol(&format!("{PREFIX}{name}"))?;
        // SAFETY: TVM's interface defines this signature for functions with this prefix.
        let entry = unsafe { std::mem::transmute::<*mut c_void, Entry>(symbol) };
        Some(LibraryKernel { entry, name: name.to_owned(), _library: self.clone() })
    }

    fn find_symbol(&self, name: &str) -> Option<*mut c_void> {
        let name = CString::new(name).ok()?;
        // SAFETY: the symbol is used only as an address.
        let symbol = unsafe { self.0.get::<*mut c_void>(name.as_c_str()) }.ok()?.into_raw();
        (!symbol.is_null()).then_some(symbol)
    }
}

impl Arguments {
    pub fn new(values: &[Value], memory: &Memory) -> Result<Arguments, NativeError> {
        let (mut tensors, mut extents) = (Vec::new(), Vec::new());
        for value in values {
            if let Value::Tensor(tensor) = value {
                let (tensor, own) = to_raw(tensor, memory)?;
                tensors.push(tensor);
                extents.push(own);
            }
        }
        // The vector of tensors no longer changes, so their addresses are stable.
        let mut addresses = tensors.iter_mut().map(|tensor| std::ptr::from_mut(tensor).expose_provenance() as u64);
        let mut cells = Vec::with_capacity(values.len());
        for value in values {
            let bits = match value {
                Value::None => 0,
                Value::Int(number) => number.cast_unsigned(),
                Value::Bool(claim) => u64::from(*claim),
                Value::Float(number) => number.to_bits(),
                Value::Tensor(_) => addresses.next().expect("each tensor has an address"),
                other => return Err(NativeError(format!("kernels do not accept arguments such as {other:?}"))),
            };
            cells.push(ArgumentCell { kind: value.type_code(), zero: 0, value: bits });
        }
        Ok(Arguments { cells, _tensors: tensors, _extents: extents })
    }
}

/// Converts a tensor. Also returns the extents and strides that the raw tensor points to.
fn to_raw(tensor: &Tensor, memory: &Memory) -> Result<(RawTensor, [Vec<i64>; 2]), NativeError> {
    let address = memory.tensor_address(tensor)?;
    let mut shape = tensor.shape.clone();
    let mut strides = vec![1_i64; shape.len()];
    for place in (1..shape.len()).rev() {
        strides[place - 1] = strides[place].saturating_mul(shape[place]);
    }
    let raw = RawTensor {
        data: address.as_ptr().cast(),
        device: [tensor.device.kind, tensor.device.id],
        rank: i32::try_from(shape.len()).expect("a tensor has few dimensions"),
        code: tensor.dtype.code,
        bits: tensor.dtype.bits,
        lanes: tensor.dtype.lanes,
        shape: shape.as_mut_ptr(),
        strides: strides.as_mut_ptr(),
        byte_offset: 0,
    };
    Ok((raw, [shape, strides]))
}

impl LibraryKernel {
    pub fn call_repeatedly(&self, arguments: &Arguments, times: u32) -> Result<(), NativeError> {
        let count = i32::try_from(arguments.cells.len()).expect("a list is short");
        for _ in 0..times {
            let mut result = ArgumentCell { kind: 0, zero: 0, value: 0 };
            // SAFETY: the cells point to tensors that live as long as `arguments`, in memory checked to hold them.
            // Kernels check types and extents; one that does not can only crash its own session.
            let code = unsafe { (self.entry)(std::ptr::null_mut(), arguments.cells.as_ptr(), count, &raw mut result) };
            if code != 0 {
                let said = exports::take_error();
                let said = if said.is_empty() { format!("code {code}") } else { said };
                return Err(NativeError(format!("`{}` failed: {said}", self.name)));
            }
        }
        Ok(())
    }
}

/// Checks that a library was compiled for this architecture, as the dynamic linker would report less clearly.
fn check_machine(path: &Path) -> Result<(), NativeError> {
    use std::io::Read;
    let mut header = [0; 20];
    let mut file = std::fs::File::open(path).map_err(NativeError::new)?;
    file.read_exact(&mut header).map_err(|_| NativeError("the file is not a library".to_owned()))?;
    if header[..4] != *b"\x7fELF" {
        return Err(NativeError("the file is not a library: link the object before the upload".to_owned()));
    }
    let machine = u16::from_le_bytes([header[18], header[19]]);
    let name = |machine: u16| match machine {
        3 => "x86".to_owned(),
        40 => "arm".to_owned(),
        62 => "x86_64".to_owned(),
        183 => "aarch64".to_owned(),
        other => format!("machine {other}"),
    };
    if name(machine) != std::env::consts::ARCH {
        let (built, here) = (name(machine), std::env::consts::ARCH);
        return Err(NativeError(format!("wrong architecture: the library is for {built}, and this board is {here}")));
    }
    Ok(())
}
