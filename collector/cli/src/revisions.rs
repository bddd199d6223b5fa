//! `dataset revisions`: which records were measured by code that this program still generates.

use super::{DONE, DONE_WITH_LOSSES, Pace, Result, paper, print, print_json, terminal};
use engine::revisions::{CodeCounts, count_revisions};
use report::{Table, figures, words};
use std::path::Path;

/// Counts the records of a store by the state of their code.
pub fn run(store: &Path, as_json: bool) -> Result<u8> {
    let counts = count_revisions(store, terminal(Pace::default()).as_ref())?;
    if as_json {
        print_json(&counts)?;
    } else {
        let CodeCounts { current, other, without, .. } = counts;
        if other > 0 {
            let mut table = Table::new([words("operator"), figures("records of other code")]);
            counts.other_by_operator.iter().for_each(|(kind, count)| table.row([kind.clone(), count.to_string()]));
            print(&table.on(&paper()))?;
        }
        print(&format!("{current} records of current code, {other} of other code, {without} without code"))?;
    }
    Ok(if counts.is_damaged || counts.other > 0 { DONE_WITH_LOSSES } else { DONE })
}
