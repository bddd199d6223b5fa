//! Times of operators that a plan is made of: records of a host, a predictor, or both.

use super::network::{Planned, plan};
use super::times::{Host, Times};
use crate::error::{Error, Result};
use crate::queries::{self, NetworkQuestion, Setting};
use learn::host_translation::HostTranslation;
use learn::predictor::Predictor;
use planners::interference::{Learned, Machine};

/// Times of records, of a predictor for what was not measured, or of both.
pub struct KnownTimes {
    host: Option<Host>,
    predictor: Option<Predictor>,
    setting: Setting,
}

impl KnownTimes {
    /// Combines what is known, at least one of both. The device is the predictor's.
    pub fn new(host: Option<Host>, predictor: Option<Predictor>, device: Option<String>) -> Result<KnownTimes> {
        if host.is_none() && predictor.is_none() {
            let problem = "no times: give --data STORE with records of this machine, or --predictor FILE, or both";
            return Err(Error::Query(problem.to_owned()));
        }
        Ok(KnownTimes { host, predictor, setting: Setting { device, ..Setting::default() } })
    }

    /// Returns the host that was measured.
    pub fn host(&self) -> Option<&Host> {
        self.host.as_ref()
    }

    /// Returns the host that predicted times are for, where that is not the device that was learned from.
    pub fn this_host(&self) -> Option<&HostTranslation> {
        let predictor = self.predictor.as_ref().filter(|_| self.setting.device.is_none())?;
        predictor.this_host.as_ref()
    }

    /// Plans a whole network on this many cores; starting groups side by side and waiting for them takes `barrier_ns`.
    pub fn plan(&self, question: &NetworkQuestion<'_>, cores: usize, barrier_ns: f64) -> Result<Planned> {
        let machine = self.machine(cores)?;
        plan(&question.graph()?, &self.times(), &machine, barrier_ns)
    }

    fn times(&self) -> Times<'_> {
        let predictor = self.predictor.as_ref().map(|predictor| (predictor, &self.setting));
        Times { host: self.host.as_ref(), predictor }
    }

    /// Returns what operators share, as far as that is known.
    pub fn machine(&self, cores: usize) -> Result<Machine> {
        if let Some(host) = &self.host {
            return Ok(host.machine(cores));
        }
        let predictor = self.predictor.as_ref().expect("one of both was given");
        let name = queries::device(predictor, &self.setting)?;
        let known = predictor.about.devices.keys().map(String::as_str);
        let device = predictor.about.devices.get(name).ok_or_else(|| Error::unknown("device", name, known))?;
        let bytes_per_ns = device.bandwidth_gb_per_s.max(f64::MIN_POSITIVE);
        let cache_bytes = device.cache_bytes * cores as f64;
        Ok(Machine { cores, bytes_per_ns, cache_bytes, learned: Learned::default() })
    }
}
