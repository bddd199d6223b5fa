//! Chooses schedules and core counts for a few operators, and whether they run concurrently or one after the other.
//!
//! The schedule that is fastest in isolation is not always the best in concurrent execution: a schedule that moves less
//! data leaves more bandwidth to its partners. Small spaces are searched exhaustively. Otherwise, local search starts
//! from the fastest and from the frugal schedules (nearly as fast, least memory traffic), with equal core counts.

use crate::interference::{Demand, Lane, Machine, simulate_lanes};
use crate::stages::all_splits;
use crate::{Error, Result};
use serde::Serialize;

pub const EXACT_MOST: usize = 100_000;
/// Maximum slowdown of a frugal schedule relative to the fastest one.
const FRUGAL: f64 = 1.10;
const ROUNDS_MOST: usize = 100;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JointExecution {
    pub schedules: Vec<usize>,
    pub cores: Vec<usize>,
    pub ends_ns: Vec<f64>,
    pub time_ns: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cotuned {
    pub together: JointExecution,
    /// Fastest schedule of each operator on all cores, for sequential execution.
    pub in_turns: Vec<usize>,
    pub in_turns_ns: f64,
    pub is_together: bool,
    pub gain: f64,
    pub tried: usize,
    pub is_exact: bool,
}

pub fn cotune(machine: &Machine, operators: &[Vec<Demand>]) -> Result<Cotuned> {
    check_operators(machine, operators)?;
    let in_turns: Vec<usize> = operators.iter().map(|schedules| fastest_schedule(schedules, machine.cores)).collect();
    let in_turns_ns = operators.iter().zip(&in_turns).map(|(all, &one)| all[one].time_alone(machine.cores)).sum();
    let combinations = operators.iter().try_fold(1usize, |all, schedules| all.checked_mul(schedules.len()));
    let splits = combinations.and_then(|all| all_splits(operators.len(), machine.cores, EXACT_MOST / all.max(1)));
    let mut search = Search { machine, operators, tried: 0 };
    let (together, is_exact) = match splits {
        Some(splits) => (search.search_exhaustively(&splits), true),
        None => (search.search_locally(), false),
    };
    let gain = in_turns_ns / together.time_ns;
    let tried = search.tried;
    Ok(Cotuned { is_together: gain > 1.0, together, in_turns, in_turns_ns, gain, tried, is_exact })
}

fn check_operators(machine: &Machine, operators: &[Vec<Demand>]) -> Result<()> {
    if operators.is_empty() {
        return Err(Error::Nothing("operator"));
    }
    if operators.len() > machine.cores {
        return Err(Error::TooFewCores { operators: operators.len(), cores: machine.cores });
    }
    for (operator, schedules) in operators.iter().enumerate() {
        if schedules.is_empty() {
            return Err(Error::Nothing("schedule"));
        }
        schedules.iter().try_for_each(|demand| demand.check_demand(operator))?;
    }
    Ok(())
}

fn fastest_schedule(schedules: &[Demand], cores: usize) -> usize {
    let least =
        |&one: &usize, &other: &usize| schedules[one].time_alone(cores).total_cmp(&schedules[other].time_alone(cores));
    (0..schedules.len()).min_by(least).expect("there is a schedule")
}

/// Returns the schedule with the least memory traffic among schedules nearly as fast as the fastest.
fn frugal_schedule(schedules: &[Demand], cores: usize) -> usize {
    let most_ns = FRUGAL * schedules[fastest_schedule(schedules, cores)].time_alone(cores);
    let demand = |&one: &usize| schedules[one].bytes + schedules[one].reused_bytes;
    let near = (0..schedules.len()).filter(|&one| schedules[one].time_alone(cores) <= most_ns);
    near.min_by(|one, other| demand(one).total_cmp(&demand(other))).expect("the fastest is near")
}

struct Search<'a> {
    machine: &'a Machine,
    operators: &'a [Vec<Demand>],
    tried: usize,
}

impl Search<'_> {
    fn time_joint(&mut self, schedules: &[usize], cores: &[usize]) -> JointExecution {
        self.tried += 1;
        let lane =
            |place: usize| Lane { cores: cores[place], operators: vec![&self.operators[place][schedules[place]]] };
        let lanes: Vec<Lane<'_>> = (0..cores.len()).map(lane).collect();
        let course = simulate_lanes(self.machine, &lanes);
        JointExecution {
            schedules: schedules.to_vec(),
            cores: cores.to_vec(),
            ends_ns: course.ends_ns.iter().map(|ends| ends[0]).collect(),
            time_ns: course.total_ns,
        }
    }

    fn search_exhaustively(&mut self, splits: &[Vec<usize>]) -> JointExecution {
        let mut best: Option<JointExecution> = None;
        let count: usize = self.operators.iter().map(Vec::len).product();
        for number in 0..count {
            let mut rest = number;
            let digit = |schedules: &Vec<Demand>| {
                let own = rest % schedules.len();
                rest /= schedules.len();
                own
            };
            let schedules: Vec<usize> = self.operators.iter().map(digit).collect();
            for cores in splits {
                let found = self.time_joint(&schedules, cores);
                best = Some(best.map_or(found.clone(), |best| better_joint(best, found)));
            }
        }
        best.expect("there is a schedule and a split")
    }

    fn search_locally(&mut self) -> JointExecution {
        let (count, all) = (self.operators.len(), self.machine.cores);
        let equal: Vec<usize> = (0..count).map(|place| all / count + usize::from(place < all % count)).collect();
        let own = |choose: fn(&[Demand], usize) -> usize| -> Vec<usize> {
            self.operators.iter().zip(&equal).map(|(schedules, &cores)| choose(schedules, cores)).collect()
        };
        let alone: Vec<usize> = self.operators.iter().map(|schedules| fastest_schedule(schedules, all)).collect();
        let beginnings = [alone, own(frugal_schedule), own(fastest_schedule)];
        let found = beginnings.map(|schedules| self.descend_from(&schedules, &equal));
        found.into_iter().reduce(better_joint).expect("there are beginnings")
    }

    fn descend_from(&mut self, schedules: &[usize], cores: &[usize]) -> JointExecution {
        let mut now = self.time_joint(schedules, cores);
        for _ in 0..ROUNDS_MOST {
            let before = now.time_ns;
            for place in 0..self.operators.len() {
                for schedule in 0..self.operators[place].len() {
                    let mut schedules = now.schedules.clone();
                    schedules[place] = schedule;
                    let found = self.time_joint(&schedules, &now.cores.clone());
                    now = better_joint(now, found);
                }
                for other in (0..self.operators.len()).filter(|&other| other != place) {
                    if now.cores[place] > 1 {
                        let mut cores = now.cores.clone();
                        cores[place] -= 1;
                        cores[other] += 1;
                        let found = self.time_joint(&now.schedules.clone(), &cores);
                        now = better_joint(now, found);
                    }
                }
            }
            if now.time_ns >= before {
                break;
            }
        }
        now
    }
}

/// Returns the faster of two joint executions; ties go to the more even core counts, then to the first.
fn better_joint(one: JointExecution, other: JointExecution) -> JointExecution {
    let spread = |joint: &JointExecution| {
        joint.cores.iter().max().copied().unwrap_or(0) - joint.cores.iter().min().copied().unwrap_or(0)
    };
    let is_equal = (one.time_ns - other.time_ns).abs() <= one.time_ns * 1e-12;
    let is_better = if is_equal { spread(&other) < spread(&one) } else { other.time_ns < one.time_ns };
    if is_better { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interference::Learned;

    fn machine(cores: usize) -> Machine {
        Machine { cores, bytes_per_ns: 10.0, cache_bytes: f64::INFINITY, learned: Learned::default() }
    }

    #[test]
    fn arithmetic_runs_beside_memory_on_half_of_the_cores() {
        let machine = machine(8);
        let of = |work, bytes| vec![Demand::roofline_demand(work, bytes, &machine)];
        let found = cotune(&machine, &[of(8.0, 2.0), of(1.0, 20.0)]).expect("an answer");
        assert_eq!(found.together.cores, [4, 4]);
        assert!((found.gain - 3.0 / 2.2).abs() < 1e-9 && (found.gain * 100.0).round() == 136.0, "{}", found.gain);
        assert!(found.is_together && found.is_exact);
    }

    #[test]
    fn what_shares_one_thing_gains_nothing() {
        let machine = machine(2);
        let memory = || vec![Demand::roofline_demand(0.1, 20.0, &machine)];
        let found = cotune(&machine, &[memory(), memory()]).expect("an answer");
        assert!(!found.is_together && found.gain == 1.0, "{found:?}");
    }

    #[test]
    fn the_frugal_schedule_wins_beside_others() {
        let machine = machine(2);
        let of = |time_ns: f64, bytes: f64| Demand {
            alone_ns: vec![time_ns, time_ns / 1.2],
            bytes,
            footprint_bytes: 0.0,
            reused_bytes: 0.0,
            profile: None,
        };
        let schedules = || vec![of(10.0, 95.0), of(10.5, 20.0)];
        let found = cotune(&machine, &[schedules(), schedules()]).expect("an answer");
        assert_eq!((found.in_turns.as_slice(), found.together.schedules.contains(&1)), (&[0, 0][..], true));
        assert!(found.is_together && found.together.time_ns <= 10.5 + 1e-9, "{found:?}");
    }

    #[test]
    fn changes_come_as_far_as_trying_all() {
        let machine = machine(6);
        let of = |place: usize, schedule: usize| {
            let work = 5.0 + (place * 7 + schedule * 3) as f64 % 11.0;
            Demand::roofline_demand(work, ((place + 2) * (schedule + 3) * 5) as f64 % 43.0, &machine)
        };
        let operators: Vec<Vec<Demand>> =
            (0..3).map(|place| (0..6).map(|schedule| of(place, schedule)).collect()).collect();
        let exact = cotune(&machine, &operators).expect("an answer");
        let mut search = Search { machine: &machine, operators: &operators, tried: 0 };
        let found = search.search_locally();
        assert!(exact.is_exact && exact.tried == 6 * 6 * 6 * 10);
        assert!(search.tried < exact.tried && found.time_ns <= exact.together.time_ns * 1.05, "{found:?} {exact:?}");
    }

    #[test]
    fn nonsense_is_refused() {
        let one = || vec![Demand::roofline_demand(1.0, 1.0, &machine(1))];
        let refused = cotune(&machine(1), &[one(), one()]).expect_err("nonsense").to_string();
        assert_eq!(refused, "2 operators on 1 core: each operator needs a core of its own");
        assert_eq!(cotune(&machine(1), &[]).expect_err("nonsense"), Error::Nothing("operator"));
        assert_eq!(cotune(&machine(1), &[vec![]]).expect_err("nonsense"), Error::Nothing("schedule"));
    }
}
