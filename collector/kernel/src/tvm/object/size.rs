//! Measures the size of the machine code in 32-bit and 64-bit object files.

use object::LittleEndian;
use object::elf::{FileHeader32, FileHeader64, SHF_ALLOC, SHF_EXECINSTR};
use object::read::Result;
use object::read::elf::{FileHeader, SectionHeader};

/// Offset of the ELF class byte, and its value for 32-bit files.
pub const WIDTH: (usize, u8) = (4, 1);

pub fn code_bytes(bytes: &[u8]) -> Result<u64> {
    match bytes.get(WIDTH.0) == Some(&WIDTH.1) {
        true => code_size::<FileHeader32<LittleEndian>>(bytes),
        false => code_size::<FileHeader64<LittleEndian>>(bytes),
    }
}

fn code_size<Header: FileHeader<Endian = LittleEndian>>(bytes: &[u8]) -> Result<u64> {
    let header = Header::parse(bytes)?;
    let endian = header.endian()?;
    let wanted = SHF_ALLOC.0 | SHF_EXECINSTR.0;
    let sections = header.sections(endian, bytes)?;
    let code = sections.iter().filter(|section| section.sh_flags(endian).0 & wanted == wanted);
    Ok(code.fold(0, |all: u64, section| all.saturating_add(section.sh_size(endian).into())))
}
