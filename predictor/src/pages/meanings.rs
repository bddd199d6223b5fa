//! Meanings of features in words, for pages whose readers do not know the names.

use super::{break_name, escape};

/// Maximum number of letters in a line of a label next to a chart.
pub(super) const LABEL: usize = 42;

const MEANINGS: &[(&str, &str)] = &[
    ("threads", "number of threads"),
    ("flops", "number of operations"),
    ("bytes", "size of all operands"),
    ("intensity", "operations per byte"),
    ("rows", "rows of the result"),
    ("columns", "columns of the result"),
    ("depth", "products per element of the result"),
    ("attainable", "roofline time"),
    ("ridge", "arithmetic time over memory time"),
    ("bound_of_overhead", "roofline time over the overhead of a call"),
    ("row_in_pitch", "largest power of two that divides the distance of input rows in bytes"),
    ("schedule_known", "whether the schedule, its code, or only sizes are known"),
    ("code.bytes", "size of the machine code"),
    ("code.estimated", "time of the instructions by their cycles"),
    ("code.estimated_of_attainable", "time of the instructions by their cycles over the roofline time"),
    ("code.code_cycles", "estimated cycles of the instructions, relative to the work"),
    ("code.code_cycles_without_fmas", "estimated cycles in loops without multiply-adds, relative to the work"),
    ("code.code_gathers", "values loaded from scattered addresses, relative to the work"),
    ("code.code_fmas", "multiply-adds, relative to the work"),
    ("code.code_loads", "load instructions, relative to the work"),
    ("code.code_stores", "store instructions, relative to the work"),
    ("code.code_instructions", "instructions, relative to the work"),
    ("code.code_arithmetic", "arithmetic instructions, relative to the work"),
    ("code.code_integers", "integer instructions, relative to the work"),
    ("code.code_jumps", "jumps, relative to the work"),
    ("code.code_lanes", "results of the vector instructions, relative to the work"),
    ("code.code_loaded_bytes", "bytes that the code loads, relative to the work"),
    ("code.code_stored_bytes", "bytes that the code stores, relative to the work"),
    ("code.code_hot_share", "share of the loop with the most cycles"),
    ("code.code_hot_instructions", "instructions in the loop with the most cycles"),
    ("code.code_hot_turns", "trip count of the loop with the most cycles"),
    ("code.code_hot_fmas_in_chain", "longest chain of multiply-adds in the loop with the most cycles"),
    ("code.store_bytes", "bytes accessed, relative to the work"),
    ("code.store_lines", "cache lines accessed, relative to the work"),
    ("code.store_unique_bytes", "distinct bytes accessed, relative to the work"),
    ("code.store_unique_lines", "distinct cache lines accessed, relative to the work"),
    ("code.store_main_vectorized", "trip count of the vectorised loops"),
    ("code.store_main_unrolled", "trip count of the unrolled loops"),
    ("code.store_main_parallel", "trip count of the parallel loops"),
    ("nest.accumulators", "sums held in registers"),
    ("nest.lanes_used", "used share of the vector lanes"),
    ("nest.rows_used", "share of the rows of all tiles that is no padding"),
    ("nest.columns_used", "share of the columns of all tiles that is no padding"),
    ("nest.channels_used", "share of the channels of all tiles that is no padding"),
    ("nest.chunks", "number of parallel chunks"),
    ("nest.chunks_shared", "balance of the chunks among the threads"),
    ("nest.flops_per_chunk", "operations per parallel chunk"),
    ("nest.bytes_per_chunk", "bytes per parallel chunk"),
    ("nest.tiles", "number of tiles"),
    ("nest.weight_tile_of_near", "size of a tile's weights over that of the first-level cache"),
    ("nest.weight_tile_of_cache", "size of a tile's weights over that of the cache"),
    ("nest.input_tile_of_near", "size of a tile's input over that of the first-level cache"),
    ("nest.input_tile_of_cache", "size of a tile's input over that of the cache"),
];

/// Kinds of instructions in the names of shares.
const KINDS: &[(&str, &str)] = &[
    ("fma", "multiply-adds"),
    ("wide", "instructions on vectors of 64 bytes"),
    ("arithmetic", "arithmetic instructions"),
    ("shuffle", "shuffles"),
    ("load", "loads"),
    ("store", "stores"),
    ("spill", "spills of registers"),
    ("integer", "integer instructions"),
];

/// Arithmetic in the names of counts of statements.
const ARITHMETIC: &[(&str, &str)] = &[
    ("mads", "multiply-adds"),
    ("sums", "sums"),
    ("products", "products"),
    ("quotients", "quotients"),
    ("comparisons", "comparisons"),
    ("functions", "mathematical functions"),
    ("calls", "calls"),
];

/// Properties of the most accessed buffers of the statement with most work.
const BUFFERS: &[(&str, &str)] = &[
    ("bytes", "bytes"),
    ("unique_bytes", "distinct bytes"),
    ("lines", "cache lines"),
    ("unique_lines", "distinct cache lines"),
    ("reuse_steps", "iterations until a reuse"),
    ("reuse_bytes", "bytes until a reuse"),
    ("reuses", "reuses"),
    ("stride", "stride"),
];

/// Returns the meaning of a feature of the program before it is compiled, without its prefix.
fn meaning_of_statements(name: &str) -> Option<String> {
    let find = |known: &[(&str, &'static str)], wanted: &str| {
        known.iter().find(|(name, _)| *name == wanted).map(|(_, meaning)| *meaning)
    };
    if let Some((number, property)) = name.strip_prefix("main_buffer_").and_then(|rest| rest.split_once('_')) {
        let place = ["most", "second most", "third most"].get(number.parse::<usize>().ok()?)?;
        return Some(format!("{} in the {place} used buffer, relative to the work", find(BUFFERS, property)?));
    }
    let (kind, operation) = name.split_once('_')?;
    let kind = find(&[("float", "floating-point"), ("integer", "integer")], kind)?;
    Some(format!("{kind} {}, relative to the work", find(ARITHMETIC, operation)?))
}

/// Returns the meaning of a feature, if its name is a known one.
pub(super) fn meaning_of(name: &str) -> Option<String> {
    if let Some((_, meaning)) = MEANINGS.iter().find(|(known, _)| *known == name) {
        return Some((*meaning).to_owned());
    }
    if let Some(knob) = name.strip_prefix("knob.") {
        return Some(format!("setting {knob} of the schedule"));
    }
    if let Some(name) = name.strip_prefix("code.store_") {
        return meaning_of_statements(name);
    }
    let kind = name.strip_prefix("code.code_hot_")?.strip_suffix("_share")?;
    let (_, kind) = KINDS.iter().find(|(known, _)| *known == kind)?;
    Some(format!("share of {kind} in the loop with the most cycles"))
}

/// Returns the meaning of a feature in running text, with its name in brackets; only the name if its meaning is unknown.
pub(super) fn meaning_with_name(name: &str) -> String {
    match meaning_of(name) {
        Some(meaning) => format!("{} [{}]", escape(&meaning), break_name(name)),
        None => break_name(name),
    }
}

/// Returns the meaning of a feature, with its name as a title; only the name if its meaning is unknown.
pub(super) fn meaning_or_name(name: &str) -> String {
    match meaning_of(name) {
        Some(meaning) => format!("<span title=\"{}\">{}</span>", escape(name), escape(&meaning)),
        None => break_name(name),
    }
}

/// Returns the meaning of a feature for a cell of a table, with its name in a second line.
pub(super) fn name_cell(name: &str) -> String {
    match meaning_of(name) {
        Some(meaning) => format!("{}<br><small>{}</small>", escape(&meaning), break_name(name)),
        None => break_name(name),
    }
}

/// Returns the meaning of a feature, or its name, as lines of at most `letters` letters if its words allow that.
pub(super) fn label_lines(name: &str, letters: usize) -> Vec<String> {
    let text = meaning_of(name).unwrap_or_else(|| name.to_owned());
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= letters => *line += &format!(" {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Explains the groups of names.
pub(super) fn explain_names() -> &'static str {
    "<p class=\"soft\">Names: <b>code.…</b>: counts in the generated code, of which <b>code.store_…</b> are those of the \
     program before it is compiled; <b>nest.…</b>: loop nest of the schedule; <b>knob.…</b>: setting of the schedule. \
     Sizes, times and their ratios are binary logarithms. <code>oppredict features</code> lists the features of \
     operators with their units.</p>"
}

#[cfg(test)]
mod tests {
    use super::{BUFFERS, MEANINGS, label_lines, meaning_of, meaning_or_name, meaning_with_name, name_cell};

    #[test]
    fn names_have_meanings() {
        let shares = meaning_of("code.code_hot_fma_share");
        assert_eq!(shares.as_deref(), Some("share of multiply-adds in the loop with the most cycles"));
        assert_eq!(meaning_of("knob.tile_x").as_deref(), Some("setting tile_x of the schedule"));
        assert_eq!(meaning_of("code.code_hot_share").as_deref(), Some("share of the loop with the most cycles"));
        let buffer = meaning_of("code.store_main_buffer_0_unique_lines");
        let wanted = "distinct cache lines in the most used buffer, relative to the work";
        assert_eq!(buffer.as_deref(), Some(wanted));
        let integers = meaning_of("code.store_integer_comparisons");
        assert_eq!(integers.as_deref(), Some("integer comparisons, relative to the work"));
        for name in ["code.code_hot_share_share", "code.store_main_buffer_9_bytes", "code.store_float_x", "x"] {
            assert_eq!(meaning_of(name), None);
        }
        assert_eq!(name_cell("<x>"), "&lt;x&gt;");
        assert_eq!(name_cell("code.bytes"), "size of the machine code<br><small>code.<wbr>bytes</small>");
        assert_eq!(meaning_with_name("code.bytes"), "size of the machine code [code.<wbr>bytes]");
        assert_eq!(meaning_or_name("code.bytes"), "<span title=\"code.bytes\">size of the machine code</span>");
        assert_eq!([meaning_with_name("x"), meaning_or_name("x")], ["x", "x"]);
    }

    #[test]
    fn only_features_have_meanings() {
        use crate::exchange::LAST_FEATURE;
        use samples::features::{FEATURES, KNOWN};
        let of_operators = MEANINGS.iter().map(|(name, _)| *name).filter(|name| !name.contains('.'));
        for name in of_operators {
            assert!(
                [KNOWN, LAST_FEATURE].contains(&name) || FEATURES.iter().any(|feature| feature.name == name),
                "{name}"
            );
        }
    }

    #[test]
    fn labels_have_two_lines_at_most() {
        assert_eq!(label_lines("code.bytes", 12), ["size of the", "machine code"]);
        assert_eq!(label_lines("an_unknown_name", 3), ["an_unknown_name"]);
        let buffers = BUFFERS.iter().map(|(name, _)| format!("code.store_main_buffer_1_{name}"));
        for name in MEANINGS.iter().map(|(name, _)| (*name).to_owned()).chain(buffers) {
            assert!(label_lines(&name, super::LABEL).len() <= 2, "{name}");
        }
    }
}
