//! Tables of a profile in the style of other tools: torch.profiler, and the profiling report of earlier TVM versions.

use crate::Result;
use crate::failure::Failure;
use profile::averages::{Averages, Grouping, compute_averages, style, tvm};
use profile::{Profile, SortBy};
use report::{Paper, Table};
use serde::Serialize;
use serde_json::Value;

models::choice! {
    /// The tool whose table style is used.
    pub enum Style {
        /// Columns of torch.profiler
        Torch = "torch",
        /// Columns of TVM's former profiling report
        Tvm = "tvm",
    }
}

/// A profile as a table in the style of another tool. Its serialised form has the columns of that tool.
#[derive(Serialize)]
#[serde(untagged)]
pub enum StyledTable {
    /// Table in the style of torch.profiler.
    Torch(Averages),
    /// Table in the style of TVM's former profiling report.
    Tvm(tvm::TvmReport),
}

impl StyledTable {
    /// Creates the table of a profile. TVM's table supports only one order and one grouping.
    pub fn new(profile: &Profile, style: Style, grouping: Grouping, sort_by: SortBy) -> StyledTable {
        match style {
            Style::Torch => {
                let mut averages = compute_averages(profile, grouping);
                averages.sort(sort_by);
                StyledTable::Torch(averages)
            }
            Style::Tvm => StyledTable::Tvm(tvm::tvm_report(profile)),
        }
    }

    /// Adds a configuration entry below the table, if the style has such entries (TVM's does).
    pub fn add_configuration(&mut self, name: &str, value: impl Into<Value>) {
        if let StyledTable::Tvm(report) = self {
            report.configuration.insert(name.to_owned(), value.into());
        }
    }

    /// Returns the table with at most `row_limit` rows.
    pub fn table_rows(&self, row_limit: usize) -> Table {
        match self {
            StyledTable::Torch(averages) => style::torch_table(averages, row_limit),
            StyledTable::Tvm(report) => report.to_table(row_limit),
        }
    }

    /// Formats at most `row_limit` rows and the table's footer as text.
    pub fn format_text(&self, row_limit: usize, paper: &Paper) -> String {
        let rows = self.table_rows(row_limit).format_for(paper);
        match self {
            StyledTable::Torch(averages) => format!("{rows}\n{}", style::torch_footer(averages)),
            StyledTable::Tvm(report) => {
                let footer = report.configuration.iter().map(|(name, value)| format!("\n{name}: {value}"));
                format!("{rows}{}", footer.collect::<String>())
            }
        }
    }

    /// Returns all rows as CSV.
    pub fn to_csv(&self) -> Result<Vec<u8>> {
        match self {
            StyledTable::Torch(averages) => averages.to_csv(),
            StyledTable::Tvm(report) => report.to_csv(),
        }
        .map_err(Failure::environment)
    }
}
