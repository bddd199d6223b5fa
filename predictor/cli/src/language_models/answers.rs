//! `oppredict predict` for servers of language models.

use super::{ServerQuestion, texts};
use crate::kernels;
use crate::{DONE, DONE_WITH_LOSSES, print_json, print_text};
use predictor::Result;
use predictor::kernels::read_learned;
use report::terminal::print_notes;
use serde_json::{Value, json};
use serving::KernelTimes;
use serving::server::{ServerAnswer, shipped_overheads};
use std::path::Path;

/// Similarity to measured servers below which an answer is an extrapolation.
const LEAST_SIMILARITY: f64 = 0.5;

/// Answers each question and prints.
pub fn predict(questions: &[ServerQuestion], predictor: Option<&Path>, as_json: bool) -> Result<u8> {
    let mut documents = Vec::new();
    let mut has_losses = false;
    let times = times(predictor)?;
    for question in questions {
        let answer = answer(question, &times)?;
        let notes = notes(question, &answer);
        has_losses |= !answer.memory.fits();
        print_text(as_json, &texts::answer(question, &answer))?;
        print_notes("warning", &notes);
        documents.push(document(question, &answer, &notes));
    }
    if as_json {
        print_json(&json!({ "models": documents }))?;
    }
    Ok(if has_losses { DONE_WITH_LOSSES } else { DONE })
}

/// Returns the times of kernels that a file knows, or the file that came with the program; bounds where it knows none.
pub fn times(predictor: Option<&Path>) -> Result<impl KernelTimes> {
    let file = kernels::file(predictor)?;
    Ok(file.as_deref().map(read_learned).transpose()?.unwrap_or_default())
}

/// Predicts with the overheads that came with the program.
pub fn answer(question: &ServerQuestion, times: &dyn KernelTimes) -> Result<ServerAnswer> {
    Ok(question.deployment.predict(&question.load, times, Some(shipped_overheads()))?)
}

/// Returns what a user must know about the answer.
fn notes(question: &ServerQuestion, answer: &ServerAnswer) -> Vec<String> {
    let mut notes = Vec::new();
    let memory = &answer.memory;
    if !memory.fits() {
        let needed = texts::gigabytes(memory.needed_bytes());
        let device = &question.deployment.device.name;
        let most = match memory.max_sequences {
            0 => "not even one request fits; use more GPUs or a smaller number format".to_owned(),
            most => format!("at most {most} requests fit"),
        };
        notes.push(format!(
            "does not fit: {needed} are needed on each `{device}`, {} are usable; {most}",
            texts::gigabytes(memory.usable_bytes)
        ));
    }
    if answer.similarity.is_some_and(|similarity| similarity < LEAST_SIMILARITY) {
        notes.push("no measured server is similar; overheads of the framework are extrapolated".to_owned());
    }
    notes
}

fn document(question: &ServerQuestion, answer: &ServerAnswer, notes: &[String]) -> Value {
    let deployment = &question.deployment;
    json!({
        "model": deployment.model.name, "device": deployment.device.name, "devices": answer.devices,
        "framework": deployment.framework, "formats": deployment.formats,
        "parallelism": deployment.decode.parallelism, "load": question.load, "fits": answer.memory.fits(),
        "answer": answer, "notes": notes, "learned_from": shipped_overheads().source,
    })
}
