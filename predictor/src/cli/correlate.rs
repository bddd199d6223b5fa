//! `oppredict correlate`.

use super::arguments::Correlate;
use super::{load, new_table, print, quoted, right_align};
use crate::correlate::{Correlation, Part, correlate};
use crate::error::Result;
use crate::report;

/// Features in a table on the screen; files hold all.
const SHOWN: usize = 12;

/// Prints the strongest correlations and writes all where asked to.
pub fn run(arguments: &Correlate) -> Result<u8> {
    let found = correlate(&load(&arguments.data)?);
    let mut table = new_table(&[
        "operator",
        "device",
        "feature",
        "rows",
        "Spearman",
        "Pearson",
        "Kendall",
        "partial",
        "distance",
        "bits",
        "by chance",
    ]);
    let mut shown = 0;
    let mut last = ("", "", Part::All);
    for one in &found {
        let group = (&*one.operator, &*one.device, one.part);
        shown = if last == group { shown + 1 } else { 0 };
        last = group;
        if shown < SHOWN {
            let numbers = [one.spearman, one.pearson, one.kendall, one.partial, one.distance, one.mutual_information];
            let operator = format!("{}{}", one.operator, one.part.suffix());
            let mut cells = vec![operator, one.device.clone(), one.feature.clone(), one.rows.to_string()];
            cells.extend(numbers.map(|number| format!("{number:.2}")));
            cells.push(format!("{:.1e}", one.chance));
            table.add_row(cells);
        }
    }
    right_align(&mut table, 3..11);
    print(&table.to_string())?;
    if let Some(path) = &arguments.csv {
        report::write(path, &csv(&found))?;
    }
    if let Some(path) = &arguments.html {
        report::write(path, &report::heat_map(&found))?;
    }
    if arguments.json {
        print(&serde_json::to_string(&found).expect("numbers and texts have a JSON form"))?;
    }
    Ok(0)
}

fn csv(found: &[Correlation]) -> String {
    let mut text =
        "operator,device,part,feature,rows,pearson,spearman,kendall,partial,distance,mutual_information_bits,chance\n"
            .to_owned();
    for one in found {
        let part = match one.part {
            Part::All => "all",
            Part::UpToKnee => "up to the knee",
            Part::BeyondKnee => "beyond the knee",
        };
        text += &format!(
            "{},{},{part},{},{},{},{},{},{},{},{},{}\n",
            quoted(&one.operator),
            quoted(&one.device),
            quoted(&one.feature),
            one.rows,
            one.pearson,
            one.spearman,
            one.kendall,
            one.partial,
            one.distance,
            one.mutual_information,
            one.chance
        );
    }
    text
}
