//! Loaded compiled code, and the tensors that it reads and writes.

use super::call::{TvmError, Value, call, data_type};
use super::memory::{self, Bounds, MemoryError, Shared};
use super::names;
use super::object::{self, LoadError};
use measure::Evaluator;
use models::DType;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use tvm_ffi::{AnyView, Bytes, Function, Tensor};
use worker::RunnerProcess;

/// Loaded machine code; exists only in a runner.
pub struct Kernel {
    function: Function,
    /// Start address of the loaded image; None if the system's loader chose it.
    pub(in crate::tvm) base: Option<u64>,
}

pub struct KernelBuffer {
    tensor: Tensor,
}

impl KernelBuffer {
    pub fn new(dtype: DType, extents: &[i64], bounds: Bounds) -> Result<KernelBuffer, MemoryError> {
        Ok(KernelBuffer { tensor: memory::allocate_tensor(extents, data_type(dtype), bounds)? })
    }

    pub fn within_shared(
        memory: &Shared,
        offset: usize,
        dtype: DType,
        extents: &[i64],
    ) -> Result<KernelBuffer, MemoryError> {
        Ok(KernelBuffer { tensor: memory.place_tensor(offset, extents, data_type(dtype))? })
    }

    /// Sets all elements from bytes in row-major order.
    pub fn write(&self, bytes: &[u8]) -> Result<(), MemoryError> {
        memory::write_bytes(&self.tensor, bytes)
    }

    pub(in crate::tvm) fn as_view(&self) -> AnyView<'_> {
        AnyView::from(&self.tensor)
    }

    /// Lets `change` see and change all bytes.
    pub fn change_bytes<T>(&mut self, change: impl FnOnce(&mut [u8]) -> T) -> Result<T, MemoryError> {
        memory::change_bytes(&mut self.tensor, change)
    }

    /// Fills the tensor with NaN for floats, or a rare value for integers, to detect unwritten elements.
    pub fn poison(&self) -> Result<(), MemoryError> {
        memory::fill_bytes(&self.tensor, 0xff)
    }

    /// Returns the bytes as values that several threads can change.
    pub fn as_shared_bytes(&self) -> Result<&[AtomicU8], MemoryError> {
        memory::as_shared_bytes(&self.tensor)
    }

    pub fn size_bytes(&self) -> Result<usize, MemoryError> {
        memory::bytes_of(&self.tensor)
    }

    pub fn read(&self) -> Result<Vec<u8>, MemoryError> {
        memory::read_bytes(&self.tensor)
    }
}

// SAFETY: a buffer is reference-counted native memory without ties to a thread; the count is atomic, and only one
// thread at a time holds the buffers of a runner.
unsafe impl Send for KernelBuffer {}

const ENTRY: &str = "main";

impl Kernel {
    /// Loads an object file in memory if that is supported, otherwise through the system's linker.
    pub fn load_object(_: RunnerProcess, bytes: &[u8]) -> Result<Kernel, LoadError> {
        let loaded = match object::load_object(bytes) {
            Err(error) if error.linker_may_help() => {
                // SAFETY: `RunnerProcess` proves that this process is a runner, which may crash.
                unsafe { object::load_through_linker(bytes, &std::env::temp_dir()) }?
            }
            other => other?,
        };
        // SAFETY: as above; the builder guarantees that the entry has this signature and checks its arguments.
        Ok(Kernel { function: unsafe { loaded.packed_function(ENTRY) }?, base: loaded.base_address() })
    }

    /// Calls the kernel `times` times on these tensors, of which the last is the output.
    pub fn call_repeatedly(&self, buffers: &[&KernelBuffer], times: u32) -> Result<(), TvmError> {
        let views: Vec<AnyView> = buffers.iter().map(|buffer| buffer.as_view()).collect();
        for _ in 0..times {
            self.function.call_packed(&views).map_err(|error| TvmError::new(ENTRY, error.message()))?;
        }
        Ok(())
    }

    pub(in crate::tvm) fn call_views(&self, views: &[AnyView]) -> Result<(), TvmError> {
        self.function.call_packed(views).map(drop).map_err(|error| TvmError::new(ENTRY, error.message()))
    }

    /// Measures with TVM's own time evaluator; returns the seconds per run of each repeat.
    pub fn evaluate_with_tvm(&self, buffers: &[&KernelBuffer], rule: &Evaluator) -> Result<Vec<f64>, TvmError> {
        // The evaluator finds a function by its name. Names are never released, so each call uses a new one.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("opcollect.kernel.{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let failed = |error: tvm_ffi::Error| TvmError::new(names::TIME_EVALUATOR.text, error.message());
        Function::register_global(&name, self.function.clone()).map_err(failed)?;
        const CPU: i64 = 1;
        let evaluator = call!(
            names::TIME_EVALUATOR,
            Value::none(),
            name.as_str(),
            CPU,
            0i64,
            i64::from(rule.number),
            i64::from(rule.repeat),
            i64::from(rule.min_repeat_ms),
            i64::from(rule.limit_zero_time_iterations),
            i64::from(rule.cooldown_interval_ms),
            i64::from(rule.repeats_to_cooldown),
            0i64,
            ""
        )?;
        let evaluator: Function = evaluator.convert_to("function")?;
        let views: Vec<AnyView> = buffers.iter().map(|buffer| buffer.as_view()).collect();
        let packed = evaluator.call_packed(&views).map_err(failed)?;
        let bytes: Bytes = Value(packed).convert_to("bytes")?;
        Ok(bytes
            .as_slice()
            .chunks_exact(8)
            .map(|number| f64::from_le_bytes(number.try_into().expect("8 bytes")))
            .collect())
    }
}
