//! Tasks between and around those of models.

use super::config::{Config, ModelRequest, SIMPLE};
use super::planned::{PlannedTask, json};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::HashSet;

/// Tasks like the planned ones with other sizes, which stand in no model; none twice.
pub(super) fn variations(planned: &[PlannedTask], config: &Config) -> Vec<PlannedTask> {
    if config.variations == 0 {
        return Vec::new();
    }
    let mut known: HashSet<String> = planned.iter().map(|planned| planned.task.hash()).collect();
    let mut variations = Vec::new();
    for one in planned.iter().filter(|planned| planned.partner.is_none()) {
        // What is drawn for a task does not depend on the others.
        let seed = blake3::hash(format!("{}{}", config.seed, one.task.hash()).as_bytes());
        let mut random = ChaCha8Rng::from_seed(*seed.as_bytes());
        let drawn = (0..config.variations).filter_map(|_| models::variation(&one.task, &mut random));
        for task in drawn.filter(|task| known.insert(task.hash())) {
            let model = ModelRequest { source: SIMPLE.to_owned(), name: task.to_text(), ..Default::default() };
            variations.push(PlannedTask {
                json: json(&task),
                task,
                model,
                places: vec![String::new()],
                counts: Vec::new(),
                partner: None,
                symbolic: None,
                bound_because: None,
            });
        }
    }
    variations
}
