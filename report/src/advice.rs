//! Hints for errors whose origin cannot give one: errors of the system, of readers, and of the command line.

/// Substrings that an error must all contain, and the hint for it.
type Advice = (&'static [&'static str], &'static str);

const FILES: [Advice; 16] = [
    (&["`: no such file"], "check the path; relative paths start in the working folder"),
    (&["cannot read `", "(os error 2)"], "check the path; relative paths start in the working folder"),
    (&["cannot read the trace `", "(os error 2)"], "check the path; relative paths start in the working folder"),
    (&["cannot open `", "(os error 2)"], "check the path; relative paths start in the working folder"),
    (&["cannot write `", "(os error 2)"], "create the folder first; relative paths start in the working folder"),
    (&["creating `", "(os error 2)"], "choose another folder, or create its parent first"),
    (&["(os error 13)"], "choose another path, or check the permissions of this one"),
    (&["(os error 20)"], "give the path of a folder, not of a file"),
    (&["(os error 21)"], "give the path of a file, not of a folder"),
    (&["is not a configuration"], "compare it with the examples in `configs/`"),
    (&["is not a mapping of operators"], "compare it with `configs/gpu-ops.toml`"),
    (&["is not a mapping of thread counts"], "compare it with `configs/mappings/ncnn-threads.toml`"),
    (&["is not a mapping of language-model kernels"], "compare it with `configs/mappings/aiconfigurator.toml`"),
    (&["is not a Perfetto trace"], "convert other traces with `opcollect trace convert`"),
    (&["cannot use the predictor", "not a predictor file of this program"], "give a file that `oppredict train` wrote"),
    (&["cannot listen on `"], "give an address and a port, such as `--address 127.0.0.1:8177`"),
];

const USAGE: [Advice; 6] = [
    (&["invalid value '-", "invalid digit found in string"], "give a whole number of at least 0"),
    (&["invalid digit found in string"], "give a whole number"),
    (&["number too large"], "give a smaller whole number"),
    (&["invalid float literal"], "give a number, such as 0.5"),
    (&["a value is required for"], "write the value after the flag"),
    (&["unexpected value '", "no more were expected"], "remove the value: this flag takes none"),
];

const NEGATIVE: &str = "negative numbers are not accepted here; give 0 or more";

/// Returns a hint for an error that has none.
pub fn error_hint(text: &str) -> Option<String> {
    if ["hint:", "did you mean", "for example", "known: ", "`opcollect list`"]
        .iter()
        .any(|phrase| text.contains(phrase))
    {
        return None;
    }
    find_hint(&FILES, text).map(str::to_owned).or_else(|| model_hint(text))
}

fn model_hint(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("cannot use model `")?;
    let name = rest.split('`').next()?;
    let is_file = [".onnx", ".pt2", ".pt", ".tflite"].iter().any(|ending| name.ends_with(ending));
    // These errors say themselves what is missing, and another file would not help.
    let names_remedy = ["--", "not supported", "unsupported", "the inputs are", "not a regular file"];
    match name.split_once(':') {
        _ if is_file && names_remedy.iter().any(|phrase| text.contains(phrase)) => None,
        _ if is_file => Some("export the model again, or specify its format with `--modelsource`".to_owned()),
        Some(_) => Some("change the values after the colon".to_owned()),
        None => None,
    }
}

/// Returns a hint for a printed command-line error, unless the error already has one.
pub fn usage_hint(text: &str) -> Option<String> {
    if text.contains("similar") || text.contains("possible values") {
        return None;
    }
    let is_negative = text
        .split_once("unexpected argument '-")
        .is_some_and(|(_, rest)| rest.starts_with(|first: char| first.is_ascii_digit()));
    if is_negative {
        return Some(NEGATIVE.to_owned());
    }
    let of_value = find_hint(&USAGE, text).map(str::to_owned);
    let is_unknown = text.contains("unexpected argument") || text.contains("unrecognized subcommand");
    of_value.or_else(|| is_unknown.then(|| format!("`{} --help` lists its commands and options", usage_command(text))))
}

/// Returns the words before the first flag or value of a usage line.
fn usage_command(text: &str) -> String {
    let usage = text.split_once("Usage: ").map_or("", |(_, usage)| usage.lines().next().unwrap_or_default());
    let words = usage.split(' ').take_while(|word| !word.starts_with(['[', '<', '-']));
    words.collect::<Vec<_>>().join(" ")
}

fn find_hint(table: &[Advice], text: &str) -> Option<&'static str> {
    let has_all = |(words, _): &&Advice| words.iter().all(|word| text.contains(word));
    table.iter().find(has_all).map(|(_, hint)| *hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_files_and_models_get_a_hint() {
        for (error, hint) in [
            ("error: cannot read `x`: No such file or directory (os error 2)", "check the path"),
            ("error: cannot write `a/x`: No such file or directory (os error 2)", "create the folder first"),
            ("error: cannot use model `x.json`: no such file", "check the path"),
            (
                "error: `x.toml` is not a mapping of operators and devices: expected `.`, `=`",
                "compare it with `configs/",
            ),
            ("error: cannot read `x`: Is a directory (os error 21)", "give the path of a file"),
            ("error: failed while listing `x`: Not a directory (os error 20)", "give the path of a folder"),
            ("error: cannot use the predictor `x`: not a predictor file of this program", "give a file that"),
            ("error: cannot use model `x.onnx`: it holds no graph", "export the model again"),
            ("error: cannot use model `conv2d:k=99`: no fit", "change the values after the colon"),
        ] {
            let found = error_hint(error).unwrap_or_else(|| panic!("no hint for {error}"));
            assert!(found.starts_with(hint), "{found}");
            assert_eq!(error_hint(&format!("{error}\nhint: other")), None);
        }
        let inputs = "error: cannot use model `x.onnx`: the model has no such input; the inputs are `x`";
        assert_eq!(error_hint(inputs), None);
        assert_eq!(error_hint("error: cannot start `cc`: (os error 2)"), None);
        assert_eq!(error_hint("error: cannot use model `relu:x=3`: unknown key `x`; known: `dtype`, `shape`"), None);
    }

    #[test]
    fn errors_of_the_command_line_get_a_hint() {
        let usage = "\n\nUsage: opcollect dataset [OPTIONS] <COMMAND>\n\nFor more information, try '--help'.\n";
        let of = |text: &str| usage_hint(&format!("error: {text}{usage}"));
        assert_eq!(
            of("unrecognized subcommand 'x'").as_deref(),
            Some("`opcollect dataset --help` lists its commands and options")
        );
        assert_eq!(of("unexpected argument '-1' found\n\n  tip: to pass '-1'").as_deref(), Some(NEGATIVE));
        for (value, hint) in [("x", "give a whole number"), ("-1", "give a whole number of at least 0")] {
            let error = format!("invalid value '{value}' for '--n <N>': invalid digit found in string");
            assert_eq!(of(&error).as_deref(), Some(hint));
        }
        assert_eq!(of("unexpected argument '--modle' found\n\n  tip: a similar argument exists: '--model'"), None);
        assert_eq!(of("the following required arguments were not provided:\n  --data <PATH>"), None);
    }
}
