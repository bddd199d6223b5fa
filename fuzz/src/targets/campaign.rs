//! Parses arbitrary texts as campaign configurations; each is rejected or executable. `configs` has useful seeds.

use super::valid_text;
use engine::campaign::Settings;

pub fn run(bytes: &[u8]) {
    let text = valid_text(bytes);
    if let Ok(raw) = Settings::parse(text)
        && let Ok(config) = raw.check(4)
    {
        config.check().expect("what was checked once passes again");
    }
}
