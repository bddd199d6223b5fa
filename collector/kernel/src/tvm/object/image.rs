//! Memory of a loaded object, writable until relocations are applied. No page is ever writable and executable.

use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use super::layout::Layout;

#[derive(Debug)]
pub struct Draft {
    mapping: ImageMapping,
}

#[derive(Debug)]
pub struct Image {
    mapping: ImageMapping,
}

#[derive(Debug)]
struct ImageMapping {
    base: NonNull<c_void>,
    size: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and a shared `Image` only returns addresses.
unsafe impl Send for ImageMapping {}
// SAFETY: as above.
unsafe impl Sync for ImageMapping {}

impl Draft {
    /// Maps `size` zeroed bytes, readable and writable.
    pub fn map_zeros(size: usize) -> io::Result<Self> {
        // The image of an object without loaded sections is empty, but a mapping needs at least one byte.
        let length = NonZeroUsize::new(size).unwrap_or(NonZeroUsize::MIN);
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new private mapping at an address that the kernel chooses does not overlap memory in use.
        let base = unsafe { mmap_anonymous(None, length, access, MapFlags::MAP_PRIVATE) }?;
        Ok(Self { mapping: ImageMapping { base, size } })
    }

    pub fn base_address(&self) -> u64 {
        self.mapping.base.as_ptr() as u64
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let start = self.mapping.base.as_ptr().cast::<u8>();
        // SAFETY: this value owns the mapping, which is readable and writable for `size` bytes, and borrows it
        // exclusively.
        unsafe { std::slice::from_raw_parts_mut(start, self.mapping.size) }
    }

    pub fn seal_pages(self, layout: &Layout) -> io::Result<Image> {
        self.protect_range(&layout.code, ProtFlags::PROT_READ | ProtFlags::PROT_EXEC)?;
        self.protect_range(&layout.constants, ProtFlags::PROT_READ)?;
        Ok(Image { mapping: self.mapping })
    }

    fn protect_range(&self, range: &Range<usize>, access: ProtFlags) -> io::Result<()> {
        assert!(range.end <= self.mapping.size, "the layout describes this image");
        if range.is_empty() {
            return Ok(());
        }
        // SAFETY: the range is inside of the mapping, and no reference to its bytes outlives this call.
        unsafe { mprotect(self.mapping.base.byte_add(range.start), range.len(), access) }?;
        Ok(())
    }
}

impl Image {
    /// Returns the address at an offset, which may be the end of the image; None beyond it.
    pub fn address_at(&self, offset: usize) -> Option<NonNull<c_void>> {
        // SAFETY: the offset is at most the mapping's size.
        (offset <= self.mapping.size).then(|| unsafe { self.mapping.base.byte_add(offset) })
    }
}

impl Drop for ImageMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and its addresses must not be used after the value is dropped.
        let unmapped = unsafe { munmap(self.base, self.size.max(1)) };
        debug_assert_eq!(unmapped, Ok(()), "an owned mapping can be unmapped");
    }
}
