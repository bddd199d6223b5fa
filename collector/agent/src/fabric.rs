//! Accelerator core of a session: a simulated one, or the core in the board's FPGA, accessed by its registers.

use crate::native::Devmem;
use accelerator::{Bus, Core, SimulatedBus};
use remote::fabric::FabricKind;

const ADDRESS: u64 = 0x1000_0000;
const BYTES_MAX: usize = 1 << 30;
const PAGE_BYTES: usize = 4096;

/// Parses the value of `--fpga`; `None` for `none`.
pub fn kind_of(word: &str) -> Result<Option<FabricKind>, String> {
    match word {
        "none" => Ok(None),
        "devmem" => Ok(Some(FabricKind::Devmem)),
        "simulated" => Ok(Some(FabricKind::Simulated)),
        other => Err(format!("`--fpga` is `{other}`; allowed are `none`, `devmem` and `simulated`")),
    }
}

pub fn fabric_word(kind: FabricKind) -> &'static str {
    match kind {
        FabricKind::Devmem => "devmem",
        FabricKind::Simulated => "simulated",
    }
}

/// Opens an accelerator core of the given kind. `memory_bytes` limits the memory of a simulated core.
pub fn open_fabric(kind: FabricKind, memory_bytes: usize) -> Result<Box<dyn Bus>, String> {
    match kind {
        FabricKind::Devmem => Ok(Box::new(Devmem::open()?)),
        FabricKind::Simulated => {
            let core = Core::find_published(Core::NAMES[0]).map_err(|error| error.to_string())?;
            let bytes = memory_bytes.min(BYTES_MAX) / PAGE_BYTES * PAGE_BYTES;
            Ok(Box::new(SimulatedBus::new(core, ADDRESS, bytes)))
        }
    }
}
