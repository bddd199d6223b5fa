//! Times of operators for planning: from records of a host, from a predictor, or from both.

use super::network::{NetworkPlan, plan};
use super::times::{Host, Times};
use crate::error::{Error, Result};
use crate::queries::{self, Setting};
use datasets::store::Damage;
use learn::host_translation::HostTranslation;
use learn::predictor::Predictor;
use models::Graph;
use planners::interference::{Learned, Machine};

pub struct KnownTimes {
    host: Option<Host>,
    predictor: Option<Predictor>,
    setting: Setting,
}

impl KnownTimes {
    /// Combines the sources; at least one is required. `device` is the predictor's device.
    pub fn new(host: Option<Host>, predictor: Option<Predictor>, device: Option<String>) -> Result<KnownTimes> {
        if host.is_none() && predictor.is_none() {
            let problem = "no source of operator times: give --data STORE with records of this machine, --predictor FILE, or both";
            return Err(Error::Query(problem.to_owned()));
        }
        Ok(KnownTimes { host, predictor, setting: Setting { device, ..Setting::default() } })
    }

    pub fn measured_host(&self) -> Option<&Host> {
        self.host.as_ref()
    }

    /// Returns the damaged contents of the store of measured times, which were skipped.
    pub fn damage(&self) -> &[Damage] {
        self.host.as_ref().map_or(&[], |host| &host.damage)
    }

    /// Returns the translation of predictions to this host; None if predictions are for a device with training data.
    pub fn this_host(&self) -> Option<&HostTranslation> {
        self.setting.this_host(self.predictor.as_ref()?)
    }

    /// Names the machine for which times are predicted; None without a predictor.
    pub fn predicted_machine(&self) -> Option<String> {
        if let Some(host) = self.this_host() {
            return Some(format!("this machine, `{}`", host.host_class));
        }
        let device = queries::find_device(self.predictor.as_ref()?, &self.setting).ok()?;
        Some(format!("`{device}`"))
    }

    /// Returns a warning if times are measured on one machine and predicted for another one.
    pub fn mixed_machines_warning(&self) -> Option<String> {
        let (host, predicted) = (self.host.as_ref()?, self.predicted_machine()?);
        let is_other = !predicted.contains(&format!("`{}`", host.class));
        is_other.then(|| format!("times were measured on `{}` and are predicted for {predicted}", host.class))
    }

    /// Plans a network on `cores` cores; each stage with concurrent groups adds `barrier_ns`.
    pub fn plan_network(&self, graph: &Graph, cores: usize, barrier_ns: f64) -> Result<NetworkPlan> {
        let machine = self.shared_machine(cores)?;
        plan(graph, &self.time_sources(), &machine, barrier_ns)
    }

    fn time_sources(&self) -> Times<'_> {
        let predictor = self.predictor.as_ref().map(|predictor| (predictor, &self.setting));
        Times { host: self.host.as_ref(), predictor }
    }

    pub fn shared_machine(&self, cores: usize) -> Result<Machine> {
        if let Some(host) = &self.host {
            return Ok(host.shared_machine(cores));
        }
        let predictor = self.predictor.as_ref().expect("a predictor or a host is given");
        let name = queries::find_device(predictor, &self.setting)?;
        let known = predictor.about.devices.keys().map(String::as_str);
        let device = predictor.about.devices.get(name).ok_or_else(|| Error::unknown_name("device", name, known))?;
        let peaks = self.this_host().and_then(|host| host.peaks.as_ref());
        let here = peaks.and_then(|peaks| peaks.bytes_per_second(cores as f64, f64::INFINITY));
        let bytes_per_ns = here.map_or(device.bandwidth_gb_per_s, |rate| 1e-9 * rate).max(f64::MIN_POSITIVE);
        let cache_bytes = device.cache_bytes * cores as f64;
        Ok(Machine { cores, bytes_per_ns, cache_bytes, learned: Learned::default() })
    }
}
