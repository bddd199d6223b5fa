//! Parses an object file into the parts that loading needs. All values are copied from the file's tables and checked:
//! section numbers are valid indices, names are text, sizes are within limits. Addresses are not yet assigned.

use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, Rela, SectionHeader, SectionTable, Sym, SymbolTable};

use super::error::LoadError;
use super::on_loading::is_called;

/// Size limit of an object: kernels are small, and messages between processes have the same limit.
const OBJECT_LIMIT_BYTES: usize = 64 << 20;
/// Limit on relocations, above any valid object of that size. Overlapping tables could otherwise declare billions.
const RELOCATION_LIMIT: usize = 4 << 20;
/// Largest supported section alignment, because mappings are aligned only to the smallest page size.
const ALIGNMENT_LIMIT: u64 = 4096;

/// Tables of one object, without sections that are not loaded, such as debug information.
#[derive(Debug)]
pub struct Object<'a> {
    pub sections: Vec<Section<'a>>,
    /// All symbols, indexed as in the file; 0 means "no symbol".
    pub symbols: Vec<Symbol<'a>>,
    pub relocations: Vec<Relocation>,
}

#[derive(Debug)]
pub struct Section<'a> {
    pub name: &'a str,
    pub access: Access,
    /// Alignment in bytes: a power of two, at most one page.
    pub alignment: usize,
    pub size: usize,
    /// Contents of the section. If they are shorter than `size`, the rest of the section is zero.
    pub bytes: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Code,
    Constants,
    Data,
}

#[derive(Debug)]
pub struct Symbol<'a> {
    /// Name of the symbol; empty for sections.
    pub name: &'a str,
    pub place: Place,
    pub is_global: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Position in one of [`Object::sections`], given by index. The offset may be the section's end.
    Section {
        section: usize,
        offset: usize,
    },
    Absolute(u64),
    /// Defined by a library of the process. A weak symbol may be undefined.
    Import {
        is_weak: bool,
    },
    /// Defined in a section that is not loaded, or of an unsupported kind.
    Unreachable,
}

#[derive(Debug)]
pub struct Relocation {
    pub section: usize,
    pub offset: u64,
    pub kind: Kind,
    pub symbol: usize,
    pub addend: i64,
}

/// S is the symbol's address, A the addend, P the patched address, G the address of a slot that contains S.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Nothing,
    Absolute64,
    /// S + A in four bytes, zero-extended.
    Absolute32,
    /// S + A in four bytes, sign-extended.
    Absolute32Signed,
    /// S + A - P in four bytes.
    Relative32,
    /// S + A - P in four bytes, for calls: S may be replaced by the address of a jump stub.
    Call32,
    /// G + A - P in four bytes: address of the table entry plus addend minus own address.
    Slot32,
}

impl Kind {
    fn of_type(kind: elf::RelocationType) -> Option<Self> {
        Some(match kind {
            elf::R_X86_64_NONE => Self::Nothing,
            elf::R_X86_64_64 => Self::Absolute64,
            elf::R_X86_64_32 => Self::Absolute32,
            elf::R_X86_64_32S => Self::Absolute32Signed,
            elf::R_X86_64_PC32 => Self::Relative32,
            elf::R_X86_64_PLT32 => Self::Call32,
            // A linker may replace the last two by direct accesses; reading the slot is always correct.
            elf::R_X86_64_GOTPCREL | elf::R_X86_64_GOTPCRELX | elf::R_X86_64_REX_GOTPCRELX => Self::Slot32,
            _ => return None,
        })
    }
}

type Header = FileHeader64<LittleEndian>;
type Sections<'a> = SectionTable<'a, Header>;
type Symbols<'a> = SymbolTable<'a, Header>;
type HeaderOfSection = elf::SectionHeader64<LittleEndian>;

pub fn read_object(bytes: &[u8]) -> Result<Object<'_>, LoadError> {
    if bytes.len() > OBJECT_LIMIT_BYTES {
        return Err(too_large("the object file", bytes.len() as u64, OBJECT_LIMIT_BYTES as u64));
    }
    let header = check_header(bytes)?;
    let table = header.sections(LittleEndian, bytes)?;
    let mut sections = Vec::new();
    let mut loaded_as = vec![None; table.len()];
    for (index, section) in table.enumerate() {
        if section.sh_flags(LittleEndian).0 & elf::SHF_ALLOC.0 != 0 {
            loaded_as[index.0] = Some(sections.len());
            sections.push(read_section(bytes, &table, section)?);
        }
    }
    let symbol_table = table.symbols(LittleEndian, bytes, elf::SHT_SYMTAB)?;
    let symbols = read_symbols(&symbol_table, &sections, &loaded_as)?;
    let relocations = read_relocations(bytes, &table, &symbol_table, &sections, &loaded_as)?;
    Ok(Object { sections, symbols, relocations })
}

fn check_header(bytes: &[u8]) -> Result<&Header, LoadError> {
    let header = Header::parse(bytes)?;
    if !header.is_class_64() || !header.is_little_endian() {
        return Err(LoadError::UnsupportedMachine { machine: "a 32-bit or big-endian machine".to_owned() });
    }
    let machine = header.e_machine(LittleEndian);
    if machine != elf::EM_X86_64 || !cfg!(target_arch = "x86_64") {
        return Err(LoadError::UnsupportedMachine { machine: machine_name(machine) });
    }
    if header.e_type(LittleEndian) != elf::ET_REL {
        return Err(LoadError::malformed_file("the file is already linked; an unlinked object file is required"));
    }
    Ok(header)
}

fn machine_name(machine: elf::Machine) -> String {
    match machine {
        elf::EM_X86_64 => "x86-64".to_owned(),
        elf::EM_AARCH64 => "AArch64".to_owned(),
        elf::EM_RISCV => "RISC-V".to_owned(),
        other => format!("ELF machine number {}", other.0),
    }
}

fn read_section<'a>(
    bytes: &'a [u8],
    table: &Sections<'a>,
    header: &'a HeaderOfSection,
) -> Result<Section<'a>, LoadError> {
    let name = utf8_text(table.section_name(LittleEndian, header)?)?;
    let flags = header.sh_flags(LittleEndian).0;
    let unsupported = |what: &str| LoadError::Unsupported { what: format!("{what} (section `{name}`)") };
    match header.sh_type(LittleEndian) {
        kind if is_called(name, kind) => {
            return Err(LoadError::RunsOnLoading { what: format!("section `{name}`") });
        }
        elf::SHT_REL | elf::SHT_RELA | elf::SHT_DYNAMIC | elf::SHT_DYNSYM => {
            return Err(unsupported("a dynamic table in an object file"));
        }
        _ => {}
    }
    if flags & elf::SHF_TLS.0 != 0 {
        return Err(unsupported("thread-local storage"));
    }
    if flags & elf::SHF_COMPRESSED.0 != 0 {
        return Err(unsupported("a compressed section"));
    }
    let access = match (flags & elf::SHF_EXECINSTR.0 != 0, flags & elf::SHF_WRITE.0 != 0) {
        (true, true) => return Err(unsupported("memory both writable and executable")),
        (true, false) => Access::Code,
        (false, true) => Access::Data,
        (false, false) => Access::Constants,
    };
    let alignment = header.sh_addralign(LittleEndian).max(1);
    if !alignment.is_power_of_two() || alignment > ALIGNMENT_LIMIT {
        return Err(LoadError::malformed_file(format!("invalid alignment {alignment} of section `{name}`")));
    }
    let size = usize::try_from(header.sh_size(LittleEndian))
        .map_err(|_| LoadError::malformed_file(format!("invalid size of section `{name}`")))?;
    // `data` is empty for sections without bytes in the file (bss).
    Ok(Section { name, access, alignment: alignment as usize, size, bytes: header.data(LittleEndian, bytes)? })
}

fn read_symbols<'a>(
    table: &Symbols<'a>,
    sections: &[Section<'a>],
    loaded_as: &[Option<usize>],
) -> Result<Vec<Symbol<'a>>, LoadError> {
    // Entry 0 of the table is empty; relocations without a symbol refer to it.
    let mut symbols = vec![Symbol { name: "", place: Place::Absolute(0), is_global: false }];
    for (index, symbol) in table.enumerate().skip(1) {
        let name = utf8_text(table.symbol_name(LittleEndian, symbol)?)?;
        let section = table.symbol_section(LittleEndian, symbol, index)?;
        let place = match section {
            Some(section) => match loaded_as.get(section.0).copied().flatten() {
                Some(section) => place_in(section, symbol.st_value(LittleEndian), name, sections)?,
                None => Place::Unreachable,
            },
            None if symbol.is_undefined(LittleEndian) => Place::Import { is_weak: symbol.is_weak() },
            None if symbol.st_shndx(LittleEndian) == elf::SHN_ABS => Place::Absolute(symbol.st_value(LittleEndian)),
            None => Place::Unreachable,
        };
        let place = match symbol.st_type() {
            // Indirect symbols get their address from a function, and thread-local ones are offsets.
            elf::STT_GNU_IFUNC | elf::STT_TLS => Place::Unreachable,
            _ => place,
        };
        let is_global = !symbol.is_local();
        symbols.push(Symbol { name, place, is_global });
    }
    Ok(symbols)
}

fn place_in(section: usize, value: u64, name: &str, sections: &[Section<'_>]) -> Result<Place, LoadError> {
    match usize::try_from(value) {
        Ok(offset) if offset <= sections[section].size => Ok(Place::Section { section, offset }),
        _ => Err(LoadError::malformed_file(format!("symbol `{name}` is outside its section"))),
    }
}

fn read_relocations(
    bytes: &[u8],
    table: &Sections<'_>,
    symbols: &Symbols<'_>,
    sections: &[Section<'_>],
    loaded_as: &[Option<usize>],
) -> Result<Vec<Relocation>, LoadError> {
    let mut relocations = Vec::new();
    for (_, header) in table.enumerate() {
        let Some(section) = loaded_as.get(header.sh_info(LittleEndian) as usize).copied().flatten() else { continue };
        if header.sh_type(LittleEndian) == elf::SHT_REL {
            return Err(LoadError::malformed_file("relocations without addends, which x86-64 does not use"));
        }
        let Some((entries, link)) = header.rela(LittleEndian, bytes)? else { continue };
        if link != symbols.section() {
            return Err(LoadError::malformed_file("relocations that refer to an unknown symbol table"));
        }
        let count = relocations.len().saturating_add(entries.len());
        if count > RELOCATION_LIMIT {
            return Err(too_large("the count of relocations", count as u64, RELOCATION_LIMIT as u64));
        }
        for entry in entries {
            let symbol = entry.r_sym(LittleEndian, false) as usize;
            if symbol >= symbols.len().max(1) {
                return Err(LoadError::malformed_file(format!("a relocation refers to symbol number {symbol}")));
            }
            let (offset, kind) = (entry.r_offset(LittleEndian), entry.r_type(LittleEndian, false));
            let kind = Kind::of_type(kind).ok_or_else(|| LoadError::UnsupportedRelocation {
                section: sections[section].name.to_owned(),
                offset,
                kind: kind.0,
            })?;
            relocations.push(Relocation { section, offset, kind, symbol, addend: entry.r_addend(LittleEndian) });
        }
    }
    Ok(relocations)
}

fn utf8_text(bytes: &[u8]) -> Result<&str, LoadError> {
    std::str::from_utf8(bytes).map_err(|_| LoadError::malformed_file("a name is not UTF-8"))
}

fn too_large(what: &'static str, size: u64, limit: u64) -> LoadError {
    LoadError::TooLarge { what, size, limit }
}
