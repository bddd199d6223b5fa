//! Comparison of two sets of records, or of the last nightly run in a store with the earlier ones.

use crate::Result;
use crate::failure::Failure;
use crate::observer::Observer;
use crate::stores::{note_damage, open_existing, store_failure};
use datasets::store::Damage;
use datasets::{COLUMNS, Cell, Choose, ColumnId, Kind, Output, Record, Store};
use drift::{
    Bounds, ChangePoint, Drift, History, RecordGatherer, Side, find_change_points, judge_lines, night_of, night_title,
    render_markdown, render_page,
};
use report::page::escape_html;
use serde::Serialize;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Name by which nightly runs are selected as if it were a column; records have no such column.
const NIGHT: &str = "night";

/// Number of values of a column that are kept for the hint of an error.
const MAX_OTHERS: usize = 1000;
/// Number of values that a hint lists.
const SHOWN_VALUES: usize = 8;

/// Options of a comparison.
#[derive(Clone, Debug)]
pub struct DriftOptions {
    /// Baseline: a store, or a part of it as `STORE@COLUMN=VALUE`.
    pub before: String,
    /// Records compared with `before`, in the same form. None compares the last nightly run with the earlier ones.
    pub after: Option<String>,
    /// Whether the best schedules of each task are compared, instead of every schedule.
    pub by_task: bool,
    /// Thresholds for significant changes.
    pub bounds: Bounds,
    /// Report files to write.
    pub pages: PagePaths,
}

/// Paths of the report files of a comparison.
#[derive(Clone, Debug, Default)]
pub struct PagePaths {
    /// HTML page with curves and a heat map.
    pub html: Option<PathBuf>,
    /// Summary of the changes in Markdown.
    pub markdown: Option<PathBuf>,
}

/// Result of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct DriftReport {
    /// Changes from the earlier to the later records.
    #[serde(flatten)]
    pub drift: Drift,
    /// Change points of each series over nightly runs.
    #[serde(rename = "turns")]
    pub change_points: Vec<ChangePoint>,
    /// Time series over nightly runs.
    #[serde(skip)]
    pub history: History,
    /// Whether damaged files of a store were skipped.
    pub is_damaged: bool,
}

impl DriftReport {
    fn new(history: History, bounds: Bounds) -> DriftReport {
        DriftReport {
            drift: judge_lines(&history, bounds),
            change_points: find_change_points(&history, bounds),
            history,
            is_damaged: false,
        }
    }
}

/// Compares two sets of records, or the last nightly run of one set with its earlier runs.
pub fn compare_records(options: &DriftOptions, observer: &dyn Observer) -> Result<DriftReport> {
    let before = StorePart::parse(&options.before, observer)?;
    let after = options.after.as_deref().map(|text| StorePart::parse(text, observer)).transpose()?;
    let pages = Pages::create(&options.pages)?;
    let mut report = match &after {
        Some(after) => compare_parts(&before, after, options)?,
        None => compare_last(&before, options)?,
    };
    report.is_damaged = [Some(&before), after.as_ref()].into_iter().flatten().any(StorePart::is_damaged);
    if report.history.nights.is_empty() {
        return Err(Failure::usage("there are no times to compare")
            .with_hint("`opcollect dataset stats` shows the contents of a store"));
    }
    let name = match &options.after {
        Some(after) => format!("{} and {after}", options.before),
        None => options.before.clone(),
    };
    let title = page_title(&before, after.as_ref());
    let html = format!("<p class=\"soft\">Records of {}</p>\n", escape_html(&name));
    pages.write(&title, &report, &OwnSections { html, ..OwnSections::default() }, observer)?;
    observer.receive_notes(&report.drift.notes);
    Ok(report)
}

fn page_title(before: &StorePart<'_>, after: Option<&StorePart<'_>>) -> String {
    let Some(after) = after else { return format!("Drift of {}", before.title()) };
    match (before.night(), after.night()) {
        (Some(first), Some(last)) if before.store == after.store => {
            format!("Drift of {} from {} to {}", before.store_name(), night_title(first), night_title(last))
        }
        _ => format!("Drift from {} to {}", before.title(), after.title()),
    }
}

/// Compares one nightly run of a store with the last `nights` earlier ones.
pub fn compare_night(
    store: &Path,
    night: &str,
    nights: usize,
    bounds: Bounds,
    observer: &dyn Observer,
) -> Result<DriftReport> {
    let part = StorePart::new(store.to_owned(), None, observer);
    let mut history = part.read_history(night, false)?;
    history.keep_last(nights);
    Ok(DriftReport { is_damaged: part.is_damaged(), ..DriftReport::new(history, bounds) })
}

/// Parts of the report files that do not come from the comparison.
#[derive(Clone, Debug, Default)]
pub struct OwnSections {
    /// Text that precedes the changes in the Markdown summary.
    pub markdown: String,
    /// Sections at the end of the HTML page.
    pub html: String,
}

/// Opened output files. They are created before the work, so that a wrong path is reported early.
pub struct Pages {
    html: Option<Output>,
    markdown: Option<Output>,
}

impl Pages {
    /// Creates the HTML and Markdown files of the report that were requested.
    pub fn create(paths: &PagePaths) -> Result<Pages> {
        let create = |path: &Option<PathBuf>| path.as_deref().map(Output::create).transpose().map_err(store_failure);
        Ok(Pages { html: create(&paths.html)?, markdown: create(&paths.markdown)? })
    }

    /// Writes the files. `title` is the heading of the page.
    pub fn write(self, title: &str, report: &DriftReport, own: &OwnSections, observer: &dyn Observer) -> Result<()> {
        let DriftReport { drift, change_points, history, .. } = report;
        if let Some(file) = self.markdown {
            write_page(file, &format!("{}{}", own.markdown, render_markdown(drift, change_points)), observer)?;
        }
        if let Some(file) = self.html {
            write_page(file, &render_page(title, history, drift, change_points, &own.html), observer)?;
        }
        Ok(())
    }
}

fn write_page(mut file: Output, text: &str, observer: &dyn Observer) -> Result<()> {
    let path = file.path().display().to_string();
    file.write_all(text.as_bytes()).map_err(Failure::environment)?;
    file.keep().map_err(store_failure)?;
    observer.note(format!("wrote `{path}`"));
    Ok(())
}

fn compare_parts(before: &StorePart<'_>, after: &StorePart<'_>, options: &DriftOptions) -> Result<DriftReport> {
    let (hosts, hosts_after) = (before.read_hosts()?, after.read_hosts()?);
    let mut gather = RecordGatherer::new(options.by_task, hosts == hosts_after && hosts.len() > 1);
    before.for_each_selected(&mut |record| gather.add_record(record, Side::Before))?;
    after.for_each_selected(&mut |record| gather.add_record(record, Side::After))?;
    let history = gather.build_history();
    let has_time = |side: Side| history.nights.iter().any(|night| night.side == side);
    if let Some(part) = [(Side::Before, before), (Side::After, after)].iter().find(|(side, _)| !has_time(*side)) {
        return Err(Failure::usage(format!("`{}` has no measured time to compare", part.1.text()))
            .with_hint("`opcollect dataset stats` shows the contents of a store"));
    }
    Ok(DriftReport::new(history, options.bounds))
}

fn compare_last(part: &StorePart<'_>, options: &DriftOptions) -> Result<DriftReport> {
    let mut nights: Vec<(i64, String)> = Vec::new();
    part.for_each_selected(&mut |record| {
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
            "`{}` has only one nightly run, `{newest}`, and nothing to compare it with",
            part.text()
        ))
        .with_hint("name another store, or wait for the next nightly run"));
    }
    Ok(DriftReport::new(part.read_history(&newest, options.by_task)?, options.bounds))
}

/// A store, or the records of it that have a value in a column.
struct StorePart<'a> {
    store: PathBuf,
    filter: Option<(FilterColumn, String)>,
    observer: &'a dyn Observer,
    /// Descriptions of the damage that was found, which is reported once.
    damage: RefCell<BTreeSet<String>>,
}

/// Whether the filter of a part has selected and rejected records.
#[derive(Default)]
struct Selection {
    has_selected: bool,
    has_rejected: bool,
    /// Values of rejected records.
    others: BTreeSet<String>,
}

impl Selection {
    fn reject_value(&mut self, value: Option<String>) {
        self.has_rejected = true;
        if self.others.len() < MAX_OTHERS {
            self.others.extend(value);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum FilterColumn {
    Night,
    Column(ColumnId),
}

impl FilterColumn {
    fn name(self) -> &'static str {
        match self {
            FilterColumn::Night => NIGHT,
            FilterColumn::Column(id) => id.name(),
        }
    }

    /// Returns a value in the form of [`FilterColumn::column_text`]: `12.0` of a column of floats is `12`.
    fn normalise_value(self, value: &str) -> String {
        let is_float = |id: ColumnId| COLUMNS.iter().any(|column| column.id == id && column.kind == Kind::Float);
        match (self, value.parse::<f64>()) {
            (FilterColumn::Column(id), Ok(number)) if is_float(id) => number.to_string(),
            _ => value.to_owned(),
        }
    }

    fn column_text(self, record: &Record) -> Option<String> {
        match self {
            FilterColumn::Night => Some(night_of(record)),
            FilterColumn::Column(id) => match record.cell(id) {
                Cell::Text(text) => Some(text.to_owned()),
                Cell::Integer(number) => Some(number.to_string()),
                Cell::Bool(claim) => Some(claim.to_string()),
                Cell::Key(key) => Some(key.to_hex()),
                Cell::Float(number) => Some(number.to_string()),
                Cell::Null | Cell::List(_) => None,
            },
        }
    }
}

impl<'a> StorePart<'a> {
    fn new(store: PathBuf, filter: Option<(FilterColumn, String)>, observer: &'a dyn Observer) -> StorePart<'a> {
        StorePart { store, filter, observer, damage: RefCell::default() }
    }

    fn is_damaged(&self) -> bool {
        !self.damage.borrow().is_empty()
    }

    /// Parses a store or a part of it: `STORE` or `STORE@COLUMN=VALUE`.
    fn parse(text: &str, observer: &'a dyn Observer) -> Result<StorePart<'a>> {
        let whole_store = StorePart::new(PathBuf::from(text), None, observer);
        if Store::open(&whole_store.store).is_ok() {
            return Ok(whole_store);
        }
        let Some((store, (name, value))) =
            text.rsplit_once('@').and_then(|(store, rest)| Some((store, rest.split_once('=')?)))
        else {
            return open_existing(&whole_store.store).map(|_| whole_store);
        };
        let column = COLUMNS.iter().find(|column| column.name == name).map(|column| FilterColumn::Column(column.id));
        let column = column.or((name == NIGHT).then_some(FilterColumn::Night)).ok_or_else(|| {
            let known = COLUMNS.iter().map(|column| column.name).chain([NIGHT]);
            Failure::usage(format!("`{text}`: there is no column `{name}`"))
                .with_hint(models::names::name_hint(name, known))
        })?;
        let store = PathBuf::from(store);
        open_existing(&store)?;
        let value = column.normalise_value(value);
        Ok(StorePart::new(store, Some((column, value)), observer))
    }

    /// Returns the selected nightly run.
    fn night(&self) -> Option<&str> {
        self.filter.as_ref().filter(|(column, _)| *column == FilterColumn::Night).map(|(_, night)| night.as_str())
    }

    /// Returns the last part of the store's path.
    fn store_name(&self) -> Cow<'_, str> {
        self.store.file_name().unwrap_or(self.store.as_os_str()).to_string_lossy()
    }

    fn title(&self) -> String {
        let store = self.store_name();
        match &self.filter {
            None => store.into_owned(),
            Some((FilterColumn::Night, night)) => format!("{store}, night {}", night_title(night)),
            Some((column, value)) => format!("{store}@{}={value}", column.name()),
        }
    }

    /// Returns the part in the form that [`StorePart::parse`] reads.
    fn text(&self) -> String {
        let store = self.store.display();
        match &self.filter {
            None => store.to_string(),
            Some((column, value)) => format!("{store}@{}={value}", column.name()),
        }
    }

    /// Passes on the selected records. Fails if there are none.
    fn for_each_selected(&self, receive: &mut dyn FnMut(&Record)) -> Result<()> {
        let selection = self.for_each_record(receive)?;
        if selection.has_selected { Ok(()) } else { Err(self.no_record(&selection)) }
    }

    fn for_each_record(&self, receive: &mut dyn FnMut(&Record)) -> Result<Selection> {
        let records = open_existing(&self.store)?.select_records(Choose::All).map_err(store_failure)?;
        let is_new = |damaged: &&Damage| self.damage.borrow_mut().insert(damaged.to_string());
        note_damage(&records.damage().iter().filter(is_new).cloned().collect::<Vec<_>>(), self.observer);
        let mut selection = Selection::default();
        for record in records {
            let record = record.map_err(store_failure)?;
            let found = self.filter.as_ref().map(|(column, value)| (column.column_text(&record), value));
            match found {
                Some((found, value)) if found.as_ref() != Some(value) => selection.reject_value(found),
                _ => {
                    selection.has_selected = true;
                    receive(&record);
                }
            }
        }
        Ok(selection)
    }

    /// Returns the error that the part has no record.
    fn no_record(&self, selection: &Selection) -> Failure {
        let failure = Failure::usage(format!("`{}` selects no record", self.text()));
        let Some((column, value)) = self.filter.as_ref().filter(|_| selection.has_rejected) else {
            return failure.with_hint(match self.is_damaged() {
                true => "all its files are damaged; `opcollect dataset verify` describes the damage",
                false => "the store is empty; `opcollect dataset stats` shows the contents of a store",
            });
        };
        let others = || selection.others.iter().map(String::as_str);
        let list = || match others().map(|other| format!("`{other}`")).collect::<Vec<_>>() {
            empty if empty.is_empty() => format!("no record of the store has a value of `{}`", column.name()),
            values => {
                let more = if values.len() > SHOWN_VALUES { ", …" } else { "" };
                let shown = values[..values.len().min(SHOWN_VALUES)].join(", ");
                format!("values of `{}` in the store: {shown}{more}", column.name())
            }
        };
        failure.with_hint(models::names::suggest_nearest(value, others()).unwrap_or_else(list))
    }

    fn read_hosts(&self) -> Result<BTreeSet<String>> {
        match &self.filter {
            Some((FilterColumn::Column(ColumnId::host), host)) => Ok(BTreeSet::from([host.clone()])),
            _ => {
                let stats = open_existing(&self.store)?.stats(Choose::All).map_err(store_failure)?;
                Ok(stats.by_host.into_keys().collect())
            }
        }
    }

    /// Reads the records as time series. Records of `night` form the later set, all others the baseline.
    fn read_history(&self, night: &str, by_task: bool) -> Result<History> {
        let mut gather = RecordGatherer::new(by_task, self.read_hosts()?.len() > 1);
        let side = |record: &Record| if night_of(record) == night { Side::After } else { Side::Before };
        self.for_each_record(&mut |record| gather.add_record(record, side(record)))?;
        Ok(gather.build_history())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::SilentObserver;

    #[test]
    fn titles_name_stores_and_nights_as_they_were_parsed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        for name in ["store", "other/store", "home@lab", "all@night=late"] {
            Store::create(Path::new(&path(name))).expect("a store");
        }
        let part = |name: &str| StorePart::parse(&path(name), &SilentObserver).expect("a part");
        let title = |before: &str, after: &str| page_title(&part(before), Some(&part(after)));
        assert_eq!(title("store@night=one", "store@night=two"), "Drift of store from one to two");
        assert_eq!(title("store@night=one", "store/@night=two"), "Drift of store from one to two");
        // Equal names are not equal stores.
        assert_eq!(
            title("store@night=one", "other/store@night=two"),
            "Drift from store, night one to store, night two"
        );
        assert_eq!(title("home@lab@night=one", "home@lab@night=two"), "Drift of home@lab from one to two");
        // A folder of this name precedes a night.
        assert_eq!(title("all@night=late", "store@host=a"), "Drift from all@night=late to store@host=a");
        assert_eq!(page_title(&part("store"), None), "Drift of store");
    }

    #[test]
    fn floats_select_records_in_any_form() {
        let column = |name: &str| COLUMNS.iter().find(|column| column.name == name).expect(name).id;
        let value = |name: &str, value: &str| FilterColumn::Column(column(name)).normalise_value(value);
        assert_eq!((value("build_ms", "12.0"), value("build_ms", "1.5e1")), ("12".to_owned(), "15".to_owned()));
        assert_eq!((value("run_id", "007"), value("threads", "2")), ("007".to_owned(), "2".to_owned()));
        let record = Record { build_ms: Some(12.0), ..Record::default() };
        assert_eq!(FilterColumn::Column(ColumnId::build_ms).column_text(&record).as_deref(), Some("12"));
    }
}
