//! Command-line flags whose values are chosen by name.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use models::Choice;

/// Returns the parser of a flag whose values are chosen by name; help texts list them.
pub fn choice_parser<T: Choice + Send + Sync>() -> impl TypedValueParser<Value = T> {
    let values =
        T::ALL.iter().map(|choice| PossibleValue::new(choice.name()).aliases(choice.aliases()).help(choice.help()));
    PossibleValuesParser::new(values).try_map(|name| T::from_name(&name).ok_or("there is no such value"))
}
