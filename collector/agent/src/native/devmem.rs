//! Access to an accelerator core's registers by `/dev/mem`, and to contiguous memory of the u-dma-buf kernel module.
//! **Never tested on hardware.**
//!
//! Memory is mapped cached, since the ports of the published designs (ACP, HPC0) are coherent. It is accessed by
//! copies and never as a slice, because the core writes it concurrently.

use accelerator::{Bus, BusBlock, Core, fabric_boards, registers};
use nix::libc::off_t;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::fs::{File, OpenOptions, read_to_string};
use std::num::NonZeroUsize;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

struct FabricAddresses {
    /// Device file of the board's physical memory, with the core's registers at `base`.
    registers: PathBuf,
    base: u64,
    /// Device file of the contiguous memory.
    memory: PathBuf,
    /// Candidate folders with the attributes of the contiguous memory; the first existing one is used.
    attributes: Vec<PathBuf>,
    manager: PathBuf,
}

pub struct Devmem {
    registers: DeviceMapping,
    memory: DeviceMapping,
    address: u64,
    manager: PathBuf,
    begin: Instant,
}

struct DeviceMapping {
    start: NonNull<c_void>,
    bytes: usize,
}

impl Devmem {
    pub fn open() -> Result<Devmem, String> {
        // 32-bit processors are Zynq-7000, 64-bit ones Zynq UltraScale+: the boards with published bitstreams.
        let name = match std::env::consts::ARCH {
            "arm" => "pynq-z1",
            "aarch64" => "ultra96",
            other => {
                return Err(format!(
                    "the accelerator's registers are unknown on {other}; `--fpga simulated` computes its results without timing"
                ));
            }
        };
        let board =
            fabric_boards().iter().find(|board| board.name == name).ok_or("the board has no published addresses")?;
        Devmem::open_at(&FabricAddresses {
            registers: "/dev/mem".into(),
            base: board.registers,
            memory: "/dev/udmabuf0".into(),
            attributes: vec!["/sys/class/u-dma-buf/udmabuf0".into(), "/sys/class/udmabuf/udmabuf0".into()],
            manager: "/sys/class/fpga_manager/fpga0".into(),
        })
    }

    fn open_at(places: &FabricAddresses) -> Result<Devmem, String> {
        const SETUP: &str = "load the kernel module u-dma-buf with memory for the core, for example with `modprobe u-dma-buf \
             udmabuf0=67108864`";
        let registers = open_device(&places.registers, nix::libc::O_SYNC).map_err(|why| {
            format!(
                "{why}: the agent accesses the core's registers through this file and needs read and write permission"
            )
        })?;
        let memory = open_device(&places.memory, 0).map_err(|why| format!("{why}; {SETUP}"))?;
        let attributes = places.attributes.iter().find(|folder| folder.is_dir());
        let attributes = attributes
            .ok_or_else(|| format!("the physical address of `{}` is unknown; {SETUP}", places.memory.display()))?;
        let (address, bytes) = (read_number(&attributes.join("phys_addr"))?, read_number(&attributes.join("size"))?);
        let is_reached = address.is_multiple_of(4096) && address.checked_add(bytes).is_some_and(|end| end <= 1 << 32);
        if bytes == 0 || !is_reached {
            return Err(format!(
                "the core cannot access {bytes} bytes at {address:#x}: the memory must start at a multiple of 4096 \
                 and end below 2^32"
            ));
        }
        let block_bytes = registers::BLOCK_BYTES * BusBlock::ALL.len() as u64;
        Ok(Devmem {
            registers: DeviceMapping::map_range(&registers, places.base, block_bytes)?,
            memory: DeviceMapping::map_range(&memory, 0, bytes)?,
            address,
            manager: places.manager.clone(),
            begin: Instant::now(),
        })
    }

    fn register_address(&self, block: BusBlock, register: u32) -> *mut u32 {
        let at = block as u64 * registers::BLOCK_BYTES + u64::from(register);
        let at = usize::try_from(at).expect("offsets of registers are small");
        assert!(
            register.is_multiple_of(4) && at + 4 <= self.registers.bytes,
            "the register {register:#x} does not exist"
        );
        self.registers.start.as_ptr().cast::<u8>().wrapping_add(at).cast()
    }

    /// Returns the address of `count` bytes at an offset. Panics if they exceed the mapped memory.
    fn mapped_address(&self, at: u64, count: u64) -> *mut u8 {
        let is_inside = at.checked_add(count).is_some_and(|end| end <= self.memory.bytes as u64);
        assert!(is_inside, "{count} bytes at offset {at} exceed the memory");
        self.memory
            .start
            .as_ptr()
            .cast::<u8>()
            .wrapping_add(usize::try_from(at).expect("the range was checked to lie in memory"))
    }
}

impl Bus for Devmem {
    fn write_register(&mut self, block: BusBlock, register: u32, value: u32) {
        memory_barrier();
        // SAFETY: the address was checked to lie in the mapping, which `self` owns; registers are four bytes wide.
        unsafe { self.register_address(block, register).write_volatile(value) };
        memory_barrier();
    }

    fn read_register(&mut self, block: BusBlock, register: u32) -> u32 {
        // SAFETY: as in `write_register`.
        let value = unsafe { self.register_address(block, register).read_volatile() };
        memory_barrier();
        value
    }

    fn memory_bytes(&self) -> u64 {
        self.memory.bytes as u64
    }

    fn memory_address(&self) -> u64 {
        self.address
    }

    fn write_memory(&mut self, at: u64, bytes: &[u8]) {
        let to = self.mapped_address(at, bytes.len() as u64);
        // SAFETY: the range was checked to lie in the mapping, which no Rust slice overlaps.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    fn read_memory(&mut self, at: u64, count: u64) -> Vec<u8> {
        let from = self.mapped_address(at, count);
        let mut bytes = vec![0; usize::try_from(count).expect("the range was checked to lie in memory")];
        // SAFETY: as in `write_memory`; the destination is a new vector of the same length.
        unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        bytes
    }

    fn now_ns(&mut self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Loads a bitstream. The kernel searches for the file in `/lib/firmware`.
    fn load_core(&mut self, _: &Core, file: Option<&str>) -> Result<(), String> {
        let Some(file) = file else { return Ok(()) };
        let firmware = self.manager.join("firmware");
        std::fs::write(&firmware, file)
            .map_err(|error| format!("cannot load `{file}` into the FPGA by `{}`: {error}", firmware.display()))?;
        let state = read_to_string(self.manager.join("state")).unwrap_or_default();
        match state.trim() {
            "operating" => Ok(()),
            other => Err(format!(
                "the FPGA manager reports `{other}` after loading `{file}`; is the file in `/lib/firmware`, in `.bin` \
                 format?"
            )),
        }
    }
}

/// Orders memory accesses before the call before those after it, also as observed by the accelerator core.
fn memory_barrier() {
    #[cfg(any(target_arch = "arm", target_arch = "aarch64"))]
    // SAFETY: the instruction is a memory barrier without other effects.
    unsafe {
        std::arch::asm!("dsb sy", options(nostack, preserves_flags));
    }
    fence(Ordering::SeqCst);
}

fn open_device(path: &Path, flags: i32) -> Result<File, String> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    file.map_err(|error| format!("cannot open `{}`: {error}", path.display()))
}

/// Reads a number from a file: decimal, or hexadecimal with the prefix `0x`.
fn read_number(path: &Path) -> Result<u64, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("`{}` does not contain a number: {why}", path.display());
    let text = read_to_string(path).map_err(|error| wrong(&error))?;
    let read = match text.trim().strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.trim().parse(),
    };
    read.map_err(|error| wrong(&error))
}

impl DeviceMapping {
    fn map_range(file: &File, at: u64, bytes: u64) -> Result<DeviceMapping, String> {
        let failed = |why: &dyn std::fmt::Display| format!("cannot map {bytes} bytes at {at:#x}: {why}");
        let length = usize::try_from(bytes)
            .ok()
            .and_then(NonZeroUsize::new)
            .ok_or_else(|| failed(&"the size is zero or too large"))?;
        let at = off_t::try_from(at).map_err(|error| failed(&error))?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address chosen by the kernel affects no existing memory.
        let start = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, file, at) };
        Ok(DeviceMapping { start: start.map_err(|error| failed(&error))?, bytes: length.get() })
    }
}

impl Drop for DeviceMapping {
    fn drop(&mut self) {
        // SAFETY: `self` owns the mapping, and no address of it outlives a call.
        let _ = unsafe { munmap(self.start, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::{Devmem, FabricAddresses};
    use accelerator::{Bus, BusBlock, Core, registers};
    use std::fs;
    use std::os::unix::fs::FileExt;

    const BASE: u64 = 0x4000;

    fn board(folder: &tempfile::TempDir) -> FabricAddresses {
        let path = |name: &str| folder.path().join(name);
        for (name, bytes) in [("mem", BASE + 0x4000), ("memory", 0x8000)] {
            fs::File::create(path(name)).and_then(|file| file.set_len(bytes)).expect("a file");
        }
        for (name, text) in
            [("attributes", "phys_addr"), ("manager", "state")].map(|(folder, name)| (path(folder), name))
        {
            fs::create_dir(&name).expect("a folder");
            fs::write(name.join(text), if text == "state" { "operating\n" } else { "0x1f400000\n" }).expect("a file");
        }
        fs::write(path("attributes/size"), "32768\n").expect("a file");
        let (registers, memory, manager) = (path("mem"), path("memory"), path("manager"));
        FabricAddresses { registers, base: BASE, memory, attributes: vec![path("gone"), path("attributes")], manager }
    }

    #[test]
    fn registers_memory_and_bitstreams_are_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let places = board(&folder);
        let mut bus = Devmem::open_at(&places).expect("everything is there");
        assert_eq!((bus.memory_address(), bus.memory_bytes()), (0x1f40_0000, 0x8000));
        bus.write_register(BusBlock::Compute, registers::SUMS, 0x0102_0304);
        assert_eq!(bus.read_register(BusBlock::Compute, registers::SUMS), 0x0102_0304);
        let mut found = [0; 4];
        let file = fs::File::open(&places.registers).expect("it is there");
        file.read_exact_at(&mut found, BASE + 0x2028).expect("it is there");
        assert_eq!(found, [4, 3, 2, 1]);
        bus.write_memory(0x7ffc, &[1, 2, 3, 4]);
        assert_eq!(bus.read_memory(0x7ffa, 6), [0, 0, 1, 2, 3, 4]);
        assert_eq!(fs::read(&places.memory).expect("it is there")[0x7ffc..], [1, 2, 3, 4]);
        let core = Core::find_published("1x16").expect("a core");
        bus.load_core(&core, None).expect("nothing is done");
        assert!(!places.manager.join("firmware").exists());
        bus.load_core(&core, Some("1x16.bin")).expect("it is loaded");
        assert_eq!(fs::read_to_string(places.manager.join("firmware")).expect("it is there"), "1x16.bin");
        fs::write(places.manager.join("state"), "firmware request error\n").expect("a file");
        assert!(bus.load_core(&core, Some("1x16.bin")).expect_err("it failed").contains("firmware request error"));
        assert!(bus.now_ns() <= bus.now_ns());
    }

    #[test]
    fn missing_devices_are_reported_with_advice() {
        let refused = |spoil: &dyn Fn(&mut FabricAddresses)| {
            let folder = tempfile::tempdir().expect("a folder");
            let mut places = board(&folder);
            spoil(&mut places);
            Devmem::open_at(&places).map(drop).expect_err("something is missing")
        };
        assert!(refused(&|places| places.registers = "/gone".into()).contains("needs read and write permission"));
        assert!(refused(&|places| places.memory = "/gone".into()).contains("modprobe u-dma-buf"));
        assert!(refused(&|places| places.attributes.clear()).contains("physical address of"));
        let write = |name: &'static str, text: &'static str| {
            move |places: &mut FabricAddresses| fs::write(places.attributes[1].join(name), text).expect("a file")
        };
        assert!(refused(&write("phys_addr", "0x1f400001")).contains("the core cannot access"));
        assert!(refused(&write("phys_addr", "0xffffffffffff0000")).contains("the core cannot access"));
        assert!(refused(&write("phys_addr", "somewhere")).contains("does not contain a number"));
        assert!(refused(&write("size", "0")).contains("the core cannot access"));
    }
}
