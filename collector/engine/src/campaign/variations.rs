//! Resized variants of the tasks of models.

use super::config::{Config, ModelRequest, SIMPLE};
use super::planned::{PlannedTask, task_json};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::HashSet;

/// Draws in succession without a new variant after which a task is taken to have no more. Small tasks have few sizes,
/// which are drawn repeatedly.
const FRUITLESS_DRAWS_MAX: usize = 32;

/// Returns distinct tasks that are derived from the planned ones by choosing other sizes and occur in no model.
pub(super) fn resize_tasks(planned: &[PlannedTask], config: &Config) -> Vec<PlannedTask> {
    if config.variations == 0 {
        return Vec::new();
    }
    let mut known: HashSet<String> = planned.iter().map(|planned| planned.task.hash()).collect();
    let mut variations = Vec::new();
    for one in planned.iter().filter(|planned| planned.partner.is_none()) {
        // The random variants of a task do not depend on the other tasks.
        let seed = blake3::hash(format!("{}{}", config.seed, one.task.hash()).as_bytes());
        let mut random = ChaCha8Rng::from_seed(*seed.as_bytes());
        let mut draw = || {
            (0..FRUITLESS_DRAWS_MAX)
                .find_map(|_| models::vary_task(&one.task, &mut random).filter(|task| known.insert(task.hash())))
        };
        for task in (0..config.variations).map_while(|_| draw()) {
            let model = ModelRequest { source: SIMPLE.to_owned(), name: task.to_text(), ..Default::default() };
            variations.push(PlannedTask {
                json: task_json(&task),
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
