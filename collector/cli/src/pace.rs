//! Interval and format of progress reports.

use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Text lines at this interval in seconds; 0 disables them.
    Seconds(u64),
    /// A JSON line every second.
    Json,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace::Seconds(30)
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pace::Seconds(seconds) => write!(f, "{seconds}"),
            Pace::Json => f.write_str("json"),
        }
    }
}

impl FromStr for Pace {
    type Err = String;

    fn from_str(text: &str) -> Result<Pace, String> {
        match text {
            "json" => Ok(Pace::Json),
            text => text.parse().map(Pace::Seconds).map_err(|_| "give a number of seconds, or `json`".to_owned()),
        }
    }
}
