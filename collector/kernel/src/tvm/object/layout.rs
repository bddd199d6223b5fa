//! Where the parts of an object go in memory.
//!
//! ```text
//! code sections, jump stubs | constants, table of addresses | data
//! read + execute            | read                          | read + write     (each begins on a page)
//! ```
//!
//! Calls to other libraries always go through a stub, even when the target happens to be near: a call then costs the
//! same in every process, wherever the system placed the libraries. A shared library's calls work the same way.

use std::collections::BTreeMap;
use std::ops::Range;

use super::error::LoadError;
use super::read::{Access, Kind, Object, Place};
use crate::tvm::memory::page_bytes;

/// Larger images are rejected.
const IMAGE_LIMIT_BYTES: usize = 1 << 30;
pub const SLOT_BYTES: usize = 8;
/// Size of an indirect jump and its address.
pub const STUB_BYTES: usize = 16;
const STUB_ALIGNMENT: usize = 16;

/// Offsets of everything in an image.
#[derive(Debug)]
pub struct Layout {
    /// Ranges of [`Object::sections`].
    pub sections: Vec<Range<usize>>,
    /// Address slots, by symbol.
    pub slots: BTreeMap<usize, usize>,
    /// Jump stubs, by symbol.
    pub stubs: BTreeMap<usize, usize>,
    /// Code and stubs; whole pages.
    pub code: Range<usize>,
    /// Constants and slots; whole pages.
    pub constants: Range<usize>,
    /// Size of the image; whole pages.
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

    /// Copies the sections; the rest of the image is zero already.
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

/// Returns symbols that need a slot and symbols that need a stub, not yet placed.
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
