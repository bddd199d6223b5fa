//! Restricts schedule spaces to some settings of some axes.

use super::{Knobs, Setting, Space, sample::random_points};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Allowed settings by axis name. Entries for absent axes, and for axes without effect in a schedule, are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Filter(pub BTreeMap<String, Vec<Setting>>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum FilterError {
    #[error("the space has no requested setting of `{axis}`; its settings are {settings}")]
    NoSetting { axis: String, settings: String },
    #[error("rules of the space reject all requested schedules, for example the rule `{rule}`")]
    Forbidden { rule: &'static str },
}

impl Filter {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Parses texts such as `layout=blocked` and `tile_x=4,8`; the error is the invalid text.
    pub fn parse_texts(texts: &[String]) -> Result<Filter, String> {
        let mut filter = Filter::default();
        for text in texts {
            let (axis, settings) = text.split_once('=').ok_or_else(|| text.clone())?;
            let settings: Vec<&str> = settings.split(',').map(str::trim).collect();
            if axis.trim().is_empty() || settings.contains(&"") {
                return Err(text.clone());
            }
            filter.0.entry(axis.trim().to_owned()).or_default().extend(settings.into_iter().map(parse_setting));
        }
        Ok(filter)
    }
}

fn parse_setting(text: &str) -> Setting {
    text.parse().map_or_else(|_| Setting::Choice(text.to_owned()), Setting::Number)
}

impl Space {
    pub fn has_axis(&self, name: &str) -> bool {
        self.axes.iter().any(|axis| axis.name == name)
    }

    /// Restricts the space to the allowed settings; if the default schedule is removed, another one replaces it.
    pub fn filter_axes(&self, filter: &Filter) -> Result<Space, FilterError> {
        /// Number of random schedules that are tried before a space counts as empty.
        const DRAWS: usize = 4096;
        let mut left = self.clone();
        for axis in &mut left.axes {
            let Some(wanted) = filter.0.get(axis.name) else { continue };
            let all: Vec<String> = axis.settings.iter().map(ToString::to_string).collect();
            axis.settings.retain(|setting| wanted.contains(setting));
            if axis.settings.is_empty() {
                return Err(FilterError::NoSetting { axis: axis.name.to_owned(), settings: all.join(", ") });
            }
        }
        let passes = |knobs: &Knobs| {
            let own = |name: &String| knobs.0.get(name);
            filter.0.iter().all(|(name, wanted)| own(name).is_none_or(|setting| wanted.contains(setting)))
        };
        if !passes(&left.default) {
            let mut rule = "";
            let found = random_points(&left).take(DRAWS).find(|knobs| match left.forbidding_rule(knobs) {
                None => true,
                Some(name) => {
                    rule = name;
                    false
                }
            });
            left.default = found.ok_or(FilterError::Forbidden { rule })?;
        }
        Ok(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cpu, cpu_space};
    use models::Task;

    fn product() -> Space {
        let task = Task::from_text("dense(f32[32,64], const f32[64,64])").expect("a task");
        cpu_space(&task, &Cpu::test(8, 2))
    }

    fn only(text: &str) -> Result<Space, FilterError> {
        let texts: Vec<String> = text.split(' ').map(str::to_owned).collect();
        product().filter_axes(&Filter::parse_texts(&texts).expect("a filter"))
    }

    #[test]
    fn a_filtered_space_has_its_own_default() {
        let all = product();
        let left = only("tile_x=4,1 vectorize=no unknown=3").expect("points");
        assert!(left.point_count() < all.point_count() && left.default != all.default);
        assert_eq!(left.default.choice("vectorize"), Some("no"));
        assert!(left.allows_point(&left.default));
        assert_eq!(only("vectorize=yes,no").expect("all"), all);
    }

    #[test]
    fn an_empty_space_is_reported() {
        let text = |error: FilterError| error.to_string();
        let none = text(only("vectorize=perhaps").expect_err("nothing"));
        assert_eq!(none, "the space has no requested setting of `vectorize`; its settings are yes, no");
        let forbidden = only("tile_x=32 tile_c=4 block=32").expect_err("the tile is too large");
        assert_eq!(forbidden, FilterError::Forbidden { rule: "registers" });
        for wrong in ["tile_x", "=3", "tile_x=", "tile_x=4,", "tile_x=,4"] {
            assert_eq!(Filter::parse_texts(&[wrong.to_owned()]), Err(wrong.to_owned()));
        }
    }
}
