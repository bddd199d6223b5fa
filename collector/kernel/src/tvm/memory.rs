//! Memory for the tensors that kernels read and write, initially zero. A *guarded* tensor ends at an inaccessible page:
//! the first access beyond its end, rounded up to 64 bytes, kills the process, which the supervisor records as a crash.
//! A *plain* tensor begins at a page boundary, for kernels that are known to be correct and for code that requires it.
//! Times of cached data depend on the relative positions of tensors modulo 4096, which separate mappings make a
//! function of the sizes alone, equal in every process. Large tensors end at a huge-page boundary and request huge
//! pages, which need fewer TLB entries.

use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};
use tvm_ffi::dtype::AsDLDataType;
use tvm_ffi::tvm_ffi_sys::dlpack::DLTensor;
use tvm_ffi::{DLDataType, DLDataTypeExt, DLDevice, DLDeviceType, NDAllocator, Tensor, TensorView};

/// Alignment of every tensor, required by TVM's generated code.
pub const ALIGNMENT_BYTES: usize = 64;

const HUGE_PAGE_BYTES: usize = 2 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounds {
    /// The tensor's end, rounded up to [`ALIGNMENT_BYTES`], is where an inaccessible page begins.
    Guarded,
    /// As [`Bounds::Guarded`], but the tensor ends this many bytes earlier, a multiple of [`ALIGNMENT_BYTES`].
    Moved(usize),
    /// The tensor starts at a page boundary, without a guard page.
    Plain,
}

#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    #[error("the size of a tensor of shape {shape:?} and type {dtype} is invalid or exceeds the address space")]
    Size { shape: Vec<i64>, dtype: String },
    #[error("cannot map {size_bytes} bytes for a tensor: {source}")]
    Map { size_bytes: usize, source: io::Error },
    #[error("the tensor contains {tensor}, not {values}")]
    Type { tensor: String, values: String },
    #[error("the tensor contains {tensor} {unit}, but gets {values}")]
    Length { unit: &'static str, tensor: usize, values: usize },
    #[error("the tensor {what}, so its values cannot be accessed from here")]
    Inaccessible { what: &'static str },
}

pub trait Element: AsDLDataType + Default + sealed::Sealed {}

mod sealed {
    /// Restricts [`super::Element`] to types for which every bit pattern is a valid value.
    pub trait Sealed {}
}

macro_rules! elements {
    ($($element:ty),*) => { $(impl sealed::Sealed for $element {} impl Element for $element {})* };
}
elements!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64);

/// Allocates a tensor of zeros on the CPU, in its own mapping.
pub fn allocate_tensor(shape: &[i64], dtype: DLDataType, bounds: Bounds) -> Result<Tensor, MemoryError> {
    let size_bytes = size_bytes(shape, dtype)
        .ok_or_else(|| MemoryError::Size { shape: shape.to_vec(), dtype: dtype.to_string().as_str().to_owned() })?;
    Shared::new(size_bytes, bounds)?.place_tensor(0, shape, dtype)
}

#[derive(Clone)]
pub struct Shared {
    mapping: Arc<PageMapping>,
    size_bytes: usize,
}

impl Shared {
    /// Allocates zeroed memory that several tensors can share.
    pub fn new(size_bytes: usize, bounds: Bounds) -> Result<Shared, MemoryError> {
        let mapping = PageMapping::new(size_bytes, bounds).map_err(|source| MemoryError::Map { size_bytes, source })?;
        Ok(Shared { mapping: Arc::new(mapping), size_bytes })
    }

    /// Writes all bytes of the memory; fails if the length differs.
    pub fn write(&self, bytes: &[u8]) -> Result<(), MemoryError> {
        let all = [i64::try_from(self.size_bytes).unwrap_or(i64::MAX)];
        write_bytes(&self.place_tensor(0, &all, <u8 as AsDLDataType>::DL_DATA_TYPE)?, bytes)
    }

    /// Creates a tensor at an offset; tensors may overlap. Fails if the tensor does not fit or `offset` is not aligned.
    pub fn place_tensor(&self, offset: usize, shape: &[i64], dtype: DLDataType) -> Result<Tensor, MemoryError> {
        let wanted = size_bytes(shape, dtype).filter(|size| {
            offset.is_multiple_of(ALIGNMENT_BYTES)
                && offset.checked_add(*size).is_some_and(|end| end <= self.size_bytes)
        });
        if wanted.is_none() {
            return Err(MemoryError::Size { shape: shape.to_vec(), dtype: dtype.to_string().as_str().to_owned() });
        }
        let part = MemoryPart { mapping: Arc::clone(&self.mapping), offset };
        Ok(Tensor::from_nd_alloc(part, shape, dtype, DLDevice::new(DLDeviceType::kDLCPU, 0)))
    }
}

struct MemoryPart {
    mapping: Arc<PageMapping>,
    offset: usize,
}

// SAFETY: `Shared::place_tensor` creates a part only after it has checked that the tensor lies in the mapping and is
// aligned. The mapping lives as long as the part, which the tensor owns.
unsafe impl NDAllocator for MemoryPart {
    const MIN_ALIGN: usize = ALIGNMENT_BYTES;

    // SAFETY: the function has no requirements; the trait declares it unsafe.
    unsafe fn alloc_data(&mut self, _prototype: &DLTensor) -> *mut c_void {
        // SAFETY: the offset lies in the mapping, or is its end.
        unsafe { self.mapping.start.byte_add(self.offset) }.as_ptr()
    }

    // SAFETY: as above.
    unsafe fn free_data(&mut self, _tensor: &DLTensor) {
        // The mapping is freed with the last of its parts.
    }
}

/// Returns the size of a tensor's values in bytes; fails if they are not contiguous in this machine's memory.
pub fn bytes_of(tensor: &Tensor) -> Result<usize, MemoryError> {
    Ok(TensorRow::of_tensor(tensor)?.size_bytes)
}

/// Copies the values of a tensor; fails for another element type, a layout with gaps, or memory of another device.
pub fn read_values<T: Element>(tensor: &Tensor) -> Result<Vec<T>, MemoryError> {
    let source = TensorRow::of_type::<T>(tensor)?;
    let mut values = vec![T::default(); source.count];
    let target = values.as_mut_ptr().cast::<u8>();
    // SAFETY: both are `size_bytes` long, the new vector overlaps nothing, and every pattern is a value of `T`.
    unsafe { std::ptr::copy_nonoverlapping(source.start, target, source.size_bytes) };
    Ok(values)
}

/// Overwrites all values of a tensor; fails as [`read_values`] does, and if the number of values differs.
pub fn write_values<T: Element>(tensor: &Tensor, values: &[T]) -> Result<(), MemoryError> {
    let target = TensorRow::of_type::<T>(tensor)?;
    if values.len() != target.count {
        return Err(MemoryError::Length { unit: "values", tensor: target.count, values: values.len() });
    }
    // SAFETY: both are `size_bytes` long; `copy` allows that the slice was made from this very tensor.
    unsafe { std::ptr::copy(values.as_ptr().cast::<u8>(), target.start, target.size_bytes) };
    Ok(())
}

/// Copies the bytes of a tensor of any type, including types that Rust lacks; fails as [`read_values`] does.
pub fn read_bytes(tensor: &Tensor) -> Result<Vec<u8>, MemoryError> {
    let source = TensorRow::of_tensor(tensor)?;
    let mut bytes = vec![0; source.size_bytes];
    // SAFETY: both are `size_bytes` long, and the new vector overlaps nothing.
    unsafe { std::ptr::copy_nonoverlapping(source.start, bytes.as_mut_ptr(), source.size_bytes) };
    Ok(bytes)
}

/// Returns the bytes of a tensor as values that several threads can change.
pub fn as_shared_bytes(tensor: &Tensor) -> Result<&[AtomicU8], MemoryError> {
    let row = TensorRow::of_tensor(tensor)?;
    // SAFETY: the memory lives as long as the borrowed tensor, and compiled code, which also accesses it, does not run
    // while the slice is used.
    Ok(unsafe { std::slice::from_raw_parts(row.start.cast::<AtomicU8>(), row.size_bytes) })
}

/// Overwrites all bytes of a tensor of any type; fails as [`read_bytes`] does, and if the number of bytes differs.
pub fn write_bytes(tensor: &Tensor, bytes: &[u8]) -> Result<(), MemoryError> {
    let target = TensorRow::of_tensor(tensor)?;
    if bytes.len() != target.size_bytes {
        return Err(MemoryError::Length { unit: "bytes", tensor: target.size_bytes, values: bytes.len() });
    }
    // SAFETY: both are `size_bytes` long; `copy` allows that the slice was made from this very tensor.
    unsafe { std::ptr::copy(bytes.as_ptr(), target.start, target.size_bytes) };
    Ok(())
}

/// Lets `change` see and change all bytes of a tensor.
pub fn change_bytes<T>(tensor: &mut Tensor, change: impl FnOnce(&mut [u8]) -> T) -> Result<T, MemoryError> {
    let row = TensorRow::of_tensor(tensor)?;
    // SAFETY: the memory is `size_bytes` long. During the call, no compiled code runs and no other reference to the
    // tensor is used.
    Ok(change(unsafe { std::slice::from_raw_parts_mut(row.start, row.size_bytes) }))
}

/// Sets all bytes of a tensor to a value.
pub fn fill_bytes(tensor: &Tensor, value: u8) -> Result<(), MemoryError> {
    let row = TensorRow::of_tensor(tensor)?;
    // SAFETY: the memory is `size_bytes` long.
    unsafe { std::ptr::write_bytes(row.start, value, row.size_bytes) };
    Ok(())
}

struct TensorRow {
    start: *mut u8,
    count: usize,
    size_bytes: usize,
}

impl TensorRow {
    fn of_tensor(tensor: &Tensor) -> Result<Self, MemoryError> {
        let inaccessible = |what| Err(MemoryError::Inaccessible { what });
        let view = TensorView::from(tensor);
        // SAFETY: the view's pointer is valid as long as `tensor` is borrowed.
        let raw = unsafe { &*view.as_raw() };
        if raw.device.device_type != DLDeviceType::kDLCPU {
            return inaccessible("is not in this machine's memory");
        }
        if !view.is_contiguous() {
            return inaccessible("has gaps between its rows");
        }
        let (Some(size_bytes), Ok(offset)) = (size_bytes(view.shape(), raw.dtype), usize::try_from(raw.byte_offset))
        else {
            return inaccessible("has an impossible size");
        };
        if raw.data.is_null() && size_bytes > 0 {
            return inaccessible("has no memory");
        }
        // An empty tensor may have no memory; any aligned address is valid for an empty copy.
        let data = if size_bytes == 0 { std::ptr::dangling_mut() } else { raw.data.cast::<u8>() };
        let start = if size_bytes == 0 { data } else { data.wrapping_add(offset) };
        Ok(Self { start, count: view.numel(), size_bytes })
    }

    fn of_type<T: Element>(tensor: &Tensor) -> Result<Self, MemoryError> {
        if tensor.dtype() != T::DL_DATA_TYPE {
            return Err(MemoryError::Type {
                tensor: tensor.dtype().to_string().as_str().to_owned(),
                values: T::DL_DATA_TYPE.to_string().as_str().to_owned(),
            });
        }
        Self::of_tensor(tensor)
    }
}

/// Returns the size in bytes of a tensor without gaps; elements smaller than a byte are packed.
fn size_bytes(shape: &[i64], dtype: DLDataType) -> Option<usize> {
    let bits_per_value = usize::from(dtype.bits).checked_mul(usize::from(dtype.lanes))?;
    let bits = shape.iter().try_fold(bits_per_value, |bits, extent| {
        // An extent of zero must not hide an overflow of the other extents, which determine strides.
        bits.checked_mul(usize::try_from(*extent).ok()?.max(1))
    })?;
    // Rust and TVM both require sizes that fit a signed integer.
    let size = bits.checked_add(7).filter(|bits| isize::try_from(*bits).is_ok())? / 8;
    Some(if shape.contains(&0) { 0 } else { size })
}

#[derive(Debug)]
struct PageMapping {
    pages: NonNull<c_void>,
    pages_bytes: usize,
    start: NonNull<c_void>,
}

// SAFETY: a mapping does not belong to a thread, and this value never changes after its creation.
unsafe impl Send for PageMapping {}
// SAFETY: as above; access to the content is synchronised by the tensors.
unsafe impl Sync for PageMapping {}

impl PageMapping {
    fn new(size_bytes: usize, bounds: Bounds) -> io::Result<Self> {
        let page_bytes = page_bytes();
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let moved_bytes = if let Bounds::Moved(bytes) = bounds { bytes } else { 0 };
        let aligned = size_bytes.checked_next_multiple_of(ALIGNMENT_BYTES).ok_or_else(too_large)?;
        let aligned = aligned.checked_add(moved_bytes).ok_or_else(too_large)?;
        // An empty tensor gets an address, too.
        let body = aligned.max(ALIGNMENT_BYTES).checked_next_multiple_of(page_bytes).ok_or_else(too_large)?;
        // Extra space to move the end of a large tensor to a huge-page boundary.
        let room = if body >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { 0 };
        let pages_bytes = body.checked_add(2 * page_bytes + room).ok_or_else(too_large)?;
        let length = NonZeroUsize::new(pages_bytes).ok_or_else(too_large)?;
        // SAFETY: a new private mapping at an address that the kernel chooses does not overlap memory in use.
        let pages = unsafe { mmap_anonymous(None, length, ProtFlags::PROT_NONE, MapFlags::MAP_PRIVATE) }?;
        let end = pages.addr().get() + page_bytes + body;
        let moved = if room > 0 { end.next_multiple_of(HUGE_PAGE_BYTES) - end } else { 0 };
        let body_offset = page_bytes + moved;
        let offset = match bounds {
            Bounds::Guarded | Bounds::Moved(_) => body_offset + body - aligned,
            Bounds::Plain => body_offset,
        };
        // SAFETY: the body lies between the mapping's first and last page, and the tensor lies in the body.
        let (body_start, start) = unsafe { (pages.byte_add(body_offset), pages.byte_add(offset)) };
        let mapping = Self { pages, pages_bytes, start };
        // SAFETY: these pages were just mapped, and nothing refers to them yet.
        unsafe { mprotect(body_start, body, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE) }?;
        if room > 0 {
            // SAFETY: as above; advice never changes the content, and has no effect if the kernel rejects it.
            let _ = unsafe { madvise(body_start, body, MmapAdvise::MADV_HUGEPAGE) };
        }
        Ok(mapping)
    }
}

impl Drop for PageMapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the pages, and no tensor uses them any more.
        let unmapped = unsafe { munmap(self.pages, self.pages_bytes) };
        debug_assert_eq!(unmapped, Ok(()), "an owned mapping can be unmapped");
    }
}

pub(super) fn page_bytes() -> usize {
    match nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE) {
        Ok(Some(bytes)) if bytes > 0 => bytes as usize,
        _ => 4096,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    const F32: DLDataType = f32::DL_DATA_TYPE;

    fn named(name: &str) -> DLDataType {
        DLDataType::try_from_str(name).expect("TVM knows the type")
    }

    #[test]
    fn tensors_begin_with_zeros_at_an_aligned_address() {
        for bounds in [Bounds::Guarded, Bounds::Plain] {
            for shape in [&[][..], &[1], &[0, 5], &[3, 5, 7], &[1 << 20]] {
                let made = allocate_tensor(shape, F32, bounds).expect("memory for the test");
                assert_eq!(made.data_ptr() as usize % ALIGNMENT_BYTES, 0);
                assert!(read_values::<f32>(&made).expect("the type fits").iter().all(|value| *value == 0.0));
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(values in prop::collection::vec(any::<i32>(), 0..5000), guarded: bool) {
            let bounds = if guarded { Bounds::Guarded } else { Bounds::Plain };
            let made = allocate_tensor(&[values.len() as i64], i32::DL_DATA_TYPE, bounds).expect("memory for the test");
            write_values(&made, &values).expect("type and length fit");
            prop_assert_eq!(read_values::<i32>(&made).expect("the type fits"), values);
        }

        #[test]
        fn a_guarded_tensor_ends_less_than_its_alignment_before_a_page(count in 0..20_000i64) {
            let made = allocate_tensor(&[count], named("uint8"), Bounds::Guarded).expect("memory for the test");
            let end = made.data_ptr() as usize + count as usize;
            prop_assert!(end.next_multiple_of(page_bytes()) - end < ALIGNMENT_BYTES);
        }
    }

    #[test]
    fn a_moved_tensor_lies_as_far_before_a_guarded_one_within_a_page() {
        let offset = |bounds| {
            allocate_tensor(&[1000], F32, bounds).expect("memory for the test").data_ptr() as usize % page_bytes()
        };
        let guarded = offset(Bounds::Guarded);
        for bytes in [0, 64, 1344, 4032] {
            assert_eq!(offset(Bounds::Moved(bytes)), (guarded + page_bytes() - bytes) % page_bytes());
        }
    }

    #[test]
    fn access_is_checked() {
        let made = allocate_tensor(&[2, 3], F32, Bounds::Plain).expect("memory for the test");
        let text = |error: MemoryError| error.to_string();
        assert_eq!(
            text(read_values::<i32>(&made).expect_err("another type")),
            "the tensor contains float32, not int32"
        );
        assert_eq!(
            text(write_values(&made, &[1.0f32; 5]).expect_err("too few")),
            "the tensor contains 6 values, but gets 5"
        );
        assert_eq!(
            text(write_bytes(&made, &[0; 25]).expect_err("too many")),
            "the tensor contains 24 bytes, but gets 25"
        );
    }

    #[test]
    fn types_without_a_rust_type_are_read_as_bytes() {
        let half = allocate_tensor(&[4], named("bfloat16"), Bounds::Guarded).expect("memory for the test");
        write_bytes(&half, &[1, 2, 3, 4, 5, 6, 7, 8]).expect("the length fits");
        assert_eq!(read_bytes(&half).expect("readable"), [1, 2, 3, 4, 5, 6, 7, 8]);
        let nibbles = allocate_tensor(&[3], named("int4"), Bounds::Guarded).expect("memory for the test");
        assert_eq!(read_bytes(&nibbles).expect("readable").len(), 2);
    }

    #[test]
    fn impossible_sizes_are_errors() {
        for shape in [&[-1][..], &[i64::MAX, 2], &[0, i64::MAX, i64::MAX], &[1 << 60]] {
            let error = allocate_tensor(shape, F32, Bounds::Guarded).err().expect("no machine holds this");
            assert!(matches!(error, MemoryError::Size { .. } | MemoryError::Map { .. }), "{error}");
        }
    }

    const OVERRUN_BYTES: &str = "OPCOLLECT_TEST_OVERRUN_BYTES";

    fn child_that_overruns(bytes: usize) -> std::process::ExitStatus {
        let program = std::env::current_exe().expect("the test has a file");
        let mut command = Command::new(program);
        command.args(["--exact", "tvm::memory::tests::an_overrun_is_a_segmentation_fault"]);
        command.env(OVERRUN_BYTES, bytes.to_string()).output().expect("the test runs once more").status
    }

    #[test]
    fn an_overrun_is_a_segmentation_fault() {
        if let Ok(bytes) = std::env::var(OVERRUN_BYTES) {
            let made = allocate_tensor(&[16], F32, Bounds::Guarded).expect("memory for the test");
            let count = 64 + bytes.parse::<usize>().expect("the parent passes a number");
            // SAFETY: none; with a count above 64 this is the fault that the parent waits for.
            unsafe { std::ptr::write_bytes(made.data_ptr().cast_mut().cast::<u8>(), 1, count) };
            return;
        }
        assert!(child_that_overruns(0).success(), "writing exactly the tensor is fine");
        assert_eq!(child_that_overruns(16).signal(), Some(nix::libc::SIGSEGV));
    }
}
