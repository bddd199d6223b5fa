//! A point of a schedule space: one setting per axis, by name.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    Number(i64),
    Choice(String),
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Number(number) => write!(f, "{number}"),
            Setting::Choice(name) => f.write_str(name),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Knobs(pub BTreeMap<String, Setting>);

pub trait Settings {
    fn number(&self, name: &str) -> Option<i64>;

    fn choice(&self, name: &str) -> Option<&str>;
}

impl Settings for Knobs {
    fn number(&self, name: &str) -> Option<i64> {
        Knobs::number(self, name)
    }

    fn choice(&self, name: &str) -> Option<&str> {
        Knobs::choice(self, name)
    }
}

impl Knobs {
    pub fn number(&self, name: &str) -> Option<i64> {
        match self.0.get(name) {
            Some(Setting::Number(number)) => Some(*number),
            Some(Setting::Choice(_)) | None => None,
        }
    }

    pub fn choice(&self, name: &str) -> Option<&str> {
        match self.0.get(name) {
            Some(Setting::Choice(choice)) => Some(choice),
            Some(Setting::Number(_)) | None => None,
        }
    }
}
