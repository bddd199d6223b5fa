//! The command `oppredict predict` for language-model servers.

use super::texts;
use crate::kernels;
use crate::{DONE, DONE_WITH_LOSSES, print_json, print_text};
use predictor::Result;
use predictor::kernels::read_learned;
use predictor::servers::{ServerQuestion, answer_warnings, predict_server};
use report::terminal::print_notes;
use serde_json::{Value, json};
use serving::KernelTimes;
use serving::server::{ServerAnswer, shipped_overheads};
use std::path::Path;

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
    let learned = file.as_deref().map(read_learned).transpose()?.unwrap_or_default();
    let note = "corrections by measured kernels change kernel times, but not the times under load, which are learned from measured servers";
    print_notes("note", (!learned.times.corrections.is_empty()).then_some(note));
    Ok(learned)
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
