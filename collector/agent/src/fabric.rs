//! What a session's core is: a board's own, by its registers, or one that is not there.

use crate::native::Devmem;
use accelerator::{Bus, Core, SimulatedBus};
use remote::fabric::FabricKind;

/// Where the memory of a simulated core begins.
const ADDRESS: u64 = 0x1000_0000;
/// A simulated core has at most so much.
const BYTES_MAX: usize = 1 << 30;
/// And no fraction of a page.
const PAGE_BYTES: usize = 4096;

/// What `--fpga` means.
pub fn kind_of(word: &str) -> Result<Option<FabricKind>, String> {
    match word {
        "none" => Ok(None),
        "devmem" => Ok(Some(FabricKind::Devmem)),
        "simulated" => Ok(Some(FabricKind::Simulated)),
        other => Err(format!("`--fpga` is `{other}`; allowed are `none`, `devmem` and `simulated`")),
    }
}

/// The word for a kind.
pub fn word(kind: FabricKind) -> &'static str {
    match kind {
        FabricKind::Devmem => "devmem",
        FabricKind::Simulated => "simulated",
    }
}

/// Opens it; a simulated one has at most so much memory.
pub fn open(kind: FabricKind, memory_bytes: usize) -> Result<Box<dyn Bus>, String> {
    match kind {
        FabricKind::Devmem => Ok(Box::new(Devmem::open()?)),
        FabricKind::Simulated => {
            let core = Core::named(Core::NAMES[0]).map_err(|error| error.to_string())?;
            let bytes = memory_bytes.min(BYTES_MAX) / PAGE_BYTES * PAGE_BYTES;
            Ok(Box::new(SimulatedBus::new(core, ADDRESS, bytes)))
        }
    }
}
