//! Partners: libraries that can compute groups of operators in place of the compiler, with the patterns that each
//! supports. A composite target such as `cpu-vendor, llvm` names partners first. The crate `passes` tries partners in
//! the order of the target, and a partner's patterns in the order of its table, which lists the largest first.

/// A library that computes operators or groups of operators.
#[derive(Debug, PartialEq, Eq)]
pub struct Partner {
    /// Name of the library in a composite target, such as `cpu-vendor` in `cpu-vendor, llvm`.
    pub name: &'static str,
    /// Description of the library.
    pub what: &'static str,
    /// Patterns of operators that the library computes as one task, in the notation of `passes::pattern`.
    pub patterns: &'static [&'static str],
}

/// Name of the vendor's CPU operator library.
pub const CPU_VENDOR: &str = "cpu-vendor";

/// All partners that a target may name.
pub const PARTNERS: &[Partner] = &[Partner {
    name: CPU_VENDOR,
    what: "a vendor's library of CPU operators, such as oneDNN",
    patterns: &[
        "relu?(add(bias_add?(conv(x, #w), #b), residual))",
        "relu/clip/sigmoid/tanh/hard_swish?(bias_add?(conv/conv_transpose(x, #w), #b))",
        "relu/clip/sigmoid/tanh/gelu/gelu_tanh?(bias_add?(dense(x, #w), #b))",
        "requantize(bias_add?(q_conv/q_dense(x, #w), #b), #multiplier)",
        "mat_mul(a, b)",
        "attention(q, k, v, ..)",
        "pool(x)",
        "global_pool(x)",
        "softmax(x)",
        "layer_norm(x, #scale, #shift)",
        "batch_norm(x, ..)",
    ],
}];

/// Returns the partner with this name, or None if there is none.
pub fn find_partner(name: &str) -> Option<&'static Partner> {
    PARTNERS.iter().find(|partner| partner.name == name)
}
