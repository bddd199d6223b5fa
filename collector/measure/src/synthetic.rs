//! Synthetic workloads, each of which loads one resource while an operator runs concurrently. The operator's slowdown
//! is its sensitivity to that resource; the workload's slowdown is the operator's pressure on it.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::hint::black_box;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Synthetic {
    /// Multiply-adds on registers only.
    Arithmetic,
    /// Updates of a buffer larger than any cache.
    Bandwidth,
    Cache {
        bytes: u64,
    },
}

const BYTES_MAX: u64 = 1 << 30;
const BLOCK_WORDS: usize = (64 << 10) / 8;

impl Synthetic {
    /// Parses the format of [`fmt::Display`]: `arithmetic`, `bandwidth`, `cache=4MiB`.
    pub fn parse_workload(text: &str) -> Option<Synthetic> {
        match text {
            "arithmetic" => Some(Synthetic::Arithmetic),
            "bandwidth" => Some(Synthetic::Bandwidth),
            _ => {
                let size = text.strip_prefix("cache=")?;
                let (number, unit) = match (size.strip_suffix("MiB"), size.strip_suffix("KiB")) {
                    (Some(number), _) => (number, 1 << 20),
                    (None, Some(number)) => (number, 1 << 10),
                    (None, None) => return None,
                };
                let bytes = number.parse::<u64>().ok()?.checked_mul(unit)?;
                (1..=BYTES_MAX).contains(&bytes).then_some(Synthetic::Cache { bytes })
            }
        }
    }

    pub fn bytes_per_run(self) -> u64 {
        match self {
            Synthetic::Arithmetic => 0,
            Synthetic::Bandwidth => 2 * 8 * BLOCK_WORDS as u64,
            Synthetic::Cache { .. } => 8 * BLOCK_WORDS as u64,
        }
    }
}

impl fmt::Display for Synthetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Synthetic::Arithmetic => f.pad("arithmetic"),
            Synthetic::Bandwidth => f.pad("bandwidth"),
            Synthetic::Cache { bytes } if bytes.is_multiple_of(1 << 20) => f.pad(&format!("cache={}MiB", bytes >> 20)),
            Synthetic::Cache { bytes } => f.pad(&format!("cache={}KiB", bytes >> 10)),
        }
    }
}

pub struct Load {
    what: Synthetic,
    words: Vec<u64>,
    next: usize,
}

impl Load {
    /// Creates a workload and touches its memory; `cache_bytes` is the size of the largest cache.
    pub fn new(what: Synthetic, cache_bytes: u64) -> Load {
        const CACHE_BYTES: u64 = 64 << 20;
        let bytes = match what {
            Synthetic::Arithmetic => 0,
            Synthetic::Bandwidth => 4 * if cache_bytes == 0 { CACHE_BYTES } else { cache_bytes },
            Synthetic::Cache { bytes } => bytes,
        };
        let words = usize::try_from(bytes.min(BYTES_MAX) / 8).unwrap_or(0);
        Load { what, words: (1..=words as u64).collect(), next: 0 }
    }

    pub fn run_times(&mut self, times: u32) {
        for _ in 0..times {
            match self.what {
                Synthetic::Arithmetic => run_arithmetic(),
                Synthetic::Bandwidth => self.next_block().iter_mut().for_each(|word| *word = word.wrapping_add(1)),
                Synthetic::Cache { .. } => {
                    let sum = self.next_block().iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
                    black_box(sum);
                }
            }
        }
    }

    fn next_block(&mut self) -> &mut [u64] {
        let length = BLOCK_WORDS.min(self.words.len());
        if self.next + length > self.words.len() {
            self.next = 0;
        }
        let from = self.next;
        self.next += length;
        &mut self.words[from..from + length]
    }
}

fn run_arithmetic() {
    const CHAINS: usize = 64;
    const STEPS: usize = 500;
    let (factor, term) = (black_box(0.999f32), black_box(0.001f32));
    let mut sums = [1.0f32; CHAINS];
    for _ in 0..STEPS {
        sums.iter_mut().for_each(|sum| *sum = *sum * factor + term);
    }
    black_box(sums);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let all = [
            Synthetic::Arithmetic,
            Synthetic::Bandwidth,
            Synthetic::Cache { bytes: 4 << 20 },
            Synthetic::Cache { bytes: 48 << 10 },
        ];
        for one in all {
            assert_eq!(Synthetic::parse_workload(&one.to_string()), Some(one));
        }
        for text in ["", "cache", "cache=", "cache=4", "cache=0KiB", "cache=-1MiB", "cache=99999999999999999999MiB"] {
            assert_eq!(Synthetic::parse_workload(text), None, "{text}");
        }
        assert_eq!(Synthetic::parse_workload("cache=2048MiB"), None, "more than any cache");
    }

    #[test]
    fn a_buffer_is_gone_through_from_end_to_end() {
        let mut load = Load::new(Synthetic::Bandwidth, 64 << 10);
        assert_eq!(load.words.len(), 4 * BLOCK_WORDS);
        load.run_times(5);
        // The first quarter was touched twice, the others once.
        assert_eq!((load.words[0], load.words[BLOCK_WORDS]), (3, BLOCK_WORDS as u64 + 2));
        let mut small = Load::new(Synthetic::Cache { bytes: 1 << 10 }, 0);
        small.run_times(3);
        assert_eq!(small.words.len(), 128);
        Load::new(Synthetic::Arithmetic, 0).run_times(1);
    }
}
