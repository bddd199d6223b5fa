//! Schedule axes that several families of operators share: their neutral settings, and when they have an effect.

use crate::knobs::{Knobs, Setting, Settings};
use crate::{Axis, choices::*};
use models::Choice;
use std::marker::PhantomData;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ways(u8);

impl Ways {
    pub const DIRECT: Ways = Ways(1);
    pub const WINOGRAD: Ways = Ways(2);
    /// 8-bit dot-product instructions, each of which multiplies groups of 4 bytes; vector lanes are positions.
    pub const DOTS: Ways = Ways(4);
    pub const TENSOR: Ways = Ways(8);
    pub const BLOCK_SUM: Ways = Ways(16);

    pub const fn or(self, other: Ways) -> Ways {
        Ways(self.0 | other.0)
    }

    pub fn has(self, way: Ways) -> bool {
        self.0 & way.0 != 0
    }
}

#[derive(Debug)]
pub struct Declaration {
    pub name: &'static str,
    neutral: Option<Neutral>,
    pub ways: Ways,
    /// Whether the axis has an effect, given the other knobs of the schedule.
    pub decides: fn(&Knobs) -> bool,
    /// Version of the schedule spaces that introduced the axis.
    pub version: u32,
}

#[derive(Clone, Copy, Debug)]
enum Neutral {
    Number(i64),
    Choice(&'static str),
}

impl Declaration {
    const fn new(name: &'static str) -> Declaration {
        Declaration { name, neutral: None, ways: Ways::DIRECT, decides: |_| true, version: 1 }
    }

    pub fn is_in(&self, knobs: &Knobs) -> bool {
        knobs.0.contains_key(self.name)
    }

    /// Returns the setting that has no effect, which applies to schedules that do not name the axis.
    pub fn neutral_setting(&self) -> Option<Setting> {
        self.neutral.map(|neutral| match neutral {
            Neutral::Number(number) => Setting::Number(number),
            Neutral::Choice(word) => Setting::Choice(word.to_owned()),
        })
    }

    pub fn is_neutral(&self, setting: &Setting) -> bool {
        match (self.neutral, setting) {
            (Some(Neutral::Number(neutral)), Setting::Number(number)) => neutral == *number,
            (Some(Neutral::Choice(neutral)), Setting::Choice(word)) => neutral == word,
            _ => false,
        }
    }
}

#[derive(Debug)]
pub struct NumberAxis(pub Declaration);

#[derive(Debug)]
pub struct ChoiceAxis<T>(pub Declaration, PhantomData<fn() -> T>);

impl NumberAxis {
    /// Declares an axis with an effect in all schedules that compute directly with tiles and loops ([`Ways::DIRECT`]).
    pub const fn new(name: &'static str) -> NumberAxis {
        NumberAxis(Declaration::new(name))
    }

    pub const fn with_neutral(self, number: i64) -> NumberAxis {
        NumberAxis(Declaration { neutral: Some(Neutral::Number(number)), ..self.0 })
    }

    pub const fn with_ways(self, ways: Ways) -> NumberAxis {
        NumberAxis(Declaration { ways, ..self.0 })
    }

    pub const fn only_when(self, decides: fn(&Knobs) -> bool) -> NumberAxis {
        NumberAxis(Declaration { decides, ..self.0 })
    }

    pub const fn added_in(self, version: u32) -> NumberAxis {
        NumberAxis(Declaration { version, ..self.0 })
    }

    pub fn setting_in(&self, knobs: &impl Settings) -> Option<i64> {
        knobs.number(self.0.name)
    }

    pub fn or_one(&self, knobs: &impl Settings) -> i64 {
        self.setting_in(knobs).unwrap_or(1)
    }

    pub fn set(&self, knobs: &mut Knobs, number: i64) {
        knobs.0.insert(self.0.name.to_owned(), Setting::Number(number));
    }

    pub fn to_axis(&self, meaning: &'static str, settings: impl IntoIterator<Item = i64>) -> Axis {
        Axis { name: self.0.name, meaning, settings: settings.into_iter().map(Setting::Number).collect() }
    }
}

impl<T: Choice + PartialEq> ChoiceAxis<T> {
    pub const fn new(name: &'static str) -> ChoiceAxis<T> {
        ChoiceAxis(Declaration::new(name), PhantomData)
    }

    pub const fn with_neutral(self, word: &'static str) -> ChoiceAxis<T> {
        ChoiceAxis(Declaration { neutral: Some(Neutral::Choice(word)), ..self.0 }, PhantomData)
    }

    pub const fn with_ways(self, ways: Ways) -> ChoiceAxis<T> {
        ChoiceAxis(Declaration { ways, ..self.0 }, PhantomData)
    }

    pub const fn only_when(self, decides: fn(&Knobs) -> bool) -> ChoiceAxis<T> {
        ChoiceAxis(Declaration { decides, ..self.0 }, PhantomData)
    }

    pub const fn added_in(self, version: u32) -> ChoiceAxis<T> {
        ChoiceAxis(Declaration { version, ..self.0 }, PhantomData)
    }

    /// Returns the setting of this axis in `knobs`; None if it is missing or not a known name.
    pub fn setting_in(&self, knobs: &impl Settings) -> Option<T> {
        T::from_name(knobs.choice(self.0.name)?)
    }

    pub fn is_set_to(&self, knobs: &impl Settings, wanted: T) -> bool {
        knobs.choice(self.0.name) == Some(wanted.name())
    }

    pub fn set(&self, knobs: &mut Knobs, wanted: T) {
        knobs.0.insert(self.0.name.to_owned(), Setting::Choice(wanted.name().to_owned()));
    }

    pub fn to_axis(&self, meaning: &'static str, settings: impl IntoIterator<Item = T>) -> Axis {
        let settings = settings.into_iter().map(|one| Setting::Choice(one.name().to_owned())).collect();
        Axis { name: self.0.name, meaning, settings }
    }
}

const EVERYWHERE_ON_CPUS: Ways = Ways::DIRECT.or(Ways::WINOGRAD).or(Ways::DOTS);

pub static LAYOUT: ChoiceAxis<LayoutKind> = ChoiceAxis::new("layout").with_ways(Ways::DIRECT.or(Ways::DOTS));
pub static BLOCK: NumberAxis = NumberAxis::new("block")
    .with_ways(Ways::DIRECT.or(Ways::WINOGRAD))
    .only_when(|knobs| !LAYOUT.is_set_to(knobs, LayoutKind::Plain) || winograd_tile(knobs).is_some());
/// Channels, or blocks of channels, in a register tile; `TILE_Y` and `TILE_X` are rows and columns.
pub static TILE_C: NumberAxis = NumberAxis::new("tile_c");
pub static TILE_Y: NumberAxis = NumberAxis::new("tile_y");
pub static TILE_X: NumberAxis = NumberAxis::new("tile_x");
pub static SPLIT_R: NumberAxis = NumberAxis::new("split_r");
pub static UNROLL: NumberAxis = NumberAxis::new("unroll");
pub static OUTER: ChoiceAxis<TileOrder> = ChoiceAxis::new("outer").with_ways(Ways::DIRECT.or(Ways::DOTS));
pub static VECTOR: NumberAxis = NumberAxis::new("vector")
    .with_ways(Ways::DIRECT.or(Ways::DOTS))
    .only_when(|knobs| knobs.number("dots_x").is_none() || LAYOUT.is_set_to(knobs, LayoutKind::Dots));
/// Number of outer loops that are fused and run on the thread pool.
pub static PARALLEL: NumberAxis = NumberAxis::new("parallel");
/// Steps of the parallel loop that a thread takes at a time (chunk size).
pub static GRAIN: NumberAxis =
    NumberAxis::new("grain").with_neutral(1).only_when(|knobs| !POOL.is_set_to(knobs, YesNo::No));
pub static PAD_AT: ChoiceAxis<PadAt> =
    ChoiceAxis::new("pad_at").only_when(|knobs| !WINDOWS.is_set_to(knobs, Windows::ColumnsFirst));
pub static POOL: ChoiceAxis<YesNo> = ChoiceAxis::new("pool").with_ways(EVERYWHERE_ON_CPUS);
pub static FUNCTIONS: ChoiceAxis<Functions> = ChoiceAxis::new("functions").with_ways(EVERYWHERE_ON_CPUS);
pub static ALGORITHM: ChoiceAxis<Algorithm> = ChoiceAxis::new("algorithm").with_ways(Ways::DIRECT.or(Ways::WINOGRAD));
pub static HELPERS_AT: ChoiceAxis<HelpersAt> = ChoiceAxis::new("helpers_at");
pub static WINDOWS: ChoiceAxis<Windows> = ChoiceAxis::new("windows").with_neutral("whole");
pub static SUM: ChoiceAxis<SummedBy> = ChoiceAxis::new("sum").with_ways(Ways::DIRECT.or(Ways::BLOCK_SUM));

pub static SHARED: &[&Declaration] = &[
    &LAYOUT.0,
    &BLOCK.0,
    &TILE_C.0,
    &TILE_Y.0,
    &TILE_X.0,
    &SPLIT_R.0,
    &UNROLL.0,
    &OUTER.0,
    &VECTOR.0,
    &PARALLEL.0,
    &GRAIN.0,
    &PAD_AT.0,
    &POOL.0,
    &FUNCTIONS.0,
    &ALGORITHM.0,
    &HELPERS_AT.0,
    &WINDOWS.0,
    &SUM.0,
];

pub fn winograd_tile(knobs: &impl Settings) -> Option<i64> {
    match ALGORITHM.setting_in(knobs)? {
        Algorithm::Direct => None,
        Algorithm::Winograd2 => Some(2),
        Algorithm::Winograd4 => Some(4),
    }
}

pub(crate) fn candidate_divisors(extent: i64, candidates: &[i64]) -> impl Iterator<Item = i64> {
    candidates.iter().copied().filter(move |&number| number <= extent && extent % number == 0)
}

pub(crate) fn divisors(extent: i64) -> impl Iterator<Item = i64> {
    (1..=extent.min(1 << 16)).filter(move |number| extent % number == 0)
}
