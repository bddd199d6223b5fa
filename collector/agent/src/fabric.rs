//! Accelerator core of a session: the board's own, accessed by its registers, or a simulated one.

use crate::native::Devmem;
use accelerator::{Bus, Core, SimulatedBus};
use remote::fabric::FabricKind;

const ADDRESS: u64 = 0x1000_0000;
const BYTES_MAX: usize = 1 << 30;
/// Granularity of a simulated core's memory.
const PAGE_BYTES: usize = 4096;

/// Parses the value of `--fpga`.
pub fn kind_of(word: &str) -> Result<Option<FabricKind>, String> {
    match word {
        "none" => Ok(None),
        "devmem" => Ok(Some(FabricKind::Devmem)),
        "simulated" => Ok(Some(FabricKind::Simulated)),
        other => Err(format!("`--fpga` is `{other}`; allowed are `none`, `devmem` and `simulated`")),
    }
}

/// Returns the value of `--fpga` for a kind.
pub fn word(kind: FabricKind) -> &'static str {
    match kind {
        FabricKind::Devmem => "devmem",
        FabricKind::Simulated => "simulated",
    }
}

/// Opens the fabric. `memory_bytes` limits the memory of a simulated core.
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
