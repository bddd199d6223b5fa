//! Tables that adapt to the output width: a line under the headings, none between rows. If a table is too wide, text
//! columns wrap first. Then droppable columns are dropped in the order of `drops`, and a line under the table lists
//! them. Finally, rows are stacked with one line per column. Numbers never wrap.

use crate::{Paper, escape_all_controls, page};
use anstyle::{AnsiColor, Style};
use std::borrow::Cow;
use textwrap::core::display_width;

const GAP: usize = 2;
const TEXT_WIDTH_MIN: usize = 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Tone {
    #[default]
    Plain,
    Best,
    Uncertain,
    Bad,
}

impl Tone {
    fn tone_style(self) -> Style {
        let colour = |colour: AnsiColor| Style::new().fg_color(Some(colour.into()));
        match self {
            Tone::Plain => Style::new(),
            Tone::Best => colour(AnsiColor::Green),
            Tone::Uncertain => colour(AnsiColor::Yellow),
            Tone::Bad => colour(AnsiColor::Red),
        }
    }
}

/// A table cell: its text, and how it is highlighted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// Marks the cell as the best value.
    pub fn mark_best(self) -> Cell {
        Cell { tone: Tone::Best, ..self }
    }

    /// Marks the cell as uncertain.
    pub fn mark_uncertain(self) -> Cell {
        Cell { tone: Tone::Uncertain, ..self }
    }

    /// Marks the cell as wrong or failed.
    pub fn mark_bad(self) -> Cell {
        Cell { tone: Tone::Bad, ..self }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        let text = text.into();
        let text = match escape_all_controls(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(escaped) => escaped,
        };
        // A row of a table has the lines that wrapping gives it.
        let text = if text.contains('\n') { text.replace('\n', "\\n") } else { text };
        Cell { text, tone: Tone::Plain }
    }
}

/// A column: its heading, and its behaviour in narrow tables.
#[derive(Clone, Debug)]
pub struct Column {
    heading: String,
    is_figures: bool,
    least: usize,
    drops: Option<u8>,
}

/// Creates a text column, which wraps in narrow tables.
pub fn text_column(heading: impl Into<String>) -> Column {
    Column { heading: heading.into(), is_figures: false, least: TEXT_WIDTH_MIN, drops: None }
}

/// Creates a column of numbers: right-aligned, never wrapped.
pub fn number_column(heading: impl Into<String>) -> Column {
    Column { is_figures: true, ..text_column(heading) }
}

impl Column {
    /// Sets the minimum width in characters.
    pub fn min_width(self, least: usize) -> Column {
        Column { least, ..self }
    }

    /// Allows the column to be dropped from narrow tables; the highest number is dropped first.
    pub fn drop_order(self, order: u8) -> Column {
        Column { drops: Some(order), ..self }
    }
}

/// A table of headings and rows.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

#[derive(Clone, Copy)]
struct ColumnWidths {
    least: usize,
    natural: usize,
}

impl Table {
    /// Creates a table without rows.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Table {
        Table { columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row; missing cells at the end are empty.
    pub fn add_row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        let mut row: Vec<Cell> = cells.into_iter().map(Into::into).collect();
        assert!(row.len() <= self.columns.len(), "a row has at most one cell per heading");
        row.resize(self.columns.len(), Cell::default());
        self.rows.push(row);
    }

    /// Renders the table as an element of a page.
    pub fn to_html(&self) -> String {
        let headings: String =
            self.columns.iter().map(|column| format!("<th>{}</th>", page::escape_html(&column.heading))).collect();
        let cell = |cell: &Cell| format!("<td>{}</td>", page::escape_html(&cell.text));
        let row = |row: &Vec<Cell>| format!("<tr>{}</tr>\n", row.iter().map(cell).collect::<String>());
        let rows: String = self.rows.iter().map(row).collect();
        format!("<table>\n<tr>{headings}</tr>\n{rows}</table>\n")
    }

    /// Formats the table for an output medium, without a final line end.
    pub fn format_for(&self, paper: &Paper) -> String {
        let limits: Vec<ColumnWidths> = (0..self.columns.len()).map(|at| self.column_widths(at)).collect();
        let kept = self.kept_columns(&limits, paper.width);
        let least: usize = kept.iter().map(|at| limits[*at].least).sum();
        if least + GAP * kept.len().saturating_sub(1) > paper.width {
            return self.format_stacked(paper);
        }
        let widths = spread_widths(&kept.iter().map(|at| limits[*at]).collect::<Vec<_>>(), paper.width);
        self.side_by_side(&kept, &widths, paper)
    }

    fn column_widths(&self, at: usize) -> ColumnWidths {
        let column = &self.columns[at];
        let widest = self.rows.iter().map(|row| display_width(&row[at].text)).max().unwrap_or(0);
        let heading = display_width(&column.heading);
        let word = column.heading.split(' ').map(display_width).max().unwrap_or(0);
        let natural = widest.max(heading);
        let least = if column.is_figures { widest } else { widest.min(column.least) };
        ColumnWidths { least: least.max(word), natural }
    }

    fn kept_columns(&self, limits: &[ColumnWidths], width: usize) -> Vec<usize> {
        let mut kept: Vec<usize> = (0..self.columns.len()).collect();
        loop {
            let least: usize = kept.iter().map(|at| limits[*at].least + GAP).sum();
            let first = kept.iter().copied().filter(|at| self.columns[*at].drops.is_some());
            match first.max_by_key(|at| self.columns[*at].drops) {
                Some(dropped) if least > width + GAP => kept.retain(|at| *at != dropped),
                _ => return kept,
            }
        }
    }

    fn side_by_side(&self, kept: &[usize], widths: &[usize], paper: &Paper) -> String {
        let layout: Vec<ColumnPlace> = kept
            .iter()
            .zip(widths)
            .map(|(at, width)| ColumnPlace { width: *width, is_right: self.columns[*at].is_figures })
            .collect();
        let headings: Vec<Cell> = kept.iter().map(|at| Cell::from(&*self.columns[*at].heading)).collect();
        let mut lines = side_by_side(&headings.iter().collect::<Vec<_>>(), &layout, paper);
        lines.push("─".repeat(widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)));
        for row in &self.rows {
            lines.extend(side_by_side(&kept.iter().map(|at| &row[*at]).collect::<Vec<_>>(), &layout, paper));
        }
        let dropped = (0..self.columns.len()).filter(|at| !kept.contains(at));
        let dropped: Vec<&str> = dropped.map(|at| &*self.columns[at].heading).collect();
        if !dropped.is_empty() {
            lines.extend(wrap_text(&format!("columns omitted for lack of width: {}", dropped.join(", ")), paper.width));
        }
        lines.join("\n")
    }

    /// Formats each row as lines of heading and cell, without empty cells.
    fn format_stacked(&self, paper: &Paper) -> String {
        let widest = self.columns.iter().map(|column| display_width(&column.heading)).max().unwrap_or(0);
        let headings = widest.min(paper.width / 3);
        let cells = paper.width.saturating_sub(headings + GAP).max(1);
        let layout = [headings, cells].map(|width| ColumnPlace { width, is_right: false });
        let block = |row: &Vec<Cell>| {
            let shown = self.columns.iter().zip(row).filter(|(_, cell)| !cell.text.is_empty());
            let lines =
                shown.flat_map(|(column, cell)| side_by_side(&[&(&*column.heading).into(), cell], &layout, paper));
            lines.collect::<Vec<_>>().join("\n")
        };
        self.rows.iter().map(block).collect::<Vec<_>>().join("\n\n")
    }
}

#[derive(Clone, Copy)]
struct ColumnPlace {
    width: usize,
    is_right: bool,
}

fn side_by_side(cells: &[&Cell], layout: &[ColumnPlace], paper: &Paper) -> Vec<String> {
    let wrapped: Vec<Vec<String>> =
        cells.iter().zip(layout).map(|(cell, place)| wrap_text(&cell.text, place.width)).collect();
    let height = wrapped.iter().map(Vec::len).max().unwrap_or(0);
    let line = |line: usize| {
        let mut text = String::new();
        for (pieces, (cell, place)) in wrapped.iter().zip(cells.iter().zip(layout)) {
            let piece = pieces.get(line).map_or("", String::as_str);
            let blank = " ".repeat(place.width.saturating_sub(display_width(piece)));
            let piece = colour_text(piece, cell.tone, paper);
            match place.is_right {
                true => text.extend([&*blank, &*piece]),
                false => text.extend([&*piece, &*blank]),
            }
            text.push_str(&" ".repeat(GAP));
        }
        text.trim_end().to_owned()
    };
    (0..height).map(line).collect()
}

/// Distributes the width over the columns, between minimum and natural widths; the narrowest column grows first.
fn spread_widths(limits: &[ColumnWidths], width: usize) -> Vec<usize> {
    let mut widths: Vec<usize> = limits.iter().map(|limits| limits.least).collect();
    let mut spare = width.saturating_sub(widths.iter().sum::<usize>() + GAP * limits.len().saturating_sub(1));
    while spare > 0 {
        let growing = (0..limits.len()).filter(|at| widths[*at] < limits[*at].natural);
        let Some(narrowest) = growing.min_by_key(|at| widths[*at]) else { break };
        widths[narrowest] += 1;
        spare -= 1;
    }
    widths
}

fn wrap_text(text: &str, width: usize) -> Vec<String> {
    textwrap::wrap(text, width.max(1)).into_iter().map(String::from).collect()
}

fn colour_text(text: &str, tone: Tone, paper: &Paper) -> String {
    match paper.has_colours && tone != Tone::Plain && !text.is_empty() {
        true => format!("{}{text}{}", tone.tone_style().render(), tone.tone_style().render_reset()),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
