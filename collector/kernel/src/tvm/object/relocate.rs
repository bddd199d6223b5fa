//! Patches the image of an object, as defined by the x86-64 System V ABI.

use super::context::Imports;
use super::error::LoadError;
use super::layout::Layout;
use super::read::{Kind, Object, Place, Relocation};

/// Writes slots and stubs, then applies all relocations to `image`, which will be executed at address `base`.
pub fn relocate_image(
    object: &Object<'_>,
    layout: &Layout,
    imports: &Imports,
    base: u64,
    image: &mut [u8],
) -> Result<(), LoadError> {
    let addresses = Addresses { object, layout, imports, base };
    for (symbol, slot) in &layout.slots {
        patch_bytes(image, *slot, &addresses.symbol_address(*symbol)?.to_le_bytes())?;
    }
    for (symbol, stub) in &layout.stubs {
        patch_bytes(image, *stub, &jump_to(addresses.symbol_address(*symbol)?))?;
    }
    for relocation in &object.relocations {
        apply_relocation(relocation, &addresses, image)?;
    }
    Ok(())
}

struct Addresses<'a> {
    object: &'a Object<'a>,
    layout: &'a Layout,
    imports: &'a Imports,
    base: u64,
}

impl Addresses<'_> {
    fn symbol_address(&self, index: usize) -> Result<u64, LoadError> {
        let symbol = &self.object.symbols[index];
        match symbol.place {
            Place::Section { section, offset } => Ok(self.image_address(self.layout.sections[section].start + offset)),
            Place::Absolute(value) => Ok(value),
            Place::Import { .. } => self
                .imports
                .get(&index)
                .copied()
                .ok_or_else(|| LoadError::UnresolvedSymbol { name: symbol.name.to_owned() }),
            Place::Unreachable => Err(LoadError::Unsupported {
                what: format!("a reference to `{}`, which is thread-local, indirect or not loaded", symbol.name),
            }),
        }
    }

    fn image_address(&self, offset: usize) -> u64 {
        self.base.wrapping_add(offset as u64)
    }
}

fn apply_relocation(relocation: &Relocation, addresses: &Addresses<'_>, image: &mut [u8]) -> Result<(), LoadError> {
    let section = &addresses.layout.sections[relocation.section];
    let outside = || {
        let name = addresses.object.sections[relocation.section].name;
        LoadError::malformed_file(format!(
            "a relocation at offset {:#x} is outside of section `{name}`",
            relocation.offset
        ))
    };
    let offset =
        usize::try_from(relocation.offset).ok().filter(|offset| *offset < section.len()).ok_or_else(outside)?;
    let place = section.start + offset;
    let field = |target: u64| target.wrapping_add_signed(relocation.addend);
    let relative = |target: u64| field(target).wrapping_sub(addresses.image_address(place));
    let symbol = || addresses.symbol_address(relocation.symbol);
    let value = match relocation.kind {
        Kind::Nothing => return Ok(()),
        Kind::Absolute64 => RelocatedField::Eight(field(symbol()?)),
        Kind::Absolute32 => RelocatedField::unsigned_field(field(symbol()?)),
        Kind::Absolute32Signed => RelocatedField::signed_field(field(symbol()?)),
        Kind::Relative32 => RelocatedField::signed_field(relative(symbol()?)),
        Kind::Call32 => match addresses.layout.stubs.get(&relocation.symbol) {
            Some(stub) => RelocatedField::signed_field(relative(addresses.image_address(*stub))),
            None => RelocatedField::signed_field(relative(symbol()?)),
        },
        Kind::Slot32 => {
            RelocatedField::signed_field(relative(addresses.image_address(addresses.layout.slots[&relocation.symbol])))
        }
    };
    // A field must end inside of its section, or it would patch its neighbour.
    let room = image.get_mut(place..section.end).ok_or_else(outside)?;
    match value {
        RelocatedField::Four(value) => room.get_mut(..4).ok_or_else(outside)?.copy_from_slice(&value.to_le_bytes()),
        RelocatedField::Eight(value) => room.get_mut(..8).ok_or_else(outside)?.copy_from_slice(&value.to_le_bytes()),
        RelocatedField::TooFar => return Err(out_of_reach(relocation, addresses)),
    }
    Ok(())
}

enum RelocatedField {
    Four(u32),
    Eight(u64),
    TooFar,
}

impl RelocatedField {
    fn unsigned_field(value: u64) -> Self {
        u32::try_from(value).map_or(Self::TooFar, Self::Four)
    }

    fn signed_field(value: u64) -> Self {
        i32::try_from(value.cast_signed()).map_or(Self::TooFar, |value| Self::Four(value.cast_unsigned()))
    }
}

/// Encodes `jmp *0(%rip)`, followed by the target address that the instruction reads.
fn jump_to(target: u64) -> [u8; 14] {
    let mut stub = [0xff, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    stub[6..].copy_from_slice(&target.to_le_bytes());
    stub
}

fn patch_bytes(image: &mut [u8], offset: usize, bytes: &[u8]) -> Result<(), LoadError> {
    let end = offset.saturating_add(bytes.len());
    let target = image
        .get_mut(offset..end)
        .ok_or_else(|| LoadError::malformed_file("the image is too small for its sections"))?;
    target.copy_from_slice(bytes);
    Ok(())
}

fn out_of_reach(relocation: &Relocation, addresses: &Addresses<'_>) -> LoadError {
    LoadError::OutOfReach {
        section: addresses.object.sections[relocation.section].name.to_owned(),
        offset: relocation.offset,
        symbol: addresses.object.symbols[relocation.symbol].name.to_owned(),
    }
}
