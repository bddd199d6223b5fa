//! The schedules of an operator that were collected: the settings of each knob, and the default schedules.
//!
//! A predictor has neither the collector's rules for default schedules nor the task, only sizes. Therefore, it stores
//! the collected default schedules and takes unspecified knobs from that for the most similar sizes, if they fit.

use crate::features::{Work, tiling};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Prefix of the feature that contains a schedule's source, which is stored with the knobs but is not a knob.
const FROM: &str = "knob.from=";
const KINDS: usize = 8;
const EXTENTS: usize = 6;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedules {
    axes: BTreeMap<String, KnobAxis>,
    /// Distinct knob settings of default schedules, by feature name.
    knobs: Vec<BTreeMap<String, f64>>,
    /// Default schedules by device: `schedule_coordinates` in sorted order, each with an index into `knobs`.
    defaults: BTreeMap<String, Vec<(Vec<f64>, usize)>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KnobAxis {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    numbers: Vec<f64>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    words: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CompleteSchedule {
    pub knobs: BTreeMap<String, f64>,
    pub is_default: bool,
}

impl CompleteSchedule {
    /// Returns the knobs for a query; empty for the default schedule, for which the view of sizes has more data.
    pub fn knobs_to_query(self) -> BTreeMap<String, f64> {
        if self.is_default { BTreeMap::new() } else { self.knobs }
    }
}

/// Setting of a knob: a number is stored under the knob's name, a word as a feature `knob=word`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Setting<'a> {
    Number(f64),
    Word(&'a str),
}

fn knob_setting<'a>(feature: &'a str, value: f64) -> Option<(&'a str, Setting<'a>)> {
    let name = feature.strip_prefix("knob.").filter(|_| !feature.starts_with(FROM))?;
    Some(match name.split_once('=') {
        Some((knob, word)) => (knob, Setting::Word(word)),
        None => (name, Setting::Number(value)),
    })
}

impl fmt::Display for Setting<'_> {
    /// Formats the value; a precision is the maximum length of words.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Number(number) => write!(formatter, "{number}"),
            Setting::Word(word) => formatter.pad(word),
        }
    }
}

/// Returns whether a feature tells where a schedule is from.
pub fn is_source(feature: &str) -> bool {
    feature.starts_with(FROM)
}

/// Returns the knob of a feature and its value as a text; None for features of other kinds.
pub fn describe_knob(feature: &str, value: f64) -> Option<(&str, String)> {
    knob_setting(feature, value).map(|(knob, setting)| (knob, setting.to_string()))
}

fn select_knobs(extras: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let is_knob = |(name, value): &(&String, &f64)| knob_setting(name, **value).is_some();
    extras.iter().filter(is_knob).map(|(name, value)| (name.clone(), *value)).collect()
}

impl Schedules {
    pub fn add_settings(&mut self, extras: &BTreeMap<String, f64>) {
        for (knob, setting) in extras.iter().filter_map(|(name, value)| knob_setting(name, *value)) {
            let axis = self.axes.entry(knob.to_owned()).or_default();
            match setting {
                Setting::Word(word) if !axis.words.contains(word) => {
                    axis.words.insert(word.to_owned());
                }
                Setting::Number(number) => {
                    let place = axis.numbers.binary_search_by(|known| known.total_cmp(&number));
                    place.err().into_iter().for_each(|place| axis.numbers.insert(place, number));
                }
                Setting::Word(_) => {}
            }
        }
    }

    /// Adds the default schedule of a shape on a device, unless the shape has one already.
    pub fn add_default(&mut self, device: &str, work: &Work, extras: &BTreeMap<String, f64>) {
        let knobs = select_knobs(extras);
        if !knobs.is_empty() {
            self.insert_default(device, schedule_coordinates(work), knobs);
        }
    }

    pub fn add_defaults_of(&mut self, others: &Schedules) {
        for (device, defaults) in &others.defaults {
            for (place, number) in defaults {
                self.insert_default(device, place.clone(), others.knobs[*number].clone());
            }
        }
    }

    fn insert_default(&mut self, device: &str, place: Vec<f64>, knobs: BTreeMap<String, f64>) {
        let known = self.defaults.entry(device.to_owned()).or_default();
        let Err(at) = known.binary_search_by(|(other, _)| in_order(other, &place)) else { return };
        let number = self.knobs.iter().position(|other| *other == knobs).unwrap_or(self.knobs.len());
        if number == self.knobs.len() {
            self.knobs.push(knobs);
        }
        known.insert(at, (place, number));
    }

    /// Completes the given knobs from the default schedule, or explains why they are invalid.
    pub fn complete_schedule(
        &self,
        work: &Work,
        device: &str,
        given: &BTreeMap<String, f64>,
    ) -> Result<CompleteSchedule, String> {
        let default = self.default_of(work, device)?;
        let mut all = default.clone();
        let mut named = BTreeSet::new();
        for (feature, value) in given {
            let (knob, wanted) = knob_setting(feature, *value).ok_or_else(|| not_a_knob(feature, &default))?;
            if !default.keys().any(|name| knob_of(name) == Some(knob)) {
                return Err(not_a_knob(knob, &default));
            }
            if !named.insert(knob) {
                return Err(format!("the knob `{knob}` is given twice"));
            }
            if !self.takes_setting(work, knob, wanted, *value) && default.get(feature) != Some(value) {
                return Err(self.refusal_message(work, knob, wanted));
            }
            all.retain(|name, _| knob_of(name) != Some(knob));
            all.insert(feature.clone(), *value);
        }
        let is_default = all == default;
        all.insert(format!("{FROM}{}", if is_default { "default" } else { "template" }), 1.0);
        Ok(CompleteSchedule { knobs: all, is_default })
    }

    /// Returns the settings of a knob that fit these sizes, as features; an error if the knob is unknown.
    pub fn fitting_settings(&self, work: &Work, device: &str, knob: &str) -> Result<Vec<(String, f64)>, String> {
        let default = self.default_of(work, device)?;
        let Some(axis) = self.axes.get(knob).filter(|_| default.keys().any(|name| knob_of(name) == Some(knob))) else {
            return Err(not_a_knob(knob, &default));
        };
        let fits = |number: &&f64| tiling::fits_sizes(work, knob, **number, self.has_tiles());
        let numbers = axis.numbers.iter().filter(fits).map(|number| (format!("knob.{knob}"), *number));
        Ok(numbers.chain(axis.words.iter().map(|word| (format!("knob.{knob}={word}"), 1.0))).collect())
    }

    pub fn knob_names(&self, work: &Work, device: &str) -> Vec<String> {
        let names = |default: BTreeMap<String, f64>| {
            default.keys().filter_map(|name| knob_of(name)).map(str::to_owned).collect()
        };
        self.default_of(work, device).map_or_else(|_| Vec::new(), names)
    }

    /// Returns the knobs of the most similar default schedule that fits the sizes. If none fits as a whole, the knobs
    /// of the most similar schedule that do not fit are replaced by their nearest fitting settings.
    fn default_of(&self, work: &Work, device: &str) -> Result<BTreeMap<String, f64>, String> {
        let place = schedule_coordinates(work);
        let own = self.defaults.get(device).filter(|own| !own.is_empty());
        let known = own.into_iter().chain(self.defaults.values().filter(|_| own.is_none())).flatten();
        let mut near: Vec<(f64, usize)> =
            known.map(|(other, number)| (coordinate_distance(&place, other), *number)).collect();
        near.sort_by(|one, two| one.0.total_cmp(&two.0));
        let Some((apart, nearest)) = near.first() else {
            return Err(
                "the training data has no default schedule of this operator, so its knobs are unknown".to_owned()
            );
        };
        let mut default = self.knobs[*nearest].clone();
        if *apart > 0.0 {
            let fits = |(name, value): (&String, &f64)| {
                tiling::divides_sizes(work, &name["knob.".len()..], *value, self.has_tiles())
            };
            let near = || near.iter().map(|(_, number)| &self.knobs[*number]);
            // Prefers a schedule that fits as a whole, because knobs depend on each other.
            let is_alike = |other: &&BTreeMap<String, f64>| other.keys().eq(default.keys()) && other.iter().all(fits);
            if let Some(whole) = near().find(is_alike) {
                return Ok(whole.clone());
            }
            for (name, value) in &mut default {
                let known = near().filter_map(|other| other.get_key_value(name)).find(|knob| fits(*knob));
                *value = known.map_or(*value, |(_, known)| *known);
            }
        }
        Ok(default)
    }

    /// Returns whether the schedules divide the result into tiles, instead of looping over its elements.
    fn has_tiles(&self) -> bool {
        self.axes.contains_key("tile_x")
    }

    fn takes_setting(&self, work: &Work, knob: &str, wanted: Setting<'_>, value: f64) -> bool {
        self.axes.get(knob).is_some_and(|axis| match wanted {
            Setting::Number(number) => {
                axis.numbers.contains(&number) && tiling::fits_sizes(work, knob, number, self.has_tiles())
            }
            Setting::Word(word) => axis.words.contains(word) && value == 1.0,
        })
    }

    fn refusal_message(&self, work: &Work, knob: &str, wanted: Setting<'_>) -> String {
        let fits = |number: &&f64| tiling::fits_sizes(work, knob, **number, self.has_tiles());
        let axis = self.axes.get(knob);
        let numbers = axis.into_iter().flat_map(|axis| axis.numbers.iter().filter(fits)).map(f64::to_string);
        let words = axis.into_iter().flat_map(|axis| axis.words.iter().cloned());
        let known: Vec<String> = numbers.chain(words).collect();
        format!("the knob `{knob}` cannot be {wanted:.120} for these sizes; known settings: {}", known.join(", "))
    }

    /// Checks values that may come from an untrusted file.
    pub fn check_consistency(&self) -> Result<(), String> {
        let mut places = self.defaults.values().flatten();
        let is_place = |(place, number): &(Vec<f64>, usize)| {
            place.len() == KINDS + EXTENTS && place.iter().all(|one| one.is_finite()) && *number < self.knobs.len()
        };
        let is_setting = |(name, value): (&String, &f64)| knob_setting(name, *value).is_some() && value.is_finite();
        let are_sound = self.knobs.iter().flatten().all(is_setting) && places.all(is_place);
        if are_sound { Ok(()) } else { Err("the stored schedules are inconsistent".to_owned()) }
    }
}

fn knob_of(feature: &str) -> Option<&str> {
    knob_setting(feature, 1.0).map(|(knob, _)| knob)
}

fn not_a_knob(name: &str, default: &BTreeMap<String, f64>) -> String {
    let name: String = name.strip_prefix("knob.").unwrap_or(name).chars().take(120).collect();
    let known: Vec<&str> = default.keys().filter_map(|feature| knob_of(feature)).collect();
    format!("unknown knob `{name}`; the knobs of this operator are {}", known.join(", "))
}

fn schedule_coordinates(work: &Work) -> Vec<f64> {
    let claim = |claim: bool| f64::from(u8::from(claim));
    let kinds: [f64; KINDS] = [
        work.rank as f64,
        work.taps,
        work.stride,
        work.element_bytes,
        work.input_element_bytes,
        claim(work.groups > 1.0),
        claim(work.pad > 0.0),
        claim(work.bytes_weights > 0.0),
    ];
    let extents = work.output.iter().chain([&work.depth]);
    kinds.into_iter().chain(extents.copied()).collect()
}

fn in_order(one: &[f64], two: &[f64]) -> std::cmp::Ordering {
    one.iter()
        .zip(two)
        .map(|(one, two)| one.total_cmp(two))
        .find(|order| order.is_ne())
        .unwrap_or(std::cmp::Ordering::Equal)
}

/// Returns a distance: differing kinds weigh most, then unequal extents (tiles need divisors), then ratios.
fn coordinate_distance(one: &[f64], two: &[f64]) -> f64 {
    const OTHER_KIND: f64 = 100.0;
    const OTHER_EXTENT: f64 = 1.0;
    let differ = |(one, two): &(&f64, &f64)| one != two;
    let kinds = one.iter().zip(two).take(KINDS).filter(differ).count() as f64;
    let doublings = |(one, two): (&f64, &f64)| OTHER_EXTENT + (one / two).log2().abs();
    let extents: f64 = one.iter().zip(two).skip(KINDS).filter(differ).map(doublings).sum();
    OTHER_KIND * kinds + extents
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, f64)]) -> BTreeMap<String, f64> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    fn image(width: f64) -> Work {
        Work::convolution_work(1.0, 64.0, 64.0, 3.0, width, 1.0, 1.0)
    }

    fn schedules() -> Schedules {
        let mut schedules = Schedules::default();
        let defaults = [(56.0, 14.0), (57.0, 19.0), (28.0, 14.0)];
        for (width, tile) in defaults {
            let knobs = of(&[("knob.from=default", 1.0), ("knob.order=depth_first", 1.0), ("knob.tile_x", tile)]);
            schedules.add_default("here", &image(width), &knobs);
            schedules.add_settings(&knobs);
        }
        for tile in [1.0, 2.0, 28.0] {
            schedules.add_settings(&of(&[
                ("knob.from=template", 1.0),
                ("knob.order=kernel_first", 1.0),
                ("knob.tile_x", tile),
            ]));
        }
        schedules
    }

    #[test]
    fn what_is_left_open_is_as_in_the_default_schedule() {
        let schedules = schedules();
        let complete =
            |width: f64, given: &[(&str, f64)]| schedules.complete_schedule(&image(width), "here", &of(given));
        let named = complete(56.0, &[("knob.tile_x", 2.0)]).expect("a schedule");
        let expected = of(&[("knob.from=template", 1.0), ("knob.order=depth_first", 1.0), ("knob.tile_x", 2.0)]);
        assert_eq!((named.knobs, named.is_default), (expected, false));
        // Given knobs that equal those of the default schedule yield the default schedule.
        let named = complete(57.0, &[("knob.tile_x", 19.0), ("knob.order=depth_first", 1.0)]).expect("a schedule");
        assert!(named.is_default && named.knobs_to_query().is_empty());
        let named = complete(57.0, &[("knob.order=kernel_first", 1.0)]).expect("a schedule");
        assert_eq!(named.knobs["knob.tile_x"], 19.0);
        assert!(!named.knobs.contains_key("knob.order=depth_first"), "one word at a time: {named:?}");
    }

    #[test]
    fn what_does_not_fit_is_taken_from_the_next_that_does() {
        let schedules = schedules();
        let default = |width: f64, device: &str| {
            schedules.complete_schedule(&image(width), device, &of(&[])).expect("a schedule").knobs["knob.tile_x"]
        };
        // 28 is nearest to both; its tile of 14 divides 42, and of 38 only that of 57 is a divisor.
        assert_eq!((default(38.0, "here"), default(42.0, "here")), (19.0, 14.0));
        assert_eq!(default(56.0, "a device that was not learned from"), 14.0);
    }

    #[test]
    fn settings_outside_of_the_axis_are_refused_with_what_there_is() {
        let schedules = schedules();
        let refused = |feature: &str, value: f64, part: &str| {
            let problem =
                schedules.complete_schedule(&image(56.0), "here", &of(&[(feature, value)])).expect_err(feature);
            assert!(problem.contains(part), "{problem}\nwithout {part}");
        };
        let allowed = "for these sizes; known settings: 1, 2, 14, 28";
        for value in [f64::NAN, 9999.0, 0.0, -1.0, 2.5, f64::INFINITY, 4.0, 19.0] {
            refused("knob.tile_x", value, allowed);
        }
        refused("knob.tile_x=wide", 1.0, allowed);
        refused("knob.order=backwards", 1.0, "for these sizes; known settings: depth_first, kernel_first");
        refused("knob.order", 3.0, "depth_first, kernel_first");
        refused("knob.tile_q", 4.0, "unknown knob `tile_q`; the knobs of this operator are order, tile_x");
        refused("knob.from=default", 1.0, "unknown knob");
        let twice = of(&[("knob.order=depth_first", 1.0), ("knob.order=kernel_first", 1.0)]);
        assert!(schedules.complete_schedule(&image(56.0), "here", &twice).expect_err("both").contains("given twice"));
        let none =
            Schedules::default().complete_schedule(&image(56.0), "here", &of(&[])).expect_err("nothing is known");
        assert!(none.contains("no default schedule"), "{none}");
    }

    #[test]
    fn what_a_file_says_is_checked() {
        let good = schedules();
        assert_eq!(good.check_consistency(), Ok(()));
        let read = |text: String| serde_json::from_str::<Schedules>(&text).expect("the form").check_consistency();
        let text = serde_json::to_string(&good).expect("JSON");
        assert_eq!(read(text.clone()), Ok(()));
        assert!(read(text.replace("],0]", "],9]")).is_err(), "{text}");
        assert!(read(text.replace("knob.tile_x", "tile_x")).is_err());
    }
}
