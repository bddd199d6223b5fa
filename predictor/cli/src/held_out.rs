//! Held-out errors that predictor files contain, as tables and JSON.

use crate::{DONE, print_json, print_line, stdout_paper};
use learn::predictor::About;
use models::Choice;
use predictor::{Result, bundle};
use report::{Table, format_percentage, number_column, or_unknown, text_column};
use samples::features::View;
use serde_json::json;
use serving::learned::{Distance, Learned};
use std::path::PathBuf;

/// Prints what the files of `oppredict devices --held-out` contain.
pub fn print_held_out(files: &[PathBuf], as_json: bool) -> Result<u8> {
    let mut documents = Vec::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let (about, kernels) = (bundle::read_about(file)?, bundle::read_kernels(file)?);
        if as_json {
            documents.push(json!({
                "predictor": name, "operators": about.map(|about| about.held_out),
                "kernels": kernels.as_ref().map(Learned::held_out_errors),
            }));
            continue;
        }
        print_line(&format!("`{name}`"))?;
        if let Some(about) = about {
            print_line(&operator_errors(&about))?;
        }
        if let Some(kernels) = kernels {
            print_line(&kernel_errors(&kernels))?;
        }
    }
    if as_json {
        print_json(&json!({ "predictors": documents }))?;
    }
    Ok(DONE)
}

/// Formats the errors on held-out shapes by operator.
pub fn operator_errors(about: &About) -> String {
    let mut table = Table::new([
        text_column("held-out errors"),
        number_column("shapes"),
        number_column("error, sizes known"),
        number_column("knobs known").drop_order(1),
        number_column("code known"),
    ]);
    for (operator, by_view) in &about.held_out {
        let shapes = by_view.values().map(|error| error.shapes).max().unwrap_or(0);
        let off = |view| or_unknown(by_view.get(view), |error| format!("{:.1} %", error.median_percent));
        table.add_row([operator.clone(), shapes.to_string()].into_iter().chain(View::ALL.iter().map(off)));
    }
    table.format_for(&stdout_paper())
}

/// Formats the errors of kernels on held-out sites (layers at any number of tokens) and devices.
pub fn kernel_errors(learned: &Learned) -> String {
    let mut table = Table::new([
        text_column("kernel"),
        text_column("of"),
        text_column("format"),
        text_column("device").min_width(12),
        number_column("held out"),
        number_column("median"),
        number_column("mean").drop_order(1),
        number_column("90 %"),
    ]);
    let percent = |number: f64| format!("{} %", format_percentage(number, 1));
    for errors in learned.held_out_errors() {
        let unseen = match errors.distance {
            Distance::SiblingDevice => "new, known generation",
            _ => "new, other generation",
        };
        table.add_row([
            errors.operator.to_owned(),
            errors.target.to_owned(),
            errors.format.unwrap_or("all").to_owned(),
            errors.device.unwrap_or(unseen).to_owned(),
            errors.held_out.rows.to_string(),
            percent(errors.held_out.median),
            percent(errors.held_out.mape),
            percent(errors.held_out.p90),
        ]);
    }
    table.format_for(&stdout_paper())
}
