//! A profile in the tables that people know from elsewhere: torch.profiler's, and that of the report TVM had.

use super::super::tables::Style;
use super::super::{Result, paper, print_json};
use crate::profile::arguments::{GroupArgument, ProfileTable};
use engine::failure::Failure;
use profile::Profile;
use profile::averages::{Averages, Grouping, averages, style, tvm};
use serde_json::json;

/// What is shown.
pub enum Styled {
    /// As torch.profiler does.
    Torch(Averages),
    /// As TVM did.
    Tvm(tvm::Report),
}

impl Styled {
    /// A profile of runs on so many threads in this style.
    pub fn of(profile: &Profile, style: Style, table: &ProfileTable, threads: usize) -> Styled {
        match style {
            Style::Torch => {
                let grouping = Grouping {
                    by_input_shape: table.group_by == GroupArgument::InputShape,
                    by_scope: match table.group_by {
                        GroupArgument::Scope => Some(table.levels),
                        GroupArgument::Call => Some(0),
                        GroupArgument::Name | GroupArgument::InputShape => None,
                    },
                };
                let mut averages = averages(profile, grouping);
                averages.sort(table.sort_by.meaning());
                Styled::Torch(averages)
            }
            Style::Tvm => {
                let mut report = tvm::of(profile);
                report.configuration.insert("Number of threads".to_owned(), json!(threads));
                report.configuration.insert("Executor".to_owned(), json!("opcollect"));
                Styled::Tvm(report)
            }
        }
    }

    /// The table with what stands below it.
    pub fn table(&self, row_limit: usize) -> String {
        match self {
            Styled::Torch(averages) => {
                format!("{}\n{}", style::torch(averages, row_limit).on(&paper()), style::torch_footer(averages))
            }
            Styled::Tvm(report) => {
                let footer = report.configuration.iter().map(|(name, value)| format!("\n{name}: {value}"));
                format!("{}{}", report.table(row_limit).on(&paper()), footer.collect::<String>())
            }
        }
    }

    /// All rows as CSV.
    pub fn csv(&self) -> Result<Vec<u8>> {
        match self {
            Styled::Torch(averages) => averages.csv(),
            Styled::Tvm(report) => report.csv(),
        }
        .map_err(Failure::environment)
    }

    /// All rows as JSON.
    pub fn print_json(&self) -> Result<()> {
        match self {
            Styled::Torch(averages) => print_json(averages),
            Styled::Tvm(report) => print_json(report),
        }
    }
}
