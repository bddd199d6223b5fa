//! `oppredict adapt`.

use super::arguments::Adapt;
use super::{load, new_table, print, right_align};
use crate::error::Result;
use crate::{adaptation, bundle};
use serde_json::json;

/// Corrects a predictor for other devices and writes it.
pub fn run(arguments: &Adapt) -> Result<u8> {
    let mut predictor = bundle::read(&arguments.predictor)?;
    let changes = adaptation::adapt(&mut predictor, load(&arguments.data)?)?;
    bundle::write(&predictor, &arguments.out)?;
    let mut table = new_table(&["operator", "device", "measurements", "off before", "off after"]);
    for change in &changes {
        table.add_row([
            change.operator.clone(),
            change.device.clone(),
            change.rows.to_string(),
            format!("{:.1} %", change.before),
            change.after.map_or("unknown".to_owned(), |after| format!("{after:.1} %")),
        ]);
    }
    right_align(&mut table, 2..5);
    print(&format!(
        "{table}\n`off after` is what each half of the measurements is off by when only the other half was seen; wrote `{}`",
        arguments.out.display()
    ))?;
    if arguments.json {
        print(&json!({ "out": arguments.out, "changes": changes }).to_string())?;
    }
    Ok(0)
}
