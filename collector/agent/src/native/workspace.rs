//! Scratch memory of kernels, kept for the next call of the same size: asking the system each time would be timed, too.

use std::alloc::{Layout, alloc, dealloc};
use std::sync::Mutex;

/// What vectors want.
const ALIGNMENT: usize = 64;
/// So many pieces are kept.
const KEPT: usize = 64;

/// Pieces that nobody has, and those that somebody has: address and size.
static FREE: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());
static LENT: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// A piece of so many bytes, or nothing.
pub fn lend(bytes: usize) -> Option<*mut u8> {
    let bytes = bytes.max(1).next_multiple_of(ALIGNMENT);
    let layout = Layout::from_size_align(bytes, ALIGNMENT).ok()?;
    let mut free = FREE.lock().ok()?;
    let known = free.iter().position(|(_, size)| *size == bytes);
    let address = match known {
        Some(place) => free.swap_remove(place).0,
        // SAFETY: the layout is not empty.
        None => (unsafe { alloc(layout) }) as usize,
    };
    if address == 0 {
        return None;
    }
    LENT.lock().ok()?.push((address, bytes));
    Some(address as *mut u8)
}

/// Takes a piece back; whether it was lent.
pub fn take_back(address: *mut u8) -> bool {
    let (Ok(mut lent), Ok(mut free)) = (LENT.lock(), FREE.lock()) else { return false };
    let Some(place) = lent.iter().rposition(|(known, _)| *known == address as usize) else { return false };
    let piece = lent.swap_remove(place);
    free.push(piece);
    if free.len() > KEPT {
        let (address, bytes) = free.remove(0);
        let layout = Layout::from_size_align(bytes, ALIGNMENT).expect("it was made with this layout");
        // SAFETY: made by `alloc` with this layout, and in neither list any more.
        unsafe { dealloc(address as *mut u8, layout) };
    }
    true
}
