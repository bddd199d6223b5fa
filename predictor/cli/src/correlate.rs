//! `oppredict correlate`.

use crate::csv::quoted;
use crate::loading::load_samples;
use crate::options::Data;
use crate::{DONE, begin, finish, paper, print_json, print_text};
use clap::Args;
use predictor::correlate::{Correlation, Part, correlate};
use predictor::{Result, pages};
use report::{Cell, Table, figures, words};
use std::path::PathBuf;

/// Features in a table on the screen; files hold all.
const SHOWN: usize = 12;

#[derive(Clone, Debug, Args)]
pub struct Correlate {
    #[command(flatten)]
    pub data: Data,
    /// Write all correlations as CSV to this file
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write a heat map as an HTML page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}

/// Prints the strongest correlations and writes all of them to the requested files.
pub fn run(arguments: &Correlate) -> Result<u8> {
    let (table, page) = (begin(arguments.csv.as_deref())?, begin(arguments.html.as_deref())?);
    let found = correlate(&load_samples(&arguments.data)?);
    finish(table, || csv(&found).into_bytes())?;
    finish(page, || pages::heat_map(&found).into_bytes())?;
    let mut table = Table::new([
        words("operator"),
        words("device").drops(1),
        words("feature"),
        figures("rows").drops(2),
        figures("Spearman"),
        figures("Pearson").drops(5),
        figures("Kendall").drops(6),
        figures("partial"),
        figures("distance").drops(4),
        figures("bits").drops(3),
        figures("by chance"),
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
            let texts = [operator, one.device.clone(), one.feature.clone(), one.rows.to_string()];
            let mut cells: Vec<Cell> = texts.map(Cell::from).into();
            cells.extend(numbers.map(|number| Cell::from(format!("{number:.2}"))));
            let chance = Cell::from(format!("{:.1e}", one.q_value));
            cells.push(if one.q_value > pages::SIGNIFICANT { chance.uncertain() } else { chance });
            table.row(cells);
        }
    }
    print_text(arguments.json, &table.on(&paper()))?;
    if arguments.json {
        print_json(&found)?;
    }
    Ok(DONE)
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
            one.q_value
        );
    }
    text
}
