//! Formats an operator with its code, and the loops in which the operator spends its time.

use crate::network::annotation::{AnnotatedLoop, Annotation, Basis, Function};
use report::{format_count, format_number, format_percent};

const MAX_LOOPS: usize = 3;
const MAX_LINES: usize = 60;

/// Formats an annotated operator. `homonyms` is the number of other operators that match the requested name.
pub fn describe_annotation(annotation: &Annotation, homonyms: usize) -> String {
    let mut lines = vec![
        String::new(),
        format!("operator        {}", annotation.text),
        format!("calls           {}", annotation.places.join(", ")),
        format!("task            {}", annotation.task),
        format!("schedule        {} {}", annotation.schedule, annotation.schedule_json),
    ];
    if homonyms > 0 {
        lines.push(format!(
            "note            {homonyms} more operators match; this one takes the most time; give a hash or a scope to \
             select another"
        ));
    }
    lines.extend(["TIR as scheduled".to_owned(), annotation.scheduled_tir.trim_end().to_owned()]);
    lines.push(describe_basis(annotation));
    let mut loops: Vec<(&Function, &AnnotatedLoop)> = annotation
        .functions
        .iter()
        .flat_map(|function| function.loops.iter().map(move |one| (function, one)))
        .filter(|(_, one)| one.share > 0.0)
        .collect();
    loops.sort_by(|(_, left), (_, right)| right.share.total_cmp(&left.share));
    if loops.is_empty() {
        lines.push("no loop of this operator has a known time".to_owned());
    }
    for (function, hot) in loops.into_iter().take(MAX_LOOPS) {
        lines.extend(loop_lines(function, hot, annotation.basis));
    }
    lines.join("\n")
}

fn describe_basis(annotation: &Annotation) -> String {
    let same =
        if annotation.is_code_that_ran { "" } else { "; a second build gave different code, so samples are ignored" };
    match (&annotation.samples, annotation.basis) {
        (Some(samples), Basis::Sampled) => format!(
            "hot loops       sampled: {} of {} samples are in this operator; event {} at {} Hz, {} samples lost",
            samples.own, samples.all, samples.event, samples.hertz, samples.lost
        ),
        (Some(samples), Basis::Estimated) => format!(
            "hot loops       estimated from the code alone: only {} of {} samples are in this operator{same}",
            samples.own, samples.all
        ),
        (None, _) => "hot loops       estimated from the code alone: nothing was sampled".to_owned(),
    }
}

fn loop_lines(function: &Function, hot: &AnnotatedLoop, basis: Basis) -> Vec<String> {
    let turns = hot.turns.map_or_else(String::new, |turns| format!(", {} iterations per entry", format_number(turns)));
    let word = if basis == Basis::Sampled { "of the operator's time" } else { "of the operator's time, estimated" };
    let mut lines = vec![format!("{} {word}: `{}`{turns}", format_percent(hot.share), function.name)];
    let inside = &function.lines[hot.first..=hot.last.min(function.lines.len() - 1)];
    let all: u64 = function.lines.iter().map(|line| line.samples).sum();
    for line in inside.iter().take(MAX_LINES) {
        let share = if line.samples > 0 { format_percent(line.samples as f64 / all as f64) } else { String::new() };
        lines.push(format!("{share:>8}  {:6x}  {}", line.offset, line.text));
    }
    if inside.len() > MAX_LINES {
        let rest = format_count(inside.len() - MAX_LINES, "more line");
        lines.push(format!("          {rest}: `--annotate-to DIR` writes all"));
    }
    lines
}
