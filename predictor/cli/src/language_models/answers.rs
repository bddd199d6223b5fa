//! The command `oppredict predict` for language-model servers.

use super::{ServerQuestion, texts};
use crate::kernels;
use crate::{DONE, DONE_WITH_LOSSES, print_json, print_text};
use predictor::Result;
use predictor::kernels::read_learned;
use report::format_duration;
use report::terminal::print_notes;
use serde_json::{Value, json};
use serving::KernelTimes;
use serving::server::{ServerAnswer, ServerWarning, WarningCause, shipped_overheads};
use std::path::Path;

/// Similarity to measured servers below which a prediction is reported as an extrapolation.
const LEAST_SIMILARITY: f64 = 0.5;

pub fn predict_servers(questions: &[ServerQuestion], predictor: Option<&Path>, as_json: bool) -> Result<u8> {
    let mut documents = Vec::new();
    let mut has_losses = false;
    let times = kernel_times(predictor)?;
    for question in questions {
        let answer = predict_server(question, &times)?;
        let notes: Vec<String> = answer_warnings(question, &answer).into_iter().map(|warning| warning.text).collect();
        has_losses |= !answer.memory.is_sufficient();
        print_text(as_json, &texts::format_answer(question, &answer))?;
        print_notes("warning", &notes);
        documents.push(answer_document(question, &answer, &notes));
    }
    if as_json {
        print_json(&json!({ "models": documents }))?;
    }
    Ok(if has_losses { DONE_WITH_LOSSES } else { DONE })
}

/// Reads kernel predictors from the given or the built-in file; unknown kernels get roofline bounds.
pub fn kernel_times(predictor: Option<&Path>) -> Result<impl KernelTimes> {
    let file = kernels::kernel_file(predictor)?;
    Ok(file.as_deref().map(read_learned).transpose()?.unwrap_or_default())
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
    let (device, needed) = (&question.deployment.device.name, texts::format_gigabytes(memory.needed_bytes()));
    let usable = texts::format_gigabytes(memory.usable_bytes);
    Some(format!("does not fit in memory: each `{device}` needs {needed}, but {usable} are usable; {most}"))
}

fn answer_document(question: &ServerQuestion, answer: &ServerAnswer, notes: &[String]) -> Value {
    let deployment = &question.deployment;
    json!({
        "model": deployment.model.name, "device": deployment.device.name, "devices": answer.devices,
        "framework": deployment.framework, "formats": deployment.formats,
        "parallelism": deployment.decode.parallelism, "load": question.load, "fits": answer.memory.is_sufficient(),
        "answer": answer, "notes": notes, "learned_from": shipped_overheads().source,
    })
}
