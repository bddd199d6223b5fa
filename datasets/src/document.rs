//! Generates `docs/reference/dataset-format.md` from the table of columns and text; a test compares the whole file.

use crate::record::SCHEMA_VERSION;
use crate::record::experiment::EXPERIMENT;
use crate::record::table::COLUMNS;
use crate::record::table::Column;
use crate::record::words::{CacheState, Outcome, ScheduleSource, Source, Target};
use std::fmt::Write;

const BEGINNING: &str = include_str!("document_beginning.md");
const END: &str = include_str!("document_end.md");

/// Returns the whole document.
pub fn render_document() -> String {
    let mut text = BEGINNING.replace("{version}", &SCHEMA_VERSION.to_string());
    text = text.replace(
        "{experiment}",
        &EXPERIMENT.iter().map(|id| format!("`{}`", id.name())).collect::<Vec<_>>().join(", "),
    );
    let mut group = "";
    for column in COLUMNS {
        if column.group != group {
            group = column.group;
            let head = "| column | type | unit | known | since | meaning |\n| --- | --- | --- | --- | --- | --- |\n";
            write!(text, "\n### {group}\n\n{head}").expect("memory takes it");
        }
        text.push_str(&column_row(column));
    }
    text.push_str("\n## Words\n\n| column | word | meaning |\n| --- | --- | --- |\n");
    write_words(&mut text, "source", Source::ALL, Source::name, Source::meaning);
    write_words(&mut text, "outcome", Outcome::ALL, Outcome::name, Outcome::meaning);
    write_words(&mut text, "cache_state", CacheState::ALL, CacheState::name, CacheState::meaning);
    write_words(&mut text, "schedule_source", ScheduleSource::ALL, ScheduleSource::name, ScheduleSource::meaning);
    write_words(&mut text, "target", Target::ALL, Target::name, Target::meaning);
    text + "\n" + END
}

fn column_row(column: &Column) -> String {
    let Column { name, unit, since, .. } = column;
    let kind = column.kind.name();
    let absent = if column.nullable { ", may be absent" } else { "" };
    format!("| `{name}` | {kind}{absent} | {unit} | {} | {since} | {} |\n", column.known.name(), column.trimmed_doc())
}

fn write_words<T: Copy>(
    text: &mut String,
    column: &str,
    all: &[T],
    name: fn(T) -> &'static str,
    meaning: fn(T) -> &'static str,
) {
    for &value in all {
        writeln!(text, "| `{column}` | `{}` | {} |", name(value), meaning(value)).expect("memory takes it");
    }
}
