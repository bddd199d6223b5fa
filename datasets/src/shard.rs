//! Splits a list of work into independent shards. The first bytes of a key determine its shard; keys are hashes, so
//! shards have similar sizes. The number of shards may change between nightly runs, because every shard skips recorded
//! work. The keys must not depend on the machine, unlike experiment keys; otherwise, shards on different machines would
//! repeat or omit work.

use crate::record::key::Key;
use std::fmt;
use std::str::FromStr;

/// A shard, written `i/n`; the first is `1/n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: u32,
    count: u32,
}

/// An error in the assignment of a shard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShardError {
    /// The text is not a valid `i/n`.
    #[error("`{0}` is not a shard\nhint: write `i/n`, from `1/n` to `n/n`, for example `2/8`")]
    Text(String),
    /// A scheduler variable is invalid.
    #[error("`{name}` is `{value}`: {problem}\nhint: set it to a number, or give `--shard i/n`")]
    Variable {
        /// Name of the variable.
        name: &'static str,
        /// Value of the variable.
        value: String,
        /// Problem of the value.
        problem: &'static str,
    },
    /// A job scheduler sets the index but not the number of shards.
    #[error("`{present}` is set, but `{missing}` is not\nhint: {hint}")]
    Missing {
        /// Variable that is set.
        present: &'static str,
        /// Variable that is missing.
        missing: &'static str,
        /// Remedy.
        hint: &'static str,
    },
}

impl Shard {
    /// The shard with all work.
    pub const WHOLE: Shard = Shard { index: 0, count: 1 };

    /// Returns the shard of an index from 0, or None beyond the count.
    pub fn new(index: u32, count: u32) -> Option<Shard> {
        (index < count).then_some(Shard { index, count })
    }

    /// Returns the index, counted from 0.
    pub fn index(self) -> u32 {
        self.index
    }

    /// Returns the number of shards.
    pub fn count(self) -> u32 {
        self.count
    }

    /// Returns whether a key belongs to this shard. The key must not depend on the machine.
    pub fn contains(self, key: Key) -> bool {
        let mut first = [0; 8];
        first.copy_from_slice(&key.0[..8]);
        u64::from_be_bytes(first) % u64::from(self.count) == u64::from(self.index)
    }

    /// Returns the shard assigned by a job scheduler; None without a scheduler. `lookup` reads an environment variable.
    ///
    /// Slurm: `SLURM_ARRAY_TASK_ID`, `_COUNT` and `_MIN`, numbered without gaps. Kubernetes indexed job:
    /// `JOB_COMPLETION_INDEX`, and `JOB_COMPLETIONS`, to which the manifest must copy the number of completions.
    pub fn from_environment(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Shard>, ShardError> {
        let slurm = Scheduler {
            index: "SLURM_ARRAY_TASK_ID",
            count: "SLURM_ARRAY_TASK_COUNT",
            first: Some("SLURM_ARRAY_TASK_MIN"),
            hint: "start the job with `sbatch --array=0-7`",
        };
        let kubernetes = Scheduler {
            index: "JOB_COMPLETION_INDEX",
            count: "JOB_COMPLETIONS",
            first: None,
            hint: "add it to the job's environment with the value of `completions`",
        };
        for scheduler in [slurm, kubernetes] {
            if let Some(shard) = scheduler.read_shard(&lookup)? {
                return Ok(Some(shard));
            }
        }
        Ok(None)
    }
}

struct Scheduler {
    index: &'static str,
    count: &'static str,
    /// Variable with the index of the first shard; without it, indices start from 0.
    first: Option<&'static str>,
    hint: &'static str,
}

impl Scheduler {
    fn read_shard(&self, lookup: &impl Fn(&str) -> Option<String>) -> Result<Option<Shard>, ShardError> {
        let Some(index) = read_number(self.index, lookup)? else { return Ok(None) };
        let missing = ShardError::Missing { present: self.index, missing: self.count, hint: self.hint };
        let count = read_number(self.count, lookup)?.ok_or(missing)?;
        let first = self.first.map_or(Ok(None), |name| read_number(name, lookup))?.unwrap_or(0);
        let shard = index.checked_sub(first).and_then(|index| Shard::new(index, count));
        shard.map(Some).ok_or_else(|| ShardError::Variable {
            name: self.index,
            value: index.to_string(),
            problem: "the index exceeds the number of shards; number the shards without gaps",
        })
    }
}

fn read_number(name: &'static str, lookup: &impl Fn(&str) -> Option<String>) -> Result<Option<u32>, ShardError> {
    let Some(value) = lookup(name) else { return Ok(None) };
    match value.trim().parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => Err(ShardError::Variable { name, value, problem: "not a number" }),
    }
}

impl FromStr for Shard {
    type Err = ShardError;

    fn from_str(text: &str) -> Result<Shard, ShardError> {
        let parse = |text: &str| text.parse::<u32>().ok();
        let shard = text.split_once('/').and_then(|(number, count)| {
            let index = parse(number)?.checked_sub(1)?;
            Shard::new(index, parse(count)?)
        });
        shard.ok_or_else(|| ShardError::Text(text.to_owned()))
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    fn check_environment(variables: &[(&str, &str)], expected: Expect) {
        let lookup =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let text = match Shard::from_environment(lookup) {
            Ok(shard) => shard.map_or("none".to_owned(), |shard| shard.to_string()),
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&text);
    }

    #[test]
    fn schedulers_tell_the_shard() {
        check_environment(&[], expect!["none"]);
        check_environment(&[("SLURM_ARRAY_TASK_ID", "0"), ("SLURM_ARRAY_TASK_COUNT", "4")], expect!["1/4"]);
        let slurm =
            |id, min| [("SLURM_ARRAY_TASK_ID", id), ("SLURM_ARRAY_TASK_COUNT", "4"), ("SLURM_ARRAY_TASK_MIN", min)];
        check_environment(&slurm("4", "1"), expect!["4/4"]);
        check_environment(
            &slurm("9", "1"),
            expect![[r#"
                `SLURM_ARRAY_TASK_ID` is `9`: the index exceeds the number of shards; number the shards without gaps
                hint: set it to a number, or give `--shard i/n`"#]],
        );
        check_environment(
            &slurm("one", "1"),
            expect![[r#"
                `SLURM_ARRAY_TASK_ID` is `one`: not a number
                hint: set it to a number, or give `--shard i/n`"#]],
        );
        check_environment(
            &[("SLURM_ARRAY_TASK_ID", "0")],
            expect![[r#"
            `SLURM_ARRAY_TASK_ID` is set, but `SLURM_ARRAY_TASK_COUNT` is not
            hint: start the job with `sbatch --array=0-7`"#]],
        );
        check_environment(&[("JOB_COMPLETION_INDEX", "7"), ("JOB_COMPLETIONS", "8")], expect!["8/8"]);
        check_environment(
            &[("JOB_COMPLETION_INDEX", "7")],
            expect![[r#"
            `JOB_COMPLETION_INDEX` is set, but `JOB_COMPLETIONS` is not
            hint: add it to the job's environment with the value of `completions`"#]],
        );
    }

    #[test]
    fn shards_are_written_from_one_to_n() {
        assert_eq!("2/8".parse(), Ok(Shard { index: 1, count: 8 }));
        assert_eq!("1/1".parse(), Ok(Shard::WHOLE));
        for text in ["0/8", "9/8", "1/0", "", "/", "a/b", "-1/2", "1/2/3", "1", "5000000000/5000000000"] {
            assert_eq!(text.parse::<Shard>(), Err(ShardError::Text(text.to_owned())));
        }
    }

    proptest! {
        #[test]
        fn every_key_is_in_one_shard(key: [u8; 16], count in 1u32..1000) {
            let shards = (0..count).filter_map(|index| Shard::new(index, count));
            prop_assert_eq!(shards.filter(|shard| shard.contains(Key(key))).count(), 1);
        }

        #[test]
        fn a_shard_reads_back(index in 0u32..1000, count in 1u32..1000) {
            prop_assume!(index < count);
            let shard = Shard::new(index, count).unwrap();
            prop_assert_eq!(shard.to_string().parse(), Ok(shard));
        }
    }
}
