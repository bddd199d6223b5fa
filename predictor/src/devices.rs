//! Finds devices by common spellings of their names, and lists what predictors know of each device.

use crate::error::{Error, Result};
use learn::operator::OperatorEnsemble;
use learn::predictor::Predictor;
use models::names;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KnownDevice {
    pub device: String,
    pub aliases: Vec<String>,
    /// Number of operators with training data; 0 if only the data sheet is known.
    pub learned_operators: usize,
    /// Number of operators that `adapt` corrected for this device, without training data.
    pub corrected_operators: usize,
    /// Number of multiprocessors of a GPU, or cores of a CPU.
    pub units: f64,
    pub gflops: f64,
    pub bandwidth_gb_per_s: f64,
    pub cache_bytes: f64,
}

/// Returns the device with this name in any spelling, or the only device whose name contains these words, such as `T4`.
/// Short names of GPUs for language models, such as `h100_sxm`, count as names.
pub fn resolve_device<'a>(known: impl IntoIterator<Item = &'a str>, name: &str) -> Result<&'a str> {
    let known: Vec<&str> = known.into_iter().collect();
    names::resolve_device(known.iter().copied(), name).or_else(|problem| {
        let Ok(gpu) = serving::device::find_device(name) else { return Err(Error::Query(problem)) };
        known.iter().copied().find(|device| *device == gpu.name).ok_or_else(|| {
            let operators = serving::text::OPERATORS.map(|operator| format!("`{operator}`"));
            Error::Query(format!(
                "`{}` is known for language models and their kernels ({}) only; {}",
                gpu.name,
                operators.join(", "),
                names::name_hint(&gpu.name, known.iter().copied())
            ))
        })
    })
}

pub fn known_devices(predictor: &Predictor) -> Vec<KnownDevice> {
    let devices = &predictor.about.devices;
    let all = || devices.keys().map(String::as_str);
    let is_alias =
        |word: &String, name: &str| word != name && resolve_device(all(), word).is_ok_and(|device| device == name);
    let is_corrected =
        |of: &&OperatorEnsemble, name: &str| !of.statistics.has_seen(name) && of.corrections.contains_key(name);
    let corrected = |name: &str| predictor.learned.operators.values().filter(|of| is_corrected(of, name)).count();
    let learned = |name: &str| predictor.learned.operators.values().filter(|of| of.statistics.has_seen(name)).count();
    let known = |(name, device): (&String, &samples::features::Device)| KnownDevice {
        device: name.clone(),
        // Words of a host class, such as `c4`, do not identify a device.
        aliases: names::name_words(name)
            .into_iter()
            .filter(|word| word.len() > 1 && is_alias(word, name))
            .take(2)
            .collect(),
        learned_operators: learned(name),
        corrected_operators: corrected(name),
        units: device.units,
        gflops: device.flops_per_ns(),
        bandwidth_gb_per_s: device.bandwidth_gb_per_s,
        cache_bytes: device.cache_bytes,
    };
    devices.iter().map(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_found_by_any_spelling_and_by_words_of_its_own() {
        let known = ["Tesla T4", "NVIDIA A100-SXM4-80GB", "NVIDIA L4", "intel-xeon-c2"];
        let ask = |name: &str| resolve_device(known, name).map_err(|error| error.to_string());
        for name in ["Tesla T4", "tesla-t4", "T4", "t4"] {
            assert_eq!(ask(name).as_deref(), Ok("Tesla T4"), "{name}");
        }
        assert_eq!(ask("a100 80gb").as_deref(), Ok("NVIDIA A100-SXM4-80GB"));
        let several = ask("NVIDIA").expect_err("there are two");
        assert!(several.contains("matches several devices: `NVIDIA A100-SXM4-80GB`, `NVIDIA L4`"), "{several}");
        let near = ask("Tesla T5").expect_err("there is none");
        assert!(near.ends_with("unknown device `Tesla T5`; did you mean `Tesla T4`?"), "{near}");
        let all = "; known: `Tesla T4`, `NVIDIA A100-SXM4-80GB`, `NVIDIA L4`, `intel-xeon-c2`";
        let far = ask("quantum").expect_err("there is none");
        assert!(far.ends_with(all), "{far}");
        assert!(ask("").is_err() && ask("---").is_err());
        let other = ask("h100_sxm").expect_err("only language models");
        assert!(other.contains("known for language models and their kernels (`gemm`, "), "{other}");
        assert_eq!(resolve_device(["NVIDIA H100 80GB HBM3"], "h100_sxm").expect("a GPU"), "NVIDIA H100 80GB HBM3");
    }
}
