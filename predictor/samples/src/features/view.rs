//! How much is known of a schedule when a question is asked.
//!
//! A schedule that is not named is the default one. One that is named by its knobs has been chosen and not been built; one
//! with figures of its program has been built and not been run. Each asks for trees of its own: trees that may look at code
//! learn little from knobs, and trees that know a knob go astray without it.

use super::table::{FEATURES, Origin};
use super::tiling;
use std::collections::BTreeMap;

/// The feature that distinguishes views, if the data has schedules.
pub const KNOWN: &str = "schedule_known";

/// The feature for a library's choice, if the data has it.
pub const CHOICE: &str = "library_choice";

/// Extent of the known information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum View {
    /// Sizes only; the schedule is the default one.
    Sizes,
    /// Sizes and knobs.
    Knobs,
    /// Sizes, knobs, and figures of the program and its code.
    Code,
}

impl View {
    /// In ascending order of knowledge.
    pub const ALL: [View; 3] = [View::Sizes, View::Knobs, View::Code];

    pub fn name(self) -> &'static str {
        match self {
            View::Sizes => "sizes",
            View::Knobs => "knobs",
            View::Code => "code",
        }
    }

    pub fn from_name(name: &str) -> Option<View> {
        View::ALL.into_iter().find(|view| view.name() == name)
    }

    /// Derives the view from the knobs and code features present.
    pub fn of_extras(extras: &BTreeMap<String, f64>) -> View {
        let has =
            |prefix: &str| extras.range(prefix.to_owned()..).next().is_some_and(|(name, _)| name.starts_with(prefix));
        match (has("knob."), has("code.")) {
            (_, true) => View::Code,
            (true, false) => View::Knobs,
            (false, false) => View::Sizes,
        }
    }

    /// Derives the view from the feature `KNOWN`; sizes if it is absent.
    pub fn of_number(number: f32) -> View {
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

    /// Returns whether trees of this view must not see a feature. The table's tiles guess a library's choice, which
    /// misleads if the schedule is known.
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

    #[test]
    fn what_is_given_says_what_is_known() {
        let extras = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 1.0)).collect::<BTreeMap<_, _>>();
        assert_eq!(View::of_extras(&extras(&[])), View::Sizes);
        assert_eq!(View::of_extras(&extras(&["knob.tile_x", "nest.chunks"])), View::Knobs);
        assert_eq!(View::of_extras(&extras(&["code.cycles", "knob.tile_x"])), View::Code);
        for view in View::ALL {
            assert_eq!(View::of_number(view.number()), view);
            assert_eq!(View::from_name(view.name()), Some(view));
        }
    }
}
