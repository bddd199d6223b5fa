//! Tensor memory. Each block is a mapping that ends with an inaccessible page, so that a kernel that overruns its
//! output crashes the session instead of corrupting other blocks. Clients identify blocks by handles.

use super::NativeError;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};
use remote::wire::Tensor;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

/// Size of the inaccessible guard at the end of a block, at least the page size of every machine.
const PAGE_BYTES: usize = 64 << 10;
/// Alignment of blocks in bytes, for vector instructions.
const ALIGNMENT: usize = 64;

pub struct Memory {
    blocks: BTreeMap<u64, MemoryBlock>,
    next: u64,
    used: usize,
    most: usize,
}

struct MemoryBlock {
    mapping: NonNull<c_void>,
    mapped: usize,
    start: NonNull<u8>,
    bytes: usize,
}

impl Memory {
    pub fn new(most: usize) -> Memory {
        Memory { blocks: BTreeMap::new(), next: 1, used: 0, most }
    }

    pub fn allocate_block(&mut self, bytes: u64) -> Result<u64, NativeError> {
        let too_much =
            || NativeError(format!("out of memory: {bytes} bytes requested, {} of {} in use", self.used, self.most));
        let left = self.most - self.used;
        let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= left).ok_or_else(too_much)?;
        let content = bytes.max(1).next_multiple_of(ALIGNMENT);
        let mapped = content.next_multiple_of(PAGE_BYTES) + PAGE_BYTES;
        let length = NonZeroUsize::new(mapped).expect("a block has at least one page");
        let (access, kind) = (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE);
        // SAFETY: a new anonymous mapping affects no existing memory.
        let mapping = unsafe { mmap_anonymous(None, length, access, kind) }.map_err(|_| too_much())?;
        let guard = mapped - PAGE_BYTES;
        // SAFETY: the guard lies inside the mapping, which is not in use yet. The kernel may ignore the advice against
        // huge pages.
        unsafe {
            mprotect(mapping.byte_add(guard), PAGE_BYTES, ProtFlags::PROT_NONE).map_err(NativeError::new)?;
            let _ = madvise(mapping, guard, MmapAdvise::MADV_NOHUGEPAGE);
        }
        // SAFETY: the rounded content is no larger than the part before the guard.
        let start = unsafe { mapping.byte_add(guard - content) }.cast::<u8>();
        self.used += bytes;
        self.blocks.insert(self.next, MemoryBlock { mapping, mapped, start, bytes });
        self.next += 1;
        Ok(self.next - 1)
    }

    pub fn free_block(&mut self, handle: u64) -> Result<(), NativeError> {
        let block = self.blocks.remove(&handle).ok_or_else(|| unknown_handle(handle))?;
        self.used -= block.bytes;
        Ok(())
    }

    /// Returns the address of a tensor's first element. Fails if an element lies outside the tensor's block.
    pub(super) fn tensor_address(&self, tensor: &Tensor) -> Result<NonNull<u8>, NativeError> {
        let bytes = tensor.byte_count().ok_or_else(|| NativeError("the tensor is too large".to_owned()))?;
        self.checked_range(tensor.data, tensor.byte_offset, bytes)
    }

    fn checked_range(&self, handle: u64, offset: u64, bytes: u64) -> Result<NonNull<u8>, NativeError> {
        let block = self.blocks.get(&handle).ok_or_else(|| unknown_handle(handle))?;
        let end = offset.checked_add(bytes).filter(|end| *end <= block.bytes as u64);
        end.ok_or_else(|| {
            NativeError(format!("{bytes} bytes at offset {offset} exceed the block of {} bytes", block.bytes))
        })?;
        let offset = usize::try_from(offset).expect("the range was checked to lie in the block");
        // SAFETY: the range was checked to lie in the block.
        Ok(unsafe { block.start.add(offset) })
    }

    pub fn write_tensor(&mut self, tensor: &Tensor, content: &[u8]) -> Result<(), NativeError> {
        let to = self.checked_range(tensor.data, tensor.byte_offset, content.len() as u64)?;
        // SAFETY: the range lies in a block, which no Rust slice overlaps.
        unsafe { to.as_ptr().copy_from_nonoverlapping(content.as_ptr(), content.len()) };
        Ok(())
    }

    pub fn read_tensor(&self, tensor: &Tensor, bytes: u64) -> Result<Vec<u8>, NativeError> {
        let from = self.checked_range(tensor.data, tensor.byte_offset, bytes)?;
        let count = usize::try_from(bytes).expect("the range was checked to lie in the block");
        // SAFETY: the range lies in a block, which was initialised with zeros.
        Ok(unsafe { std::slice::from_raw_parts(from.as_ptr(), count) }.to_vec())
    }
}

fn unknown_handle(handle: u64) -> NativeError {
    NativeError(format!("there is no memory block {handle}"))
}

impl Drop for MemoryBlock {
    fn drop(&mut self) {
        // SAFETY: the block owns its mapping, and no address of it outlives a call.
        let _ = unsafe { munmap(self.mapping, self.mapped) };
    }
}
