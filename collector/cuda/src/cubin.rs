//! Reads GPU machine code: an ELF file with one text section per kernel.

use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use std::ffi::CStr;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not valid GPU machine code (cubin): {0}")]
pub struct CubinError(String);

/// A device-code image for the driver, which gets no length, so all sections must lie within the bytes.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a>(&'a [u8]);

impl<'a> Image<'a> {
    /// Creates an image of machine code. Checks that all sections and segments lie within the bytes.
    pub fn from_cubin(bytes: &'a [u8]) -> Result<Image<'a>, CubinError> {
        let header = parse_header(bytes)?;
        let sections = header.section_headers(LittleEndian, bytes).map_err(cubin_error)?;
        let of_sections = sections.iter().filter_map(|section| section.file_range(LittleEndian));
        let segments = header.program_headers(LittleEndian, bytes).map_err(cubin_error)?;
        let of_segments = segments.iter().map(|segment| segment.file_range(LittleEndian));
        if sections.is_empty() {
            return Err(CubinError("the file has no sections".to_owned()));
        }
        let end = of_sections.chain(of_segments).map(|(start, size)| start.saturating_add(size)).max().unwrap_or(0);
        match end <= bytes.len() as u64 {
            true => Ok(Image(bytes)),
            false => Err(CubinError(format!("the file is truncated to {} of at least {end} bytes", bytes.len()))),
        }
    }

    pub fn from_ptx(text: &'a CStr) -> Image<'a> {
        Image(text.to_bytes_with_nul())
    }

    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

/// Returns each kernel's name, and the size of its machine code in bytes.
pub fn kernel_sizes(bytes: &[u8]) -> Result<Vec<(String, u64)>, CubinError> {
    let sections = parse_header(bytes)?.sections(LittleEndian, bytes).map_err(cubin_error)?;
    let mut found = Vec::new();
    for section in sections.iter() {
        let name = sections.section_name(LittleEndian, section).map_err(cubin_error)?;
        if let Some(kernel) = name.strip_prefix(b".text.".as_slice()) {
            found.push((String::from_utf8_lossy(kernel).into_owned(), section.sh_size(LittleEndian)));
        }
    }
    Ok(found)
}

fn parse_header(bytes: &[u8]) -> Result<&FileHeader64<LittleEndian>, CubinError> {
    const CUDA_MACHINE: u16 = 190;
    let header = FileHeader64::<LittleEndian>::parse(bytes).map_err(cubin_error)?;
    let machine = header.e_machine(LittleEndian);
    if machine.0 != CUDA_MACHINE {
        return Err(CubinError(format!("the ELF machine number is {}, not {CUDA_MACHINE}", machine.0)));
    }
    Ok(header)
}

fn cubin_error(error: object::Error) -> CubinError {
    CubinError(error.to_string())
}
