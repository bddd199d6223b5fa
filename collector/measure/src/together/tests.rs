//! Tests that slow, failing or late members do not block the others.

use super::*;
use crate::HostClock;
use std::time::Duration;

fn rule() -> Together {
    Together { rounds: 2, phase_ns: 1_000, samples_min: 2, sample_ns: 1, ..Together::default() }
}

type Run = Box<dyn FnMut(u32) -> Result<(), &'static str> + Send>;

fn all(runs: Vec<Run>, rule: &Together) -> Vec<Result<Shared, MemberError<&'static str>>> {
    let rounds = CoRunRounds::new(runs.len(), rule, false);
    std::thread::scope(|scope| {
        let member = |(place, mut run): (usize, Run)| {
            let rounds = &rounds;
            scope.spawn(move || {
                let (mut clock, mut other) = (HostClock::new(), HostClock::new());
                rounds.measure_member(place, &mut run, rule, (&mut clock, &mut other), &mut NoCounters)
            })
        };
        let members: Vec<_> = runs.into_iter().enumerate().map(member).collect();
        members.into_iter().map(|member| member.join().expect("no panic")).collect()
    })
}

#[test]
fn all_have_enough_samples_however_long_one_takes() {
    let slow: Run = Box::new(|times| {
        std::thread::sleep(Duration::from_millis(u64::from(times)));
        Ok(())
    });
    let quick: Run = Box::new(|_| Ok(()));
    for seen in all(vec![slow, quick], &rule()) {
        let seen = seen.expect("both ran");
        assert_eq!((seen.alone_ns.len(), seen.beside_ns.len()), (2, 2));
        assert!(seen.beside.n >= 4, "two samples of each round: {}", seen.beside.n);
        assert!(seen.slowdown_ratio().is_some_and(|slowdown| slowdown.median > 0.0 && slowdown.interval.is_none()));
    }
}

#[test]
fn who_fails_is_told_and_the_others_end() {
    let mut left = 3;
    let failing: Run = Box::new(move |_| {
        left -= 1;
        if left < 0 { Err("broken") } else { Ok(()) }
    });
    let seen = all(vec![Box::new(|_| Ok(())), failing], &rule());
    assert!(seen[0].is_ok() || seen[0] == Err(MemberError::TimeLimit), "{:?}", seen[0]);
    assert_eq!(seen[1], Err(MemberError::Failed("broken")));
    assert_eq!(all(vec![Box::new(|_| Err("cold"))], &rule())[0], Err(MemberError::Failed("cold")));
}

#[test]
fn a_time_limit_ends_the_rounds() {
    let rule = Together { rounds: 1000, time_limit_ns: 1, ..rule() };
    let seen = all(vec![Box::new(|_| Ok(())), Box::new(|_| Ok(()))], &rule);
    assert!(seen.iter().all(|one| *one == Err(MemberError::TimeLimit)), "{seen:?}");
}

#[test]
fn settings_are_checked() {
    assert_eq!(Together::default().check_settings(), Ok(()));
    for wrong in [
        Together { rounds: 0, ..rule() },
        Together { phase_ns: 0, ..rule() },
        Together { samples_min: 0, ..rule() },
        Together { sample_ns: 0, ..rule() },
        Together { time_limit_ns: u64::MAX, ..rule() },
        Together { samples_kept_max: 0, ..rule() },
    ] {
        assert!(wrong.check_settings().is_err(), "{wrong:?}");
    }
}
