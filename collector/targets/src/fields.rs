//! Fields that a JSON description of a target may have. A description may be untrusted, and TVM's own fields can set
//! any LLVM option, so fields that the kind of target does not list are rejected.

use crate::KINDS;
use serde_json::Value;

#[derive(Clone, Copy, Debug)]
pub enum Form {
    Word,
    /// List of names, each with the prefix `+` or `-`.
    Switches,
    Words,
    /// A number that is not negative.
    Number,
    Flag,
}

pub fn parse_checked(text: &str) -> Result<Value, String> {
    let read: Value = serde_json::from_str(text).map_err(|error| format!("target `{text:.200}`: {error}"))?;
    let fields = read.as_object().ok_or_else(|| format!("target `{text:.200}` is not a JSON object"))?;
    let kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default();
    let described = KINDS.iter().filter(|kind| !kind.description_fields().is_empty());
    let Some(known) = described.clone().find(|known| known.code_name() == kind).map(|known| known.description_fields())
    else {
        let kinds: Vec<&str> = described.map(|kind| kind.code_name()).collect();
        return Err(format!("target `{text:.200}`: the field `kind` must be one of {}", kinds.join(", ")));
    };
    for (name, value) in fields.iter().filter(|(name, _)| *name != "kind") {
        let form = known.iter().find(|(known, _)| known == name).map(|(_, form)| *form);
        let Some(form) = form else {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            return Err(format!("unknown target field `{name:.60}`; fields of `{kind}`: {}", names.join(", ")));
        };
        if !fits_form(form, value) {
            return Err(format!("the target field `{name}` has the invalid value `{:.60}`", value.to_string()));
        }
    }
    Ok(read)
}

fn fits_form(form: Form, value: &Value) -> bool {
    let all = |is_one: fn(&str) -> bool| {
        value.as_array().is_some_and(|items| items.iter().all(|item| item.as_str().is_some_and(is_one)))
    };
    match form {
        Form::Word => value.as_str().is_some_and(is_word),
        Form::Words => value.as_str().is_some_and(is_word) || all(is_word),
        Form::Switches => all(|text| text.strip_prefix(['+', '-']).is_some_and(is_word)),
        Form::Number => value.as_i64().is_some_and(|number| number >= 0),
        Form::Flag => value.is_boolean() || value == 0 || value == 1,
    }
}

fn is_word(text: &str) -> bool {
    let is_sign = |sign: u8| sign.is_ascii_alphanumeric() || b"_.-+".contains(&sign);
    (1..=100).contains(&text.len()) && text.bytes().all(is_sign)
}

#[cfg(test)]
mod tests {
    use super::parse_checked;
    use expect_test::{Expect, expect};

    #[track_caller]
    fn check(text: &str, expected: Expect) {
        expected.assert_eq(&parse_checked(text).map_or_else(|why| why, |target| target.to_string()));
    }

    #[test]
    fn only_listed_fields_are_accepted() {
        check(
            r#"{"kind": "llvm", "mcpu": "znver5", "mattr": ["-prefer-256-bit", "+avx2"], "num-cores": 2}"#,
            expect![[r#"{"kind":"llvm","mattr":["-prefer-256-bit","+avx2"],"mcpu":"znver5","num-cores":2}"#]],
        );
        check(
            r#"{"kind": "cuda", "arch": ["sm_80", "sm_90"], "thread_warp_size": 32}"#,
            expect![[r#"{"arch":["sm_80","sm_90"],"kind":"cuda","thread_warp_size":32}"#]],
        );
        check(r#"{"kind": "opencl", "device": "mali"}"#, expect![[r#"{"device":"mali","kind":"opencl"}"#]]);
        check(
            r#"{"kind": "llvm", "cl-opt": ["-info-output-file:string=/tmp/x"]}"#,
            expect![
                "unknown target field `cl-opt`; fields of `llvm`: mcpu, mtriple, mattr, mfloat-abi, mabi, num-cores, \
                 opt-level, vector-width, fast-math, fast-math-nnan, fast-math-ninf, fast-math-nsz, fast-math-arcp, \
                 fast-math-contract, fast-math-reassoc"
            ],
        );
        check(
            r#"{"kind": "llvm", "mattr": ["avx2"]}"#,
            expect![[r#"the target field `mattr` has the invalid value `["avx2"]`"#]],
        );
        check(
            r#"{"kind": "llvm", "mcpu": "a b"}"#,
            expect![[r#"the target field `mcpu` has the invalid value `"a b"`"#]],
        );
        check(
            r#"{"kind": "cuda", "arch": "sm_90", "host": {"kind": "llvm"}}"#,
            expect![
                "unknown target field `host`; fields of `cuda`: arch, max_threads_per_block, \
                 max_shared_memory_per_block, thread_warp_size, registers_per_block"
            ],
        );
        check(
            r#"{"kind": "llvm", "num-cores": -1}"#,
            expect!["the target field `num-cores` has the invalid value `-1`"],
        );
        check(
            r#"{"kind": "c"}"#,
            expect![[r#"target `{"kind": "c"}`: the field `kind` must be one of llvm, cuda, opencl"#]],
        );
        check("llvm", expect!["target `llvm`: expected value at line 1 column 1"]);
        check("[]", expect!["target `[]` is not a JSON object"]);
    }
}
