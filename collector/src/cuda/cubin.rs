//! Looks into machine code for GPUs: an ELF file with one text section per kernel.

use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, SectionHeader};

/// Why an ELF file is not machine code for a GPU.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not machine code for a GPU: {0}")]
pub struct CubinError(String);

/// Bytes of machine code of each kernel, by name.
pub fn kernels(bytes: &[u8]) -> Result<Vec<(String, u64)>, CubinError> {
    const CUDA_MACHINE: u16 = 190;
    let wrong = |error: object::Error| CubinError(error.to_string());
    let header = FileHeader64::<LittleEndian>::parse(bytes).map_err(wrong)?;
    let machine = header.e_machine(LittleEndian);
    if machine.0 != CUDA_MACHINE {
        return Err(CubinError(format!("its machine is {}, not {CUDA_MACHINE}", machine.0)));
    }
    let sections = header.sections(LittleEndian, bytes).map_err(wrong)?;
    let mut found = Vec::new();
    for section in sections.iter() {
        let name = sections.section_name(LittleEndian, section).map_err(wrong)?;
        if let Some(kernel) = name.strip_prefix(b".text.".as_slice()) {
            found.push((String::from_utf8_lossy(kernel).into_owned(), section.sh_size(LittleEndian)));
        }
    }
    Ok(found)
}
