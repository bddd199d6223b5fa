//! Formats predictions as tables and sentences.

use crate::stdout_paper;
use learn::cross_validation::CrossValidatedError;
use learn::predictor::{Basis, Prediction};
use predictor::answers::NetworkAnswer;
use predictor::queries::{AssumedThreads, HeldOutErrors, InPlaceTotal, OperatorPrediction, Run, Total};
use report::{
    Cell, Table, UNKNOWN, format_count, format_duration, format_percent, format_range, number_column, text_column,
};
use std::fmt::Write;

/// Text if the predictor has no held-out error for the operator or device, or the times are translated to a machine.
pub const NOT_RECORDED: &str = "the error on held-out shapes is unknown";

pub fn on_threads(threads: &AssumedThreads) -> String {
    let AssumedThreads { count, word, reason, .. } = threads;
    format!("on {} ({reason})", format_count(*count, word))
}

pub fn error_text(error: &CrossValidatedError) -> String {
    format!("{:.1} % ({})", error.median_percent, format_count(error.shapes, "shape"))
}

fn held_out_cell(prediction: &Prediction) -> Cell {
    prediction.held_out.map_or_else(|| Cell::from(UNKNOWN), |error| error_text(&error).into())
}

pub fn held_out_text(errors: Option<&HeldOutErrors>) -> String {
    let Some(errors) = errors else { return NOT_RECORDED.to_owned() };
    let of_time = match errors.known_share {
        share if share > 0.999 => String::new(),
        share => format!(" of the {} with known errors", format_percent(share)),
    };
    format!(
        "held-out error of the operators: {:.1} % (median of each kind, weighted by time{of_time}); largest for {}: {}",
        errors.weighted_percent,
        errors.worst,
        error_text(&errors.worst_error)
    )
}

pub fn operator_table(predictions: &[OperatorPrediction], level: u8) -> String {
    let mut table = Table::new([
        text_column("operator").min_width(16),
        number_column("time"),
        number_column(format!("{level} % between")),
        number_column("held-out error").drop_order(3),
        number_column("roofline").drop_order(2),
        text_column("bound by").min_width(10).drop_order(1),
        text_column("remarks"),
    ]);
    for one in predictions {
        let prediction = &one.prediction;
        table.add_row([
            one.operator.as_str().into(),
            format_duration(prediction.time_ns).into(),
            interval_cell(prediction),
            held_out_cell(prediction),
            format_duration(prediction.attainable_ns).into(),
            prediction.bound.into(),
            remarks_cell(prediction),
        ]);
    }
    table.format_for(&stdout_paper())
}

/// Returns the learned time per operator to start it, without the user's `--dispatch-us`, if it is a large share of
/// the total and too long to consist of the driver's kernel launches.
fn framework_start_ns(total: &Total, run: &Run) -> Option<f64> {
    /// Upper bound of a driver's time to launch a kernel.
    const LAUNCH_NS: f64 = 20_000.0;
    let calls = total.calls as f64;
    let start_ns = total.dispatch_ns / calls - run.dispatch_ns;
    (start_ns > LAUNCH_NS && calls * start_ns > 0.2 * total.time_ns).then_some(start_ns)
}

/// Returns the table of a network's layers in graph order, with equal layers on one line.
pub fn network_table(heading: &str, answer: &NetworkAnswer, run: &Run, level: u8) -> String {
    let NetworkAnswer { layers: predictions, total, .. } = answer;
    let mut table = Table::new([
        text_column("layer"),
        number_column("×"),
        number_column("each"),
        number_column(format!("{level} % between")),
        number_column("held-out error").drop_order(3),
        number_column("all"),
        number_column("share").drop_order(2),
        text_column("bound by").min_width(6).drop_order(1),
        text_column("remarks"),
    ]);
    for one in predictions {
        let prediction = &one.prediction;
        let all_ns = one.count as f64 * prediction.time_ns;
        table.add_row([
            one.operator.as_str().into(),
            one.count.to_string().into(),
            format_duration(prediction.time_ns).into(),
            interval_cell(prediction),
            held_out_cell(prediction),
            format_duration(all_ns).into(),
            format_percent(all_ns / total.operators_ns).into(),
            prediction.bound.into(),
            remarks_cell(prediction),
        ]);
    }
    let mut text = format!(
        "{heading}\n{}\ntotal: {} ({level} % between {})",
        table.format_for(&stdout_paper()),
        format_duration(total.time_ns),
        format_range(total.low_ns, total.high_ns)
    );
    let _ =
        write!(text, "; {}, {} dispatch", format_count(total.calls, "operator"), format_duration(total.dispatch_ns));
    if total.hidden_ns > 0.0 {
        let _ = write!(text, " ({} hidden)", format_duration(total.hidden_ns));
    }
    if let Some(widest) = &answer.widest {
        let _ = write!(
            text,
            "\nlargest contribution to the interval's width: {} ({})",
            widest.kind,
            format_percent(widest.share)
        );
    }
    if let Some(start_ns) = framework_start_ns(total, run) {
        let each = format_duration(start_ns);
        let _ = write!(
            text,
            "\nlearned dispatch takes {each} per operator, because a framework launched each operator separately in the training data; a \
             compiled model or a launch graph needs less. `oppredict adapt` corrects the predictor with your measurements"
        );
    }
    let share = |part_ns: f64| format!("{:.1} %", 100.0 * part_ns / total.operators_ns);
    let count =
        |basis: Basis| predictions.iter().filter(|one| one.prediction.basis == basis).map(|one| one.count).sum::<u64>();
    if total.extrapolated_ns > 0.0 {
        let (share, calls) = (share(total.extrapolated_ns), count(Basis::Extrapolated));
        let operators = format_count(total.calls, "operator");
        let _ = write!(text, "\n{share} of the time is extrapolated ({calls} of {operators})");
    }
    if total.bounds_ns > 0.0 {
        let (share, calls) = (share(total.bounds_ns), count(Basis::Bound));
        let _ = write!(
            text,
            "\n{share} of the time are lower bounds, because the training data lacks {calls} of {}",
            format_count(total.calls, "operator")
        );
    }
    text
}

/// Compares the predicted time in the network with the sum of isolated times, and states the errors of both.
pub fn in_place_text(total: &InPlaceTotal) -> String {
    let InPlaceTotal { operators_ns, over_alone, beside_ns, learned } = total;
    let worth = format!(
        "learned from {} in {}; held-out error {}, error of isolated times {}",
        format_count(learned.operators, "operator"),
        format_count(learned.networks, "network"),
        format_percent(learned.error_learned),
        format_percent(learned.error_alone)
    );
    let mut text = match learned.is_worth_it() {
        true => {
            format!("in the network: {}, {over_alone:.2}× the isolated times ({worth})", format_duration(*operators_ns))
        }
        false => format!("in the network: as in isolation; the model of in-network times is not used ({worth})"),
    };
    if let Some(beside_ns) = beside_ns {
        let _ = write!(text, ", and {} outside of operators", format_duration(*beside_ns));
    }
    text
}

/// Formats an interval as a cell, marked as uncertain if the interval is wider than the predicted time.
fn interval_cell(prediction: &Prediction) -> Cell {
    let cell = Cell::from(format_range(prediction.low_ns, prediction.high_ns));
    let is_narrow = prediction.high_ns - prediction.low_ns <= prediction.time_ns;
    if is_narrow { cell } else { cell.mark_uncertain() }
}

fn remarks_cell(prediction: &Prediction) -> Cell {
    let cell = Cell::from(prediction.remarks().join("; "));
    if prediction.outside.is_empty() { cell } else { cell.mark_uncertain() }
}
