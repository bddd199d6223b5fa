//! Views: how much of a schedule is known when a time is predicted.
//!
//! Without any information, the default schedule is assumed. Each view needs separate trees: trees that may use code
//! features learn little from knobs, and trees that expect knobs predict badly without knobs.

use super::table::{FEATURES, Origin};
use super::tiling;
use std::collections::BTreeMap;

pub const KNOWN: &str = "schedule_known";

pub const CHOICE: &str = "library_choice";

models::choice! {
    pub enum View {
        /// Only sizes; the default schedule is assumed.
        Sizes = "sizes",
        /// Sizes and knobs.
        Knobs = "knobs",
        /// Sizes, knobs, and figures of the scheduled program and its machine code.
        Code = "code",
    }
}

impl View {
    pub fn from_extras(extras: &BTreeMap<String, f64>) -> View {
        let has =
            |prefix: &str| extras.range(prefix.to_owned()..).next().is_some_and(|(name, _)| name.starts_with(prefix));
        match (has("knob."), has("code.")) {
            (_, true) => View::Code,
            (true, false) => View::Knobs,
            (false, false) => View::Sizes,
        }
    }

    /// Returns the view for a value of the feature `KNOWN`; `Sizes` for a missing value.
    pub fn from_number(number: f32) -> View {
        match number {
            number if number >= 1.5 => View::Code,
            number if number >= 0.5 => View::Knobs,
            _ => View::Sizes,
        }
    }

    pub fn number(self) -> f32 {
        match self {
            View::Sizes => 0.0,
            View::Knobs => 1.0,
            View::Code => 2.0,
        }
    }

    /// Returns whether trees of this view must not use a feature. If the schedule is known, quantisation features are
    /// hidden, too, because their tile sizes are guesses about vendor libraries.
    pub fn hides_feature(self, column: usize, name: &str) -> bool {
        let is_guess = FEATURES.get(column).is_some_and(|feature| feature.origin == Origin::Quantisation);
        let is_knob = name.starts_with("knob.") || tiling::is_feature(name);
        match self {
            View::Sizes => is_knob || name.starts_with("code.") || name == KNOWN,
            View::Knobs => is_guess || name.starts_with("code.") || name == KNOWN,
            View::Code => is_guess || name == KNOWN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::Choice;

    #[test]
    fn what_is_given_says_what_is_known() {
        let extras = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 1.0)).collect::<BTreeMap<_, _>>();
        assert_eq!(View::from_extras(&extras(&[])), View::Sizes);
        assert_eq!(View::from_extras(&extras(&["knob.tile_x", "nest.chunks"])), View::Knobs);
        assert_eq!(View::from_extras(&extras(&["code.cycles", "knob.tile_x"])), View::Code);
        for &view in View::ALL {
            assert_eq!(View::from_number(view.number()), view);
            assert_eq!(View::from_name(view.name()), Some(view));
        }
    }
}
