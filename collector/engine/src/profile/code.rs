//! Annotates an operator of a profile with its code, and writes the code to files.

use crate::Result;
use crate::failure::Failure;
use crate::network::BuiltModel;
use crate::network::annotation::{Annotation, annotate_task, match_tasks};
use crate::prepared::PreparedModel;
use job::listing::{CodeRequests, Samples, Sampling};
use profile::Profile;
use std::fs;
use std::path::Path;

const SAMPLING_NS: u64 = 2_000_000_000;

/// Default sampling frequency of the code annotation, in Hz.
pub const DEFAULT_SAMPLE_HERTZ: u64 = 3989;

/// Options that select the annotated code.
#[derive(Clone, Copy, Debug, Default)]
pub struct CodeOptions<'a> {
    /// Operator to annotate, given by a part of its name, sizes or call, or by a prefix of its task's hash.
    pub annotate: Option<&'a str>,
    /// Folder to which the annotated code is written.
    pub folder: Option<&'a Path>,
    /// Sampling frequency, in Hz.
    pub sample_hertz: u64,
    /// Whether symbols of built code are written to a file in `/tmp`, for `perf` and debuggers.
    pub has_perf_map: bool,
}

impl CodeOptions<'_> {
    /// Returns what these options require from the runner: sampling and a symbol file.
    pub fn runner_requests(&self) -> CodeRequests {
        let sampling = Sampling { hertz: self.sample_hertz, budget_ns: SAMPLING_NS };
        CodeRequests { sampling: self.annotate.is_some().then_some(sampling), has_perf_map: self.has_perf_map }
    }
}

pub fn find_tasks(model: &PreparedModel, name: &str) -> Result<Vec<usize>> {
    let tasks = model.tasks();
    let found = match_tasks(tasks, name);
    if found.is_empty() {
        let names: Vec<String> = tasks.iter().map(|one| one.task.name()).collect();
        let places = tasks.iter().flat_map(|one| &one.places).map(String::as_str);
        let known = names.iter().map(String::as_str).chain(places);
        return Err(Failure::usage(format!("no operator of this model is called `{name}`")).with_hint(format!(
            "{}; a part of its text or its hash is enough",
            models::names::name_hint(name, known)
        )));
    }
    Ok(found)
}

pub fn annotate_slowest(
    model: &mut PreparedModel,
    made: &BuiltModel,
    profile: &Profile,
    tasks: &[usize],
    samples: Option<&Samples>,
) -> Result<Annotation> {
    let time = |code: &usize| -> u64 {
        let of_code = made.program.calls.iter().map(|call| call.code == *code).collect::<Vec<bool>>();
        let spans = profile.spans.iter().filter(|span| of_code.get(span.operator as usize) == Some(&true));
        spans.map(|span| span.duration_ns).sum()
    };
    let code = *tasks.iter().max_by_key(|code| time(code)).expect("at least one task matches the name");
    let built = model.build_listed(code, &made.schedules[code])?;
    let is_same = built.object == made.artifacts[code].object;
    let listing = *built.listing.ok_or_else(|| Failure::environment("the builder returned no listing of its code"))?;
    Ok(annotate_task((&model.tasks()[code], code), &made.schedules[code], (listing, is_same), samples))
}

/// Writes schedule, TIR, LLVM IR and assembly to files in a folder, which is created if needed.
pub fn write_files(folder: &Path, annotation: &Annotation) -> Result<()> {
    let failed = |error: std::io::Error| Failure::usage(format!("cannot make `{}`: {error}", folder.display()));
    fs::create_dir_all(folder).map_err(failed)?;
    let schedule = serde_json::to_string_pretty(&annotation.schedule_json).map_err(Failure::environment)?;
    let texts = [
        ("schedule.json", schedule),
        ("scheduled.tir.py", annotation.scheduled_tir.clone()),
        ("lowered.tir.py", annotation.lowered_tir.clone()),
        ("code.ll", annotation.llvm_ir.clone()),
        ("code.s", format_assembly(annotation)),
    ];
    for (name, text) in texts {
        datasets::output::write_file(&folder.join(name), text).map_err(Failure::usage)?;
    }
    Ok(())
}

fn format_assembly(annotation: &Annotation) -> String {
    let mut text = String::new();
    for function in &annotation.functions {
        text.push_str(&format!("{}:\n", function.name));
        for line in &function.lines {
            let samples = if line.samples > 0 { line.samples.to_string() } else { String::new() };
            text.push_str(&format!("{samples:>8}  {:6x}  {}\n", line.offset, line.text));
        }
    }
    text
}
