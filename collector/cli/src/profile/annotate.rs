//! `profile --annotate`: an operator with its code, and the loops that its time goes into.

use super::super::Result;
use engine::failure::Failure;
use engine::network::Made;
use engine::network::annotation::{Annotation, Basis, Function, Loop, annotation, matching};
use engine::prepared::PreparedModel;
use job::listing::Samples;
use profile::Profile;
use report::{number, percent};
use std::fs;
use std::path::Path;

/// So many loops are shown, the hottest first, and of one so many lines.
const LOOPS_SHOWN: usize = 3;
const LINES_SHOWN: usize = 60;

/// The tasks that are meant, before anything is built.
pub fn meant(whole: &PreparedModel, wanted: &str) -> Result<Vec<usize>> {
    let tasks = whole.tasks();
    let found = matching(tasks, wanted);
    if found.is_empty() {
        let names: Vec<String> = tasks.iter().map(|one| one.task.name()).collect();
        let places = tasks.iter().flat_map(|one| &one.places).map(String::as_str);
        let known = names.iter().map(String::as_str).chain(places);
        return Err(Failure::usage(format!("no operator of this model is called `{wanted}`")).with_hint(format!(
            "{}; a part of its text or its hash will do, too",
            models::names::hint(wanted, known)
        )));
    }
    Ok(found)
}

/// The one of them that takes the most time, with its code.
pub fn annotate(
    whole: &mut PreparedModel,
    made: &Made,
    profile: &Profile,
    meant: &[usize],
    samples: Option<&Samples>,
) -> Result<Annotation> {
    let time = |code: &usize| -> u64 {
        let of_code = made.program.calls.iter().map(|call| call.code == *code).collect::<Vec<bool>>();
        let spans = profile.spans.iter().filter(|span| of_code.get(span.operator as usize) == Some(&true));
        spans.map(|span| span.duration_ns).sum()
    };
    let code = *meant.iter().max_by_key(|code| time(code)).expect("there is one");
    let built = whole.build_listed(code, &made.schedules[code])?;
    let is_same = built.object == made.artifacts[code].object;
    let listing = *built.listing.ok_or_else(|| Failure::environment("the builder told nothing of its code"))?;
    Ok(annotation((&whole.tasks()[code], code), &made.schedules[code], (listing, is_same), samples))
}

/// Files of everything, for who wants to read more than is shown.
pub fn keep(folder: &Path, one: &Annotation) -> Result<()> {
    let failed = |error: std::io::Error| Failure::usage(format!("cannot make `{}`: {error}", folder.display()));
    fs::create_dir_all(folder).map_err(failed)?;
    let schedule = serde_json::to_string_pretty(&one.schedule_json).map_err(Failure::environment)?;
    let texts = [
        ("schedule.json", schedule),
        ("scheduled.tir.py", one.scheduled_tir.clone()),
        ("lowered.tir.py", one.lowered_tir.clone()),
        ("code.ll", one.llvm_ir.clone()),
        ("code.s", assembly(one)),
    ];
    for (name, text) in texts {
        datasets::output::write(&folder.join(name), text).map_err(Failure::usage)?;
    }
    Ok(())
}

/// All machine code, with samples before the lines they found.
fn assembly(one: &Annotation) -> String {
    let mut text = String::new();
    for function in &one.functions {
        text.push_str(&format!("{}:\n", function.name));
        for line in &function.lines {
            let samples = if line.samples > 0 { line.samples.to_string() } else { String::new() };
            text.push_str(&format!("{samples:>8}  {:6x}  {}\n", line.offset, line.text));
        }
    }
    text
}

/// What is shown.
pub fn describe(one: &Annotation, others: usize) -> String {
    let mut lines = vec![
        String::new(),
        format!("operator        {}", one.text),
        format!("stands at       {}", one.places.join(", ")),
        format!("task            {}", one.task),
        format!("schedule        {} {}", one.schedule, one.schedule_json),
    ];
    if others > 0 {
        lines.push(format!(
            "note            {others} more operators are called so; this one takes the most time. Say a hash or a place"
        ));
    }
    lines.extend(["TIR as scheduled".to_owned(), one.scheduled_tir.trim_end().to_owned()]);
    lines.push(basis(one));
    let mut loops: Vec<(&Function, &Loop)> =
        one.functions.iter().flat_map(|function| function.loops.iter().map(move |one| (function, one))).collect();
    loops.sort_by(|(_, left), (_, right)| right.share.total_cmp(&left.share));
    loops.retain(|(_, one)| one.share > 0.0);
    if loops.is_empty() {
        lines.push("its code has no loop that is known to take time".to_owned());
    }
    for (function, hot) in loops.into_iter().take(LOOPS_SHOWN) {
        lines.extend(loop_lines(function, hot, one.basis));
    }
    lines.join("\n")
}

fn basis(one: &Annotation) -> String {
    let same =
        if one.is_code_that_ran { "" } else { "; built again its code came out otherwise, so samples are left out" };
    match (&one.samples, one.basis) {
        (Some(samples), Basis::Sampled) => format!(
            "hot loops       sampled: {} of {} samples found this operator, by {} at {} Hz, {} lost",
            samples.own, samples.all, samples.event, samples.hertz, samples.lost
        ),
        (Some(samples), Basis::Estimated) => format!(
            "hot loops       estimated from the code alone: only {} of {} samples found this operator{same}",
            samples.own, samples.all
        ),
        (None, _) => "hot loops       estimated from the code alone: nothing was sampled".to_owned(),
    }
}

fn loop_lines(function: &Function, hot: &Loop, basis: Basis) -> Vec<String> {
    let turns = hot.turns.map_or_else(String::new, |turns| format!(", {} turns each time", number(turns)));
    let word = if basis == Basis::Sampled { "of its time" } else { "of its time by estimate" };
    let mut lines = vec![format!("{} {word}: `{}`{turns}", percent(hot.share), function.name)];
    let inside = &function.lines[hot.first..=hot.last.min(function.lines.len() - 1)];
    let all: u64 = function.lines.iter().map(|line| line.samples).sum();
    for line in inside.iter().take(LINES_SHOWN) {
        let share = if line.samples > 0 { percent(line.samples as f64 / all as f64) } else { String::new() };
        lines.push(format!("{share:>8}  {:6x}  {}", line.offset, line.text));
    }
    if inside.len() > LINES_SHOWN {
        lines.push(format!("          {} more lines: `--annotate-to DIR` writes all", inside.len() - LINES_SHOWN));
    }
    lines
}
