//! The command line around the conformance cases, and its report.

use crate::onnx::{Case, Verdict, folders};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: onnx-conformance CASES [--only TEXT] [--report FILE] [--failures] [--at-least N]";

/// What was typed.
#[derive(Default)]
struct Request {
    cases: PathBuf,
    only: String,
    report: Option<PathBuf>,
    wants_failures: bool,
    at_least: usize,
}

/// Runs the program.
#[allow(clippy::print_stdout, clippy::print_stderr)]
pub fn main(arguments: Vec<String>) -> ExitCode {
    let done = parse(arguments).and_then(|request| run(&request).map(|text| (request, text)));
    match done {
        Ok((request, (text, passed))) => {
            println!("{text}");
            if passed < request.at_least {
                eprintln!("error: {passed} cases pass, at least {} must", request.at_least);
                return ExitCode::FAILURE;
            }
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(2)
        }
    }
}

fn parse(arguments: Vec<String>) -> Result<Request, String> {
    let mut request = Request::default();
    let mut rest = arguments.into_iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("`{argument}` needs a value\n{USAGE}"));
        match argument.as_str() {
            "--only" => request.only = value()?,
            "--report" => request.report = Some(value()?.into()),
            "--at-least" => request.at_least = value()?.parse().map_err(|_| USAGE.to_owned())?,
            "--failures" => request.wants_failures = true,
            _ if request.cases.as_os_str().is_empty() => request.cases = argument.into(),
            _ => return Err(USAGE.to_owned()),
        }
    }
    if request.cases.is_dir() { Ok(request) } else { Err(USAGE.to_owned()) }
}

/// A case and how it ended.
struct Ended {
    name: String,
    operators: BTreeSet<String>,
    verdict: Verdict,
}

fn run(request: &Request) -> Result<(String, usize), String> {
    let root = &request.cases;
    let found = folders(root).map_err(|error| format!("cannot list `{}`: {error}", root.display()))?;
    let mut ended = Vec::new();
    for folder in found.iter().filter(|folder| folder.to_string_lossy().contains(&request.only)) {
        ended.push(one(root, folder));
    }
    if let Some(path) = &request.report {
        std::fs::write(path, report(&ended)).map_err(|error| format!("cannot write `{}`: {error}", path.display()))?;
    }
    let mut text = String::new();
    for case in &ended {
        let (Verdict::Failed(why) | Verdict::Unsupported(why)) = &case.verdict else { continue };
        if request.wants_failures && matches!(case.verdict, Verdict::Failed(_)) {
            let _ = writeln!(text, "{}: {why}", case.name);
        }
    }
    let (passed, failed, unsupported) = count(ended.iter());
    let _ = write!(text, "{passed} passed, {failed} failed, {unsupported} unsupported");
    Ok((text, passed))
}

fn one(root: &Path, folder: &Path) -> Ended {
    let name = folder.strip_prefix(root).unwrap_or(folder).display().to_string();
    match Case::read(root, folder) {
        Ok(case) => Ended { verdict: case.evaluate(), name, operators: case.operators },
        Err(verdict) => Ended { name, operators: BTreeSet::new(), verdict },
    }
}

fn count<'a>(ended: impl Iterator<Item = &'a Ended>) -> (usize, usize, usize) {
    ended.fold((0, 0, 0), |(passed, failed, unsupported), case| match case.verdict {
        Verdict::Passed => (passed + 1, failed, unsupported),
        Verdict::Failed(_) => (passed, failed + 1, unsupported),
        Verdict::Unsupported(_) => (passed, failed, unsupported + 1),
    })
}

/// The coverage page: cases by operator, and reasons of what does not pass.
fn report(ended: &[Ended]) -> String {
    let (passed, failed, unsupported) = count(ended.iter());
    let mut text = format!(
        "# ONNX coverage\n\nWritten by `scripts/onnx-conformance`; do not edit.\n\n\
         {passed} of {} cases of the ONNX project's backend tests pass, {failed} fail, {unsupported} hold something that \
         is not supported.\n\n## Cases by operator\n\n\
         A case counts for every operator of its model.\n\n| operator | passed | failed | unsupported |\n|---|---|---|---|\n",
        ended.len()
    );
    let operators: BTreeSet<&String> = ended.iter().flat_map(|case| &case.operators).collect();
    for operator in operators {
        let (passed, failed, unsupported) = count(ended.iter().filter(|case| case.operators.contains(operator)));
        let _ = writeln!(text, "| {operator} | {passed} | {failed} | {unsupported} |");
    }
    let mut reasons: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for case in ended {
        let (kind, why) = match &case.verdict {
            Verdict::Passed => continue,
            Verdict::Failed(why) => ("failed", why),
            Verdict::Unsupported(why) => ("unsupported", why),
        };
        reasons.entry((kind, why)).or_default().push(&case.name);
    }
    for kind in ["failed", "unsupported"] {
        let _ = write!(text, "\n## Cases that are {kind}, by reason\n\n");
        for ((_, why), cases) in reasons.iter().filter(|((of, _), _)| *of == kind) {
            let names: Vec<String> = cases.iter().map(|name| format!("`{name}`")).collect();
            let _ = writeln!(text, "- {why}: {}", names.join(", "));
        }
    }
    text
}
