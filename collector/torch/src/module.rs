//! Runs whole TorchScript files. Such a file contains a program, which is executed with only the limits of this
//! process. Its result is not checked, because only PyTorch can interpret the program.

use crate::inputs;
use crate::refusal::Result;
use crate::timing::LibraryTiming;
use anyhow::{Context, ensure};
use job::{Measured, ModuleJob, RunReply};
use models::{Const, TensorType};
use reference::constant_tensor;
use tch::{CModule, IValue};
use worker::peak_resident_bytes;

pub fn run_module(job: &ModuleJob) -> anyhow::Result<RunReply> {
    let content = std::fs::read(&job.path).with_context(|| format!("cannot read `{}`", job.path.display()))?;
    let hash = blake3::hash(&content).to_hex();
    ensure!(hash.as_str() == job.hash, "`{}` has changed since the campaign was planned", job.path.display());
    let inputs = (0..).zip(&job.inputs).map(|(number, ty)| random_input(ty, job.seed.wrapping_add(number)));
    let inputs = inputs.collect::<anyhow::Result<Vec<IValue>>>()?;
    let _without_gradients = tch::no_grad_guard();
    let mut timing = LibraryTiming::open_session(&job.cpus, &job.counters)?;
    let mut module = CModule::load_data(&mut content.as_slice()).context("PyTorch cannot load the file")?;
    module.f_set_eval()?;
    drop(content);
    let (measurement, _) = timing.time_runs(&job.method, || -> Result<IValue> { Ok(module.forward_is(&inputs)?) })?;
    Ok(RunReply::Measured(Box::new(Measured::from_measurement(measurement, None, peak_resident_bytes()))))
}

/// Creates a random input. Integers are small and non-negative, so that they can be used as indices.
fn random_input(ty: &str, seed: u64) -> anyhow::Result<IValue> {
    let ty: TensorType = ty.parse()?;
    let tensor = inputs::to_torch(&constant_tensor(&ty, &Const::Random { seed })?)?;
    let is_number = ty.dtype.integer_range().is_some() || ty.dtype == models::DType::I64;
    Ok(IValue::Tensor(if is_number { tensor.f_abs()? } else { tensor }))
}
