//! Rejects stores that contain the same search in another version of the schedule spaces, which cannot be resumed.

use crate::Result;
use crate::campaign::Config;
use crate::failure::Failure;
use crate::stores::store_failure;
use datasets::Store;
use job::space::VERSION;
use serde_json::Value;

const PLACE: [&str; 2] = ["tune", "spaces"];

/// Rejects a store that contains the same search in another version of the schedule spaces.
pub fn refuse_other_versions(config: &Config, store: &Store) -> Result<()> {
    if config.tune.is_none() {
        return Ok(());
    }
    let own = without_version(&config.json_without_budget());
    for text in store.config_texts().map_err(store_failure)? {
        let (other, version) = without_version(&text);
        if other == own.0 && version != own.1 {
            let root = store.root().display();
            let message = format!(
                "the store `{root}` has this search with version {version} of the schedule spaces, but this program \
                 has version {VERSION}"
            );
            return Err(Failure::usage(message).with_hint(
                "give another `--store`, or change the search, such as its `--trials`: known records are reused",
            ));
        }
    }
    Ok(())
}

/// Splits a configuration into the part without the version of the schedule spaces, and that version (1 if absent).
fn without_version(text: &str) -> (Value, u64) {
    const FIRST: u64 = 1;
    let mut value: Value = serde_json::from_str(text).unwrap_or_default();
    let tune = value.get_mut(PLACE[0]).and_then(Value::as_object_mut);
    let version = tune.and_then(|tune| tune.remove(PLACE[1])).and_then(|version| version.as_u64());
    (value, version.unwrap_or(FIRST))
}
