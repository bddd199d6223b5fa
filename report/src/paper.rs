//! The output medium: its width, and whether it supports colours.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::fd::AsFd;

const WITHOUT_TERMINAL: usize = 180;
const NARROWEST: usize = 20;

/// Choice of whether output is coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColorChoice {
    /// Colours if the output is a terminal and `NO_COLOR` is not set.
    #[default]
    Auto,
    /// Colours in every output.
    Always,
    /// No colours in any output.
    Never,
}

impl ColorChoice {
    /// Allowed values of `--color`.
    pub const NAMES: [&'static str; 3] = ["auto", "always", "never"];

    /// Returns the choice for a value of `--color`.
    pub fn from_name(name: &str) -> Option<ColorChoice> {
        match name {
            "auto" => Some(ColorChoice::Auto),
            "always" => Some(ColorChoice::Always),
            "never" => Some(ColorChoice::Never),
            _ => None,
        }
    }
}

/// The width and colour support of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paper {
    /// Width in characters.
    pub width: usize,
    /// Whether colours may be used.
    pub has_colours: bool,
}

impl Paper {
    /// Returns a medium without colours.
    pub fn without_colours(width: usize) -> Paper {
        Paper { width, has_colours: false }
    }

    /// Returns the properties of an output stream. Respects `COLUMNS` and <https://no-color.org>; by default, only a
    /// terminal that is not `dumb` has colours.
    pub fn for_stream(
        stream: &(impl AsFd + IsTerminal),
        colours: ColorChoice,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Paper {
        let is_terminal = stream.is_terminal();
        let of_terminal = || terminal_size::terminal_size_of(stream).map(|(width, _)| usize::from(width.0));
        let paper = Paper::from_facts(is_terminal, is_terminal.then(of_terminal).flatten(), variable);
        match colours {
            ColorChoice::Auto => paper,
            asked => Paper { has_colours: asked == ColorChoice::Always, ..paper },
        }
    }

    fn from_facts(is_terminal: bool, of_terminal: Option<usize>, variable: impl Fn(&str) -> Option<OsString>) -> Paper {
        let said = variable("COLUMNS").and_then(|text| text.to_str()?.parse::<usize>().ok());
        // A terminal without a size reports 0.
        let readable = |width: &usize| *width >= NARROWEST;
        let width = said.filter(readable).or(of_terminal.filter(readable)).unwrap_or(WITHOUT_TERMINAL);
        let is_refused = variable("NO_COLOR").is_some_and(|text| !text.is_empty());
        let is_dumb = variable("TERM").is_some_and(|text| text == "dumb");
        Paper { width, has_colours: is_terminal && !is_refused && !is_dumb }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paper(is_terminal: bool, of_terminal: Option<usize>, variables: &[(&str, &str)]) -> Paper {
        Paper::from_facts(is_terminal, of_terminal, |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn a_terminal_has_a_width_and_colours() {
        assert_eq!(paper(true, Some(80), &[]), Paper { width: 80, has_colours: true });
        assert_eq!(paper(true, Some(0), &[]), Paper { width: 180, has_colours: true });
        assert_eq!(paper(false, None, &[]), Paper::without_colours(180));
    }

    #[test]
    fn variables_set_the_width_and_disable_colours() {
        assert_eq!(paper(false, None, &[("COLUMNS", "60")]), Paper::without_colours(60));
        assert_eq!(paper(true, Some(80), &[("COLUMNS", "60"), ("NO_COLOR", "1")]), Paper::without_colours(60));
        assert_eq!(paper(true, Some(80), &[("COLUMNS", "-3"), ("TERM", "dumb")]), Paper::without_colours(80));
        assert_eq!(paper(true, Some(80), &[("COLUMNS", "3"), ("NO_COLOR", "")]).width, 80);
        assert!(paper(true, Some(80), &[("NO_COLOR", "")]).has_colours, "an empty variable has no effect");
    }

    #[test]
    fn a_file_is_not_a_terminal() {
        let file = std::fs::File::open("/dev/null").expect("there is a null device");
        assert_eq!(Paper::for_stream(&file, ColorChoice::Auto, |_| None), Paper::without_colours(180));
        assert!(Paper::for_stream(&file, ColorChoice::Always, |_| None).has_colours);
    }
}
