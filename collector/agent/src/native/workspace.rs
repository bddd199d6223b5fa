//! Workspace memory of kernels, cached by size, because its allocation would be part of the measured time.

use std::alloc::{Layout, alloc, dealloc};
use std::sync::Mutex;

/// Alignment for vector instructions.
const ALIGNMENT: usize = 64;
const KEPT: usize = 64;

/// Workspace allocations by address and size, under one lock, as a kernel's threads use them concurrently.
struct Pieces {
    free: Vec<(usize, usize)>,
    lent: Vec<(usize, usize)>,
}

static PIECES: Mutex<Pieces> = Mutex::new(Pieces { free: Vec::new(), lent: Vec::new() });

pub fn lend_piece(bytes: usize) -> Option<*mut u8> {
    let bytes = bytes.max(1).next_multiple_of(ALIGNMENT);
    let layout = Layout::from_size_align(bytes, ALIGNMENT).ok()?;
    let Pieces { free, lent } = &mut *PIECES.lock().ok()?;
    let known = free.iter().position(|(_, size)| *size == bytes);
    let address = match known {
        Some(place) => free.swap_remove(place).0,
        // SAFETY: the layout is not empty.
        None => (unsafe { alloc(layout) }) as usize,
    };
    if address == 0 {
        return None;
    }
    lent.push((address, bytes));
    Some(address as *mut u8)
}

/// Marks an allocation as free. Returns false if no allocation in use has this address.
pub fn take_back(address: *mut u8) -> bool {
    let Ok(mut pieces) = PIECES.lock() else { return false };
    let Pieces { free, lent } = &mut *pieces;
    let Some(place) = lent.iter().rposition(|(known, _)| *known == address as usize) else { return false };
    let piece = lent.swap_remove(place);
    free.push(piece);
    if free.len() > KEPT {
        let (address, bytes) = free.remove(0);
        let layout = Layout::from_size_align(bytes, ALIGNMENT).expect("it was made with this layout");
        // SAFETY: the piece was allocated by `alloc` with this layout and is in neither list.
        unsafe { dealloc(address as *mut u8, layout) };
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn threads_allocate_and_free_concurrently() {
        let (done, received) = mpsc::channel();
        for thread in 1..=4 {
            let done = done.clone();
            std::thread::spawn(move || {
                for round in 0..50_000 {
                    let piece = lend_piece(64 * (thread + round % 3)).expect("memory");
                    assert!(take_back(piece), "it was lent");
                }
                done.send(()).expect("the test waits");
            });
        }
        for _ in 0..4 {
            received.recv_timeout(Duration::from_secs(60)).expect("no thread waits for another one without limit");
        }
        assert!(!take_back(std::ptr::without_provenance_mut(64)), "the address was not lent");
    }
}
