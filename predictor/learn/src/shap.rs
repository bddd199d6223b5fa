//! Shapley values of trees by the path-dependent algorithm of Lundberg, Erion and Lee (2018): each feature's
//! contribution to the prediction, relative to the average training row.
//!
//! Implemented here, so that explanations do not need the XGBoost library; tests compare with XGBoost's values.

use crate::trees::{Node, Trees};

#[derive(Clone, Copy)]
struct Step {
    /// Feature that the parent node splits on; None for the root.
    feature: Option<usize>,
    /// Share of training rows that take this branch: its weight if the feature is unknown.
    zero: f64,
    /// 1 if the row takes this branch, else 0.
    one: f64,
    /// Sum of Shapley weights over feature subsets of one size; the index in the path is the size.
    weight: f64,
}

/// Returns the contribution of each feature, followed by the average prediction; their sum is the prediction.
pub fn feature_contributions(trees: &Trees, row: &[f32]) -> Vec<f64> {
    assert_eq!(row.len(), trees.features, "the row has the features the trees were grown on");
    let mut values = vec![0.0; row.len() + 1];
    values[row.len()] = f64::from(trees.base);
    for root in trees.root_indices() {
        values[row.len()] += mean_prediction(trees, root);
        visit_node(trees, row, root, Vec::new(), Step { feature: None, zero: 1.0, one: 1.0, weight: 0.0 }, &mut values);
    }
    values
}

/// Returns a subtree's mean prediction over the training rows; readers limit the depth of the recursion.
fn mean_prediction(trees: &Trees, place: usize) -> f64 {
    match trees.inspect_node(place, &[]) {
        Node::Leaf(value) => f64::from(value),
        Node::Inner { taken, other, share, .. } => {
            share * mean_prediction(trees, taken) + (1.0 - share) * mean_prediction(trees, other)
        }
    }
}

fn visit_node(trees: &Trees, row: &[f32], place: usize, mut path: Vec<Step>, step: Step, values: &mut [f64]) {
    extend_path(&mut path, step);
    match trees.inspect_node(place, row) {
        Node::Leaf(value) => {
            for index in 1..path.len() {
                let Step { feature: Some(feature), zero, one, .. } = path[index] else { continue };
                values[feature] += unwound_sum(&path, index) * (one - zero) * f64::from(value);
            }
        }
        Node::Inner { feature, taken, other, share } => {
            let (mut zero, mut one) = (1.0, 1.0);
            if let Some(known) = path.iter().position(|step| step.feature == Some(feature)) {
                (zero, one) = (path[known].zero, path[known].one);
                unwind_path(&mut path, known);
            }
            let step = |share: f64, one: f64| Step { feature: Some(feature), zero: share * zero, one, weight: 0.0 };
            visit_node(trees, row, taken, path.clone(), step(share, one), values);
            visit_node(trees, row, other, path, step(1.0 - share, 0.0), values);
        }
    }
}

fn extend_path(path: &mut Vec<Step>, step: Step) {
    let depth = path.len();
    path.push(Step { weight: if depth == 0 { 1.0 } else { 0.0 }, ..step });
    let whole = (depth + 1) as f64;
    for index in (0..depth).rev() {
        path[index + 1].weight += step.one * path[index].weight * (index + 1) as f64 / whole;
        path[index].weight *= step.zero * (depth - index) as f64 / whole;
    }
}

fn unwind_path(path: &mut Vec<Step>, removed: usize) {
    let depth = path.len() - 1;
    let (zero, one, whole) = (path[removed].zero, path[removed].one, (depth + 1) as f64);
    let mut next = path[depth].weight;
    for index in (0..depth).rev() {
        let old = path[index].weight;
        if one > 0.0 {
            path[index].weight = next * whole / ((index + 1) as f64 * one);
            next = old - path[index].weight * zero * (depth - index) as f64 / whole;
        } else {
            path[index].weight = old * whole / (zero * (depth - index) as f64);
        }
    }
    for index in removed..depth {
        path[index] = Step { weight: path[index].weight, ..path[index + 1] };
    }
    path.pop();
}

fn unwound_sum(path: &[Step], removed: usize) -> f64 {
    let depth = path.len() - 1;
    let (zero, one, whole) = (path[removed].zero, path[removed].one, (depth + 1) as f64);
    let mut next = path[depth].weight;
    let mut sum = 0.0;
    for index in (0..depth).rev() {
        if one > 0.0 {
            let weight = next * whole / ((index + 1) as f64 * one);
            sum += weight;
            next = path[index].weight - weight * zero * (depth - index) as f64 / whole;
        } else {
            sum += path[index].weight * whole / (zero * (depth - index) as f64);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boosted::{BoostingParameters, fit_trees};
    use crate::xgboost::{Booster, BoosterOutput, Data};
    use samples::features::Matrix;

    #[test]
    fn values_are_those_of_xgboost() {
        let mut matrix = Matrix::new(4);
        let mut labels = Vec::new();
        for step in 0..500u32 {
            let (a, b, c) = ((step % 23) as f32, (step / 23) as f32, (step % 7) as f32);
            matrix.push_row(&[a, if step % 5 == 0 { f32::NAN } else { b }, c, a * c]);
            labels.push((a * 0.3).sin() * c + b.sqrt() + if step % 5 == 0 { 0.5 } else { 0.0 });
        }
        let trees = fit_trees(
            &matrix,
            &labels,
            &BoostingParameters { rounds: 40, ..BoostingParameters::default_parameters() },
            3,
        )
        .expect("trees");
        let names: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        let booster = Booster::load(&trees.to_json(&names)).expect("our JSON");
        let theirs = booster
            .predict_rows(&Data::from_matrix(&matrix).expect("rows"), BoosterOutput::Contributions)
            .expect("contributions");
        for (row, theirs) in theirs.chunks(5).enumerate() {
            let ours = feature_contributions(&trees, matrix.row(row));
            for (ours, theirs) in ours.iter().zip(theirs) {
                assert!((ours - f64::from(*theirs)).abs() < 1e-4, "row {row}: {ours} {theirs}");
            }
            let sum: f64 = ours.iter().sum();
            assert!((sum - f64::from(trees.predict_row(matrix.row(row)))).abs() < 1e-4, "row {row}");
        }
    }
}
