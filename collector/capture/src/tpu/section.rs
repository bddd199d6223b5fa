//! Matching of sections of records with sections of commands.
//! Two sections can only match if they cover equally many numbers (their span), so the result is a longest common
//! subsequence of two lists of spans. Among several longest ones, that of the vendor's tool is chosen. The tool
//! follows an edit-distance table from the end, matches equal spans whenever possible, and prefers to drop records
//! rather than commands. Its table has quadratic size. Here, equal prefixes and suffixes are skipped, and only a
//! diagonal band of the table is computed.

/// Maximum number of cells of the band. Lists that differ too much for it are not matched.
const MAX_CELLS: usize = 1 << 24;

/// Returns pairs of matching record and command sections in ascending order, or `None` if the lists differ too much.
pub fn align_sections(records: &[u64], commands: &[u64]) -> Option<Vec<(usize, usize)>> {
    let mut pairs = Vec::new();
    let (mut i, mut j) = (records.len(), commands.len());
    let head = records.iter().zip(commands).take_while(|(record, command)| record == command).count();
    let tail = records.iter().rev().zip(commands.iter().rev()).take_while(|(record, command)| record == command);
    let tail = tail.count().min(i.min(j) - head);
    let (rows, columns) = (i - tail - head, j - tail - head);
    let distances = if rows > 0 && columns > 0 {
        Some(Band::narrowest_band(&records[head..head + rows], &commands[head..head + columns])?)
    } else {
        None
    };
    while i > 0 && j > 0 {
        if records[i - 1] == commands[j - 1] {
            pairs.push((i - 1, j - 1));
            (i, j) = (i - 1, j - 1);
            continue;
        }
        // Within the common prefix the distance is the difference of the lengths.
        let drop_record = match &distances {
            Some(band) if i > head && j > head => {
                band.distance_at(i - 1 - head, j - head) <= band.distance_at(i - head, j - 1 - head)
            }
            _ => i > j,
        };
        if drop_record { i -= 1 } else { j -= 1 }
    }
    pairs.reverse();
    Some(pairs)
}

/// Edit distances of all pairs of prefixes near the diagonal of the table.
struct Band {
    half: usize,
    columns: usize,
    cells: Vec<u32>,
}

const FAR: u32 = u32::MAX / 2;

impl Band {
    /// Computes the narrowest band that contains all distances that tracing back the path compares.
    fn narrowest_band(records: &[u64], commands: &[u64]) -> Option<Band> {
        let longest = records.len().max(commands.len()) + 1;
        let mut half = records.len().abs_diff(commands.len()) + 16;
        loop {
            let half_now = half.min(longest);
            let band = Band::fill_cells(records, commands, half_now)?;
            let distance = band.distance_at(records.len(), commands.len()) as usize;
            // The distance of an adjacent cell exceeds the total by at most one.
            if distance + 2 <= half_now || half_now == longest {
                return Some(band);
            }
            half *= 2;
        }
    }

    fn fill_cells(records: &[u64], commands: &[u64], half: usize) -> Option<Band> {
        let width = 2 * half + 1;
        let count = width.checked_mul(records.len() + 1).filter(|count| *count <= MAX_CELLS)?;
        let mut band = Band { half, columns: commands.len(), cells: vec![FAR; count] };
        for i in 0..=records.len() {
            for j in i.saturating_sub(half)..=(i + half).min(commands.len()) {
                let value = if i == 0 || j == 0 {
                    (i + j) as u32
                } else if records[i - 1] == commands[j - 1] {
                    band.distance_at(i - 1, j - 1)
                } else {
                    1 + band.distance_at(i - 1, j).min(band.distance_at(i, j - 1))
                };
                band.cells[i * width + j + half - i] = value;
            }
        }
        Some(band)
    }

    fn distance_at(&self, i: usize, j: usize) -> u32 {
        if j > self.columns || i.abs_diff(j) > self.half {
            return FAR;
        }
        self.cells[i * (2 * self.half + 1) + j + self.half - i]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Matches sections by the vendor's algorithm, with the full table, as a reference for tests.
    fn by_table(records: &[u64], commands: &[u64]) -> Vec<(usize, usize)> {
        let (m, n) = (records.len(), commands.len());
        let mut table = vec![vec![0u32; n + 1]; m + 1];
        for i in 0..=m {
            for j in 0..=n {
                table[i][j] = match (i, j) {
                    (0, _) | (_, 0) => (i + j) as u32,
                    _ if records[i - 1] == commands[j - 1] => table[i - 1][j - 1],
                    _ => 1 + table[i - 1][j].min(table[i][j - 1]),
                };
            }
        }
        let (mut i, mut j, mut pairs) = (m, n, Vec::new());
        while i > 0 && j > 0 {
            if records[i - 1] == commands[j - 1] {
                pairs.push((i - 1, j - 1));
                (i, j) = (i - 1, j - 1);
            } else if table[i - 1][j] <= table[i][j - 1] {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        pairs.reverse();
        pairs
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn the_band_matches_the_full_table(
            records in prop::collection::vec(0u64..4, 0..40),
            commands in prop::collection::vec(0u64..4, 0..40),
        ) {
            prop_assert_eq!(align_sections(&records, &commands).unwrap(), by_table(&records, &commands));
        }

        #[test]
        fn similar_lists_match_the_full_table(
            mut records in prop::collection::vec(0u64..3, 0..80),
            cuts in prop::collection::vec((any::<prop::sample::Index>(), 0u64..5), 0..6),
        ) {
            let commands = records.clone();
            for (place, value) in cuts {
                if !records.is_empty() {
                    let at = place.index(records.len());
                    if value == 4 { records.remove(at); } else { records.insert(at, value); }
                }
            }
            prop_assert_eq!(align_sections(&records, &commands).unwrap(), by_table(&records, &commands));
        }
    }
}
