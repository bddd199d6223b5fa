//! `dataset revisions`: counts the records whose code this program would still generate.

use super::{DONE, DONE_WITH_LOSSES, Pace, Result, print_json, print_text, stdout_paper, terminal_observer};
use engine::revisions::{CodeCounts, count_revisions};
use report::{Table, format_count, number_column, text_column};
use std::path::Path;

pub fn run(store: &Path, as_json: bool) -> Result<u8> {
    let counts = count_revisions(store, terminal_observer(Pace::default()).as_ref())?;
    if as_json {
        print_json(&counts)?;
    } else {
        let CodeCounts { current, other, without, .. } = counts;
        if other > 0 {
            let mut table = Table::new([text_column("operator"), number_column("records of another code revision")]);
            counts.other_by_operator.iter().for_each(|(kind, count)| table.add_row([kind.clone(), count.to_string()]));
            print_text(&table.format_for(&stdout_paper()))?;
        }
        let current = format_count(current, "record");
        print_text(&format!("{current} of current code, {other} of other code, {without} without code"))?;
    }
    Ok(if counts.is_damaged || counts.other > 0 { DONE_WITH_LOSSES } else { DONE })
}
