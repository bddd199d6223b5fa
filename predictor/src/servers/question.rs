//! Predictions for a server under a load.

use crate::error::Result;
use report::{format_duration, format_number};
use serving::KernelTimes;
use serving::server::{Deployment, ServerAnswer, ServerLoad, shipped_overheads};
use serving::warnings::{ServerWarning, WarningCause};

/// Similarity to measured servers below which a prediction is reported as an extrapolation.
const LEAST_SIMILARITY: f64 = 0.5;

pub struct ServerQuestion {
    pub deployment: Deployment,
    pub load: ServerLoad,
}

/// Formats bytes in gigabytes of 10⁹, as data sheets do.
pub fn format_gigabytes(bytes: f64) -> String {
    format!("{} GB", format_number(bytes / 1e9))
}

/// Predicts latency and memory of a language-model server, with the built-in overheads of frameworks.
pub fn predict_server(question: &ServerQuestion, times: &dyn KernelTimes) -> Result<ServerAnswer> {
    Ok(question.deployment.predict_server(&question.load, times, Some(shipped_overheads()))?)
}

/// Returns the reasons to doubt an answer.
pub fn answer_warnings(question: &ServerQuestion, answer: &ServerAnswer) -> Vec<ServerWarning> {
    let mut warnings = Vec::new();
    let mut warn = |cause, text| warnings.push(ServerWarning { cause, text });
    if let Some(text) = memory_warning(question, answer) {
        warn(WarningCause::Memory, text);
    }
    let contradictions = [
        (WarningCause::FirstToken, "the time to first token", &answer.first_token, "one prompt", &answer.prefill),
        (WarningCause::PerToken, "the time per token", &answer.per_token, "one decoding step", &answer.decode),
    ];
    for (cause, what, predicted, pass, kernels) in contradictions {
        if kernels.seconds > predicted.high {
            let time = format_duration(1e9 * kernels.seconds);
            let text = format!(
                "the kernels of {pass} are predicted to take {time}, longer than {what}, which is learned from whole \
                 servers: one of the two is wrong"
            );
            warn(cause, text);
        }
    }
    if answer.similarity.is_some_and(|similarity| similarity < LEAST_SIMILARITY) {
        let text = "no measured server is similar, so the framework overheads are extrapolated".to_owned();
        warn(WarningCause::Similarity, text);
    }
    warnings.extend(question.deployment.model_warnings(&question.load));
    warnings
}

/// States how much memory is missing; None if the requests fit.
fn memory_warning(question: &ServerQuestion, answer: &ServerAnswer) -> Option<String> {
    let memory = &answer.memory;
    if memory.is_sufficient() {
        return None;
    }
    let most = match memory.max_sequences {
        0 => "no request fits; use more GPUs or a smaller number format".to_owned(),
        most => format!("at most {most} requests fit"),
    };
    let (device, needed) = (&question.deployment.device.name, format_gigabytes(memory.needed_bytes()));
    let usable = format_gigabytes(memory.usable_bytes);
    Some(format!("does not fit in memory: each `{device}` needs {needed}, but {usable} are usable; {most}"))
}
