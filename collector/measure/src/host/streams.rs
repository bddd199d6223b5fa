//! Streaming loops, compiled for several vector extensions and dispatched at run time.

use multiversion::multiversion;

pub const LINE_BYTES: usize = 64;

pub const LINE: usize = LINE_BYTES / size_of::<f64>();

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Copy,
    Triad,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Read, Kind::Write, Kind::Copy, Kind::Triad];

    pub fn stream_name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Copy => "copy",
            Kind::Triad => "triad",
        }
    }

    /// Returns the number of arrays that a pass accesses; write-allocate reads do not count.
    pub fn array_count(self) -> usize {
        match self {
            Kind::Read | Kind::Write => 1,
            Kind::Copy => 2,
            Kind::Triad => 3,
        }
    }
}

/// Runs one pass over equal arrays of whole cache lines; the result depends on all reads, so that none is removed.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
pub fn run_pass(kind: Kind, memory: &mut [f64]) -> u64 {
    let count = elements_per_array(kind, memory.len());
    let (result, rest) = memory.split_at_mut(count);
    match kind {
        Kind::Read => return read_elements(result),
        Kind::Write => result.fill(2.5),
        Kind::Copy => result.copy_from_slice(&rest[..count]),
        Kind::Triad => {
            let (left, right) = rest.split_at(count);
            for ((result, left), right) in result.iter_mut().zip(left).zip(right) {
                *result = left + 3.0 * right;
            }
        }
    }
    0
}

pub fn elements_per_array(kind: Kind, all: usize) -> usize {
    all / kind.array_count() / LINE * LINE
}

/// XORs all elements, which vectorises with one cycle of latency; a floating-point sum would be latency-bound.
#[inline(always)]
fn read_elements(memory: &[f64]) -> u64 {
    memory.iter().fold(0, |bits, element| bits ^ element.to_bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_move_what_they_say() {
        for count in [0, 1, 7, 8, 9, 24, 100, 800] {
            let before: Vec<f64> = (0..count).map(f64::from).collect();
            let after = |kind| {
                let mut memory = before.clone();
                let bits = run_pass(kind, &mut memory);
                (bits, memory, elements_per_array(kind, before.len()))
            };
            let (bits, memory, own) = after(Kind::Read);
            assert_eq!(memory, before, "reading writes nothing");
            assert_eq!(bits, before[..own].iter().fold(0, |all, element| all ^ element.to_bits()));
            let (_, memory, own) = after(Kind::Write);
            assert!(memory[..own].iter().all(|element| *element == 2.5) && memory[own..] == before[own..]);
            let (_, memory, own) = after(Kind::Copy);
            assert_eq!((&memory[..own], &memory[own..]), (&before[own..2 * own], &before[own..]));
            let (_, memory, own) = after(Kind::Triad);
            let triad = |place: usize| before[own + place] + 3.0 * before[2 * own + place];
            assert!((0..own).all(|place| memory[place] == triad(place)) && memory[own..] == before[own..]);
            assert!(own % LINE == 0 && before.len() - 3 * own < 3 * LINE);
        }
    }
}
