//! Parses arbitrary texts as XGBoost's JSON; accepted trees must predict, be explained, and survive a round trip.
//! Useful seeds are files of `oppredict export`.

use super::valid_text;
use learn::shap::feature_contributions;
use learn::trees::Trees;
use samples::features::Matrix;

const FEATURES_MAX: usize = 64;
const ROWS: usize = 9;

pub fn run(bytes: &[u8]) {
    let text = valid_text(bytes);
    let Ok(trees) = Trees::from_json(text) else { return };
    if trees.features > FEATURES_MAX {
        return;
    }
    let names: Vec<String> = (0..trees.features).map(|feature| format!("f{feature}")).collect();
    let again = Trees::from_json(&trees.to_json(&names)).expect("written trees are readable");
    assert_eq!(again, trees);
    if trees.features == 0 {
        return;
    }
    let value = |place: usize| if place.is_multiple_of(5) { f32::NAN } else { place as f32 - 20.0 };
    let matrix = Matrix::from_rows(trees.features, (0..ROWS * trees.features).map(value).collect());
    let answers = trees.predict_rows(&matrix);
    for (row, answer) in answers.iter().enumerate() {
        assert_eq!(answer.to_bits(), trees.predict_row(matrix.row(row)).to_bits());
    }
    if trees.len() < 100 {
        feature_contributions(&trees, matrix.row(0));
    }
}
