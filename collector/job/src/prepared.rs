//! Tasks with their data, kept for the next job of the same task.
//!
//! Inputs are drawn from the job's seed and the expected result comes from the reference computation, both once per
//! task, whoever computes it.

use super::Check;
use anyhow::{Context, Result};
use models::{Task, TensorType};
use reference::{Rounding, Tensor};

/// Tasks whose data is kept: code that serves several sizes is run at one after the other, and a batch of builds on some
/// CPUs first and on all of them later.
const KEPT_TASKS: usize = 64;
/// What their data may take; that of the latest is kept in any case.
const KEPT_BYTES: usize = 512 << 20;

/// A task with its data.
pub struct Prepared {
    text: String,
    seed: u64,
    /// The task.
    pub task: Task,
    /// One tensor per parameter.
    pub inputs: Vec<Tensor>,
    /// What must come out, once someone asked for it.
    pub expected: Option<Tensor>,
}

impl Prepared {
    /// Type of the result.
    pub fn output(&self) -> &TensorType {
        &self.task.steps.last().expect("a checked task has a step").output
    }

    fn bytes(&self) -> usize {
        self.inputs.iter().chain(&self.expected).map(|tensor| tensor.bytes().len()).sum()
    }

    /// Compares a result, given as the bytes of its tensor, with the expected one.
    pub fn check(&self, result: Vec<u8>, rounding: Rounding) -> Result<Check> {
        let expected = self.expected.as_ref().context("the reference was not computed")?;
        let actual = Tensor::from_bytes(self.output().clone(), result)?;
        let found = reference::compare(&actual, expected, reference::tolerance_when_rounded(&self.task, rounding))?;
        Ok(Check { max_abs_error: found.max_abs_error, max_rel_error: found.max_rel_error, is_right: found.ok })
    }
}

/// The tasks of the latest jobs.
#[derive(Default)]
pub struct PreparedTasks {
    /// The latest first.
    tasks: Vec<Prepared>,
}

impl PreparedTasks {
    /// Whether the latest job had this task and seed.
    pub fn is_latest(&self, text: &str, seed: u64) -> bool {
        self.tasks.first().is_some_and(|known| known.text == text && known.seed == seed)
    }

    /// The task of a text with its inputs and, if asked for, what must come out.
    pub fn get(&mut self, text: &str, seed: u64, with_expected: bool) -> Result<&Prepared> {
        let found = self.tasks.iter().position(|known| known.text == text && known.seed == seed);
        let mut prepared = match found {
            Some(place) => self.tasks.remove(place),
            None => {
                let task: Task = serde_json::from_str(text).context("cannot read the task")?;
                task.check()?;
                let inputs = reference::random_inputs(&task, seed)?;
                Prepared { text: text.to_owned(), seed, task, inputs, expected: None }
            }
        };
        if with_expected && prepared.expected.is_none() {
            let expected = reference::evaluate(&prepared.task, &prepared.inputs);
            prepared.expected = Some(expected.context("cannot compute the reference")?);
        }
        self.tasks.insert(0, prepared);
        self.forget(KEPT_BYTES);
        Ok(&self.tasks[0])
    }

    /// Drops what was not asked for in a long time.
    fn forget(&mut self, most_bytes: usize) {
        let mut bytes = 0;
        let fits = |task: &&Prepared| {
            bytes += task.bytes();
            bytes <= most_bytes
        };
        let kept = self.tasks.iter().take(KEPT_TASKS).take_while(fits).count();
        self.tasks.truncate(kept.max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(elements: usize) -> String {
        let graph = zoo::simple::build(&format!("relu:shape=1x{elements}")).expect("an operator");
        let task = models::tasks(&graph, models::Fuse::Epilogue).expect("tasks").remove(0).task;
        serde_json::to_string(&task).expect("tasks have a JSON form")
    }

    #[test]
    fn data_is_kept_as_long_as_there_is_room() {
        let mut known = PreparedTasks::default();
        let tasks: Vec<String> = (0..KEPT_TASKS).map(|place| task(8 + place)).collect();
        for task in &tasks {
            known.get(task, 0, true).expect("data");
        }
        assert_eq!(known.tasks.len(), KEPT_TASKS);
        known.get(&task(7), 0, false).expect("data");
        assert_eq!(known.tasks.len(), KEPT_TASKS);
        assert!(known.tasks.iter().all(|kept| kept.text != tasks[0]), "the oldest went");

        // 7 numbers and no result, then 71 and 70 numbers with as many results.
        known.forget(4 * (7 + 2 * 71));
        assert_eq!(known.tasks.len(), 2);
        known.forget(0);
        assert_eq!(known.tasks.len(), 1, "the latest stays");
    }
}
