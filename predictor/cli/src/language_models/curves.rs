//! The command `oppredict knee` for language-model servers: times over batch size or context length.

use super::answers::kernel_times;
use super::texts::format_heading;
use crate::{DONE, DONE_WITH_LOSSES, print_json, print_text, stdout_paper};
use predictor::Result;
use predictor::servers::{ServerCurve, ServerQuestion, merge_warnings};
use report::terminal::print_notes;
use report::{Cell, Table, format_duration, format_number, number_column, text_column};
use serde_json::json;
use std::path::Path;

const NS: f64 = 1e9;

pub fn print_knees(question: &ServerQuestion, over: &[&str], predictor: Option<&Path>, as_json: bool) -> Result<u8> {
    let times = kernel_times(predictor)?;
    let curves =
        over.iter().map(|name| ServerCurve::compute_curve(question, name, &times)).collect::<Result<Vec<_>>>()?;
    print_text(as_json, &format_heading(question, over))?;
    for curve in &curves {
        print_text(as_json, &describe_curve(curve))?;
    }
    let notes = merge_warnings(&curves);
    print_notes("warning", &notes);
    if as_json {
        let deployment = &question.deployment;
        let (model, device) = (&deployment.model.name, &deployment.device.name);
        print_json(
            &json!({ "model": model, "device": device, "load": question.load, "curves": curves, "notes": notes }),
        )?;
    }
    let is_complete = curves.iter().all(|curve| curve.points.iter().any(|point| point.fits));
    Ok(if is_complete { DONE } else { DONE_WITH_LOSSES })
}

fn describe_curve(curve: &ServerCurve) -> String {
    let mut table = Table::new([
        number_column(&curve.over),
        number_column("first token"),
        number_column("per token"),
        number_column("tokens/s request"),
        number_column("tokens/s GPU"),
        text_column("remarks"),
    ]);
    for point in &curve.points {
        let remark = match (point.fits, curve.knee == Some(point.at)) {
            (false, _) => "does not fit",
            (true, true) => "knee",
            (true, false) => "",
        };
        let per_token = Cell::from(format_duration(NS * point.per_token_s));
        table.add_row([
            point.at.to_string().into(),
            format_duration(NS * point.first_token_s).into(),
            if curve.knee == Some(point.at) { per_token.mark_best() } else { per_token },
            format_number(point.tokens_per_s_per_user).into(),
            format_number(point.tokens_per_s_per_gpu).into(),
            remark.into(),
        ]);
    }
    format!("\n{}\n{}", table.format_for(&stdout_paper()), curve.describe_knee())
}
