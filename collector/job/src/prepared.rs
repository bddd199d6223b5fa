//! Caches the inputs (from the job's seed) and the expected result of tasks for later jobs of the same task.

use super::Check;
use anyhow::{Context, Result};
use models::{Task, TensorType};
use reference::{Rounding, Tensor};

/// Largest number of cached tasks: code with dynamic sizes runs at each size, and batches contain several tasks.
const CACHED_TASKS_MAX: usize = 64;
/// Size limit of the cache in bytes; the latest task is always kept.
const CACHED_BYTES_MAX: usize = 512 << 20;

pub struct PreparedTask {
    text: String,
    seed: u64,
    pub task: Task,
    pub inputs: Vec<Tensor>,
    /// Expected result, computed on the first request.
    pub expected: Option<Tensor>,
}

impl PreparedTask {
    pub fn output_type(&self) -> &TensorType {
        &self.task.steps.last().expect("a checked task has a step").output
    }

    fn size_bytes(&self) -> usize {
        self.inputs.iter().chain(&self.expected).map(|tensor| tensor.as_bytes().len()).sum()
    }

    pub fn check_result(&self, result: Vec<u8>, rounding: Rounding) -> Result<Check> {
        let expected = self.expected.as_ref().context("the reference result was not computed")?;
        let actual = Tensor::from_bytes(self.output_type().clone(), result)?;
        let found =
            reference::compare_tensors(&actual, expected, reference::tolerance_when_rounded(&self.task, rounding))?;
        Ok(Check { max_abs_error: found.max_abs_error, max_rel_error: found.max_rel_error, is_right: found.ok })
    }
}

#[derive(Default)]
pub struct PreparedTasks {
    tasks: Vec<PreparedTask>,
}

impl PreparedTasks {
    pub fn is_latest(&self, text: &str, seed: u64) -> bool {
        self.tasks.first().is_some_and(|known| known.text == text && known.seed == seed)
    }

    /// Returns the prepared task from the cache, or prepares it. The expected result is computed only if requested.
    pub fn get_task(&mut self, text: &str, seed: u64, with_expected: bool) -> Result<&PreparedTask> {
        let found = self.tasks.iter().position(|known| known.text == text && known.seed == seed);
        let mut prepared = match found {
            Some(place) => self.tasks.remove(place),
            None => {
                let task: Task = serde_json::from_str(text).context("cannot parse the task")?;
                task.check()?;
                let inputs = reference::random_inputs(&task, seed)?;
                PreparedTask { text: text.to_owned(), seed, task, inputs, expected: None }
            }
        };
        if with_expected && prepared.expected.is_none() {
            let expected = reference::evaluate_task(&prepared.task, &prepared.inputs);
            prepared.expected = Some(expected.context("cannot compute the reference result")?);
        }
        self.tasks.insert(0, prepared);
        self.evict_tasks(CACHED_BYTES_MAX);
        Ok(&self.tasks[0])
    }

    fn evict_tasks(&mut self, bytes_max: usize) {
        let mut bytes = 0;
        let fits = |task: &&PreparedTask| {
            bytes += task.size_bytes();
            bytes <= bytes_max
        };
        let kept = self.tasks.iter().take(CACHED_TASKS_MAX).take_while(fits).count();
        self.tasks.truncate(kept.max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(elements: usize) -> String {
        let graph = zoo::simple::build_operator(&format!("relu:shape=1x{elements}")).expect("an operator");
        let task = models::distinct_tasks(&graph, models::Fuse::Epilogue).expect("tasks").remove(0).task;
        serde_json::to_string(&task).expect("tasks have a JSON form")
    }

    #[test]
    fn data_is_kept_as_long_as_there_is_room() {
        let mut known = PreparedTasks::default();
        let tasks: Vec<String> = (0..CACHED_TASKS_MAX).map(|place| task(8 + place)).collect();
        for task in &tasks {
            known.get_task(task, 0, true).expect("data");
        }
        assert_eq!(known.tasks.len(), CACHED_TASKS_MAX);
        known.get_task(&task(7), 0, false).expect("data");
        assert_eq!(known.tasks.len(), CACHED_TASKS_MAX);
        assert!(known.tasks.iter().all(|kept| kept.text != tasks[0]), "the oldest went");

        // 7 numbers without a result, then 71 and 70 numbers with equally large results.
        known.evict_tasks(4 * (7 + 2 * 71));
        assert_eq!(known.tasks.len(), 2);
        known.evict_tasks(0);
        assert_eq!(known.tasks.len(), 1, "the latest stays");
    }
}
