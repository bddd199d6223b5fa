//! Axes by name: what their settings are, which setting leaves their move out, and when they decide nothing. Axes that several
//! families of operators share are declared here, all others with their family.

use crate::knobs::{Knobs, Setting, Settings};
use crate::{Axis, choices::*};
use models::Choice;
use std::marker::PhantomData;

/// Ways to compute a task that use different axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ways(u8);

impl Ways {
    /// Tiles and loops, on CPUs and by the threads of a GPU.
    pub const DIRECT: Ways = Ways(1);
    pub const WINOGRAD: Ways = Ways(2);
    /// Products of quads of bytes whose lanes are places.
    pub const DOTS: Ways = Ways(4);
    pub const TENSOR: Ways = Ways(8);
    /// Sums across the threads of a block.
    pub const BLOCK_SUM: Ways = Ways(16);

    /// Returns the ways of either.
    pub const fn or(self, other: Ways) -> Ways {
        Ways(self.0 | other.0)
    }

    /// Returns whether a way is among these.
    pub fn has(self, way: Ways) -> bool {
        self.0 & way.0 != 0
    }
}

/// What holds of an axis in all families that have it.
#[derive(Debug)]
pub struct Declaration {
    pub name: &'static str,
    neutral: Option<Neutral>,
    /// The ways to compute a task in which the axis decides anything.
    pub ways: Ways,
    /// Whether the axis has an effect, given the other knobs of a point.
    pub decides: fn(&Knobs) -> bool,
}

#[derive(Clone, Copy, Debug)]
enum Neutral {
    Number(i64),
    Choice(&'static str),
}

impl Declaration {
    const fn new(name: &'static str) -> Declaration {
        Declaration { name, neutral: None, ways: Ways::DIRECT, decides: |_| true }
    }

    /// Returns whether a point names the axis.
    pub fn is_in(&self, knobs: &Knobs) -> bool {
        knobs.0.contains_key(self.name)
    }

    /// Returns the setting that a point has which does not name the axis: the one that leaves the move out.
    pub fn neutral(&self) -> Option<Setting> {
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

/// An axis whose settings are numbers.
#[derive(Debug)]
pub struct NumberAxis(pub Declaration);

/// An axis whose settings are words.
#[derive(Debug)]
pub struct ChoiceAxis<T>(pub Declaration, PhantomData<fn() -> T>);

impl NumberAxis {
    /// Declares an axis that decides something in all points of [`Ways::DIRECT`].
    pub const fn new(name: &'static str) -> NumberAxis {
        NumberAxis(Declaration::new(name))
    }

    /// With a setting that leaves the move out.
    pub const fn neutral(self, number: i64) -> NumberAxis {
        NumberAxis(Declaration { neutral: Some(Neutral::Number(number)), ..self.0 })
    }

    /// With the ways in which it decides anything.
    pub const fn ways(self, ways: Ways) -> NumberAxis {
        NumberAxis(Declaration { ways, ..self.0 })
    }

    /// With the condition under which it decides anything.
    pub const fn when(self, decides: fn(&Knobs) -> bool) -> NumberAxis {
        NumberAxis(Declaration { decides, ..self.0 })
    }

    /// Returns the setting of a point.
    pub fn of(&self, knobs: &impl Settings) -> Option<i64> {
        knobs.number(self.0.name)
    }

    /// Returns the setting of a point, or one where it has none.
    pub fn or_one(&self, knobs: &impl Settings) -> i64 {
        self.of(knobs).unwrap_or(1)
    }

    /// Sets a point's knob.
    pub fn set(&self, knobs: &mut Knobs, number: i64) {
        knobs.0.insert(self.0.name.to_owned(), Setting::Number(number));
    }

    /// The axis of a space.
    pub fn axis(&self, meaning: &'static str, settings: impl IntoIterator<Item = i64>) -> Axis {
        Axis { name: self.0.name, meaning, settings: settings.into_iter().map(Setting::Number).collect() }
    }
}

impl<T: Choice + PartialEq> ChoiceAxis<T> {
    /// Declares an axis that decides something in all points of [`Ways::DIRECT`].
    pub const fn new(name: &'static str) -> ChoiceAxis<T> {
        ChoiceAxis(Declaration::new(name), PhantomData)
    }

    /// With a setting that leaves the move out.
    pub const fn neutral(self, word: &'static str) -> ChoiceAxis<T> {
        ChoiceAxis(Declaration { neutral: Some(Neutral::Choice(word)), ..self.0 }, PhantomData)
    }

    /// With the ways in which it decides anything.
    pub const fn ways(self, ways: Ways) -> ChoiceAxis<T> {
        ChoiceAxis(Declaration { ways, ..self.0 }, PhantomData)
    }

    /// With the condition under which it decides anything.
    pub const fn when(self, decides: fn(&Knobs) -> bool) -> ChoiceAxis<T> {
        ChoiceAxis(Declaration { decides, ..self.0 }, PhantomData)
    }

    /// Returns the setting of a point, if it is one that is known.
    pub fn of(&self, knobs: &impl Settings) -> Option<T> {
        T::from_name(knobs.choice(self.0.name)?)
    }

    /// Returns whether a point has this setting.
    pub fn is(&self, knobs: &impl Settings, wanted: T) -> bool {
        knobs.choice(self.0.name) == Some(wanted.name())
    }

    /// Sets a point's knob.
    pub fn set(&self, knobs: &mut Knobs, wanted: T) {
        knobs.0.insert(self.0.name.to_owned(), Setting::Choice(wanted.name().to_owned()));
    }

    /// The axis of a space.
    pub fn axis(&self, meaning: &'static str, settings: impl IntoIterator<Item = T>) -> Axis {
        let settings = settings.into_iter().map(|one| Setting::Choice(one.name().to_owned())).collect();
        Axis { name: self.0.name, meaning, settings }
    }
}

const EVERYWHERE_ON_CPUS: Ways = Ways::DIRECT.or(Ways::WINOGRAD).or(Ways::DOTS);

/// How operands are stored.
pub static LAYOUT: ChoiceAxis<LayoutKind> = ChoiceAxis::new("layout").ways(Ways::DIRECT.or(Ways::DOTS));
pub static BLOCK: NumberAxis = NumberAxis::new("block")
    .ways(Ways::DIRECT.or(Ways::WINOGRAD))
    .when(|knobs| !LAYOUT.is(knobs, LayoutKind::Plain) || winograd_tile(knobs).is_some());
/// Channels, or blocks of channels, of a tile.
pub static TILE_C: NumberAxis = NumberAxis::new("tile_c");
pub static TILE_Y: NumberAxis = NumberAxis::new("tile_y");
pub static TILE_X: NumberAxis = NumberAxis::new("tile_x");
/// Inner steps of a reduction.
pub static SPLIT_R: NumberAxis = NumberAxis::new("split_r");
/// Whether innermost steps of a reduction are written out.
pub static UNROLL: NumberAxis = NumberAxis::new("unroll");
/// The order of the loops over tiles.
pub static OUTER: ChoiceAxis<TileOrder> = ChoiceAxis::new("outer").ways(Ways::DIRECT.or(Ways::DOTS));
pub static VECTOR: NumberAxis = NumberAxis::new("vector")
    .ways(Ways::DIRECT.or(Ways::DOTS))
    .when(|knobs| knobs.number("dots_x").is_none() || LAYOUT.is(knobs, LayoutKind::Dots));
/// Outer loops that are fused and run on the pool.
pub static PARALLEL: NumberAxis = NumberAxis::new("parallel");
/// Steps of the pool's loop that a thread takes at once.
pub static GRAIN: NumberAxis = NumberAxis::new("grain").neutral(1).when(|knobs| !POOL.is(knobs, YesNo::No));
/// Where padded input is computed.
pub static PAD_AT: ChoiceAxis<PadAt> =
    ChoiceAxis::new("pad_at").when(|knobs| !WINDOWS.is(knobs, Windows::ColumnsFirst));
/// Whether loops run on the pool of threads.
pub static POOL: ChoiceAxis<YesNo> = ChoiceAxis::new("pool").ways(EVERYWHERE_ON_CPUS);
/// How exponentials and their kin are computed.
pub static FUNCTIONS: ChoiceAxis<Functions> = ChoiceAxis::new("functions").ways(EVERYWHERE_ON_CPUS);
/// Whether transforms of tiles save products.
pub static ALGORITHM: ChoiceAxis<Algorithm> = ChoiceAxis::new("algorithm").ways(Ways::DIRECT.or(Ways::WINOGRAD));
/// For how much of the result helpers of rows are computed at once.
pub static HELPERS_AT: ChoiceAxis<HelpersAt> = ChoiceAxis::new("helpers_at");
/// How windows of pools are reduced.
pub static WINDOWS: ChoiceAxis<Windows> = ChoiceAxis::new("windows").neutral("whole");
/// Who sums an element of the result on a GPU.
pub static SUM: ChoiceAxis<SummedBy> = ChoiceAxis::new("sum").ways(Ways::DIRECT.or(Ways::BLOCK_SUM));

/// The axes of several families.
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

/// Returns the extent of Winograd's tiles, where they are used.
pub fn winograd_tile(knobs: &impl Settings) -> Option<i64> {
    match ALGORITHM.of(knobs)? {
        Algorithm::Direct => None,
        Algorithm::Winograd2 => Some(2),
        Algorithm::Winograd4 => Some(4),
    }
}

/// Those of the wished numbers that divide the extent.
pub(crate) fn upto(extent: i64, wished: &[i64]) -> impl Iterator<Item = i64> {
    wished.iter().copied().filter(move |&number| number <= extent && extent % number == 0)
}

/// All divisors, ascending.
pub(crate) fn divisors(extent: i64) -> impl Iterator<Item = i64> {
    (1..=extent.min(1 << 16)).filter(move |number| extent % number == 0)
}
