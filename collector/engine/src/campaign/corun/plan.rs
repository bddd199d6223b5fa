//! Plans the combinations of tasks, as a pure function of the configuration: the same command resumes a campaign.

use crate::campaign::corun_settings::CoRun;
use crate::campaign::planned::{Bases, PlannedTask, PlanningError};
use crate::campaign::record::{self, now_us};
use datasets::{CacheState, Json, Key, Record, RowError, ScheduleSource};
use job::space::{self, Schedule};
use measure::SHARED_SPAN_NS;
use measure::synthetic::Synthetic;
use models::{Choice, Parallel};
use report::format_count;
use serde::Serialize;
use serde_json::json;
use targets::Target;

/// Value of the column `op_kind` for synthetic partners: members that only load the machine and compute no operator.
pub const SYNTHETIC: &str = "synthetic";

/// An operator with its schedule, shared by all its co-runs.
#[derive(Clone, Debug)]
pub struct Operator {
    /// Index of the operator's task.
    pub task: usize,
    /// Schedule of the operator's code.
    pub schedule: Schedule,
    /// Record with the columns that are known before the run.
    pub record: Record,
}

/// A member of a combination: an operator or a synthetic partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// An operator, by its index among the sampled operators.
    Operator(usize),
    /// A synthetic partner, which only loads arithmetic units, memory or a cache.
    Synthetic(Synthetic),
}

/// A combination of members that run concurrently.
#[derive(Clone, Debug)]
pub struct Combination {
    /// Assignment of cores to the members.
    pub parallel: Parallel,
    /// Members, with the CPUs of each.
    pub members: Vec<(Part, Vec<usize>)>,
    /// Records of the members, in the same order, with the columns that are known before the run.
    pub records: Vec<Record>,
}

impl Combination {
    /// Returns the keys of the combination's records.
    pub fn record_keys(&self) -> Vec<Key> {
        self.records.iter().map(|record| record.key).collect()
    }
}

/// Returns the operators of a configuration: up to a limit, sampled at random from all tasks.
pub fn sample_operators(
    tasks: &[PlannedTask],
    corun: &CoRun,
    seed: u64,
    target: &Target,
    bases: &Bases,
) -> Result<Vec<Operator>, PlanningError> {
    let drawn = |planned: &PlannedTask| blake3::hash(format!("{seed} {}", planned.task.hash()).as_bytes()).to_hex();
    let mut places: Vec<usize> = (0..tasks.len()).filter(|&task| tasks[task].partner.is_none()).collect();
    places.sort_by_cached_key(|&task| drawn(&tasks[task]).to_string());
    places.truncate(corun.operators);
    // Operators keep the order of the models, which is the order of tables.
    places.sort_unstable();
    let operator = |&task: &usize| {
        let planned = &tasks[task];
        let schedule =
            Schedule::Template { knobs: space::task_space(planned.scheduled_task(), &target.machine).default };
        let mut record = record::task_record(planned, &bases.compiled)?;
        let revision = bases.revisions.revision_of(planned.scheduled_task(), target.kind, &schedule);
        record.code_revision = Some(revision.to_string());
        record.schedule_hash = Some(schedule.stable_hash());
        record.schedule_source = Some(ScheduleSource::Default);
        record.schedule = Some(Json::parse(&schedule.to_json())?);
        Ok(Operator { task, schedule, record })
    };
    places.iter().map(operator).collect()
}

/// Combinations and operators that the settings name but that are not measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Number of operators beyond `corun.operators`.
    pub operators: usize,
    /// Number of combinations of the operators beyond `corun.combinations`.
    pub combinations: u64,
    /// Number of combinations whose members need more cores than there are.
    pub too_large: u64,
    /// Numbers of members of those combinations.
    pub too_large_members: Vec<usize>,
}

impl LeftOut {
    /// Returns a line per reason for which something is left out.
    pub fn describe(&self, corun: &CoRun, cores: usize) -> Vec<String> {
        let LeftOut { operators, combinations, too_large, too_large_members } = self;
        let mut lines = Vec::new();
        if *operators > 0 {
            let limit = corun.operators;
            let operators = format_count(*operators, "operator");
            lines.push(format!("{operators} left out: `corun.operators` is {limit}"));
        }
        if *combinations > 0 {
            let limit = corun.combinations;
            let combinations = format_count(*combinations, "combination");
            lines.push(format!("{combinations} left out: `corun.combinations` is {limit} per size"));
        }
        if *too_large > 0 {
            let members: Vec<String> = too_large_members.iter().map(usize::to_string).collect();
            let members = members.join(", ");
            let too_large = format_count(*too_large, "combination");
            lines.push(format!("{too_large} of {members} members left out: more than {cores} cores are needed"));
        }
        lines
    }
}

/// Returns all combinations that fit the cores, and what is left out of the combinations of the operators.
pub fn plan_combinations(
    operators: &[Operator],
    corun: &CoRun,
    seed: u64,
    bases: &Bases,
    cpus: &[usize],
    can_part_cache: bool,
) -> Result<(Vec<Combination>, LeftOut), RowError> {
    // A cache share that cannot be enforced must not be recorded.
    let corun = &CoRun { cache_share: corun.cache_share.filter(|_| can_part_cache), ..corun.clone() };
    let (mut chosen, mut not_sampled): (Vec<Vec<Part>>, u64) = (Vec::new(), 0);
    // Operators first: without pairs of operators, an interrupted campaign could not be learned from.
    for &size in &corun.sizes {
        let sampled = sample_multisets(operators, size, corun.combinations, seed);
        not_sampled += count_multisets(operators.len(), size).saturating_sub(sampled.len() as u64);
        chosen.extend(sampled);
    }
    for operator in 0..operators.len() {
        let beside = corun.synthetic_partners().into_iter();
        chosen.extend(beside.map(|partner| vec![Part::Operator(operator), Part::Synthetic(partner)]));
    }
    let combinations_left = not_sampled * corun.parallel.len() as u64;
    let (mut combinations, mut left_out) =
        (Vec::new(), LeftOut { combinations: combinations_left, ..LeftOut::default() });
    for parallel in &corun.parallel {
        for parts in &chosen {
            let own = |place: usize| match parallel {
                Parallel::Full => Some(cpus.to_vec()),
                Parallel::Stream | Parallel::Sequential => {
                    cpus.get(place * corun.threads..(place + 1) * corun.threads).map(<[usize]>::to_vec)
                }
            };
            let members: Option<Vec<_>> =
                parts.iter().enumerate().map(|(place, part)| Some((*part, own(place)?))).collect();
            match members {
                Some(members) => combinations.push(create_combination(operators, *parallel, members, corun, bases)?),
                None => {
                    left_out.too_large += 1;
                    left_out.too_large_members.push(parts.len());
                }
            }
        }
    }
    left_out.too_large_members.sort_unstable();
    left_out.too_large_members.dedup();
    Ok((combinations, left_out))
}

/// Returns the number of multisets of some operators.
fn count_multisets(operators: usize, size: usize) -> u64 {
    let (operators, size) = (operators as u64, size as u64);
    (1..=size).fold(1, |count, number| count * (operators + number - 1) / number)
}

fn sample_multisets(operators: &[Operator], size: usize, most: usize, seed: u64) -> Vec<Vec<Part>> {
    fn extend_multiset(from: usize, count: usize, left: usize, chosen: &mut Vec<usize>, found: &mut Vec<Vec<usize>>) {
        /// Largest number of enumerated multisets of operators; combinations are sampled from the enumerated ones.
        const MAX_ENUMERATED: usize = 500_000;
        if left == 0 {
            found.push(chosen.clone());
            return;
        }
        for one in from..count {
            if found.len() >= MAX_ENUMERATED {
                return;
            }
            chosen.push(one);
            extend_multiset(one, count, left - 1, chosen, found);
            chosen.pop();
        }
    }
    let mut found = Vec::new();
    extend_multiset(0, operators.len(), size, &mut Vec::new(), &mut found);
    if found.len() > most {
        found.sort_by_cached_key(|chosen| {
            let hashes: Vec<&str> = chosen.iter().map(|&one| operators[one].record.task_hash.as_str()).collect();
            blake3::hash(format!("{seed} {}", hashes.join(" ")).as_bytes()).to_hex().to_string()
        });
        found.truncate(most);
        found.sort();
    }
    found.into_iter().map(|chosen| chosen.into_iter().map(Part::Operator).collect()).collect()
}

fn create_combination(
    operators: &[Operator],
    parallel: Parallel,
    members: Vec<(Part, Vec<usize>)>,
    corun: &CoRun,
    bases: &Bases,
) -> Result<Combination, RowError> {
    let known = |(part, cpus): &(Part, Vec<usize>)| -> Result<Record, RowError> {
        let mut record = match part {
            Part::Operator(one) => operators[*one].record.clone(),
            Part::Synthetic(what) => synthetic_record(*what, &bases.compiled),
        };
        record::describe_cpus(&mut record, cpus)?;
        Ok(Record {
            parallel_type: Some(parallel.name().to_owned()),
            cache_share: corun.cache_share,
            cache_state: Some(CacheState::Warm),
            started_at_us: now_us(),
            ..record
        })
    };
    let mut records = members.iter().map(known).collect::<Result<Vec<_>, _>>()?;
    let of_member = |record: &Record| {
        json!({ "task": record.task_hash, "schedule": record.schedule_hash, "code": record.code_revision,
            "cpus": record.cpus.as_ref().and_then(|cpus| cpus.parse_as::<Vec<usize>>().ok()) })
    };
    let all: Vec<serde_json::Value> = records.iter().map(of_member).collect();
    let hashes: Vec<String> = records.iter().map(|record| record.task_hash.clone()).collect();
    for (place, record) in records.iter_mut().enumerate() {
        let others = |of: &dyn Fn(usize) -> serde_json::Value| -> Vec<serde_json::Value> {
            (0..hashes.len()).filter(|other| *other != place).map(of).collect()
        };
        record.co_run = Some(Json::new(&others(&|other| hashes[other].clone().into()))?);
        let mut plan = json!({ "together": corun.measure, "beside": others(&|other| all[other].clone()) });
        if parallel == Parallel::Full {
            plan["span_ns"] = SHARED_SPAN_NS.into();
        }
        // Equal members on the same cores are experiments of their own.
        let copy = all[..place].iter().filter(|earlier| **earlier == all[place]).count();
        if copy > 0 {
            plan["copy"] = copy.into();
        }
        record.plan = Some(Json::new(&plan)?);
        record.key = record.experiment_key();
    }
    Ok(Combination { parallel, members, records })
}

/// Returns the record of a synthetic partner, whose hash identifies the partner in `co_run`.
fn synthetic_record(what: Synthetic, base: &Record) -> Record {
    let name = what.to_string();
    Record {
        task_hash: blake3::hash(format!("synthetic {name}").as_bytes()).to_hex()[..32].to_owned(),
        op_kind: SYNTHETIC.to_owned(),
        op_name: format!("{SYNTHETIC} {name}"),
        op_text: format!("{SYNTHETIC} {name}"),
        flops: None,
        bytes_in: i64::try_from(what.bytes_per_run()).ok(),
        ..base.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use job::revision::Revisions;
    use job::space::Knobs;
    use std::collections::BTreeSet;

    fn operator(task: usize) -> Operator {
        let record = Record { task_hash: format!("task {task}"), ..Record::default() };
        Operator { task, schedule: Schedule::Template { knobs: Knobs::default() }, record }
    }

    #[test]
    fn operators_are_measured_before_synthetic_partners() {
        let operators: Vec<Operator> = (0..3).map(operator).collect();
        let partners = vec!["arithmetic".to_owned(), "bandwidth".to_owned()];
        let corun = CoRun { sizes: vec![2, 3], partners, ..CoRun::default() };
        let revisions = Revisions::embedded_table().clone();
        let bases = Bases { compiled: Record::default(), library: Record::default(), revisions };
        let (planned, left_out) =
            plan_combinations(&operators, &corun, 0, &bases, &[0, 1, 2], false).expect("records have keys");
        let has_partner = |one: &Combination| one.members.iter().any(|(part, _)| matches!(part, Part::Synthetic(_)));
        let kinds: Vec<(usize, bool)> = planned.iter().map(|one| (one.members.len(), has_partner(one))).collect();
        // All multisets of two and of three operators, then each operator with each partner.
        let expected = [vec![(2, false); 6], vec![(3, false); 10], vec![(2, true); 6]].concat();
        assert_eq!((kinds, left_out), (expected, LeftOut::default()));
    }

    #[test]
    fn all_members_have_keys_of_their_own() {
        let operators: Vec<Operator> = (0..2).map(operator).collect();
        let parallel = vec![Parallel::Stream, Parallel::Full];
        let corun = CoRun { sizes: vec![2, 3], partners: Vec::new(), parallel, ..CoRun::default() };
        let revisions = Revisions::embedded_table().clone();
        let bases = Bases { compiled: Record::default(), library: Record::default(), revisions };
        let (planned, _) =
            plan_combinations(&operators, &corun, 0, &bases, &[0, 1, 2], false).expect("records have keys");
        let keys: Vec<Key> = planned.iter().flat_map(Combination::record_keys).collect();
        let distinct: BTreeSet<Key> = keys.iter().copied().collect();
        // Three pairs and four triples, on separate and on shared cores.
        assert_eq!((keys.len(), distinct.len()), (36, 36));
    }

    #[test]
    fn left_out_combinations_are_counted_by_reason() {
        let operators: Vec<Operator> = (0..4).map(operator).collect();
        let both = vec![Parallel::Stream, Parallel::Full];
        let corun =
            CoRun { sizes: vec![2, 3], partners: Vec::new(), combinations: 8, parallel: both, ..CoRun::default() };
        let revisions = Revisions::embedded_table().clone();
        let bases = Bases { compiled: Record::default(), library: Record::default(), revisions };
        let (planned, left_out) =
            plan_combinations(&operators, &corun, 0, &bases, &[0, 1], false).expect("records have keys");
        // Of 10 pairs and 20 triples, 8 each are sampled. Two cores are too few for triples on cores of their own.
        let expected = LeftOut { operators: 0, combinations: 28, too_large: 8, too_large_members: vec![3] };
        assert_eq!((planned.len(), &left_out), (24, &expected));
        assert_eq!(
            LeftOut { operators: 5, ..left_out }.describe(&corun, 2),
            [
                "5 operators left out: `corun.operators` is 24",
                "28 combinations left out: `corun.combinations` is 8 per size",
                "8 combinations of 3 members left out: more than 2 cores are needed",
            ]
        );
        assert_eq!(count_multisets(128, 8), 2_214_919_483_920);
    }
}
