//! Formats predictions for language-model servers as tables and sentences.

use crate::stdout_paper;
use models::Choice;
use predictor::servers::{ServerQuestion, format_gigabytes};
use report::{
    Table, format_count, format_duration, format_number, format_percent, format_range, number_column, text_column,
};
use serving::Source;
use serving::pass_time::PassTime;
use serving::plan::CallWork;
use serving::server::{Predicted, ServerAnswer, ServerSource, shipped_overheads};

const NS: f64 = 1e9;

/// Describes a model, its GPUs and its load. `over` lists the sizes of curves; a single one has no fixed value.
pub fn format_heading(question: &ServerQuestion, over: &[&str]) -> String {
    let ServerQuestion { deployment, load } = question;
    let (devices, name) = (deployment.device_count(), &deployment.device.name);
    let on = if devices == 1 { name.clone() } else { format!("{devices} × {name}") };
    let mut sizes = Vec::new();
    if *over != ["batch"] {
        sizes.push(format_count(load.concurrency, "concurrent request"));
    }
    if *over != ["context"] {
        sizes.push(format!("prompts of {}", format_count(load.input_tokens, "token")));
    }
    format!(
        "{} in {} (cache {}) on {on} with {},\n{} and outputs of {}",
        deployment.model.name,
        deployment.formats.weights.name(),
        deployment.formats.cache.name(),
        deployment.framework.name(),
        sizes.join(", "),
        format_count(load.output_tokens, "token")
    )
}

pub fn format_answer(question: &ServerQuestion, answer: &ServerAnswer) -> String {
    let mut parts = vec![format_heading(question, &[]), format_totals(answer)];
    let [first_token, per_token] = answer.kernel_seconds.map(|seconds| format_duration(NS * seconds));
    parts.push(format!(
        "kernel times only, including prompts of other requests and, for the first token,\none decoding step: \
         {first_token} and {per_token}"
    ));
    parts.push(format_throughput(answer));
    parts.push(format!("one decoding step on each GPU, {}:", format_duration(NS * answer.decode.seconds)));
    parts.push(format_calls(&answer.decode));
    parts.push(format!("one prompt on each GPU, {}:", format_duration(NS * answer.prefill.seconds)));
    parts.push(format_calls(&answer.prefill));
    parts.push(
        "times of transfers and point-wise kernels are bandwidth and latency bounds, not\nmeasurements; times under load \
         include the overhead of the framework"
            .to_owned(),
    );
    parts.join("\n")
}

fn format_totals(answer: &ServerAnswer) -> String {
    let mut table = Table::new([
        text_column("under load"),
        number_column("time"),
        number_column("90 % between"),
        text_column("source").min_width(10),
    ]);
    for (name, one) in [("time to first token", &answer.first_token), ("time per token", &answer.per_token)] {
        let Predicted { seconds, low, high, source } = one;
        let source = match source {
            ServerSource::MeasuredServers => format!("{} measured servers", shipped_overheads().len()),
            ServerSource::Kernels => "kernels only".to_owned(),
        };
        table.add_row([name.to_owned(), format_duration(NS * seconds), format_range(NS * low, NS * high), source]);
    }
    table.format_for(&stdout_paper())
}

fn format_throughput(answer: &ServerAnswer) -> String {
    let memory = &answer.memory;
    let mut lines = vec![
        format!(
            "tokens per second: {} per request, {} per GPU",
            format_number(answer.tokens_per_s_per_user),
            format_number(answer.tokens_per_s_per_gpu)
        ),
        format!(
            "memory of each GPU: {} weights, {} cache, {} activations",
            format_gigabytes(memory.weights_bytes),
            format_gigabytes(memory.cache_bytes),
            format_gigabytes(memory.activation_bytes)
        ),
        format!("  of {} usable; {} requests fit", format_gigabytes(memory.usable_bytes), memory.max_sequences),
    ];
    if let Some(power) = &answer.decode_power {
        lines.push(format!(
            "power of each GPU in a decoding step: {} W (known for {} of the time)",
            format_number(power.watts),
            format_percent(power.known_share)
        ));
    }
    lines.join("\n")
}

/// Formats the kernel calls of a forward pass, the longest first.
fn format_calls(pass: &PassTime) -> String {
    let mut table = Table::new([
        text_column("kernel").min_width(12),
        number_column("calls"),
        number_column("time"),
        number_column("90 % between").drop_order(2),
        number_column("share"),
        text_column("source").min_width(5).drop_order(1),
    ]);
    let mut sorted: Vec<_> = pass.calls.iter().collect();
    sorted.sort_by(|one, two| two.seconds.total_cmp(&one.seconds));
    for one in sorted {
        let source = match (&one.call.work, one.source) {
            (_, Source::Learned) => "learned",
            (CallWork::Kernel(_), Source::Bound) => "roofline",
            (_, Source::Bound) => "bound",
        };
        table.add_row([
            one.call.role.to_owned(),
            one.call.count.to_string(),
            format_duration(NS * one.seconds),
            format_range(NS * one.low, NS * one.high),
            format_percent(one.seconds / pass.seconds),
            source.to_owned(),
        ]);
    }
    table.format_for(&stdout_paper())
}
