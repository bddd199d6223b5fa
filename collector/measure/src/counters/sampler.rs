//! Samples the instruction pointer of a thread and its descendants, with one event and ring buffer per CPU: cycles if
//! the processor counts them, otherwise the kernel's CPU timer. Samples lost to a full buffer are counted.

use super::perf::{PerfCounter, explain_errno};
use super::values::Refusal;
use super::{Step, names::PerfEvent};
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use perf_event_open_sys::bindings as sys;
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Data pages of a ring buffer, a power of two, after one control page. Unprivileged processes may map 516 KiB per CPU.
const RING_PAGES: usize = 64;
const PAGE_BYTES: usize = 4096;
/// Upper bound of a record's size with the requested sample fields.
const RECORD_BYTES: usize = 64;

const EVENTS: [(&str, PerfEvent); 2] = [
    ("cycles", PerfEvent { kind: sys::PERF_TYPE_HARDWARE, config: sys::PERF_COUNT_HW_CPU_CYCLES as u64 }),
    ("cpu-clock", PerfEvent { kind: sys::PERF_TYPE_SOFTWARE, config: sys::PERF_COUNT_SW_CPU_CLOCK as u64 }),
];

#[derive(Debug)]
pub struct Sampler {
    pub event: &'static str,
    rings: Vec<Ring>,
}

pub(super) fn sampling_attributes(event: PerfEvent, hertz: u64) -> sys::perf_event_attr {
    let mut attributes = sys::perf_event_attr {
        type_: event.kind,
        size: u32::try_from(size_of::<sys::perf_event_attr>()).expect("a small structure"),
        config: event.config,
        sample_type: u64::from(sys::PERF_SAMPLE_IP),
        ..Default::default()
    };
    attributes.__bindgen_anon_1.sample_freq = hertz;
    attributes.set_freq(1);
    attributes.set_disabled(1);
    attributes.set_inherit(1);
    attributes.set_exclude_kernel(1);
    attributes.set_exclude_hv(1);
    attributes
}

impl Sampler {
    /// Opens a sampler that is not yet enabled. `hertz` is the sampling rate per CPU.
    pub fn open_sampler(cpus: &[usize], hertz: u64) -> Result<Sampler, Refusal> {
        let mut last = None;
        for (name, event) in EVENTS {
            let rings =
                cpus.iter().map(|cpu| Ring::open_ring(event, hertz, *cpu)).collect::<Result<Vec<Ring>, Errno>>();
            match rings {
                Ok(rings) => return Ok(Sampler { event: name, rings }),
                Err(errno) => last = Some((name, errno)),
            }
        }
        let (event, errno) = last.expect("there is an event");
        let (event, why) = (event.to_owned(), explain_errno(errno));
        Err(Refusal { event, step: Step::Perf, errno: Some(errno as i32), why })
    }

    pub fn set_enabled(&self, is_on: bool) {
        self.rings.iter().for_each(|ring| ring.event.set_enabled(is_on));
    }

    /// Passes the instruction addresses of pending samples to `each`; returns the number of lost samples.
    pub fn take_samples(&mut self, mut each: impl FnMut(u64)) -> u64 {
        self.rings.iter_mut().map(|ring| ring.take_samples(&mut each)).sum()
    }
}

#[derive(Debug)]
struct Ring {
    event: PerfCounter,
    base: NonNull<c_void>,
}

// SAFETY: the mapping belongs to the process, and only one owner at a time reads from it.
unsafe impl Send for Ring {}

const HEAD: usize = std::mem::offset_of!(sys::perf_event_mmap_page, data_head);
const TAIL: usize = std::mem::offset_of!(sys::perf_event_mmap_page, data_tail);

impl Ring {
    fn open_ring(event: PerfEvent, hertz: u64, cpu: usize) -> Result<Ring, Errno> {
        let cpu = i32::try_from(cpu).map_err(|_| Errno::EINVAL)?;
        let event = PerfCounter::open_sampling(sampling_attributes(event, hertz), cpu)?;
        let length = NonZeroUsize::new((1 + RING_PAGES) * PAGE_BYTES).expect("more than nothing");
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses does not overlap memory in use.
        let base = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, event.sample_file(), 0) }?;
        Ok(Ring { event, base })
    }

    fn control_word(&self, place: usize) -> &AtomicU64 {
        // SAFETY: both words are aligned and in the first page, which is mapped as long as `self` lives; the kernel
        // writes one of them and this process the other, atomically.
        unsafe { &*self.base.as_ptr().cast::<u8>().add(place).cast::<AtomicU64>() }
    }

    fn copy_bytes(&self, place: u64, length: usize) -> [u8; RECORD_BYTES] {
        let size = RING_PAGES * PAGE_BYTES;
        // SAFETY: the data pages after the first page are mapped as long as `self` lives, and offsets are taken modulo
        // their size.
        let at = |place: usize| unsafe { *self.base.as_ptr().cast::<u8>().add(PAGE_BYTES + place % size) };
        let start = (place % size as u64) as usize;
        let mut bytes = [0; RECORD_BYTES];
        bytes.iter_mut().take(length).enumerate().for_each(|(offset, byte)| *byte = at(start + offset));
        bytes
    }

    fn take_samples(&mut self, each: &mut impl FnMut(u64)) -> u64 {
        const HEADER_BYTES: usize = 8;
        let head = self.control_word(HEAD).load(Ordering::Acquire);
        let mut tail = self.control_word(TAIL).load(Ordering::Relaxed);
        let mut lost = 0;
        while tail < head {
            let header = self.copy_bytes(tail, HEADER_BYTES);
            let kind = u32::from_ne_bytes(header[..4].try_into().expect("four bytes"));
            let size = usize::from(u16::from_ne_bytes(header[6..8].try_into().expect("two bytes")));
            if size < HEADER_BYTES {
                break;
            }
            let record = self.copy_bytes(tail, size.min(RECORD_BYTES));
            let word = |place: usize| u64::from_ne_bytes(record[place..][..8].try_into().expect("eight bytes"));
            match kind {
                sys::PERF_RECORD_SAMPLE => each(word(8)),
                sys::PERF_RECORD_LOST => lost += word(16),
                _ => {}
            }
            tail += size as u64;
        }
        // Releases the consumed records.
        self.control_word(TAIL).store(head, Ordering::Release);
        lost
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping of this length, and no reference to it is left.
        let unmapped = unsafe { munmap(self.base, (1 + RING_PAGES) * PAGE_BYTES) };
        debug_assert_eq!(unmapped, Ok(()), "an owned mapping can be unmapped");
    }
}
