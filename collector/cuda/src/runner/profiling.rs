//! Selects the metrics of the range profiler that a job reads: the requested metrics that the device supports.

use crate::cupti::{Cupti, CuptiError};
use crate::driver::{Device, DriverError};
use crate::profiler::{Config, Profiler};
use measure::counters::gpu::WantedMetric;

pub(super) struct Profiling {
    profiler: Profiler,
    chosen: Vec<Chosen>,
    /// None if no metric can be read.
    config: Option<Config>,
    refused: Vec<(String, CuptiError)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) name: String,
    pub(super) unit: &'static str,
    pub(super) native: String,
}

impl Profiling {
    pub(super) fn begin_profiling(
        cupti: &Cupti,
        device: &Device,
        wanted: &[WantedMetric],
    ) -> Result<Profiling, CuptiError> {
        let profiler = Profiler::open(cupti, device)?;
        let known = profiler.base_metrics()?;
        let (mut chosen, mut refused) = (Vec::new(), Vec::new());
        for metric in wanted {
            let (name, unit) = (metric.name.clone(), metric.unit);
            match metric.choose_metric(&known) {
                Some(native) => chosen.push(Chosen { name, unit, native: native.to_owned() }),
                None => {
                    let names = metric.candidates.join("`, `");
                    let why = format!("the chip {} has no metric `{names}`", profiler.chip_name());
                    refused.push((name, CuptiError::Unsupported(why)));
                }
            }
        }
        let config = |chosen: &[Chosen]| {
            let names: Vec<&str> = chosen.iter().map(|metric| metric.native.as_str()).collect();
            profiler.prepare_config(&names)
        };
        // If the metrics are rejected together, each is tried alone and only rejected ones are dropped.
        let all = if chosen.is_empty() { None } else { Some(config(&chosen)) };
        let config = match all {
            None => None,
            Some(Ok(all)) => Some(all),
            Some(Err(_)) => {
                chosen.retain(|metric| match config(std::slice::from_ref(metric)) {
                    Ok(_) => true,
                    Err(error) => {
                        refused.push((metric.name.clone(), error));
                        false
                    }
                });
                if chosen.is_empty() { None } else { Some(config(&chosen)?) }
            }
        };
        Ok(Profiling { profiler, chosen, config, refused })
    }

    /// Returns the selected metrics, in the order of their values.
    pub(super) fn chosen_metrics(&self) -> impl Iterator<Item = &Chosen> {
        self.chosen.iter()
    }

    pub(super) fn refused_counters(&self) -> impl Iterator<Item = (&str, &CuptiError)> {
        self.refused.iter().map(|(name, error)| (name.as_str(), error))
    }

    pub(super) fn measure_metrics(
        &mut self,
        device: &Device,
        ready: impl FnMut() -> Result<(), ProfilingError>,
        work: impl FnMut() -> Result<(), ProfilingError>,
    ) -> Result<Vec<f64>, ProfilingError> {
        match &mut self.config {
            Some(config) => self.profiler.measure_metrics(device, config, ready, work),
            None => Ok(Vec::new()),
        }
    }
}

pub(super) enum ProfilingError {
    Cupti(CuptiError),
    Driver(DriverError),
}

impl From<CuptiError> for ProfilingError {
    fn from(error: CuptiError) -> ProfilingError {
        ProfilingError::Cupti(error)
    }
}

impl From<DriverError> for ProfilingError {
    fn from(error: DriverError) -> ProfilingError {
        ProfilingError::Driver(error)
    }
}
