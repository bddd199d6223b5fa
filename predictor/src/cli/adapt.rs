//! `oppredict adapt` and `oppredict suggest`.

use super::arguments::{Adapt, Suggest};
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

/// Says which shapes to measure on a new device.
pub fn suggest(arguments: &Suggest) -> Result<u8> {
    let predictor = bundle::read(&arguments.predictor)?;
    let suggestions = adaptation::suggest(&predictor, load(&arguments.data)?, arguments.count.get())?;
    for of_operator in suggestions.chunk_by(|one, two| one.operator == two.operator) {
        let sizes = of_operator[0].sizes.iter().map(|(name, _)| *name);
        let mut table = new_table(&["operator"].into_iter().chain(sizes).collect::<Vec<_>>());
        for one in of_operator {
            let sizes = one.sizes.iter().map(|(_, size)| size.to_string());
            table.add_row([one.operator.clone()].into_iter().chain(sizes));
        }
        right_align(&mut table, 1..of_operator[0].sizes.len() + 1);
        print(&table.to_string())?;
    }
    print("the most telling first; measure them on the new device, then give them to `oppredict adapt`")?;
    if arguments.json {
        print(&json!({ "suggestions": suggestions }).to_string())?;
    }
    Ok(0)
}
