//! Detects objects that would run code when a library linked from them is opened: functions registered for loading and
//! unloading, and resolvers. Generated code has none of these. Files that are not objects are rejected, too, because a
//! linker would read them as a script, which can name any file.

use object::LittleEndian;
use object::elf::{
    ET_REL, FileHeader32, FileHeader64, SHN_UNDEF, SHT_FINI_ARRAY, SHT_INIT_ARRAY, SHT_PREINIT_ARRAY, STT_GNU_IFUNC,
    SectionType,
};
use object::read::elf::{FileHeader, SectionHeader, Sym};

use super::LoadError;
use super::size::WIDTH;

/// Prefixes of the names of sections with code, or addresses of code, that the system's loader calls.
const CALLED: [&str; 7] = [".init", ".fini", ".preinit", ".ctors", ".dtors", ".init_array", ".fini_array"];

/// Functions that a linker registers by their name to run on loading and unloading.
const REGISTERED: [&str; 2] = ["_init", "_fini"];

/// Returns whether the system's loader calls code in a section, or at addresses that the section holds.
pub fn is_called(name: &str, kind: SectionType) -> bool {
    let is_of = |prefix: &str| name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    [SHT_INIT_ARRAY, SHT_FINI_ARRAY, SHT_PREINIT_ARRAY].contains(&kind) || CALLED.iter().any(|prefix| is_of(prefix))
}

pub fn reject_loading_code(bytes: &[u8]) -> Result<(), LoadError> {
    match bytes.get(WIDTH.0) == Some(&WIDTH.1) {
        true => refuse_in::<FileHeader32<LittleEndian>>(bytes),
        false => refuse_in::<FileHeader64<LittleEndian>>(bytes),
    }
}

fn refuse_in<Header: FileHeader<Endian = LittleEndian>>(bytes: &[u8]) -> Result<(), LoadError> {
    let header = Header::parse(bytes)?;
    let endian = header.endian()?;
    if header.e_type(endian) != ET_REL {
        return Err(LoadError::malformed_file("only an unlinked object file can be linked"));
    }
    let sections = header.sections(endian, bytes)?;
    for section in sections.iter() {
        let name = String::from_utf8_lossy(sections.section_name(endian, section)?);
        if is_called(&name, section.sh_type(endian)) {
            return Err(LoadError::RunsOnLoading { what: format!("section `{name}`") });
        }
    }
    let symbols = sections.symbols(endian, bytes, object::elf::SHT_SYMTAB)?;
    for symbol in symbols.iter() {
        let name = String::from_utf8_lossy(symbols.symbol_name(endian, symbol)?);
        let is_registered = symbol.st_shndx(endian) != SHN_UNDEF && REGISTERED.contains(&&*name);
        if is_registered || symbol.st_type() == STT_GNU_IFUNC {
            return Err(LoadError::RunsOnLoading { what: format!("symbol `{name}`") });
        }
    }
    Ok(())
}
