//! What was learned of kernels: times and power by group, and what carries over to other devices.

use crate::calibration::{LEVELS, Reaches, USUAL, size_class};
use crate::device::GpuFacts;
use crate::error::Result;
use crate::features::{features, site};
use crate::group::{GroupKey, Groups, HeldOut};
use crate::kernel::Kernel;
use crate::measurements::Provenance;
use crate::times::{Estimate, KernelTimes, Roofline, Source};
use crate::transfer::{Transfer, Votes};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What was learned of one target.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Knowledge {
    /// Learned devices.
    pub groups: Groups,
    /// What carries over to other devices, by operator.
    pub transfers: BTreeMap<String, Transfer>,
}

/// Everything that was learned of kernels.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Learned {
    /// Times.
    pub times: Knowledge,
    /// Mean power while running.
    pub power: Knowledge,
    /// Where the rows come from.
    pub provenance: Vec<Provenance>,
}

/// Distance of a question from what was learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distance {
    /// Another shape of a learned site on a learned device.
    KnownSite,
    /// A site that was not learned, on a learned device.
    NewSite,
    /// A device that was not learned, of a learned generation.
    SiblingDevice,
    /// A device of another generation.
    NewGeneration,
    /// Nothing was learned of the operator: the bound.
    Bound,
}

/// A time with all that is known of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// The time with its 90 % interval.
    pub time: Estimate,
    /// Lower and upper ends at 50, 80, 90 and 95 %.
    pub intervals: Vec<(f64, f64)>,
    /// Distance from what was learned.
    pub distance: Distance,
    /// The bound plus the launch overhead in seconds.
    pub reference_seconds: f64,
    /// Errors of this kind of question on rows that were held out.
    pub held_out: Option<HeldOut>,
    /// The learned device that lent its utilisation, where the device was not learned.
    pub similar: Option<String>,
}

/// Mean power while a kernel runs, with its 90 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Watts {
    /// Watts.
    pub watts: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Lower and upper ends at 50, 80, 90 and 95 %.
    #[serde(skip)]
    pub intervals: [(f64, f64); LEVELS.len()],
}

impl Watts {
    /// Returns the power of a device that is limited to some watts.
    pub fn up_to(self, limit: f64) -> Watts {
        let Watts { watts, low, high, intervals } = self;
        let intervals = intervals.map(|(low, high)| (low.min(limit), high.min(limit)));
        Watts { watts: watts.min(limit), low: low.min(limit), high: high.min(limit), intervals }
    }
}

/// A logarithm with its reaches.
struct Guess<'a> {
    log: f64,
    reaches: Option<&'a Reaches>,
    held_out: Option<HeldOut>,
    distance: Distance,
    similar: Option<String>,
}

impl Guess<'_> {
    fn reach(&self, class: usize, level: usize) -> Option<f64> {
        self.reaches.map(|reaches| reaches.reach(class, level))
    }
}

impl Knowledge {
    /// Returns the blended logarithm of a kernel on a device that was not learned, with the votes behind it.
    pub(crate) fn blended(&self, kernel: &Kernel, device: &GpuFacts) -> Result<Option<(f64, Votes)>> {
        let Some(transfer) = self.transfers.get(kernel.operator()) else { return Ok(None) };
        let (log, ballot) = transfer.log(&self.groups, kernel, device)?;
        Ok(Some((log, ballot.votes)))
    }

    fn guess(&self, kernel: &Kernel, device: &GpuFacts, framework: Option<u16>) -> Result<Option<Guess<'_>>> {
        if let Some(group) = self.groups.by_key.get(&GroupKey::of(kernel, device)) {
            let (reaches, distance) = match group.sites.contains(&site(kernel)) {
                true => (group.at_known_sites.as_ref().or(group.at_new_sites.as_ref()), Distance::KnownSite),
                false => (group.at_new_sites.as_ref(), Distance::NewSite),
            };
            let log = self.groups.log(group, kernel, device, framework)?;
            return Ok(Some(Guess { log, reaches, held_out: group.held_out, distance, similar: None }));
        }
        let Some(transfer) = self.transfers.get(kernel.operator()) else { return Ok(None) };
        let (log, ballot) = transfer.log(&self.groups, kernel, device)?;
        let is_sibling = ballot.is_sibling(device);
        let blend = transfer.blend(is_sibling);
        // Without held-out siblings the errors of strangers bound theirs.
        let reaches = blend.reaches.as_ref().or(transfer.stranger.reaches.as_ref());
        Ok(Some(Guess {
            log,
            reaches,
            held_out: blend.held_out,
            distance: if is_sibling { Distance::SiblingDevice } else { Distance::NewGeneration },
            similar: ballot.similar.map(|(similar, _)| similar.name.clone()),
        }))
    }
}

impl Learned {
    /// Returns the time of a kernel with its distance, intervals and errors.
    pub fn answer(&self, kernel: &Kernel, device: &GpuFacts) -> Result<Answer> {
        self.answer_in(kernel, device, None)
    }

    /// Returns the time of a kernel in a framework, where the device was learned with several.
    pub fn answer_in(&self, kernel: &Kernel, device: &GpuFacts, framework: Option<u16>) -> Result<Answer> {
        let reference_seconds = features(kernel, device, 0.0)?.reference_seconds;
        let Some(guess) = self.times.guess(kernel, device, framework)? else {
            let time = Roofline.time(kernel, device)?;
            let intervals = vec![(time.low, time.high); LEVELS.len()];
            let distance = Distance::Bound;
            return Ok(Answer { time, intervals, distance, reference_seconds, held_out: None, similar: None });
        };
        // No answer is above the roofline of its level: products at the peak rate.
        let fastest = kernel.work().flops / device.peak(kernel.products())?;
        let seconds = (reference_seconds * guess.log.exp()).max(fastest);
        let class = size_class(reference_seconds);
        let interval = |level| {
            let reach = guess.reach(class, level).unwrap_or(1.0);
            (seconds * (-reach).exp(), seconds * reach.exp())
        };
        let intervals: Vec<(f64, f64)> = (0..LEVELS.len()).map(interval).collect();
        let (low, high) = intervals[USUAL];
        Ok(Answer {
            time: Estimate { seconds, low, high, source: Source::Learned },
            intervals,
            distance: guess.distance,
            reference_seconds,
            held_out: guess.held_out,
            similar: guess.similar,
        })
    }

    /// Returns the mean power of a kernel while it runs in a loop, where power was learned. The board's limit bounds it.
    pub fn watts(&self, kernel: &Kernel, device: &GpuFacts, framework: Option<u16>) -> Result<Option<Watts>> {
        let Some(guess) = self.power.guess(kernel, device, framework)? else { return Ok(None) };
        let class = size_class(features(kernel, device, 0.0)?.reference_seconds);
        let limit = device.power_limit_w;
        let watts = limit * guess.log.exp().min(1.0);
        let intervals = std::array::from_fn(|level| {
            let reach = guess.reach(class, level).unwrap_or(0.5);
            (watts * (-reach).exp(), watts * reach.exp())
        });
        let (low, high) = intervals[USUAL];
        Ok(Some(Watts { watts, low, high, intervals }.up_to(limit)))
    }
}

impl KernelTimes for Learned {
    fn time(&self, kernel: &Kernel, device: &GpuFacts) -> Result<Estimate> {
        Ok(self.answer(kernel, device)?.time)
    }

    fn watts(&self, kernel: &Kernel, device: &GpuFacts) -> Option<f64> {
        Learned::watts(self, kernel, device, None).ok().flatten().map(|power| power.watts)
    }
}
