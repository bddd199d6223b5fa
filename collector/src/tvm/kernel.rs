//! A loaded artifact and the tensors it works on.

use super::call::{TvmError, data_type};
use super::memory::{self, MemoryError, Placement};
use super::object::{self, LoadError};
use models::DType;
use tvm_ffi::{AnyView, Function, Tensor};

/// Machine code that can be called.
pub struct Kernel {
    function: Function,
}

/// A tensor in native memory.
pub struct Buffer {
    tensor: Tensor,
}

impl Buffer {
    /// A tensor of zeros.
    pub fn new(dtype: DType, extents: &[i64], placement: Placement) -> Result<Buffer, MemoryError> {
        Ok(Buffer { tensor: memory::tensor(extents, data_type(dtype), placement)? })
    }

    /// Sets all elements, given as the bytes of the tensor in row-major order.
    pub fn write(&self, bytes: &[u8]) -> Result<(), MemoryError> {
        memory::write_bytes(&self.tensor, bytes)
    }

    /// All elements as bytes.
    pub fn read(&self) -> Result<Vec<u8>, MemoryError> {
        memory::read_bytes(&self.tensor)
    }
}

/// The entry every artifact has.
const ENTRY: &str = "main";

impl Kernel {
    /// Loads an object file: in memory where the loader can, else through a linker.
    pub fn load(bytes: &[u8]) -> Result<Kernel, LoadError> {
        let loaded = match object::load(bytes) {
            Err(error) if error.linker_may_help() => object::load_through_linker(bytes, &std::env::temp_dir())?,
            other => other?,
        };
        Ok(Kernel { function: loaded.function(ENTRY)? })
    }

    /// Calls it `times` times in a row on these tensors, the output last.
    pub fn call(&self, buffers: &[&Buffer], times: u32) -> Result<(), TvmError> {
        let views: Vec<AnyView> = buffers.iter().map(|buffer| AnyView::from(&buffer.tensor)).collect();
        for _ in 0..times {
            self.function.call_packed(&views).map_err(|error| TvmError::new(ENTRY, error.message()))?;
        }
        Ok(())
    }
}
