//! Textual form of kernels, such as `gemm:m=4096,n=4096,k=4096,dtype=fp8`.

use crate::error::{Error, Result};
use crate::kernel::{Decode, Distribution, Experts, GATED_MATRICES, Gemm, Kernel, Prefill};
use crate::scheme::{Dtype, Scheme};
use models::{Choice, names};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

pub const OPERATORS: [&str; 4] = ["gemm", "attention_prefill", "attention_decode", "moe"];

const MAX_SIZE: u64 = 1 << 32;

struct Values<'a>(BTreeMap<&'a str, &'a str>);

type Parsed<T> = std::result::Result<T, String>;

impl<'a> Values<'a> {
    fn split_values(text: &'a str) -> Parsed<Values<'a>> {
        let mut values = BTreeMap::new();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("`{part}` has no `=`"))?;
            if values.insert(name.trim(), value.trim()).is_some() {
                return Err(format!("`{}` is given twice", name.trim()));
            }
        }
        Ok(Values(values))
    }

    fn take_size(&mut self, name: &str) -> Parsed<u64> {
        self.size_or_none(name)?.ok_or_else(|| format!("`{name}` is missing"))
    }

    fn size_or(&mut self, name: &str, default: u64) -> Parsed<u64> {
        Ok(self.size_or_none(name)?.unwrap_or(default))
    }

    fn size_or_none(&mut self, name: &str) -> Parsed<Option<u64>> {
        let Some(text) = self.0.remove(name) else { return Ok(None) };
        let size = text.parse().ok().filter(|size| (1..=MAX_SIZE).contains(size));
        size.map(Some).ok_or_else(|| format!("`{name}` is `{text}`; give a whole number from 1 to {MAX_SIZE}"))
    }

    fn take_choice<T: Choice>(&mut self, name: &str) -> Parsed<Option<T>> {
        let Some(text) = self.0.remove(name) else { return Ok(None) };
        T::from_name(text).map(Some).ok_or_else(|| format!("`{name}` is `{text}`; {}", T::name_hint(text)))
    }

    fn take_distribution(&mut self) -> Parsed<Distribution> {
        let Some(text) = self.0.remove("distribution") else { return Ok(Distribution::Balanced) };
        text.parse()
    }

    fn reject_unused(self, operator: &str) -> Parsed<()> {
        let known = words_of(operator).unwrap_or_default();
        match self.0.keys().next() {
            Some(other) => Err(format!("unknown size `{other}`; {}", names::name_hint(other, known.iter().copied()))),
            None => Ok(()),
        }
    }
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Parsed<Distribution> {
        if text == "balanced" || text == "uniform" {
            return Ok(Distribution::Balanced);
        }
        let power = text.strip_prefix("power_law_").and_then(|power| power.parse::<f64>().ok());
        power
            .filter(|power| (0.0..=10.0).contains(power))
            .map(Distribution::PowerLaw)
            .ok_or_else(|| format!("`distribution` is `{text}`; give `balanced` or a power such as `power_law_1.2`"))
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distribution::Balanced => f.write_str("balanced"),
            Distribution::PowerLaw(power) => write!(f, "power_law_{power}"),
        }
    }
}

pub fn is_kernel(text: &str) -> bool {
    text.split_once(':').is_some_and(|(operator, _)| OPERATORS.contains(&operator.trim()))
}

impl FromStr for Kernel {
    type Err = Error;

    fn from_str(text: &str) -> Result<Kernel> {
        parse_kernel(text).map_err(|problem| Error::Text { text: text.to_owned(), problem })
    }
}

fn parse_kernel(text: &str) -> Parsed<Kernel> {
    let (operator, values) = text.split_once(':').ok_or("expected the operator, `:` and its sizes")?;
    let mut values = Values::split_values(values)?;
    match operator.trim() {
        "gemm" => parse_gemm(values),
        "attention_prefill" => {
            let (batch, new_tokens) = (values.take_size("batch")?, values.take_size("new_tokens")?);
            let past = match values.0.get("past").copied() {
                Some("0") => values.0.remove("past").map_or(0, |_| 0),
                _ => values.size_or("past", 0)?,
            };
            let Heads { heads, kv_heads, head_dim, window, dtype, cache_dtype } = Heads::take_heads(&mut values)?;
            values.reject_unused("attention_prefill")?;
            Ok(Kernel::Prefill(Prefill {
                batch,
                new_tokens,
                past,
                heads,
                kv_heads,
                head_dim,
                window,
                dtype,
                cache_dtype,
            }))
        }
        "attention_decode" => {
            let (batch, context) = (values.take_size("batch")?, values.take_size("context")?);
            let Heads { heads, kv_heads, head_dim, window, dtype, cache_dtype } = Heads::take_heads(&mut values)?;
            values.reject_unused("attention_decode")?;
            Ok(Kernel::Decode(Decode { batch, context, heads, kv_heads, head_dim, window, dtype, cache_dtype }))
        }
        "moe" => parse_experts(values),
        other => Err(format!("unknown operator `{other}`; {}", names::name_hint(other, OPERATORS))),
    }
}

pub(crate) fn words_of(operator: &str) -> Option<&'static [&'static str]> {
    Some(match operator {
        "gemm" => &["m", "n", "k", "dtype"],
        "attention_prefill" => {
            &["batch", "new_tokens", "past", "heads", "kv_heads", "head_dim", "window", "dtype", "cache_dtype"]
        }
        "attention_decode" => &["batch", "context", "heads", "kv_heads", "head_dim", "window", "dtype", "cache_dtype"],
        "moe" => &[
            "tokens",
            "hidden",
            "intermediate",
            "experts",
            "top_k",
            "tensor_parallel",
            "expert_parallel",
            "matrices",
            "distribution",
            "dtype",
        ],
        _ => return None,
    })
}

fn parse_gemm(mut values: Values<'_>) -> Parsed<Kernel> {
    let (m, n, k) = (values.take_size("m")?, values.take_size("n")?, values.take_size("k")?);
    let scheme = values.take_choice("dtype")?.unwrap_or(Scheme::Bf16);
    values.reject_unused("gemm")?;
    Ok(Kernel::Gemm(Gemm { m, n, k, scheme }))
}

struct Heads {
    heads: u64,
    kv_heads: u64,
    head_dim: u64,
    window: Option<u64>,
    dtype: Dtype,
    cache_dtype: Dtype,
}

impl Heads {
    fn take_heads(values: &mut Values<'_>) -> Parsed<Heads> {
        let heads = values.take_size("heads")?;
        let kv_heads = values.size_or("kv_heads", heads)?;
        if heads % kv_heads != 0 {
            return Err(format!("{heads} heads cannot share {kv_heads} key-value heads equally"));
        }
        let dtype = values.take_choice("dtype")?.unwrap_or(Dtype::Bf16);
        if dtype == Dtype::Int8 {
            return Err("attention is not computed in `int8`; give `bf16`, `fp8` or `fp4`".to_owned());
        }
        Ok(Heads {
            heads,
            kv_heads,
            head_dim: values.take_size("head_dim")?,
            window: values.size_or_none("window")?,
            dtype,
            cache_dtype: values.take_choice("cache_dtype")?.unwrap_or(dtype),
        })
    }
}

fn parse_experts(mut values: Values<'_>) -> Parsed<Kernel> {
    let experts = Experts {
        tokens: values.take_size("tokens")?,
        hidden: values.take_size("hidden")?,
        intermediate: values.take_size("intermediate")?,
        experts: values.take_size("experts")?,
        top_k: values.take_size("top_k")?,
        tensor_parallel: values.size_or("tensor_parallel", 1)?,
        expert_parallel: values.size_or("expert_parallel", 1)?,
        matrices: values.size_or("matrices", GATED_MATRICES)?,
        distribution: values.take_distribution()?,
        scheme: values.take_choice("dtype")?.unwrap_or(Scheme::Bf16),
    };
    values.reject_unused("moe")?;
    experts.check_sizes()?;
    experts.check_division()?;
    Ok(Kernel::Experts(experts))
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.operator_name())?;
        match self {
            Kernel::Gemm(Gemm { m, n, k, scheme }) => write!(f, "m={m},n={n},k={k},dtype={}", scheme.name()),
            Kernel::Prefill(of) => {
                write!(f, "batch={},new_tokens={},", of.batch, of.new_tokens)?;
                if of.past > 0 {
                    write!(f, "past={},", of.past)?;
                }
                write!(f, "heads={},kv_heads={},head_dim={}", of.heads, of.kv_heads, of.head_dim)?;
                write_formats(f, of.window, of.dtype, of.cache_dtype)
            }
            Kernel::Decode(of) => {
                write!(f, "batch={},context={},", of.batch, of.context)?;
                write!(f, "heads={},kv_heads={},head_dim={}", of.heads, of.kv_heads, of.head_dim)?;
                write_formats(f, of.window, of.dtype, of.cache_dtype)
            }
            Kernel::Experts(of) => {
                write!(
                    f,
                    "tokens={},hidden={},intermediate={},experts={},top_k={},tensor_parallel={},expert_parallel={},distribution={},dtype={}",
                    of.tokens,
                    of.hidden,
                    of.intermediate,
                    of.experts,
                    of.top_k,
                    of.tensor_parallel,
                    of.expert_parallel,
                    of.distribution,
                    of.scheme.name()
                )?;
                if of.matrices == GATED_MATRICES { Ok(()) } else { write!(f, ",matrices={}", of.matrices) }
            }
        }
    }
}

fn write_formats(f: &mut fmt::Formatter<'_>, window: Option<u64>, dtype: Dtype, cache: Dtype) -> fmt::Result {
    if let Some(window) = window {
        write!(f, ",window={window}")?;
    }
    write!(f, ",dtype={}", dtype.name())?;
    if cache == dtype { Ok(()) } else { write!(f, ",cache_dtype={}", cache.name()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written_alike() {
        for text in [
            "gemm:m=4096,n=4096,k=4096,dtype=fp8",
            "attention_decode:batch=32,context=4096,heads=64,kv_heads=8,head_dim=128,dtype=bf16",
            "attention_decode:batch=1,context=9,heads=8,kv_heads=8,head_dim=64,window=128,dtype=bf16,cache_dtype=fp8",
            "attention_prefill:batch=2,new_tokens=512,heads=32,kv_heads=8,head_dim=128,dtype=bf16",
            "attention_prefill:batch=2,new_tokens=512,past=64,heads=32,kv_heads=8,head_dim=128,dtype=bf16",
            "moe:tokens=64,hidden=4096,intermediate=1536,experts=128,top_k=8,tensor_parallel=2,expert_parallel=4,distribution=power_law_1.2,dtype=nvfp4",
            "moe:tokens=4,hidden=8,intermediate=8,experts=8,top_k=2,tensor_parallel=1,expert_parallel=1,distribution=balanced,dtype=bf16,matrices=2",
        ] {
            assert_eq!(text.parse::<Kernel>().map(|kernel| kernel.to_string()).as_deref(), Ok(text));
        }
        let short: Kernel = "gemm:m=1,n=2,k=3".parse().expect("a kernel");
        assert_eq!(short.to_string(), "gemm:m=1,n=2,k=3,dtype=bf16");
    }

    #[test]
    fn wrong_texts_are_refused_with_a_reason() {
        for (text, reason) in [
            ("gem:m=1", "unknown operator `gem`; did you mean `gemm`?"),
            ("gemm:m=1,n=2", "`k` is missing"),
            ("gemm:m=0,n=2,k=3", "`m` is `0`; give a whole number from 1"),
            ("gemm:m=1,n=2,k=3,dtype=fp9", "`dtype` is `fp9`; did you mean `fp8`"),
            ("gemm:m=1,n=2,k=3,kk=1", "unknown size `kk`; did you mean `k`"),
            ("gemm:m=1,m=2", "`m` is given twice"),
            ("attention_decode:batch=1,context=1,heads=6,kv_heads=4,head_dim=64", "cannot share 4 key-value heads"),
            ("moe:tokens=1,hidden=1,intermediate=1,experts=4,top_k=8", "`top_k` is 8, but the layer has 4 experts"),
            (
                "moe:tokens=1,hidden=1,intermediate=1,experts=4000000000,top_k=8",
                "`experts` is 4000000000; give at most",
            ),
            ("moe:tokens=1,hidden=1,intermediate=1,experts=4,top_k=1,matrices=4", "give 3 for experts with a gate"),
            (
                "moe:tokens=1,hidden=1,intermediate=1,experts=8,top_k=1,expert_parallel=3",
                "`expert_parallel` is 3, which does not divide 8 experts",
            ),
            (
                "moe:tokens=1,hidden=1,intermediate=64,experts=8,top_k=1,tensor_parallel=128",
                "`tensor_parallel` is 128, more than the width of an expert, 64",
            ),
            ("attention_decode:batch=1,context=1,heads=4,head_dim=64,dtype=int8", "give `bf16`, `fp8` or `fp4`"),
        ] {
            let error = text.parse::<Kernel>().expect_err(text).to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
