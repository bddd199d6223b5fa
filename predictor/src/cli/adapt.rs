//! `oppredict adapt` and `oppredict suggest`.

use super::arguments::{Adapt, Suggest};
use super::{begin, finish, load, paper, print};
use crate::bundle;
use crate::error::Result;
use learn::adaptation;
use report::{Cell, Table, UNKNOWN, figures, words};
use serde_json::json;

/// Corrects a predictor for other devices and writes it.
pub fn run(arguments: &Adapt) -> Result<u8> {
    let out = begin(Some(&arguments.out))?;
    let mut predictor = bundle::read(&arguments.predictor)?;
    let changes = adaptation::adapt(&mut predictor, load(&arguments.data)?)?;
    finish(out, || bundle::to_bytes(&predictor))?;
    let mut table = Table::new([
        words("operator"),
        words("device"),
        figures("measurements").drops(1),
        figures("off before"),
        figures("off after"),
    ]);
    for change in &changes {
        let after = match change.after {
            None => Cell::from(UNKNOWN).uncertain(),
            Some(after) if after > change.before => Cell::from(format!("{after:.1} %")).bad(),
            Some(after) => Cell::from(format!("{after:.1} %")),
        };
        table.row([
            change.operator.as_str().into(),
            change.device.as_str().into(),
            change.rows.to_string().into(),
            format!("{:.1} %", change.before).into(),
            after,
        ]);
    }
    print(&format!(
        "{}\n`off after` is what each half of the measurements is off by when only the other half was seen; wrote `{}`",
        table.on(&paper()),
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
        let mut table = Table::new([words("operator")].into_iter().chain(sizes.map(figures)));
        for one in of_operator {
            let sizes = one.sizes.iter().map(|(_, size)| size.to_string());
            table.row([one.operator.clone()].into_iter().chain(sizes));
        }
        print(&table.on(&paper()))?;
    }
    print("the most telling first; measure them on the new device, then give them to `oppredict adapt`")?;
    if arguments.json {
        print(&json!({ "suggestions": suggestions }).to_string())?;
    }
    Ok(0)
}
