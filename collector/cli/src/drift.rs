//! `drift`: two sides of records compared, or the last night of a store with those before it.

use super::night_arguments::{By, DriftRun, FailOnNight, Judging};
use super::{DONE, Result, SLOWER, paper, print, print_json, tell, tell_damage};
use datasets::{COLUMNS, Cell, Choose, ColumnId, Output, Record, Store};
use drift::{Bounds, Drift, Gather, History, Side, Turn, judge, markdown, night_of, page, render, turns};
use engine::failure::Failure;
use engine::stores::{failed, open};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The word for nights, beside the columns.
const NIGHT: &str = "night";

/// A store, and which of its records.
#[derive(Clone, Debug)]
struct Part {
    store: PathBuf,
    filter: Option<(Wanted, String)>,
}

#[derive(Clone, Copy, Debug)]
enum Wanted {
    Night,
    Column(ColumnId),
}

/// Everything that was found.
pub struct Found {
    /// Lines over nights.
    pub history: History,
    /// The sides compared.
    pub drift: Drift,
    /// Where lines turned.
    pub turns: Vec<Turn>,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    drift: &'a Drift,
    turns: &'a [Turn],
}

/// Compares.
pub fn run(run: &DriftRun) -> Result<u8> {
    let before = part(&run.before)?;
    let after = run.after.as_deref().map(part).transpose()?;
    let pages = Pages::begin(&run.judging)?;
    let by_task = run.by == By::Task;
    let found = match &after {
        Some(after) => between(&before, after, by_task, bounds(&run.judging))?,
        None => last(&before, by_task, bounds(&run.judging))?,
    };
    if found.history.nights.is_empty() {
        return Err(Failure::usage("there are no times to compare")
            .with_hint("`opcollect dataset stats` says what a store holds"));
    }
    let name = match &after {
        Some(after) => format!("{} and {}", before.store.display(), after.store.display()),
        None => format!("{}", before.store.display()),
    };
    pages.keep(&name, &found, None)?;
    tell(&found.drift.notes);
    match run.judging.json {
        true => print_json(&Report { drift: &found.drift, turns: &found.turns })?,
        false => print(&render(&found.drift, &found.turns, &paper()))?,
    }
    Ok(code(&found.drift, &run.judging))
}

/// What counts, as asked for.
pub fn bounds(judging: &Judging) -> Bounds {
    Bounds { false_discoveries: judging.false_discoveries / 100.0, threshold: judging.threshold / 100.0 }
}

/// The exit code of what changed.
pub fn code(drift: &Drift, judging: &Judging) -> u8 {
    let fails = judging.fail_on == Some(FailOnNight::Regression) && drift.has_regressed();
    if fails { SLOWER } else { DONE }
}

/// Files that are tried before the work.
pub struct Pages {
    html: Option<Output>,
    markdown: Option<Output>,
}

impl Pages {
    /// Opens what was asked for.
    pub fn begin(judging: &Judging) -> Result<Pages> {
        let create = |path: &Option<PathBuf>| path.as_deref().map(Output::create).transpose().map_err(failed);
        Ok(Pages { html: create(&judging.html)?, markdown: create(&judging.markdown)? })
    }

    /// Writes them; `above` stands over what changed.
    pub fn keep(self, name: &str, found: &Found, above: Option<&str>) -> Result<()> {
        let above = above.map(|text| format!("{text}\n")).unwrap_or_default();
        if let Some(file) = self.markdown {
            keep(file, &format!("{above}{}", markdown(&found.drift, &found.turns)))?;
        }
        if let Some(file) = self.html {
            keep(file, &page(name, &found.history, &found.drift, &found.turns))?;
        }
        Ok(())
    }
}

fn keep(mut file: Output, text: &str) -> Result<()> {
    let path = file.path().display().to_string();
    file.write_all(text.as_bytes()).map_err(Failure::environment)?;
    file.keep().map_err(failed)?;
    tell(&[format!("wrote `{path}`")]);
    Ok(())
}

fn between(before: &Part, after: &Part, by_task: bool, bounds: Bounds) -> Result<Found> {
    let mut gather = Gather::new(by_task, hosts(before)? == hosts(after)? && hosts(before)?.len() > 1);
    take(before, &mut gather, &|_| Side::Before)?;
    take(after, &mut gather, &|_| Side::After)?;
    Ok(found(gather.finish(), bounds))
}

/// The last night of a store, and those before it.
fn last(part: &Part, by_task: bool, bounds: Bounds) -> Result<Found> {
    let mut nights: Vec<(i64, String)> = Vec::new();
    each(part, &mut |record| {
        let night = night_of(record);
        match nights.iter_mut().find(|(_, known)| *known == night) {
            Some((first, _)) => *first = record.started_at_us.min(*first),
            None => nights.push((record.started_at_us, night)),
        }
    })?;
    nights.sort();
    let newest = nights.last().map(|(_, night)| night.clone()).unwrap_or_default();
    if nights.len() < 2 {
        return Err(Failure::usage(format!(
            "`{}` holds one night, `{newest}`, and nothing to compare it with",
            part.store.display()
        ))
        .with_hint("name another store, or wait for the next night"));
    }
    of_night(part, &newest, None, by_task, bounds)
}

/// One night of a store, and some of those before it.
pub fn night(store: &Path, night: &str, nights: usize, bounds: Bounds) -> Result<Found> {
    of_night(&Part { store: store.to_owned(), filter: None }, night, Some(nights), false, bounds)
}

fn of_night(part: &Part, newest: &str, nights: Option<usize>, by_task: bool, bounds: Bounds) -> Result<Found> {
    let mut gather = Gather::new(by_task, hosts(part)?.len() > 1);
    take(part, &mut gather, &|record| if night_of(record) == newest { Side::After } else { Side::Before })?;
    let mut history = gather.finish();
    if let Some(nights) = nights {
        history.keep_last(nights);
    }
    Ok(found(history, bounds))
}

fn found(history: History, bounds: Bounds) -> Found {
    let (drift, turns) = (judge(&history, bounds), turns(&history, bounds));
    Found { history, drift, turns }
}

fn take(part: &Part, gather: &mut Gather, side: &dyn Fn(&Record) -> Side) -> Result<()> {
    each(part, &mut |record| gather.take(record, side(record)))
}

/// Every record of a part.
fn each(part: &Part, hear: &mut dyn FnMut(&Record)) -> Result<()> {
    let records = open(&part.store)?.records(Choose::All).map_err(failed)?;
    tell_damage(records.damage());
    for record in records {
        let record = record.map_err(failed)?;
        if part.filter.as_ref().is_none_or(|(wanted, value)| text(&record, *wanted).as_deref() == Some(value)) {
            hear(&record);
        }
    }
    Ok(())
}

fn hosts(part: &Part) -> Result<BTreeSet<String>> {
    match &part.filter {
        Some((Wanted::Column(ColumnId::host), host)) => Ok(BTreeSet::from([host.clone()])),
        _ => {
            let stats = open(&part.store)?.stats(Choose::All).map_err(failed)?;
            Ok(stats.by_host.into_keys().collect())
        }
    }
}

fn text(record: &Record, wanted: Wanted) -> Option<String> {
    match wanted {
        Wanted::Night => Some(night_of(record)),
        Wanted::Column(id) => match record.cell(id) {
            Cell::Text(text) => Some(text.to_owned()),
            Cell::Integer(number) => Some(number.to_string()),
            Cell::Bool(claim) => Some(claim.to_string()),
            Cell::Key(key) => Some(key.hex()),
            Cell::Null | Cell::Float(_) | Cell::List(_) => None,
        },
    }
}

/// `STORE` or `STORE@COLUMN=VALUE`.
fn part(text: &str) -> Result<Part> {
    let whole = Part { store: PathBuf::from(text), filter: None };
    if Store::open(&whole.store).is_ok() {
        return Ok(whole);
    }
    let Some((store, (name, value))) =
        text.rsplit_once('@').and_then(|(store, rest)| Some((store, rest.split_once('=')?)))
    else {
        return open(&whole.store).map(|_| whole);
    };
    let column = COLUMNS.iter().find(|column| column.name == name).map(|column| Wanted::Column(column.id));
    let wanted = column.or((name == NIGHT).then_some(Wanted::Night)).ok_or_else(|| {
        let known = COLUMNS.iter().map(|column| column.name).chain([NIGHT]);
        Failure::usage(format!("`{text}`: there is no column `{name}`")).with_hint(models::names::hint(name, known))
    })?;
    let part = Part { store: PathBuf::from(store), filter: Some((wanted, value.to_owned())) };
    open(&part.store).map(|_| part)
}
