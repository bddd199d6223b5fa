//! What an answer about a server leaves out or assumes.

use crate::scheme::Scheme;
use crate::server::{Deployment, ServerLoad, ServingMode};
use std::collections::BTreeSet;

/// A reason to doubt an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerWarning {
    pub cause: WarningCause,
    pub text: String,
}

/// Cause of a warning. The text of a warning depends on the load, its cause does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarningCause {
    /// The requests do not fit in memory.
    Memory,
    /// The kernels of a prompt take longer than the time to the first token.
    FirstToken,
    /// The kernels of a decoding step take longer than the time per token.
    PerToken,
    /// No measured server is similar.
    Similarity,
    /// The model supports fewer tokens.
    MaxTokens,
    UncountedParts,
    /// The published weights are quantised, the predicted ones are not.
    Quantisation,
    /// Fewer requests than attention groups.
    IdleGroups,
    /// Expert parallelism does not divide the experts.
    ExpertCopies,
}

impl Deployment {
    /// Returns what the answer to a load leaves out or assumes beyond the model's configuration.
    pub fn model_warnings(&self, load: &ServerLoad) -> Vec<ServerWarning> {
        let mut warnings = Vec::new();
        let mut warn = |cause, text| warnings.push(ServerWarning { cause, text });
        let tokens = load.input_tokens + load.output_tokens;
        if let Some(most) = self.model.max_tokens.filter(|most| tokens > *most) {
            let text = format!(
                "{tokens} tokens of prompt and answer are more than the {most} that the model supports \
                 (`max_position_embeddings`)"
            );
            warn(WarningCause::MaxTokens, text);
        }
        if let Some(method) = self.model.quantisation.as_ref().filter(|_| self.formats.weights == Scheme::Bf16) {
            let text = format!(
                "the configuration states `{method}` weights, but this answer is for `bf16`; `--dtype` states another \
                 format"
            );
            warn(WarningCause::Quantisation, text);
        }
        if !self.model.uncounted_parts.is_empty() {
            let parts = self.model.uncounted_parts.join(", ");
            let text = format!("only the text model is counted, not its other inputs: {parts}");
            warn(WarningCause::UncountedParts, text);
        }
        let pools = match self.mode {
            ServingMode::Aggregated => &[self.decode][..],
            ServingMode::Disaggregated => &[self.prefill, self.decode],
        };
        let experts = self.model.experts.map_or(0, |layers| layers.experts);
        let placed = pools.iter().map(|pool| (pool.parallelism.expert, pool.parallelism.placed_experts(experts)));
        let copied: BTreeSet<(u64, u64)> = placed.filter(|(_, placed)| *placed > experts).collect();
        for (expert, placed) in copied {
            let text = format!(
                "expert parallelism {expert} does not divide {experts} experts; {placed} are assumed on all GPUs, some of \
                 them copies"
            );
            warn(WarningCause::ExpertCopies, text);
        }
        let groups = pools.iter().map(|pool| (pool.busy_groups(load), pool.parallelism.data));
        if let Some((busy, groups)) = groups.filter(|(busy, groups)| busy < groups).max_by_key(|(_, groups)| *groups) {
            let requests = match load.concurrency {
                1 => "1 request".to_owned(),
                count => format!("{count} requests"),
            };
            let text = format!(
                "a load of {requests} at once gives work to only {busy} of the {groups} groups of data parallelism"
            );
            warn(WarningCause::IdleGroups, text);
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::Architecture;
    use crate::device::find_device;
    use crate::plan::{Formats, Parallelism};
    use crate::scheme::Dtype;
    use crate::server::{Framework, ReplicaPool};

    #[test]
    fn copies_of_experts_are_stated_once() {
        let pool = |expert| {
            let parallelism = Parallelism { tensor: 1, expert, data: expert };
            ReplicaPool { parallelism, replicas: 1 }
        };
        let texts = |mode, prefill, decode| {
            let server = Deployment {
                model: Architecture::load_architecture("deepseek-v3").expect("a shipped model"),
                device: find_device("gb200").expect("a known device"),
                formats: Formats { weights: Scheme::Fp8Block, cache: Dtype::Fp8 },
                framework: Framework::Sglang,
                version: String::new(),
                mode,
                prefill: pool(prefill),
                decode: pool(decode),
            };
            let load = ServerLoad { concurrency: 1024, input_tokens: 1024, output_tokens: 1024 };
            let warnings = server.model_warnings(&load).into_iter();
            let copies = warnings.filter(|warning| warning.cause == WarningCause::ExpertCopies);
            copies.map(|warning| warning.text).collect::<Vec<_>>()
        };
        let (together, apart) = (ServingMode::Aggregated, ServingMode::Disaggregated);
        assert_eq!(texts(together, 64, 64), Vec::<String>::new());
        let text =
            "expert parallelism 72 does not divide 256 experts; 288 are assumed on all GPUs, some of them copies";
        assert_eq!(texts(together, 72, 72), [text]);
        assert_eq!(texts(apart, 72, 72), [text]);
        assert_eq!(texts(apart, 24, 72).len(), 2);
    }
}
