//! The command line and the report of the ONNX conformance cases.

use crate::onnx::{Case, Verdict, folders};
use crate::through_tvm::Tasks;
use bench::worker_program;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: onnx-conformance CASES [--only TEXT] [--networks] [--report FILE] [--failures] [--at-least N] [--tvm [--mcpu CPU] [--sample N]]";

#[derive(Default)]
struct Request {
    cases: PathBuf,
    only: String,
    are_networks: bool,
    report: Option<PathBuf>,
    wants_failures: bool,
    wants_tvm: bool,
    /// Number of passing cases, sampled at random, whose tasks run through TVM; None for all.
    sample: Option<usize>,
    at_least: usize,
    mcpu: Option<String>,
}

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
            "--tvm" => request.wants_tvm = true,
            "--sample" => request.sample = Some(value()?.parse().map_err(|_| USAGE.to_owned())?),
            "--mcpu" => request.mcpu = Some(value()?),
            "--networks" => request.are_networks = true,
            "--failures" => request.wants_failures = true,
            _ if request.cases.as_os_str().is_empty() => request.cases = argument.into(),
            _ => return Err(USAGE.to_owned()),
        }
    }
    if request.cases.is_dir() { Ok(request) } else { Err(USAGE.to_owned()) }
}

struct Ended {
    name: String,
    operators: BTreeSet<String>,
    verdict: Verdict,
    tasks: Result<Vec<usize>, String>,
}

fn run(request: &Request) -> Result<(String, usize), String> {
    let root = &request.cases;
    let found = folders(root).map_err(|error| format!("cannot list `{}`: {error}", root.display()))?;
    let chosen = found.iter().filter(|folder| folder.to_string_lossy().contains(&request.only));
    let mut ended: Vec<Ended> = chosen.map(|folder| one(request, folder)).collect();
    let through_tvm = if request.wants_tvm { Some(ThroughTvm::of(request, &mut ended)?) } else { None };
    if let Some(path) = &request.report {
        std::fs::write(path, report(&ended, through_tvm.as_ref()))
            .map_err(|error| format!("cannot write `{}`: {error}", path.display()))?;
    }
    let mut text = String::new();
    for case in &ended {
        let (Verdict::Failed(why) | Verdict::Unsupported(why)) = &case.verdict else { continue };
        if request.wants_failures && matches!(case.verdict, Verdict::Failed(_)) {
            let _ = writeln!(text, "{}: {why}", case.name);
        }
    }
    let (passed, failed, unsupported) = count(ended.iter());
    if let Some(through_tvm) = &through_tvm {
        let _ = writeln!(text, "{}", through_tvm.summary());
    }
    let _ = write!(text, "{passed} passed, {failed} failed, {unsupported} unsupported");
    Ok((text, passed))
}

fn one(request: &Request, folder: &Path) -> Ended {
    let root = &request.cases;
    let name = folder.strip_prefix(root).unwrap_or(folder).display().to_string();
    let case = match Case::read(root, folder) {
        Ok(case) => case,
        Err(verdict) => return Ended { name, operators: BTreeSet::new(), verdict, tasks: Ok(vec![]) },
    };
    let case = if request.are_networks { case.of_network() } else { case };
    let verdict = case.evaluate();
    Ended { verdict, name, operators: case.operators, tasks: Ok(vec![]) }
}

/// Returns the indices of the passing cases, or of a sample of the requested size, selected by hashes of the names.
fn drawn(request: &Request, ended: &[Ended]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..ended.len()).filter(|&place| ended[place].verdict == Verdict::Passed).collect();
    if let Some(count) = request.sample {
        places.sort_by_key(|&place| *blake3::hash(ended[place].name.as_bytes()).as_bytes());
        places.truncate(count);
        places.sort_unstable();
    }
    places
}

fn tasks_of(request: &Request, name: &str, tasks: &mut Tasks) -> Result<Vec<usize>, String> {
    let case = Case::read(&request.cases, &request.cases.join(name)).map_err(|verdict| format!("{verdict:?}"))?;
    tasks.add(&case.simplified()?)
}

struct ThroughTvm {
    tasks: usize,
    right: usize,
    /// Number of cases with tasks, and of those whose tasks are all correct.
    cases: (usize, usize),
    /// Errors of tasks, with the number of affected cases.
    wrong: BTreeMap<String, usize>,
    sample: Option<usize>,
}

impl ThroughTvm {
    fn of(request: &Request, ended: &mut [Ended]) -> Result<ThroughTvm, String> {
        let mut tasks = Tasks::default();
        let places = drawn(request, ended);
        for &place in &places {
            ended[place].tasks = tasks_of(request, &ended[place].name, &mut tasks);
        }
        let program = worker_program().map_err(|error| format!("cannot find the worker program: {error}"))?;
        let results = tasks.run(&program, request.mcpu.as_deref())?;
        let sample = request.sample.map(|_| places.len());
        let right = results.iter().filter(|wrong| wrong.is_none()).count();
        let mut found = ThroughTvm { tasks: tasks.count(), right, cases: (0, 0), wrong: BTreeMap::new(), sample };
        for case in ended.iter() {
            let mut wrong: Vec<&String> = Vec::new();
            match &case.tasks {
                Ok(indices) if indices.is_empty() => continue,
                Ok(indices) => wrong.extend(indices.iter().filter_map(|&index| results[index].as_ref())),
                Err(why) => wrong.push(why),
            }
            found.cases.0 += 1;
            found.cases.1 += usize::from(wrong.is_empty());
            for why in wrong {
                *found.wrong.entry(why.clone()).or_default() += 1;
            }
        }
        Ok(found)
    }

    fn summary(&self) -> String {
        let (cases, right) = self.cases;
        let drawn = self.sample.map_or_else(String::new, |count| format!(", of {count} passing cases drawn at random"));
        format!(
            "Through TVM{drawn}: {} of {} distinct tasks are right; {right} of {cases} passing cases have only such tasks",
            self.right, self.tasks
        )
    }
}

fn count<'a>(ended: impl Iterator<Item = &'a Ended>) -> (usize, usize, usize) {
    ended.fold((0, 0, 0), |(passed, failed, unsupported), case| match case.verdict {
        Verdict::Passed => (passed + 1, failed, unsupported),
        Verdict::Failed(_) => (passed, failed + 1, unsupported),
        Verdict::Unsupported(_) => (passed, failed, unsupported + 1),
    })
}

fn report(ended: &[Ended], through_tvm: Option<&ThroughTvm>) -> String {
    let (passed, failed, unsupported) = count(ended.iter());
    let mut text = format!(
        "# ONNX coverage\n\nWritten by `scripts/onnx-conformance`; do not edit.\n\n\
         {passed} of {} cases of the ONNX project's backend tests pass, {failed} fail, {unsupported} hold something that \
         is not supported.\n\n## Cases by operator\n\n\
         A case counts for every operator of its model.\n\n| operator | passed | failed | unsupported |\n|---|---|---|---|\n",
        ended.len()
    );
    if let Some(through_tvm) = through_tvm {
        let tables = text.split_off(text.find("## Cases by").unwrap_or(text.len()));
        let _ = write!(text, "{}.\n\n", through_tvm.summary());
        for (why, cases) in &through_tvm.wrong {
            let _ = writeln!(text, "- {} ({cases} cases)", why.lines().next().unwrap_or_default());
        }
        let _ = write!(text, "\n{tables}");
    }
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
