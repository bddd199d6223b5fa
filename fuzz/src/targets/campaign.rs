//! Feeds arbitrary texts to the reader of campaigns' configurations; it must answer with an error or a configuration that can be carried out.
//!
//! Run with `fuzz/run campaign`; a good start is the folder `configs`.

use super::valid_text;
use engine::campaign::Settings;

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let text = valid_text(bytes);
    if let Ok(raw) = Settings::parse(text)
        && let Ok(config) = raw.check(4)
    {
        config.check().expect("what was checked once passes again");
    }
}
