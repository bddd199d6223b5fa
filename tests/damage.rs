//! Mutations of bytes, for tests of readers of untrusted files.
#![allow(dead_code, reason = "every test does some of it")]

use proptest::prelude::*;
use proptest::sample::Index;

#[derive(Clone, Debug)]
pub enum Damage {
    Truncate(Index),
    Flip(Index, u8),
    Overwrite(Index, Vec<u8>),
    Copy { from: Index, to: Index, count: usize },
    Insert(Index, Vec<u8>),
    Repeat { from: Index, to: Index, count: usize },
}

impl Damage {
    pub fn apply(&self, bytes: &mut Vec<u8>) {
        let length = bytes.len();
        if length == 0 {
            return;
        }
        match self {
            Damage::Truncate(at) => bytes.truncate(at.index(length)),
            Damage::Flip(at, bit) => bytes[at.index(length)] ^= 1 << bit,
            Damage::Overwrite(at, others) => {
                let start = at.index(length);
                let end = length.min(start + others.len());
                drop(bytes.splice(start..end, others.iter().copied()));
            }
            Damage::Copy { from, to, count } => {
                let (from, to) = (from.index(length), to.index(length));
                let count = (*count).min(length - from).min(length - to);
                bytes.copy_within(from..from + count, to);
            }
            Damage::Insert(at, others) => {
                drop(bytes.splice(at.index(length)..at.index(length), others.iter().copied()));
            }
            Damage::Repeat { from, to, count } => {
                let (from, to) = (from.index(length), to.index(length));
                let part = bytes[from..length.min(from + count)].to_vec();
                drop(bytes.splice(to..to, part));
            }
        }
    }
}

/// Generates mutations, some of which insert one of the given words.
pub fn with_words<Word: AsRef<[u8]>>(words: &[Word]) -> impl Strategy<Value = Damage> + use<Word> {
    let index = any::<Index>;
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_ref().to_vec()).collect();
    prop_oneof![
        1 => index().prop_map(Damage::Truncate),
        4 => (index(), 0..8u8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        4 => (index(), prop::sample::select(words)).prop_map(|(at, word)| Damage::Overwrite(at, word)),
        1 => (index(), index(), 1..64usize).prop_map(|(from, to, count)| Damage::Repeat { from, to, count }),
    ]
}
