//! Comparison of two sets of records, or of the last nightly run in a store with the earlier ones.

use crate::Result;
use crate::failure::Failure;
use crate::observer::Observer;
use crate::stores::{note_damage, open_existing, store_failure};
use datasets::{COLUMNS, Cell, Choose, ColumnId, Output, Record, Store};
use drift::{
    Bounds, ChangePoint, Drift, History, RecordGatherer, Side, find_change_points, judge_lines, night_of, night_title,
    render_markdown, render_page,
};
use report::page::escape_html;
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Name by which nightly runs are selected as if it were a column; records have no such column.
const NIGHT: &str = "night";

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
}

impl DriftReport {
    fn new(history: History, bounds: Bounds) -> DriftReport {
        DriftReport {
            drift: judge_lines(&history, bounds),
            change_points: find_change_points(&history, bounds),
            history,
        }
    }
}

/// Compares two sets of records, or the last nightly run of one set with its earlier runs.
pub fn compare_records(options: &DriftOptions, observer: &dyn Observer) -> Result<DriftReport> {
    let before = StorePart::parse(&options.before, observer)?;
    let after = options.after.as_deref().map(|text| StorePart::parse(text, observer)).transpose()?;
    let pages = Pages::create(&options.pages)?;
    let report = match &after {
        Some(after) => compare_parts(&before, after, options)?,
        None => compare_last(&before, options)?,
    };
    if report.history.nights.is_empty() {
        return Err(Failure::usage("there are no times to compare")
            .with_hint("`opcollect dataset stats` shows the contents of a store"));
    }
    let name = match &options.after {
        Some(after) => format!("{} and {after}", options.before),
        None => options.before.clone(),
    };
    let title = match &options.after {
        Some(after) => match (split_night(&options.before), split_night(after)) {
            // Two nightly runs of one store.
            ((store, Some(before)), (other, Some(after))) if store == other => {
                format!("Drift of {store} from {} to {}", night_title(before), night_title(after))
            }
            _ => format!("Drift from {} to {}", short_title(&options.before), short_title(after)),
        },
        None => format!("Drift of {}", short_title(&options.before)),
    };
    let html = format!("<p class=\"soft\">Records of {}</p>\n", escape_html(&name));
    pages.write(&title, &report, &OwnSections { html, ..OwnSections::default() }, observer)?;
    observer.receive_notes(&report.drift.notes);
    Ok(report)
}

/// Returns the last part of a store's path, and the selected nightly run.
fn split_night(text: &str) -> (&str, Option<&str>) {
    let name = text.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    match name.split_once('@').and_then(|(store, rest)| Some((store, rest.strip_prefix(NIGHT)?.strip_prefix('=')?))) {
        Some((store, night)) => (store, Some(night)),
        None => (name, None),
    }
}

fn short_title(text: &str) -> String {
    match split_night(text) {
        (store, Some(night)) => format!("{store}, night {}", night_title(night)),
        (name, None) => name.to_owned(),
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
    let part = StorePart { store: store.to_owned(), filter: None, observer };
    let mut history = part.read_history(night, false)?;
    history.keep_last(nights);
    Ok(DriftReport::new(history, bounds))
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
        let DriftReport { drift, change_points, history } = report;
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
    before.for_each_record(&mut |record| gather.add_record(record, Side::Before))?;
    after.for_each_record(&mut |record| gather.add_record(record, Side::After))?;
    Ok(DriftReport::new(gather.build_history(), options.bounds))
}

fn compare_last(part: &StorePart<'_>, options: &DriftOptions) -> Result<DriftReport> {
    let mut nights: Vec<(i64, String)> = Vec::new();
    part.for_each_record(&mut |record| {
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
            part.store.display()
        ))
        .with_hint("name another store, or wait for the next nightly run"));
    }
    Ok(DriftReport::new(part.read_history(&newest, options.by_task)?, options.bounds))
}

struct StorePart<'a> {
    store: PathBuf,
    filter: Option<(FilterColumn, String)>,
    observer: &'a dyn Observer,
}

#[derive(Clone, Copy, Debug)]
enum FilterColumn {
    Night,
    Column(ColumnId),
}

impl FilterColumn {
    fn column_text(self, record: &Record) -> Option<String> {
        match self {
            FilterColumn::Night => Some(night_of(record)),
            FilterColumn::Column(id) => match record.cell(id) {
                Cell::Text(text) => Some(text.to_owned()),
                Cell::Integer(number) => Some(number.to_string()),
                Cell::Bool(claim) => Some(claim.to_string()),
                Cell::Key(key) => Some(key.to_hex()),
                Cell::Null | Cell::Float(_) | Cell::List(_) => None,
            },
        }
    }
}

impl<'a> StorePart<'a> {
    /// Parses a store or a part of it: `STORE` or `STORE@COLUMN=VALUE`.
    fn parse(text: &str, observer: &'a dyn Observer) -> Result<StorePart<'a>> {
        let whole_store = StorePart { store: PathBuf::from(text), filter: None, observer };
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
        Ok(StorePart { store, filter: Some((column, value.to_owned())), observer })
    }

    fn for_each_record(&self, receive: &mut dyn FnMut(&Record)) -> Result<()> {
        let records = open_existing(&self.store)?.select_records(Choose::All).map_err(store_failure)?;
        note_damage(records.damage(), self.observer);
        for record in records {
            let record = record.map_err(store_failure)?;
            if self.filter.as_ref().is_none_or(|(column, value)| column.column_text(&record).as_deref() == Some(value))
            {
                receive(&record);
            }
        }
        Ok(())
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
