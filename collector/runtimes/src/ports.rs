//! Unsafe code of memory that a runtime's library accesses by address. The memory outlives its handle, has the
//! requested size, and is accessed here only while nothing runs, since a run borrows the whole session exclusively.

use crate::error::{Result, RuntimeError};
use std::ffi::c_void;

/// Maximum size, above that of any tensor of a model.
const BYTES_MAX: u64 = 1 << 40;

/// Unit of tensor memory, which aligns tensors to cache lines.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct PortLine([u8; 64]);

/// Memory of a tensor. It is accessed only by address while a session uses it.
pub struct Memory {
    lines: *mut PortLine,
    count: usize,
    bytes: usize,
}

impl Memory {
    pub fn new(bytes: usize) -> Memory {
        let lines = vec![PortLine([0; 64]); bytes.div_ceil(64).max(1)].into_boxed_slice();
        let count = lines.len();
        Memory { lines: Box::into_raw(lines).cast(), count, bytes }
    }

    pub fn address(&self) -> *mut c_void {
        self.lines.cast()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn write(&mut self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.bytes, "a tensor is always written as a whole");
        // SAFETY: the memory has this size, and no run is active, since runs borrow the session exclusively.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.lines.cast(), bytes.len()) };
    }

    fn read(&self) -> Vec<u8> {
        // SAFETY: as above; the bytes were initialised at the allocation.
        unsafe { std::slice::from_raw_parts(self.lines.cast::<u8>(), self.bytes) }.to_vec()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the pointer comes from a box of `count` lines and is freed once.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.lines, self.count)) });
    }
}

pub struct Port<Handle> {
    /// Library's handle. Declared before the memory it refers to, so that it is dropped first.
    pub handle: Handle,
    memory: Memory,
}

impl<Handle> Port<Handle> {
    pub fn new(handle: Handle, memory: Memory) -> Port<Handle> {
        Port { handle, memory }
    }
}

pub struct Ports<Handle> {
    pub inputs: Vec<Port<Handle>>,
    pub outputs: Vec<Port<Handle>>,
}

impl<Handle> Ports<Handle> {
    pub fn write_inputs(&mut self, mut bytes: &[u8]) -> Result<()> {
        let wanted = self.inputs.iter().map(|port| port.memory.bytes).sum();
        if bytes.len() != wanted {
            return Err(RuntimeError::Length { wanted, found: bytes.len() });
        }
        for port in &mut self.inputs {
            let (own, rest) = bytes.split_at(port.memory.bytes);
            port.memory.write(own);
            bytes = rest;
        }
        Ok(())
    }

    /// Fills the outputs with a pattern that results are unlikely to contain, so that unwritten elements are detected.
    pub fn poison_outputs(&mut self) {
        self.outputs.iter_mut().for_each(|port| port.memory.write(&vec![0xff; port.memory.bytes]));
    }

    pub fn read_outputs(&self) -> Vec<u8> {
        self.outputs.iter().flat_map(|port| port.memory.read()).collect()
    }
}

/// Returns the size of a tensor in bytes, or why its extents are invalid.
pub fn bytes_of(extents: &[i64], element_bytes: u64) -> std::result::Result<usize, String> {
    let bytes = extents.iter().try_fold(element_bytes, |all, extent| all.checked_mul(u64::try_from(*extent).ok()?));
    let bytes = bytes.filter(|bytes| *bytes <= BYTES_MAX).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| format!("has the extents {extents:?}, of which one is negative or the product is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(inputs: &[usize], outputs: &[usize]) -> Ports<()> {
        let ports = |bytes: &[usize]| bytes.iter().map(|bytes| Port::new((), Memory::new(*bytes))).collect();
        Ports { inputs: ports(inputs), outputs: ports(outputs) }
    }

    #[test]
    fn inputs_are_written_one_after_the_other_and_only_as_a_whole() {
        let mut ports = ports(&[2, 0, 65], &[]);
        let bytes: Vec<u8> = (0..67).collect();
        ports.write_inputs(&bytes).expect("as many bytes as there are");
        let read: Vec<u8> = ports.inputs.iter().flat_map(|port| port.memory.read()).collect();
        assert_eq!(read, bytes);
        let refused = ports.write_inputs(&bytes[1..]).expect_err("a byte too few");
        assert_eq!(refused.to_string(), "the model's inputs have 67 bytes, but the input data has 66");
    }

    #[test]
    fn outputs_are_poisoned_and_begin_where_vectors_like_to() {
        let mut ports = ports(&[], &[3, 64]);
        assert_eq!(ports.read_outputs(), [0; 67]);
        ports.poison_outputs();
        assert_eq!(ports.read_outputs(), [0xff; 67]);
        assert!(ports.outputs.iter().all(|port| (port.memory.address() as usize).is_multiple_of(64)));
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        assert_eq!(bytes_of(&[], 4), Ok(4));
        assert_eq!(bytes_of(&[2, 3], 4), Ok(24));
        assert_eq!(bytes_of(&[2, 0], 4), Ok(0));
        for extents in [vec![-1, 3], vec![i64::MAX, 2], vec![1 << 20, 1 << 20]] {
            let why = bytes_of(&extents, 4).expect_err("too much");
            assert!(why.ends_with("of which one is negative or the product is too large"), "{why}");
        }
    }
}
