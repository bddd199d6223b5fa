//! Damage to bytes, for readers of files that anybody may have written.

use proptest::prelude::*;
use proptest::sample::Index;

/// One damage to bytes.
#[derive(Clone, Debug)]
pub enum Damage {
    Truncate(Index),
    Flip(Index, u8),
    Overwrite(Index, Vec<u8>),
    Copy { from: Index, to: Index, count: usize },
}

/// Damages that put one of these words somewhere, among others.
pub fn damage(words: Vec<Vec<u8>>) -> impl Strategy<Value = Damage> {
    let index = any::<Index>;
    prop_oneof![
        1 => index().prop_map(Damage::Truncate),
        4 => (index(), 0..8u8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        4 => (index(), prop::sample::select(words)).prop_map(|(at, word)| Damage::Overwrite(at, word)),
        1 => (index(), index(), 1..64usize).prop_map(|(from, to, count)| Damage::Copy { from, to, count }),
    ]
}

/// Does damage to bytes.
pub fn apply(damages: &[Damage], bytes: &mut Vec<u8>) {
    for damage in damages {
        if bytes.is_empty() {
            return;
        }
        match damage {
            Damage::Truncate(at) => bytes.truncate(at.index(bytes.len())),
            Damage::Flip(at, bit) => {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
            }
            Damage::Overwrite(at, word) => {
                let at = at.index(bytes.len());
                let end = bytes.len().min(at + word.len());
                bytes.splice(at..end, word.iter().copied());
            }
            Damage::Copy { from, to, count } => {
                let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
                let copied = bytes[from..bytes.len().min(from + count)].to_vec();
                bytes.splice(to..to, copied);
            }
        }
    }
}

/// Words as bytes.
pub fn texts(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}
