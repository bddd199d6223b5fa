//! Selection of the profiled runs, with the names and semantics of torch.profiler's schedule.
//! Steps are counted from 0. After `skip_first` steps, cycles of `wait`, `warmup` and `active` steps follow,
//! `repeat` times or without limit. Warm-up steps are profiled and discarded. The last active step of a cycle
//! completes the cycle.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileSchedule {
    pub skip_first: u64,
    pub wait: u64,
    pub warmup: u64,
    pub active: u64,
    /// Number of cycles; 0 for no limit.
    pub repeat: u64,
    /// Whether the first cycle omits `wait`: true for any value other than 0.
    pub skip_first_wait: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Nothing,
    Warmup,
    Record,
    RecordAndSave,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    #[error(
        "`{word}` is not a schedule parameter; write for example `skip_first=10,wait=5,warmup=1,active=3,repeat=2`"
    )]
    Word { word: String },
    #[error("`{name}` occurs twice")]
    Twice { name: String },
    #[error("`active` must be at least 1, since nothing would be recorded otherwise")]
    NothingActive,
    #[error("`{name}` is {found}, but must be at most {MOST}")]
    TooMany { name: String, found: u64 },
}

/// Maximum of each parameter, so that sums do not overflow.
const MOST: u64 = 1_000_000_000;

impl Default for ProfileSchedule {
    fn default() -> ProfileSchedule {
        ProfileSchedule { skip_first: 0, wait: 0, warmup: 3, active: MOST, repeat: 1, skip_first_wait: 0 }
    }
}

impl ProfileSchedule {
    pub fn step_action(&self, step: u64) -> Action {
        let Some(step) = step.checked_sub(self.skip_first) else { return Action::Nothing };
        // Without its wait, the first cycle starts `wait` steps later in the pattern.
        let step = if self.skip_first_wait == 0 { step } else { step + self.wait };
        let cycle = self.cycle_steps();
        if self.repeat > 0 && step / cycle >= self.repeat {
            return Action::Nothing;
        }
        match step % cycle {
            place if place < self.wait => Action::Nothing,
            place if place < self.wait + self.warmup => Action::Warmup,
            place if place < cycle - 1 => Action::Record,
            _ => Action::RecordAndSave,
        }
    }

    pub fn cycle_of_step(&self, step: u64) -> u64 {
        let waited = if self.skip_first_wait == 0 { 0 } else { self.wait };
        (step.saturating_sub(self.skip_first) + waited) / self.cycle_steps()
    }

    /// Returns the number of steps until recording ends; `None` if recording does not end.
    pub fn step_count(&self) -> Option<u64> {
        let waited = if self.skip_first_wait == 0 { 0 } else { self.wait };
        (self.repeat > 0).then(|| (self.skip_first + self.repeat * self.cycle_steps()).saturating_sub(waited))
    }

    fn cycle_steps(&self) -> u64 {
        (self.wait + self.warmup + self.active).max(1)
    }

    fn check_limits(self) -> Result<ProfileSchedule, ScheduleError> {
        let ProfileSchedule { skip_first, wait, warmup, active, repeat, .. } = self;
        let numbers =
            [("skip_first", skip_first), ("wait", wait), ("warmup", warmup), ("active", active), ("repeat", repeat)];
        if let Some((name, found)) = numbers.into_iter().find(|(_, found)| *found > MOST) {
            return Err(ScheduleError::TooMany { name: name.to_owned(), found });
        }
        if active == 0 { Err(ScheduleError::NothingActive) } else { Ok(self) }
    }
}

impl FromStr for ProfileSchedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<ProfileSchedule, ScheduleError> {
        let mut found = ProfileSchedule { skip_first: 0, wait: 0, warmup: 0, active: 0, repeat: 0, skip_first_wait: 0 };
        let mut seen: Vec<&str> = Vec::new();
        for word in text.split(',') {
            let unknown = || ScheduleError::Word { word: word.to_owned() };
            let (name, number) = word.trim().split_once('=').ok_or_else(unknown)?;
            let place = match name {
                "skip_first" => &mut found.skip_first,
                "wait" => &mut found.wait,
                "warmup" => &mut found.warmup,
                "active" => &mut found.active,
                "repeat" => &mut found.repeat,
                "skip_first_wait" => &mut found.skip_first_wait,
                _ => return Err(unknown()),
            };
            *place = number.parse().map_err(|_| unknown())?;
            if seen.contains(&name) {
                return Err(ScheduleError::Twice { name: name.to_owned() });
            }
            seen.push(name);
        }
        found.check_limits()
    }
}

impl fmt::Display for ProfileSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProfileSchedule { skip_first, wait, warmup, active, repeat, skip_first_wait } = self;
        write!(f, "skip_first={skip_first},wait={wait},warmup={warmup},active={active},repeat={repeat}")?;
        if *skip_first_wait == 0 { Ok(()) } else { write!(f, ",skip_first_wait={skip_first_wait}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn schedule(text: &str) -> ProfileSchedule {
        text.parse().expect("a schedule")
    }

    fn letters(schedule: ProfileSchedule, steps: u64) -> String {
        let letter = |step| match schedule.step_action(step) {
            Action::Nothing => '.',
            Action::Warmup => 'w',
            Action::Record => 'r',
            Action::RecordAndSave => 'S',
        };
        (0..steps).map(letter).collect()
    }

    #[test]
    fn steps_match_torch() {
        // Expected patterns come from `torch.profiler.schedule` of torch 2.13.
        let ten = schedule("skip_first=10,wait=5,warmup=1,active=3,repeat=2");
        assert_eq!(letters(ten, 32), "...............wrrS.....wrrS....");
        assert_eq!((ten.step_count(), ten.cycle_of_step(15), ten.cycle_of_step(24)), (Some(28), 0, 1));
        let skipping = schedule("skip_first=2,wait=2,warmup=1,active=2,repeat=2,skip_first_wait=1");
        assert_eq!(letters(skipping, 12), "..wrS..wrS..");
        assert_eq!(skipping.step_count(), Some(10));
        assert_eq!(letters(schedule("wait=1,warmup=0,active=1"), 8), ".S.S.S.S");
    }

    #[test]
    fn invalid_schedules_are_rejected() {
        let refused = |text: &str| text.parse::<ProfileSchedule>().expect_err("nonsense").to_string();
        assert_eq!(refused("wait=1"), "`active` must be at least 1, since nothing would be recorded otherwise");
        assert_eq!(refused("active=3,active=4"), "`active` occurs twice");
        assert_eq!(refused("active=2000000000"), "`active` is 2000000000, but must be at most 1000000000");
        for text in ["", "active", "active=-1", "active=1;wait=2", "actve=1", "active=99999999999999999999"] {
            assert!(refused(text).contains("is not a schedule parameter"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_cycle_has_its_steps(
            (skip_first, wait, warmup, active) in (0u64..20, 0u64..9, 0u64..9, 1u64..9),
            (repeat, skip_first_wait) in (1u64..5, 0u64..2),
        ) {
            let schedule = ProfileSchedule { skip_first, wait, warmup, active, repeat, skip_first_wait };
            prop_assert_eq!(schedule.to_string().parse(), Ok(schedule));
            let steps = schedule.step_count().expect("it ends");
            let all = letters(schedule, steps + 50);
            let count = |letter| all.chars().filter(|one| *one == letter).count() as u64;
            prop_assert_eq!(count('w'), warmup * repeat);
            prop_assert_eq!(count('r') + count('S'), active * repeat);
            prop_assert_eq!(count('S'), repeat);
            prop_assert_eq!(all.rfind('S').map(|last| last as u64 + 1), Some(steps));
        }
    }
}
