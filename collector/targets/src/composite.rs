//! Composite targets, such as `cpu-vendor, llvm`: partner libraries, then the target of generated code.

use models::partner::{PARTNERS, Partner, find_partner};

#[derive(Clone, Debug, PartialEq)]
pub struct Composite {
    /// Partner libraries in order of priority; each takes the operators that it supports.
    pub partners: Vec<&'static Partner>,
    pub rest: String,
}

pub fn parse_composite(text: &str) -> Result<Composite, String> {
    let (mut partners, mut rest) = (Vec::new(), text.trim());
    // A JSON description has commas of its own, and comes last.
    while let Some((name, after)) = rest.split_once(',').filter(|(name, _)| !name.contains(['{', '"'])) {
        let Some(found) = find_partner(name.trim()) else {
            let names: Vec<&str> = PARTNERS.iter().map(|partner| partner.name).collect();
            return Err(format!(
                "`{}` in target `{text}` is not a partner library; known partner libraries: {}",
                name.trim(),
                names.join(", ")
            ));
        };
        partners.push(found);
        rest = after.trim();
    }
    if let Some(partner) = find_partner(rest) {
        return Err(format!(
            "target `{text}` ends with the partner library `{}`; add the target of the remaining operators",
            partner.name
        ));
    }
    Ok(Composite { partners, rest: rest.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::parse_composite;

    #[test]
    fn partners_come_first() {
        let parts = |text: &str| {
            parse_composite(text)
                .map(|found| (found.partners.iter().map(|partner| partner.name).collect::<Vec<_>>(), found.rest))
        };
        assert_eq!(parts("llvm"), Ok((vec![], "llvm".to_owned())));
        assert_eq!(parts("cpu-vendor, llvm"), Ok((vec!["cpu-vendor"], "llvm".to_owned())));
        let json = r#"{"kind": "llvm", "mcpu": "haswell"}"#;
        assert_eq!(parts(json), Ok((vec![], json.to_owned())));
        assert_eq!(parts(&format!("cpu-vendor,{json}")), Ok((vec!["cpu-vendor"], json.to_owned())));
        assert_eq!(
            parts("bnns, llvm").unwrap_err(),
            "`bnns` in target `bnns, llvm` is not a partner library; known partner libraries: cpu-vendor"
        );
        assert!(parts("cpu-vendor").unwrap_err().contains("add the target of the remaining operators"));
    }
}
