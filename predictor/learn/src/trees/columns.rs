//! A lossless columnar byte format for trees: each column of numbers is stored as four byte planes.
//!
//! Neighbouring values are similar: most children have the expected index, and floats share their leading bytes. A
//! feature has few distinct thresholds, so nodes store an index into a list of them.

use super::split::{Split, threshold_of};
use super::{MAX_NODES, MAX_TREES, Trees};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub struct TreeWriter {
    columns: Columns<Vec<u32>>,
}

pub struct Reader<'a> {
    columns: Columns<TreeColumn<'a>>,
}

#[derive(Default)]
struct Columns<T> {
    /// Per set: number of features, base value, number of trees; per tree: number of nodes.
    counts: T,
    /// Per node: 0 for a leaf, else one plus the offset of its children from their expected index.
    children: T,
    /// Per inner node: index of the feature; upper bits: whether missing values go left.
    questions: T,
    /// Per inner node: index into the list of its feature's thresholds.
    thresholds: T,
    steps: T,
    differences: T,
    leaves: T,
    covers: T,
}

struct TreeColumn<'a> {
    rows: [&'a [u8]; 4],
    next: usize,
}

impl<T> Columns<T> {
    fn in_order(self) -> [T; 8] {
        let Columns { counts, children, questions, thresholds, steps, differences, leaves, covers } = self;
        [counts, children, questions, thresholds, steps, differences, leaves, covers]
    }
}

impl TreeWriter {
    pub fn write_trees(&mut self, trees: &Trees) {
        let columns = &mut self.columns;
        columns.counts.extend([trees.features as u32, trees.base.to_bits(), trees.trees.len() as u32]);
        let steps = steps_of(trees);
        for feature in 0..trees.features as u32 {
            let of = steps.get(&feature).map(Vec::as_slice).unwrap_or_default();
            columns.steps.push(of.len() as u32);
            let before = std::iter::once(&0).chain(of);
            columns.differences.extend(of.iter().zip(before).map(|(key, before)| key - before));
        }
        for tree in 0..trees.len() {
            let places = trees.node_range(tree);
            columns.counts.push(places.len() as u32);
            let mut expected = places.start + 1;
            for place in places {
                let node = &trees.nodes[place];
                let left = node.left as usize;
                columns.covers.push(trees.covers[place].to_bits());
                if left == place {
                    columns.children.push(0);
                    columns.leaves.push(trees.leaves[place].to_bits());
                    continue;
                }
                columns.children.push(1 + zigzag_encode(left as i64 - expected as i64));
                expected = expected.max(left + 2);
                let feature = u32::from(node.feature());
                columns.questions.push(feature | u32::from(node.absent_left()) << 16);
                let number = steps[&feature]
                    .binary_search(&node.written_threshold())
                    .expect("all thresholds of a feature are listed");
                columns.thresholds.push(number as u32);
            }
        }
    }

    pub fn into_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for column in self.columns.in_order() {
            bytes.extend((column.len() as u32).to_le_bytes());
            for rank in 0..4 {
                bytes.extend(column.iter().map(|number| number.to_le_bytes()[rank]));
            }
        }
        bytes
    }
}

impl<'a> Reader<'a> {
    /// Starts reading bytes that need not be valid.
    pub fn new(mut bytes: &'a [u8]) -> Result<Reader<'a>, String> {
        let mut column = || -> Result<TreeColumn<'a>, String> {
            let (length, rest) = bytes.split_first_chunk::<4>().ok_or(ENDS)?;
            let length = u32::from_le_bytes(*length) as usize;
            let (column, rest) = length.checked_mul(4).and_then(|all| rest.split_at_checked(all)).ok_or(ENDS)?;
            bytes = rest;
            Ok(TreeColumn { rows: std::array::from_fn(|rank| &column[rank * length..(rank + 1) * length]), next: 0 })
        };
        let columns = Columns {
            counts: column()?,
            children: column()?,
            questions: column()?,
            thresholds: column()?,
            steps: column()?,
            differences: column()?,
            leaves: column()?,
            covers: column()?,
        };
        match bytes.is_empty() {
            true => Ok(Reader { columns }),
            false => Err(MORE.to_owned()),
        }
    }

    pub fn read_trees(&mut self) -> Result<Trees, String> {
        let columns = &mut self.columns;
        let (features, base, count) = (
            columns.counts.read_number()? as usize,
            f32::from_bits(columns.counts.read_number()?),
            columns.counts.read_number()? as usize,
        );
        let too_large = || "the trees exceed the size limit of this program".to_owned();
        if features > usize::from(u16::MAX) || count > MAX_TREES || !base.is_finite() {
            return Err(too_large());
        }
        let mut steps: Vec<Vec<f32>> = Vec::new();
        for _ in 0..features {
            let mut last = 0u32;
            let step = (0..columns.steps.read_number()?).map(|_| {
                last = last.checked_add(columns.differences.read_number()?).ok_or("thresholds do not ascend")?;
                Ok(threshold_of(last))
            });
            steps.push(step.collect::<Result<_, String>>()?);
        }
        let mut trees = Trees { features, base, ..Trees::default() };
        let mut roots = Vec::new();
        for _ in 0..count {
            let (root, nodes) = (trees.nodes.len(), columns.counts.read_number()? as usize);
            if root + nodes > MAX_NODES {
                return Err(too_large());
            }
            roots.push(root as u32);
            let mut expected = root as i64 + 1;
            for place in root..root + nodes {
                trees.covers.push(f32::from_bits(columns.covers.read_number()?));
                let Some(children) = columns.children.read_number()?.checked_sub(1) else {
                    trees.leaves.push(f32::from_bits(columns.leaves.read_number()?));
                    trees.nodes.push(Split::leaf_at(place as u32));
                    continue;
                };
                let left = expected + zigzag_decode(children);
                expected = expected.max(left + 2);
                let question = columns.questions.read_number()?;
                let feature = question as u16;
                let number = columns.thresholds.read_number()? as usize;
                let threshold = steps.get(usize::from(feature)).and_then(|of| of.get(number));
                trees.leaves.push(0.0);
                let left = u32::try_from(left).ok().filter(|left| *left as usize != place);
                let left = left.ok_or("a node has an invalid child")?;
                let threshold = *threshold.ok_or("a node has no threshold")?;
                trees.nodes.push(Split::new(left, feature, threshold, question >> 16 & 1 == 1));
            }
        }
        trees.trees = trees.check_spans(&roots)?;
        Ok(trees)
    }

    pub fn check_finished(self) -> Result<(), String> {
        match self.columns.in_order().iter().all(|column| column.next == column.rows[0].len()) {
            true => Ok(()),
            false => Err(MORE.to_owned()),
        }
    }
}

const ENDS: &str = "the file ends within the trees";
const MORE: &str = "the file is longer than its header states";

impl TreeColumn<'_> {
    fn read_number(&mut self) -> Result<u32, String> {
        if self.next == self.rows[0].len() {
            return Err(ENDS.to_owned());
        }
        let number = u32::from_le_bytes(self.rows.map(|row| row[self.next]));
        self.next += 1;
        Ok(number)
    }
}

fn steps_of(trees: &Trees) -> BTreeMap<u32, Vec<u32>> {
    let mut steps: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    let inner = trees.nodes.iter().enumerate().filter(|(place, node)| node.left as usize != *place);
    for (_, node) in inner {
        steps.entry(u32::from(node.feature())).or_default().insert(node.written_threshold());
    }
    steps.into_iter().map(|(feature, keys)| (feature, keys.into_iter().collect())).collect()
}

fn zigzag_encode(number: i64) -> u32 {
    ((number << 1) ^ (number >> 63)) as u32
}

fn zigzag_decode(number: u32) -> i64 {
    i64::from(number >> 1) ^ -i64::from(number & 1)
}

#[cfg(test)]
mod tests {
    use super::super::Grown;
    use super::*;
    use proptest::prelude::*;

    fn grown() -> impl Strategy<Value = Trees> {
        let node = (
            0u16..7,
            any::<f32>().prop_filter("a threshold is a number", |number| !number.is_nan()),
            -9f32..9.0,
            0u8..3,
        );
        let tree = proptest::collection::vec(node, 1..40);
        proptest::collection::vec(tree, 0..6).prop_map(|trees| {
            let tree = |numbers: &Vec<(u16, f32, f32, u8)>| {
                let mut nodes = Vec::new();
                let mut behind = 1;
                for (place, (feature, threshold, value, skipped)) in numbers.iter().enumerate() {
                    // Children may follow a gap of unreachable leaves.
                    let left = (behind + u32::from(*skipped)).max(place as u32 + 1);
                    let is_inner = (left as usize + 1) < numbers.len();
                    behind = if is_inner { left + 2 } else { behind };
                    let left = if is_inner { left } else { 0 };
                    let cover = value.abs();
                    nodes.push(Grown { feature: *feature, threshold: *threshold, left, value: *value, cover });
                }
                nodes
            };
            Trees::of_grown(7, &trees.iter().map(tree).collect::<Vec<_>>())
        })
    }

    fn bytes(sets: &[Trees]) -> Vec<u8> {
        let mut writer = TreeWriter::default();
        sets.iter().for_each(|set| writer.write_trees(set));
        writer.into_bytes()
    }

    fn read(bytes: &[u8], count: usize) -> Result<Vec<Trees>, String> {
        let mut reader = Reader::new(bytes)?;
        let sets = (0..count).map(|_| reader.read_trees()).collect::<Result<Vec<_>, _>>()?;
        reader.check_finished()?;
        Ok(sets)
    }

    proptest! {
        #[test]
        fn trees_come_back_as_they_were(sets in proptest::collection::vec(grown(), 0..4)) {
            prop_assert_eq!(read(&bytes(&sets), sets.len()), Ok(sets));
        }

        #[test]
        fn no_bytes_are_trusted(sets in proptest::collection::vec(grown(), 1..3), place: prop::sample::Index, byte: u8) {
            let mut hostile = bytes(&sets);
            *place.get_mut(&mut hostile) = byte;
            let _ = read(&hostile, sets.len());
            prop_assert!(read(&hostile[..place.index(hostile.len())], sets.len()).is_err());
            prop_assert!(read(&[&bytes(&sets)[..], &[0]].concat(), sets.len()).is_err());
        }
    }

    #[test]
    fn rounding_keeps_what_matters() {
        let leaf = |value| Grown { feature: 0, threshold: 0.0, left: 0, value, cover: 1000.4 };
        let values = [0.123_456_79f32, -7.654_321e-5, 0.0, f32::MAX];
        let mut trees = Trees::of_grown(1, &values.map(|value| vec![leaf(4.0 * value.min(f32::MAX / 4.0))]));
        let before = trees.leaves.clone();
        trees.round_values();
        for (now, before) in trees.leaves.iter().zip(&before) {
            assert!(now.is_finite() && (now - before).abs() <= before.abs() / 8192.0, "{now} {before}");
            assert!(now.to_bits().trailing_zeros() >= 11 || *before == f32::MAX, "{now}");
        }
        assert!(trees.covers.iter().all(|cover| *cover == 1000.0), "{:?}", trees.covers);
    }
}
