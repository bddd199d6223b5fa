//! Requested counters, and their names at each source.

use serde::{Deserialize, Serialize};

use super::{
    Backend, Channel, Coverage, Refusal, Step, gpu,
    names::{self, CounterName, PerfEvent, UsageFigure},
    perf::Mode,
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CounterRequest {
    pub backend: Backend,
    /// Stable names (see [`names::NAMES`], [`gpu::GPU_NAMES`]), `papi:NAME`, `perf:rHEX` or `cupti:METRIC`.
    pub events: Vec<String>,
    /// Whether threads that the opening thread starts later are counted; open the session before TVM creates its pool.
    pub with_descendants: bool,
}

impl Default for CounterRequest {
    fn default() -> Self {
        Self {
            backend: Backend::Auto,
            events: names::DEFAULT.iter().map(ToString::to_string).collect(),
            with_descendants: false,
        }
    }
}

pub(super) struct RequestedCounter {
    pub(super) name: String,
    pub(super) unit: &'static str,
    pub(super) papi: Vec<String>,
    pub(super) perf: Option<PerfEvent>,
    pub(super) usage: Option<UsageFigure>,
    pub(super) powercap: Option<&'static str>,
}

impl RequestedCounter {
    pub(super) fn parse_name(name: &str) -> Result<Self, Refusal> {
        let refuse = |step, why: &str| Refusal { event: name.into(), step, errno: None, why: why.into() };
        let mut wanted =
            Self { name: name.into(), unit: "count", papi: Vec::new(), perf: None, usage: None, powercap: None };
        if let Some(native) = name.strip_prefix("papi:") {
            wanted.papi.push(native.into());
        } else if let Some(raw) = name.strip_prefix("perf:") {
            let config = raw.strip_prefix('r').and_then(|digits| u64::from_str_radix(digits, 16).ok());
            let config = config.ok_or_else(|| {
                refuse(Step::Perf, "not a raw perf event; write `perf:r` followed by hexadecimal digits")
            })?;
            wanted.perf = Some(PerfEvent::raw_event(config));
        } else if let Some(&CounterName { unit, papi, perf, usage, powercap, .. }) = names::find_counter(name) {
            let papi = papi.iter().map(ToString::to_string).collect();
            wanted = Self { unit, papi, perf, usage, powercap, ..wanted };
        } else if gpu::has_gpu_prefix(name) {
            let step = gpu::find_counter(name).map_or(Step::Cupti, |counter| counter.step);
            return Err(refuse(step, "a GPU counter cannot be read for code that runs on a CPU"));
        } else {
            return Err(refuse(
                Step::Usage,
                "no counter has this name; `opcollect doctor` lists all, and `papi:` or `perf:r` select native events",
            ));
        }
        Ok(wanted)
    }

    pub(super) fn highest_step(&self) -> Step {
        if !self.papi.is_empty() {
            Step::Papi
        } else if self.perf.is_some() {
            Step::Perf
        } else if self.powercap.is_some() {
            Step::Powercap
        } else {
            Step::Usage
        }
    }

    pub(super) fn make_channel(&self, step: Step, native: &str, coverage: Coverage) -> Channel {
        let (name, unit) = (self.name.clone(), self.unit.into());
        Channel { name, unit, step, native: native.into(), coverage, group: None }
    }

    pub(super) fn usage_channel(&self, figure: UsageFigure) -> Channel {
        let coverage = if figure.is_of_thread { Coverage::Thread } else { Coverage::Process };
        self.make_channel(Step::Usage, figure.field, coverage)
    }

    pub(super) fn perf_channel(&self, mode: Mode) -> Channel {
        let coverage = match (mode.with_descendants, mode.is_user_only) {
            (false, false) => Coverage::Thread,
            (false, true) => Coverage::ThreadUser,
            (true, false) => Coverage::Descendants,
            (true, true) => Coverage::DescendantsUser,
        };
        let native = self.perf.map(|event| format!("{}:{:#x}", event.kind, event.config)).unwrap_or_default();
        self.make_channel(Step::Perf, &native, coverage)
    }
}
