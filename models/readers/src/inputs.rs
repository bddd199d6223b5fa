//! Texts of flags that state the shapes and the values of a model's inputs. Names may contain any character.

/// Parses a shape such as `x=1x3x224x224`.
pub fn parse_shape(text: &str) -> Result<(String, Vec<i64>), String> {
    let parsed = text.rsplit_once('=').and_then(|(name, extents)| {
        let extents = extents.split('x').filter(|extent| !extent.is_empty());
        Some((name.to_owned(), extents.map(|extent| extent.parse().ok()).collect::<Option<Vec<i64>>>()?))
    });
    parsed.ok_or_else(|| format!("`--shape {text}` is not a name and a shape; write it as `x=1x3x224x224`"))
}

/// Parses values such as `sr=16000` or `size=2,3`.
pub fn parse_binding(text: &str) -> Result<(String, Vec<f64>), String> {
    let number = |text: &str| match text.trim() {
        "true" => Some(1.0),
        "false" => Some(0.0),
        number => number.parse().ok().filter(|number: &f64| number.is_finite()),
    };
    let parsed = text.rsplit_once('=').and_then(|(name, numbers)| {
        Some((name.to_owned(), numbers.split(',').map(number).collect::<Option<Vec<f64>>>()?))
    });
    parsed.ok_or_else(|| format!("`--bind {text}` is not a name and numbers; write it as `sr=16000` or `size=2,3`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_and_values_follow_the_last_equals_sign() {
        assert_eq!(parse_shape("x=1x3x8"), Ok(("x".to_owned(), vec![1, 3, 8])));
        assert_eq!(parse_shape("a=b:i64=2"), Ok(("a=b:i64".to_owned(), vec![2])));
        assert_eq!(parse_shape("scalar="), Ok(("scalar".to_owned(), vec![])));
        assert!(parse_shape("x").is_err_and(|problem| problem.contains("x=1x3x224x224")));
        assert!(parse_shape("x=1xN").is_err());
        assert_eq!(parse_binding("sizes=2, 3"), Ok(("sizes".to_owned(), vec![2.0, 3.0])));
        assert_eq!(parse_binding("flag=true"), Ok(("flag".to_owned(), vec![1.0])));
        assert!(parse_binding("sr=inf").is_err_and(|problem| problem.contains("sr=16000")));
    }
}
