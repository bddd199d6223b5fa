//! Boosted trees as flat arrays, read from XGBoost's JSON and checked once.
//!
//! A leaf is its own child. Siblings are adjacent, so a node stores one index. Sums are in single precision and tree
//! order, as in XGBoost.

mod batch;
pub mod columns;
mod split;
mod tested;

use crate::error::{Error, Result};
use samples::features::Matrix;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use split::{Split, row_keys};
use std::ops::Range;

const MAX_TREES: usize = 100_000;
const MAX_NODES: usize = 1 << 24;
const MAX_DEPTH: u32 = 512;
/// Number of trees that a single row climbs together.
const TREES_TOGETHER: usize = 16;
/// Mantissa bits that leaf values keep after rounding.
const LEAF_BITS: u32 = 12;
const COVER_BITS: u32 = 8;
/// Number of places within a gap at which thresholds lie; more make files larger and predictions hardly better.
const GAP_PLACES: f64 = 4.0;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trees {
    pub features: usize,
    pub base: f32,
    nodes: Vec<Split>,
    /// Leaf values; 0 for inner nodes.
    leaves: Vec<f32>,
    covers: Vec<f32>,
    trees: Vec<Span>,
}

/// Smallest and largest threshold of each feature; None for features without a split.
pub type ThresholdRanges = Vec<Option<(f32, f32)>>;

pub(crate) enum Node {
    Leaf(f32),
    Inner {
        feature: usize,
        taken: usize,
        other: usize,
        /// Share of the node's training rows that went to the child `taken`.
        share: f64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    root: u32,
    depth: u32,
}

/// Node of a tree grown by this crate; `left` is relative to the root, 0 for a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grown {
    pub feature: u16,
    pub threshold: f32,
    pub left: u32,
    pub value: f32,
    pub cover: f32,
}

/// Fields of XGBoost's model file. Fields that are only written back stay unparsed, which saves memory.
#[derive(Deserialize, Serialize)]
struct Document {
    learner: Learner,
    version: Vec<u32>,
}

#[derive(Deserialize, Serialize)]
struct Learner {
    #[serde(default)]
    attributes: Box<RawValue>,
    #[serde(default)]
    feature_names: Vec<String>,
    #[serde(default)]
    feature_types: Vec<String>,
    gradient_booster: Gradient,
    learner_model_param: ModelParameters,
    objective: Objective,
}

#[derive(Deserialize, Serialize)]
struct Objective {
    #[serde(default)]
    name: String,
    #[serde(default)]
    reg_loss_param: Box<RawValue>,
}

#[derive(Deserialize, Serialize)]
struct Gradient {
    model: TreeModel,
    name: String,
}

#[derive(Deserialize, Serialize)]
struct TreeModel {
    gbtree_model_param: Box<RawValue>,
    #[serde(default)]
    iteration_indptr: Vec<u32>,
    tree_info: Vec<u32>,
    trees: Vec<Tree>,
    #[serde(default)]
    cats: Option<Box<RawValue>>,
}

#[derive(Deserialize, Serialize)]
struct ModelParameters {
    base_score: String,
    boost_from_average: String,
    num_class: String,
    num_feature: String,
    num_target: String,
}

#[derive(Deserialize, Serialize)]
struct Tree {
    base_weights: Vec<f32>,
    categories: Vec<u32>,
    categories_nodes: Vec<u32>,
    categories_segments: Vec<u64>,
    categories_sizes: Vec<u64>,
    default_left: Vec<u8>,
    id: u32,
    left_children: Vec<i32>,
    loss_changes: Vec<f32>,
    parents: Vec<u32>,
    right_children: Vec<i32>,
    split_conditions: Vec<f32>,
    split_indices: Vec<u32>,
    split_type: Vec<u8>,
    sum_hessian: Vec<f32>,
    tree_param: Box<RawValue>,
}

fn raw_value(value: &serde_json::Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("a value has a JSON form")
}

impl Trees {
    pub fn from_json(json: &str) -> Result<Trees> {
        let wrong = |problem: String| Error::Data(format!("cannot read the XGBoost model: {problem}"));
        let document: Document = serde_json::from_str(json).map_err(|error| wrong(error.to_string()))?;
        from_document(&document).map_err(wrong)
    }

    pub fn to_json(&self, names: &[String]) -> String {
        assert_eq!(names.len(), self.features, "a name for every feature");
        let trees: Vec<Tree> = (0..self.trees.len()).map(|tree| self.tree_document(tree)).collect();
        let count = trees.len() as u32;
        let document = Document {
            learner: Learner {
                attributes: raw_value(&serde_json::json!({})),
                feature_names: names.to_vec(),
                feature_types: vec!["float".to_owned(); names.len()],
                gradient_booster: Gradient {
                    model: TreeModel {
                        gbtree_model_param: raw_value(
                            &serde_json::json!({"num_parallel_tree": "1", "num_trees": count.to_string()}),
                        ),
                        iteration_indptr: (0..=count).collect(),
                        tree_info: vec![0; trees.len()],
                        trees,
                        cats: Some(raw_value(
                            &serde_json::json!({"enc": [], "feature_segments": [], "sorted_idx": []}),
                        )),
                    },
                    name: "gbtree".to_owned(),
                },
                learner_model_param: ModelParameters {
                    base_score: format!("[{:E}]", self.base),
                    boost_from_average: "1".to_owned(),
                    num_class: "0".to_owned(),
                    num_feature: self.features.to_string(),
                    num_target: "1".to_owned(),
                },
                objective: Objective {
                    name: "reg:squarederror".to_owned(),
                    reg_loss_param: raw_value(&serde_json::json!({"scale_pos_weight": "1"})),
                },
            },
            version: vec![3, 2, 0],
        };
        serde_json::to_string(&document).expect("numbers and texts have a JSON form")
    }

    pub fn threshold_ranges(&self) -> ThresholdRanges {
        let mut ranges = vec![None; self.features];
        for (_, node) in self.nodes.iter().enumerate().filter(|(place, node)| node.left as usize != *place) {
            let (threshold, range) = (node.threshold(), &mut ranges[usize::from(node.feature())]);
            let (low, high) = range.unwrap_or((threshold, threshold));
            *range = Some((low.min(threshold), high.max(threshold)));
        }
        ranges
    }

    pub(super) fn of_grown(features: usize, grown: &[Vec<Grown>]) -> Trees {
        let mut trees = Trees { features, ..Trees::default() };
        let mut roots = Vec::new();
        for tree in grown {
            let root = trees.nodes.len() as u32;
            roots.push(root);
            for (place, node) in tree.iter().enumerate() {
                let is_leaf = node.left == 0;
                trees.leaves.push(if is_leaf { node.value / grown.len() as f32 } else { 0.0 });
                trees.covers.push(node.cover);
                trees.nodes.push(match is_leaf {
                    true => Split::leaf_at(root + place as u32),
                    false => Split::new(root + node.left, node.feature, node.threshold, true),
                });
            }
        }
        trees.trees = trees.check_spans(&roots).expect("children stand behind their parents");
        trees
    }

    /// Joins one set of trees per feature value, all of equal tree count, by splits at midpoints of ascending values.
    pub(super) fn gated_by(feature: u16, sets: &[(f32, Trees)]) -> Trees {
        let first = &sets.first().expect("there is a set to choose").1;
        let mut joined = Trees { features: first.features, base: first.base, ..Trees::default() };
        let mut roots = Vec::new();
        for tree in 0..first.trees.len() {
            roots.push(joined.nodes.len() as u32);
            joined.nodes.push(first.nodes[0]);
            joined.leaves.push(0.0);
            joined.covers.push(0.0);
            let mut place = joined.nodes.len() - 1;
            let cover = |(_, set): &(f32, Trees)| set.covers[set.trees[tree].root as usize];
            for (first_left, pair) in sets.windows(2).enumerate() {
                let left = joined.nodes.len();
                joined.covers[place] = sets[first_left..].iter().map(cover).sum();
                joined.nodes[place] = Split::new(left as u32, feature, (pair[0].0 + pair[1].0) / 2.0, true);
                // Reserves two adjacent nodes: the root of this set and the next split.
                for _ in 0..2 {
                    joined.nodes.push(first.nodes[0]);
                    joined.leaves.push(0.0);
                    joined.covers.push(0.0);
                }
                joined.graft_tree(&pair[0].1, tree, left);
                place = left + 1;
            }
            joined.graft_tree(&sets.last().expect("there is a set to choose").1, tree, place);
        }
        joined.trees = joined.check_spans(&roots).expect("children stand behind their parents");
        joined
    }

    fn graft_tree(&mut self, other: &Trees, tree: usize, root: usize) {
        let Range { start: begin, end } = other.node_range(tree);
        let behind = self.nodes.len();
        let moved = |place: usize| if place == begin { root } else { behind + place - begin - 1 };
        for place in begin..end {
            let mut node = other.nodes[place];
            node.left = moved(node.left as usize) as u32;
            if place == begin {
                self.nodes[root] = node;
                self.leaves[root] = other.leaves[place];
                self.covers[root] = other.covers[place];
            } else {
                self.nodes.push(node);
                self.leaves.push(other.leaves[place]);
                self.covers.push(other.covers[place]);
            }
        }
    }

    /// Spreads the thresholds over the gaps between the values of training rows, at another place in each tree.
    ///
    /// XGBoost puts a threshold at the upper end of its gap, so all sizes between two measured ones would be predicted
    /// like the smaller one. Spread thresholds interpolate between both. With midpoints, sizes in the middle have larger
    /// errors than without. Predictions for training rows do not change.
    pub(super) fn spread_thresholds(&mut self, matrix: &Matrix) {
        let sorted_column = |column: usize| {
            let values = (0..matrix.row_count()).map(|row| matrix.row(row)[column]).filter(|value| !value.is_nan());
            let mut values: Vec<f32> = values.collect();
            values.sort_unstable_by(f32::total_cmp);
            values
        };
        let columns: Vec<Vec<f32>> = (0..self.features).map(sorted_column).collect();
        for tree in 0..self.trees.len() {
            let place_in_gap = ((tree + 1) as f64 * models::GOLDEN_SHARE).fract();
            let share = ((place_in_gap * GAP_PLACES).floor() + 0.5) / GAP_PLACES;
            for place in self.node_range(tree) {
                let node = &mut self.nodes[place];
                if node.left as usize == place {
                    continue;
                }
                let values = &columns[usize::from(node.feature())];
                let threshold = node.threshold();
                let (below, above) = values.split_at(values.partition_point(|value| *value < threshold));
                if let (Some(low), Some(high)) = (below.last(), above.first()) {
                    let between = ((1.0 - share) * f64::from(*low) + share * f64::from(*high)) as f32;
                    // Between neighbouring floats, rounding may give the lower one, which is not below itself.
                    node.set_threshold(if between > *low { between } else { *high });
                }
            }
        }
    }

    pub fn round_values(&mut self) {
        self.leaves.iter_mut().for_each(|leaf| *leaf = round_mantissa(*leaf, LEAF_BITS));
        self.covers.iter_mut().for_each(|cover| *cover = round_mantissa(*cover, COVER_BITS));
    }

    fn tree_document(&self, tree: usize) -> Tree {
        let Range { start: root, end } = self.node_range(tree);
        let nodes = &self.nodes[root..end];
        let leaf = |place: usize| nodes[place].left as usize == root + place;
        let child =
            |place: usize, side: i32| if leaf(place) { -1 } else { (nodes[place].left as usize - root) as i32 + side };
        let mut parents = vec![i32::MAX as u32; nodes.len()];
        for place in (0..nodes.len()).filter(|place| !leaf(*place)) {
            parents[child(place, 0) as usize] = place as u32;
            parents[child(place, 1) as usize] = place as u32;
        }
        let all = 0..nodes.len();
        Tree {
            base_weights: self.leaves[root..end].to_vec(),
            categories: Vec::new(),
            categories_nodes: Vec::new(),
            categories_segments: Vec::new(),
            categories_sizes: Vec::new(),
            default_left: nodes.iter().map(|node| u8::from(node.absent_left())).collect(),
            id: tree as u32,
            left_children: all.clone().map(|place| child(place, 0)).collect(),
            loss_changes: vec![0.0; nodes.len()],
            parents,
            right_children: all.clone().map(|place| child(place, 1)).collect(),
            split_conditions: all
                .clone()
                .map(|place| if leaf(place) { self.leaves[root + place] } else { nodes[place].threshold() })
                .collect(),
            split_indices: nodes.iter().map(|node| u32::from(node.feature())).collect(),
            split_type: vec![0; nodes.len()],
            sum_hessian: self.covers[root..end].to_vec(),
            tree_param: raw_value(&serde_json::json!({
                "num_deleted": "0",
                "num_feature": self.features.to_string(),
                "num_nodes": nodes.len().to_string(),
                "size_leaf_vector": "1",
            })),
        }
    }

    fn node_range(&self, tree: usize) -> Range<usize> {
        let end = self.trees.get(tree + 1).map_or(self.nodes.len(), |next| next.root as usize);
        self.trees[tree].root as usize..end
    }

    pub fn len(&self) -> usize {
        self.trees.len()
    }

    pub fn is_empty(&self) -> bool {
        self.trees.is_empty()
    }

    pub fn predict_row(&self, row: &[f32]) -> f32 {
        assert_eq!(row.len(), self.features, "the row has the features the trees were grown on");
        self.leaves_of_row(row).fold(self.base, |sum, place| sum + self.leaves[place])
    }

    /// Returns the leaf that a row reaches in each tree, as an index relative to the tree's root.
    pub fn reached_leaves(&self, row: &[f32]) -> impl Iterator<Item = u32> {
        self.leaves_of_row(row).zip(&self.trees).map(|(place, tree)| place as u32 - tree.root)
    }

    /// Returns the leaf that a row reaches in each tree. Several trees are climbed together, which hides latency; a leaf
    /// is its own child, so all of them take the steps of the deepest.
    fn leaves_of_row(&self, row: &[f32]) -> impl Iterator<Item = usize> {
        let keys = row_keys(row);
        self.trees.chunks(TREES_TOGETHER).flat_map(move |trees| {
            let mut places = [0; TREES_TOGETHER];
            places.iter_mut().zip(trees).for_each(|(place, tree)| *place = tree.root as usize);
            for _ in 0..trees.iter().map(|tree| tree.depth).max().unwrap_or(0) {
                for place in &mut places {
                    let node = &self.nodes[*place];
                    *place = node.next(keys[node.column()]);
                }
            }
            places.into_iter().take(trees.len())
        })
    }

    pub(crate) fn root_indices(&self) -> impl Iterator<Item = usize> {
        self.trees.iter().map(|tree| tree.root as usize)
    }

    /// Returns a node and the child that a row enters; features beyond the row's end count as missing.
    pub(crate) fn inspect_node(&self, place: usize, row: &[f32]) -> Node {
        let node = &self.nodes[place];
        let left = node.left as usize;
        if left == place {
            return Node::Leaf(self.leaves[place]);
        }
        let feature = usize::from(node.feature());
        let value = row.get(feature).copied().unwrap_or(f32::NAN);
        let is_left = if value.is_nan() { node.absent_left() } else { value < node.threshold() };
        let (taken, other) = if is_left { (left, left + 1) } else { (left + 1, left) };
        let covers = [taken, other].map(|place| f64::from(self.covers[place]));
        let share = (covers[0] / (covers[0] + covers[1])).clamp(1e-9, 1.0 - 1e-9);
        Node::Inner { feature, taken, other, share: if share.is_nan() { 0.5 } else { share } }
    }

    /// Checks that every child index is within its tree and larger than its parent's, and that the depth is limited.
    fn check_spans(&self, roots: &[u32]) -> std::result::Result<Vec<Span>, String> {
        let mut spans = Vec::with_capacity(roots.len());
        for (tree, root) in roots.iter().enumerate() {
            let end = roots.get(tree + 1).map_or(self.nodes.len(), |next| *next as usize);
            let begins = *root as usize;
            if (tree == 0 && begins != 0) || begins >= end || end > self.nodes.len() {
                return Err(format!("tree {tree} has an invalid offset"));
            }
            let mut depths = vec![0u32; end - begins];
            for place in begins..end {
                let node = &self.nodes[place];
                let left = node.left as usize;
                let is_leaf = left == place;
                if usize::from(node.feature()) >= self.features.max(1)
                    || (!is_leaf && node.threshold().is_nan())
                    || !self.leaves[place].is_finite()
                {
                    return Err(format!("tree {tree} has a node with an unknown feature"));
                }
                if is_leaf {
                    continue;
                }
                // Children follow their parent, so there is no cycle.
                if left <= place || left + 1 >= end {
                    return Err(format!("tree {tree} has a node whose children are not in it"));
                }
                let depth = depths[place - begins] + 1;
                if depth > MAX_DEPTH {
                    return Err(format!("tree {tree} is deeper than {MAX_DEPTH}"));
                }
                for child in [left, left + 1] {
                    let known = &mut depths[child - begins];
                    *known = (*known).max(depth);
                }
            }
            spans.push(Span { root: *root, depth: depths.iter().copied().max().unwrap_or(0) });
        }
        match roots.is_empty() && !self.nodes.is_empty() {
            true => Err("some nodes belong to no tree".to_owned()),
            false => Ok(spans),
        }
    }
}

fn round_mantissa(number: f32, bits: u32) -> f32 {
    let lost = f32::MANTISSA_DIGITS - 1 - bits;
    let nearest = f32::from_bits((number.to_bits() + (1 << (lost - 1))) >> lost << lost);
    if nearest.is_finite() { nearest } else { number }
}

fn from_document(document: &Document) -> std::result::Result<Trees, String> {
    let learner = &document.learner;
    let features: usize =
        learner.learner_model_param.num_feature.parse().map_err(|_| "`num_feature` is not a number".to_owned())?;
    let base_text = learner.learner_model_param.base_score.trim_matches(['[', ']']);
    let base: f32 = base_text.parse().map_err(|_| "`base_score` is not a single number".to_owned())?;
    let objective = learner.objective.name.as_str();
    if !(objective.starts_with("reg:") || objective.starts_with("rank:")) || objective == "reg:logistic" {
        return Err(format!("objective `{objective}` is not a regression or a ranking"));
    }
    let model = &learner.gradient_booster.model;
    if learner.gradient_booster.name != "gbtree" {
        return Err(format!("booster `{}` is not `gbtree`", learner.gradient_booster.name));
    }
    if features > usize::from(u16::MAX) || model.trees.len() > MAX_TREES || !base.is_finite() {
        return Err("the model exceeds the size limits, or its base score is not finite".to_owned());
    }
    if model.tree_info.iter().any(|class| *class != 0) {
        return Err("the model has more than one output".to_owned());
    }
    let mut trees = Trees { features, base, ..Trees::default() };
    let mut roots = Vec::new();
    for tree in &model.trees {
        roots.push(trees.nodes.len() as u32);
        append_tree(&mut trees, tree)?;
    }
    trees.trees = trees.check_spans(&roots)?;
    Ok(trees)
}

fn append_tree(trees: &mut Trees, tree: &Tree) -> std::result::Result<(), String> {
    let count = tree.left_children.len();
    let lengths = [
        tree.right_children.len(),
        tree.split_conditions.len(),
        tree.split_indices.len(),
        tree.default_left.len(),
        tree.sum_hessian.len(),
    ];
    if count == 0 || lengths.iter().any(|length| *length != count) || trees.nodes.len() + count > MAX_NODES {
        return Err(format!("tree {} has lists of different lengths or too many nodes", tree.id));
    }
    if !tree.categories.is_empty() || tree.split_type.iter().any(|kind| *kind != 0) {
        return Err(format!("tree {} splits on categories, which is not supported", tree.id));
    }
    let begin = trees.nodes.len();
    let mut order = vec![0usize];
    let mut next = 0;
    while let Some(old) = order.get(next).copied() {
        let (left, right) = (tree.left_children[old], tree.right_children[old]);
        let place = begin + next;
        next += 1;
        let is_leaf = left < 0;
        let number = tree.split_conditions[old];
        trees.leaves.push(if is_leaf { number } else { 0.0 });
        trees.covers.push(tree.sum_hessian[old]);
        trees.nodes.push(match is_leaf {
            true => Split::leaf_at(place as u32),
            false => {
                let feature = u16::try_from(tree.split_indices[old]).map_err(|_| "a feature index is too large")?;
                Split::new((begin + order.len()) as u32, feature, number, tree.default_left[old] != 0)
            }
        });
        if !is_leaf {
            for child in [left, right] {
                let child = usize::try_from(child).ok().filter(|child| *child < count && *child != 0);
                order.push(child.ok_or_else(|| format!("tree {} has a node whose children are not in it", tree.id))?);
            }
            if order.len() > count {
                return Err(format!("tree {} has a node with two parents", tree.id));
            }
        }
    }
    Ok(())
}
