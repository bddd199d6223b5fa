//! Selects the attempts of a campaign that belong to one shard.
//!
//! Every process plans the whole campaign and keeps the attempts of its own shard. The assignment must not depend on
//! the machine, although the schedules of a task do. So it uses only the request: the task, the index of the schedule
//! among those of the task, the position of the thread count in the list, and the cache state.

use super::attempt::task_schedules;
use super::config::Config;
use super::planned::{Attempt, Code, PlannedTask};
use datasets::{Key, Shard};
use job::space::Schedule;
use std::collections::HashMap;
use targets::Target;

/// Decides which attempts of a campaign belong to a shard.
pub struct Share<'a> {
    shard: Shard,
    config: &'a Config,
    /// Sampler and index of each schedule, by index of the first task of its family and by schedule hash.
    sampled: HashMap<(usize, String), RandomSchedule>,
}

/// Sampler of a schedule, and the schedule's index among those of the sampler.
type RandomSchedule = (&'static str, usize);

impl<'a> Share<'a> {
    /// Creates the selection for a shard. A search stays in one shard, because it needs the results of all its trials.
    pub fn new(shard: Shard, tasks: &[PlannedTask], target: &Target, config: &'a Config) -> Share<'a> {
        let mut sampled = HashMap::new();
        let is_sweep = shard != Shard::WHOLE && config.tune.is_none();
        let mut first = 0;
        for family in tasks.chunk_by(|left, right| left.is_compiled_with(right)).filter(|_| is_sweep) {
            let mut counts: HashMap<&str, usize> = HashMap::new();
            for schedule in task_schedules(family[0].scheduled_task(), target, config) {
                let sampler = sampler_of(&schedule);
                let count = counts.entry(sampler).or_default();
                sampled.insert((first, schedule.stable_hash()), (sampler, *count));
                *count += 1;
            }
            first += family.len();
        }
        Share { shard, config, sampled }
    }

    /// Returns whether an attempt belongs to the shard.
    pub fn contains(&self, attempt: &Attempt) -> bool {
        self.shard.contains(self.request_key(attempt))
    }

    fn request_key(&self, attempt: &Attempt) -> Key {
        let sampled = match &attempt.code {
            Code::Compiled { schedule, .. } => self.sampled.get(&(attempt.family, schedule.stable_hash())),
            Code::Library | Code::Module(_) => None,
        };
        let threads = attempt.cpus.len();
        // "All CPUs" is a different count on each machine, but has the same position in the list.
        let threads_position = self.config.threads.iter().position(|count| *count == threads).unwrap_or(threads);
        let task = &attempt.with_task;
        let request = (
            (&self.config.target, &task.task_hash, &task.symbolic_task),
            (matches!(attempt.code, Code::Compiled { .. }), sampled),
            (threads_position, attempt.state.name()),
        );
        Key::of_bytes(serde_json::to_string(&request).expect("texts and numbers").as_bytes())
    }
}

fn sampler_of(schedule: &Schedule) -> &'static str {
    match schedule {
        Schedule::Template { .. } => "template",
        Schedule::MetaSchedule { .. } => "metaschedule",
        Schedule::Trace { .. } => "trace",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::attempt::{plan_attempts, planned_tasks};
    use crate::campaign::graphs::LoadedModels;
    use crate::campaign::planned::Bases;
    use crate::campaign::{SearchInputs, Settings, Tuning};
    use datasets::Record;
    use job::revision::Revisions;
    use std::path::Path;
    use std::time::Duration;
    use targets::llvm_target;

    struct Machine {
        target: Target,
        bases: Bases,
        cpus: Vec<usize>,
        flush_bytes: u64,
    }

    fn machine(class: &str, target: Target, cpus: &[usize]) -> Machine {
        let compiled = Record {
            host: class.to_owned(),
            host_class: class.to_owned(),
            clock_policy: Some(format!("governor of {class}")),
            tvm_version: Some(format!("version of {class}")),
            target_text: Some(target.text.clone()),
            ..Record::default()
        };
        let bases = Bases { library: compiled.clone(), compiled, revisions: Revisions::embedded_table().clone() };
        Machine { target, bases, cpus: cpus.to_vec(), flush_bytes: 1 << class.len() }
    }

    const MODELS: &str = "models = [{ source = 'simple', name = 'matmul:m=32,n=64,k=32' }, \
                          { source = 'simple', name = 'conv2d:ci=16,hw=14,co=32,k=3,p=1' }]\n";

    fn config(text: &str, cpus: usize) -> Config {
        Settings::parse(&format!("{MODELS}{text}")).expect("a configuration").check(cpus).expect("it fits")
    }

    fn shares(text: &str, machines: &[Machine]) -> (Vec<Vec<Attempt>>, Vec<Vec<Attempt>>) {
        let count = u32::try_from(machines.len()).expect("few machines");
        let planned = machines.iter().zip(0..).map(|(machine, index)| {
            let config = config(text, machine.cpus.len());
            let tasks = planned_tasks(&config, &LoadedModels::default()).expect("tasks");
            let Machine { target, bases, cpus, flush_bytes } = machine;
            let all = plan_attempts(&tasks, &[], target, &config, bases, cpus, *flush_bytes).expect("attempts");
            let share = Share::new(Shard::new(index, count).expect("one of them"), &tasks, target, &config);
            let own = all.iter().filter(|attempt| share.contains(attempt)).cloned().collect();
            (all, own)
        });
        planned.unzip()
    }

    fn schedules_of(attempts: &[Attempt]) -> Vec<String> {
        let mut all: Vec<String> = attempts
            .iter()
            .map(|attempt| {
                let Code::Compiled { schedule, .. } = &attempt.code else { panic!("code is built here") };
                format!("{} {} {} {:?}", attempt.task, schedule.to_json(), attempt.cpus.len(), attempt.state)
            })
            .collect();
        all.sort();
        all
    }

    #[test]
    fn shards_on_different_cpus_and_hosts_are_a_partition() {
        let llvm = || llvm_target("x86-64-v3", &["avx2".to_owned()], 1);
        let machines = [machine("one", llvm(), &[0]), machine("one", llvm(), &[1]), machine("another", llvm(), &[0])];
        let (all, own) = shares("schedules = 24\nthreads = [1]\ncache = ['warm', 'cold']", &machines);
        assert!(own.iter().all(|own| !own.is_empty()));
        assert_eq!(schedules_of(&own.concat()), schedules_of(&all[0]));
    }

    #[test]
    fn shards_with_different_spaces_have_every_number_and_every_default() {
        let wide = llvm_target("x86-64-v4", &["avx512f".to_owned()], 4);
        let machines = [
            machine("narrow", llvm_target("x86-64-v3", &["avx2".to_owned()], 2), &[0, 1]),
            machine("wide", wide, &[0, 1, 2, 3]),
        ];
        let (all, own) = shares("schedules = 24\nsamplers = ['template', 'metaschedule']", &machines);
        assert_ne!(schedules_of(&all[0]), schedules_of(&all[1]), "the test needs different spaces");
        assert_eq!(own.concat().len(), all[0].len());
        let defaults = |attempts: &[Attempt]| {
            let is_default = |attempt: &&Attempt| {
                matches!(attempt.code, Code::Compiled { source: datasets::ScheduleSource::Default, .. })
            };
            attempts.iter().filter(is_default).count()
        };
        assert_eq!(defaults(&own.concat()), defaults(&all[0]));
    }

    #[test]
    fn a_search_belongs_to_one_shard_on_every_machine() {
        let searched = |machine: &Machine, index: u32| {
            let config = config("threads = [1]\n[tune]\ntuner = 'random'\ntrials = 4", 1);
            let tasks = planned_tasks(&config, &LoadedModels::default()).expect("tasks");
            let breeder = bench::Breeder::new(Path::new("none of these tests breeds"), Duration::ZERO, 0, || false);
            let Machine { target, bases, cpus, flush_bytes } = machine;
            let inputs = SearchInputs {
                tasks: &tasks,
                modules: &[],
                target,
                config: &config,
                bases,
                cpus,
                flush_bytes: *flush_bytes,
                breeder: &breeder,
            };
            let share = Share::new(Shard::new(index, 2).expect("one of two"), &tasks, target, &config);
            let tune = config.tune.as_ref().expect("a search");
            let tuning = Tuning::new(&inputs, tune, |attempt| share.contains(attempt)).expect("searches");
            tuning.searches().iter().map(|search| search.default_attempt().task).collect::<Vec<usize>>()
        };
        let wide = machine("wide", llvm_target("x86-64-v4", &["avx512f".to_owned()], 4), &[3]);
        for class in ["one", "another", "third", "fourth"] {
            let narrow = machine(class, llvm_target("x86-64-v3", &["avx2".to_owned()], 2), &[0]);
            let mut all = [searched(&wide, 0), searched(&narrow, 1)].concat();
            all.sort_unstable();
            assert_eq!(all, [0, 1], "{class}");
        }
    }
}
