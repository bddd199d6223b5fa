//! Answers about servers as tables and sentences.

use super::ServerQuestion;
use crate::paper;
use models::Choice;
use report::{Table, between, duration, figures, number, percent, words};
use serving::Source;
use serving::pass_time::PassTime;
use serving::plan::CallWork;
use serving::server::{Predicted, ServerAnswer, ServerSource, shipped_overheads};

/// Nanoseconds of a second.
const NS: f64 = 1e9;

/// Formats bytes in gigabytes of 10⁹, as data sheets do.
pub fn gigabytes(bytes: f64) -> String {
    format!("{} GB", number(bytes / 1e9))
}

/// Returns the model, its GPUs and its load in one line.
pub fn heading(question: &ServerQuestion) -> String {
    let ServerQuestion { deployment, load } = question;
    let (devices, name) = (deployment.devices(), &deployment.device.name);
    let on = if devices == 1 { name.clone() } else { format!("{devices} × {name}") };
    format!(
        "{} in {} (cache {}) on {on} with {},\n{} requests at once, prompts of {} and answers of {} tokens",
        deployment.model.name,
        deployment.formats.weights.name(),
        deployment.formats.cache.name(),
        deployment.framework.name(),
        load.concurrency,
        load.input_tokens,
        load.output_tokens
    )
}

/// Returns the whole answer.
pub fn answer(question: &ServerQuestion, answer: &ServerAnswer) -> String {
    let mut parts = vec![heading(question), totals(answer)];
    let [first_token, per_token] = answer.kernel_seconds.map(|seconds| duration(NS * seconds));
    parts.push(format!("kernels alone, prompts of other requests included: {first_token} and {per_token}"));
    parts.push(throughput(answer));
    parts.push(format!("one decoding step on each GPU, {}:", duration(NS * answer.decode.seconds)));
    parts.push(calls(&answer.decode));
    parts.push(format!("one prompt on each GPU, {}:", duration(NS * answer.prefill.seconds)));
    parts.push(calls(&answer.prefill));
    parts.push(
        "transfers and point-wise kernels are bounds by bandwidth and latency, not\nmeasurements; times under load \
         contain what the framework adds or hides"
            .to_owned(),
    );
    parts.join("\n")
}

fn totals(answer: &ServerAnswer) -> String {
    let mut table =
        Table::new([words("under load"), figures("time"), figures("90 % between"), words("source").least(10)]);
    for (name, one) in [("time to first token", &answer.first_token), ("time per token", &answer.per_token)] {
        let Predicted { seconds, low, high, source } = one;
        let source = match source {
            ServerSource::MeasuredServers => format!("{} measured servers", shipped_overheads().len()),
            ServerSource::Kernels => "kernels alone".to_owned(),
        };
        table.row([name.to_owned(), duration(NS * seconds), between(NS * low, NS * high), source]);
    }
    table.on(&paper())
}

fn throughput(answer: &ServerAnswer) -> String {
    let memory = &answer.memory;
    let mut lines = vec![
        format!(
            "tokens per second: {} for each request, {} on each GPU",
            number(answer.tokens_per_s_per_user),
            number(answer.tokens_per_s_per_gpu)
        ),
        format!(
            "memory of each GPU: {} weights, {} cache, {} activations",
            gigabytes(memory.weights_bytes),
            gigabytes(memory.cache_bytes),
            gigabytes(memory.activation_bytes)
        ),
        format!("  of {} usable; {} requests fit", gigabytes(memory.usable_bytes), memory.max_sequences),
    ];
    if let Some(power) = &answer.decode_power {
        lines.push(format!(
            "power of each GPU in a decoding step: {} W (over {} of its time)",
            number(power.watts),
            percent(power.known_share)
        ));
    }
    lines.join("\n")
}

/// Returns the calls of a pass, the longest first.
fn calls(pass: &PassTime) -> String {
    let mut table = Table::new([
        words("kernel").least(12),
        figures("calls"),
        figures("time"),
        figures("90 % between").drops(2),
        figures("share"),
        words("source").least(5).drops(1),
    ]);
    let mut sorted: Vec<_> = pass.calls.iter().collect();
    sorted.sort_by(|one, two| two.seconds.total_cmp(&one.seconds));
    for one in sorted {
        let source = match (&one.call.work, one.source) {
            (_, Source::Learned) => "learned",
            (CallWork::Kernel(_), Source::Bound) => "roofline",
            (_, Source::Bound) => "bound",
        };
        table.row([
            one.call.role.to_owned(),
            one.call.count.to_string(),
            duration(NS * one.seconds),
            between(NS * one.low, NS * one.high),
            percent(one.seconds / pass.seconds),
            source.to_owned(),
        ]);
    }
    table.on(&paper())
}
