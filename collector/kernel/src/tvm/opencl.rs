//! Fixes TVM's OpenCL C: renames C's single-precision functions (`expf`) to OpenCL's overloaded functions (`exp`).

/// Functions that OpenCL C overloads by floating-point width, while C has a separate name for each width.
const FUNCTIONS: [&str; 30] = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "ceil",
    "copysign",
    "cos",
    "cosh",
    "erf",
    "exp",
    "exp2",
    "exp10",
    "fabs",
    "floor",
    "fmod",
    "hypot",
    "log",
    "log10",
    "log1p",
    "log2",
    "nextafter",
    "pow",
    "rint",
    "sin",
    "sinh",
    "tan",
    "trunc",
];

pub(super) fn with_own_functions(source: &str) -> String {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut own = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(begin) = rest.bytes().position(is_word) {
        let (before, word_on) = rest.split_at(begin);
        let end = word_on.bytes().position(|byte| !is_word(byte)).unwrap_or(word_on.len());
        let (word, after) = word_on.split_at(end);
        let plain = word.strip_suffix('f').filter(|plain| after.starts_with('(') && FUNCTIONS.contains(plain));
        own.push_str(before);
        own.push_str(plain.unwrap_or(word));
        rest = after;
    }
    own + rest
}

#[cfg(test)]
mod tests {
    use super::with_own_functions;

    #[test]
    fn calls_are_renamed_and_nothing_else() {
        let source = "tanf_ptr[0] = tanf(asinhf(x)) + myexpf(y) + erff (z) + tanf;";
        assert_eq!(with_own_functions(source), "tanf_ptr[0] = tan(asinh(x)) + myexpf(y) + erff (z) + tanf;");
        assert_eq!(with_own_functions(""), "");
    }
}
