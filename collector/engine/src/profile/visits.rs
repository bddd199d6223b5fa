//! Profiles a model in additional processes (visits), so that comparisons know the scatter between processes.

use crate::Result;
use crate::runs::Runs;
use job::listing::CodeRequests;
use job::{NetworkJob, RunReply};
use measure::counters::{Backend, CounterRequest};
use profile::summary::visits::{BUSY, describe_busy, medians_ns, visit_scatter};
use profile::{Plan, Profile, ProfileSchedule};

/// Number of additional visits (processes) if they agree.
const VISITS: usize = 2;
/// Largest number of additional visits if they disagree.
const MAX_VISITS: usize = 6;
/// Divisor of the time budget: each additional visit gets the budget divided by this number.
const SHARE: u64 = 4;

/// Adds the operators' times of two more processes, and of further ones while they disagree, up to a limit.
pub fn add_visits(profile: &mut Profile, job: &NetworkJob, runs: &mut Runs) -> Result<()> {
    let Some(plan) = &job.profile else { return Ok(()) };
    let plan = Plan::new(ProfileSchedule::default(), plan.budget_ns / SHARE);
    while profile.visits.len() < MAX_VISITS {
        let number = u32::try_from(profile.visits.len() + 1).unwrap_or(u32::MAX);
        let visit = NetworkJob {
            placement: job.method.placement(runs.config.seed, number, number),
            profile: Some(plan.clone()),
            counters: CounterRequest { backend: Backend::None, ..CounterRequest::default() },
            code: CodeRequests::default(),
            ..job.clone()
        };
        runs.check_signal()?;
        // A visit that fails leaves the profile without its time.
        let Ok(RunReply::Profiled(seen)) = runs.run_visits(&visit) else { break };
        let seen = Profile { operators: profile.operators.clone(), ..seen.profile };
        if seen.check().is_err() {
            break;
        }
        profile.visits.push(medians_ns(&seen));
        if profile.visits.len() >= VISITS && visit_scatter(profile).is_none_or(|scatter| scatter < BUSY) {
            return Ok(());
        }
    }
    let busy = describe_busy(profile);
    profile.notes.extend(busy);
    Ok(())
}
