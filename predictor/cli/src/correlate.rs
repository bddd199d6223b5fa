//! The command `oppredict correlate`.

use crate::csv::quote_cell;
use crate::loading::load_samples;
use crate::options::Data;
use crate::{DONE, create_outputs, print_json, print_text, stdout_paper, write_output};
use clap::Args;
use predictor::correlate::{Correlation, Part, correlate_features};
use predictor::{Result, pages};
use report::{Cell, Table, number_column, text_column};
use std::path::PathBuf;

/// Number of distinct features of a group in the printed table; files contain all features.
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

pub fn run(arguments: &Correlate) -> Result<u8> {
    let [table, page] = create_outputs([("--csv", arguments.csv.as_deref()), ("--html", arguments.html.as_deref())])?;
    let found = correlate_features(&load_samples(&arguments.data)?);
    write_output(table, || format_csv(&found).into_bytes())?;
    write_output(page, || pages::heat_map(&found).into_bytes())?;
    let mut table = Table::new([
        text_column("operator"),
        text_column("device").drop_order(1),
        text_column("feature"),
        number_column("rows").drop_order(2),
        number_column("Spearman"),
        number_column("Pearson").drop_order(5),
        number_column("Kendall").drop_order(6),
        number_column("partial"),
        number_column("distance").drop_order(4),
        number_column("bits").drop_order(3),
        number_column("q-value"),
        text_column("nearly the same").drop_order(7),
    ]);
    for group in found.chunk_by(|one, two| group_key(one) == group_key(two)) {
        for one in group.iter().filter(|one| one.same_as.is_none()).take(SHOWN) {
            let numbers = [one.spearman, one.pearson, one.kendall, one.partial, one.distance, one.mutual_information];
            let operator = format!("{}{}", one.operator, one.part.group_suffix());
            let texts = [operator, one.device.clone(), one.feature.clone(), one.rows.to_string()];
            let mut cells: Vec<Cell> = texts.map(Cell::from).into();
            cells.extend(numbers.map(|number| Cell::from(format!("{number:.2}"))));
            let q_value = Cell::from(pages::format_q_value(one.q_value));
            cells.push(if one.q_value > pages::SIGNIFICANT { q_value.mark_uncertain() } else { q_value });
            let alike = group.iter().filter(|other| other.same_as.as_ref() == Some(&one.feature));
            cells.push(name_some(&alike.map(|other| other.feature.as_str()).collect::<Vec<_>>()).into());
            table.add_row(cells);
        }
    }
    print_text(arguments.json, &table.format_for(&stdout_paper()))?;
    if arguments.json {
        print_json(&found)?;
    }
    Ok(DONE)
}

fn group_key(one: &Correlation) -> (&str, &str, Part) {
    (&one.operator, &one.device, one.part)
}

/// Names the first two features of a list and counts the others.
fn name_some(names: &[&str]) -> String {
    match names {
        [one, two, rest @ ..] if !rest.is_empty() => format!("{one}, {two} and {} more", rest.len()),
        all => all.join(", "),
    }
}

fn format_csv(found: &[Correlation]) -> String {
    let mut text =
        "operator,device,part,feature,rows,pearson,spearman,kendall,partial,distance,mutual_information_bits,q_value,same_as\n"
            .to_owned();
    for one in found {
        let part = one.part.name();
        text += &format!(
            "{},{},{part},{},{},{},{},{},{},{},{},{},{}\n",
            quote_cell(&one.operator),
            quote_cell(&one.device),
            quote_cell(&one.feature),
            one.rows,
            one.pearson,
            one.spearman,
            one.kendall,
            one.partial,
            one.distance,
            one.mutual_information,
            one.q_value,
            quote_cell(one.same_as.as_deref().unwrap_or_default())
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_significance_has_one_name_in_all_outputs() {
        let one = Correlation {
            operator: "dense".to_owned(),
            device: "cpu".to_owned(),
            part: Part::All,
            feature: "flops".to_owned(),
            rows: 20,
            pearson: 0.5,
            spearman: 0.5,
            kendall: 0.5,
            partial: 0.5,
            distance: 0.5,
            mutual_information: 1.0,
            q_value: 0.25,
            same_as: None,
            column: 0,
            alike: Vec::new(),
        };
        let csv = format_csv(std::slice::from_ref(&one));
        let (header, row) = csv.split_once('\n').expect("a header");
        let cell = header.split(',').zip(row.split(',')).find(|(name, _)| *name == "q_value");
        assert_eq!(cell.map(|(_, cell)| cell), Some("0.25"), "{csv}");
        assert_eq!(serde_json::json!(one)["q_value"], 0.25);
    }
}
