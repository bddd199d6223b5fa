//! Positions of the parts of an object in memory. Calls to other libraries always go through a jump stub, as in shared
//! libraries, so that a call costs the same in every process, independent of library addresses.
//!
//! ```text
//! code sections, jump stubs | constants, table of addresses | data
//! read + execute            | read                          | read + write     (each begins on a page)
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use super::error::LoadError;
use super::read::{Access, Kind, Object, Place};
use crate::tvm::memory::page_bytes;

const IMAGE_LIMIT_BYTES: usize = 1 << 30;
pub const SLOT_BYTES: usize = 8;
/// Size of a jump stub: an indirect jump, followed by its target address.
pub const STUB_BYTES: usize = 16;
const STUB_ALIGNMENT: usize = 16;

#[derive(Debug)]
pub struct Layout {
    pub sections: Vec<Range<usize>>,
    /// Offset of the slot that holds a symbol's address, by symbol index.
    pub slots: BTreeMap<usize, usize>,
    /// Offset of the jump stub to a symbol, by symbol index.
    pub stubs: BTreeMap<usize, usize>,
    /// Range of code and stubs, in whole pages.
    pub code: Range<usize>,
    /// Range of constants and address slots, in whole pages.
    pub constants: Range<usize>,
    pub size: usize,
}

impl Layout {
    pub fn new(object: &Object<'_>) -> Result<Self, LoadError> {
        let mut cursor = Cursor { offset: 0, page_bytes: page_bytes() };
        let mut sections = vec![0..0; object.sections.len()];
        let (mut slots, mut stubs) = needed_symbols(object);

        cursor.place_all(object, Access::Code, &mut sections)?;
        for offset in stubs.values_mut() {
            *offset = cursor.take_range(STUB_BYTES, STUB_ALIGNMENT)?.start;
        }
        let code = 0..cursor.end_of_page()?;

        cursor.place_all(object, Access::Constants, &mut sections)?;
        for offset in slots.values_mut() {
            *offset = cursor.take_range(SLOT_BYTES, SLOT_BYTES)?.start;
        }
        let constants = code.end..cursor.end_of_page()?;

        cursor.place_all(object, Access::Data, &mut sections)?;
        let size = cursor.end_of_page()?;
        Ok(Self { sections, slots, stubs, code, constants, size })
    }

    pub fn copy_sections(&self, object: &Object<'_>, image: &mut [u8]) -> Result<(), LoadError> {
        for (section, place) in object.sections.iter().zip(&self.sections) {
            let target = image.get_mut(place.clone()).and_then(|target| target.get_mut(..section.bytes.len()));
            let Some(target) = target else {
                return Err(LoadError::malformed_file(format!(
                    "section `{}` holds more bytes than its size",
                    section.name
                )));
            };
            target.copy_from_slice(section.bytes);
        }
        Ok(())
    }
}

/// Returns the symbols that need an address slot, and the symbols that need a jump stub, all with offset 0 for now.
fn needed_symbols(object: &Object<'_>) -> (BTreeMap<usize, usize>, BTreeMap<usize, usize>) {
    let (mut slots, mut stubs) = (BTreeMap::new(), BTreeMap::new());
    for relocation in &object.relocations {
        let is_import = matches!(object.symbols[relocation.symbol].place, Place::Import { .. });
        match relocation.kind {
            Kind::Slot32 => {
                slots.insert(relocation.symbol, 0);
            }
            Kind::Call32 if is_import => {
                stubs.insert(relocation.symbol, 0);
            }
            _ => {}
        }
    }
    (slots, stubs)
}

struct Cursor {
    offset: usize,
    page_bytes: usize,
}

impl Cursor {
    fn place_all(&mut self, object: &Object<'_>, access: Access, places: &mut [Range<usize>]) -> Result<(), LoadError> {
        for (section, place) in object.sections.iter().zip(places) {
            if section.access == access {
                *place = self.take_range(section.size, section.alignment)?;
            }
        }
        Ok(())
    }

    fn take_range(&mut self, size: usize, alignment: usize) -> Result<Range<usize>, LoadError> {
        let start = self.offset.next_multiple_of(alignment);
        let end = start.checked_add(size).filter(|end| *end <= IMAGE_LIMIT_BYTES).ok_or(LoadError::TooLarge {
            what: "the loaded image",
            size: start.saturating_add(size) as u64,
            limit: IMAGE_LIMIT_BYTES as u64,
        })?;
        self.offset = end;
        Ok(start..end)
    }

    fn end_of_page(&mut self) -> Result<usize, LoadError> {
        Ok(self.take_range(0, self.page_bytes)?.end)
    }
}
