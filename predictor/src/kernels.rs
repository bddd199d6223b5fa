//! Kernels of language models: learning from tables through a mapping, and answers with power and energy.

use crate::bundle;
use crate::error::{Error, Result};
use serde::Serialize;
use serving::learned::{Answer, Watts};
use serving::{GpuFacts, Kernel, Learned, Mapping, Measurements};
use std::path::Path;

/// Exponent of the slow-down of a capped device: dynamic power falls with about the third power of the clock, because
/// the voltage falls with it.
const POWER_PER_CLOCK: f64 = 3.0;
/// Share of the power limit that a GPU takes without work.
const IDLE_SHARE: f64 = 0.15;

/// A mapping is a small text.
const MAX_MAPPING_BYTES: u64 = 4 << 20;

/// A kernel's time, power and energy on a device.
#[derive(Clone, Debug, Serialize)]
pub struct KernelAnswer {
    /// The kernel's text.
    pub kernel: String,
    /// The device's name.
    pub device: String,
    /// Time with intervals, distance and held-out errors.
    #[serde(flatten)]
    pub answer: Answer,
    /// Power while running, where it was learned.
    pub power: Option<Watts>,
    /// Energy of one call, where power was learned.
    pub joules: Option<f64>,
    /// Slow-down by the given power limit; 1 where the limit does not bind.
    pub slow_down: f64,
    /// Operations and bytes of the kernel.
    pub flops: f64,
    /// Bytes that the kernel moves when each number moves once.
    pub bytes: f64,
}

/// Reads a mapping of tables of kernels; None where the file is a mapping of another kind.
pub fn read_mapping(path: &Path) -> Result<Option<Mapping>> {
    let text = samples::text::read_bounded(path, MAX_MAPPING_BYTES)?;
    if !Mapping::is_mapping(&text) {
        return Ok(None);
    }
    Ok(Some(Mapping::parse(&text, path)?))
}

/// Reads the tables of a mapping from folders.
pub fn read_tables(folders: &[std::path::PathBuf], mapping: &Mapping) -> Result<Measurements> {
    match folders {
        [folder] => Ok(Measurements::read(folder, mapping)?),
        _ => Err(Error::Query("give the one folder of the mapping's tables as --data".to_owned())),
    }
}

/// Reads what a file knows of kernels, or nothing where it knows none: then answers are bounds.
pub fn read_learned(path: &Path) -> Result<Learned> {
    Ok(bundle::read_kernels(path)?.unwrap_or_default())
}

/// Returns the data sheet of a device by any spelling of its name.
pub fn find_device(name: &str) -> Result<&'static GpuFacts> {
    Ok(serving::device::find(name)?)
}

/// Answers for a kernel on a device, under a power limit in watts where one is given.
pub fn answer(learned: &Learned, kernel: &Kernel, device: &GpuFacts, power_limit: Option<f64>) -> Result<KernelAnswer> {
    let mut answer = learned.answer(kernel, device)?;
    let mut power = learned.watts(kernel, device, None)?;
    let mut slow_down = 1.0;
    if let Some(limit) = power_limit {
        let idle = IDLE_SHARE * device.power_limit_w;
        let most = 2.0 * device.power_limit_w;
        if !(limit > idle && limit <= most) {
            let (name, usual) = (&device.name, device.power_limit_w);
            return Err(Error::Query(format!(
                "{name} has a power limit of {usual} W and takes about {idle:.0} W idle; give --power-limit above {idle:.0} W and up to {most:.0} W"
            )));
        }
        let Some(watts) = power.as_mut() else {
            return Err(Error::Query(format!(
                "power of `{}` was not learned, so a power limit says nothing of its time",
                kernel.operator()
            )));
        };
        let slow = |watts: f64| ((watts - idle) / (limit - idle)).max(1.0).powf(1.0 / POWER_PER_CLOCK);
        let (least, most) = (slow(watts.low), slow(watts.high));
        slow_down = slow(watts.watts);
        *watts = watts.up_to(limit);
        answer.time.seconds *= slow_down;
        answer.time.low *= least;
        answer.time.high *= most;
        for (low, high) in &mut answer.intervals {
            *low *= least;
            *high *= most;
        }
    }
    let work = kernel.work();
    Ok(KernelAnswer {
        kernel: kernel.to_string(),
        device: device.name.clone(),
        joules: power.map(|power| power.watts * answer.time.seconds),
        power,
        answer,
        slow_down,
        flops: work.flops,
        bytes: work.bytes,
    })
}
