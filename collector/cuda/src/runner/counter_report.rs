//! Results of a job other than times: counters, rejections, warnings, and the failure that ended reading counters.

use measure::Warning;
use measure::counters::gpu as names;
use measure::counters::{CounterValue, Coverage, Refusal, Step};

#[derive(Default)]
pub(super) struct CounterReport {
    pub(super) values: Vec<CounterValue>,
    pub(super) refusals: Vec<Refusal>,
    pub(super) warnings: Vec<Warning>,
    /// First failure, after which the device's state is undefined.
    pub(super) failure: Option<String>,
}

impl CounterReport {
    pub(super) fn add_counter(&mut self, name: &str, native: &str, number: f64) {
        let counter = names::find_counter(name).expect("the counter is in the table");
        self.add_named(name, counter.unit, counter.step, native, number);
    }

    pub(super) fn add_named(&mut self, name: &str, unit: &str, step: Step, native: &str, number: f64) {
        self.values.push(CounterValue {
            name: name.to_owned(),
            unit: unit.to_owned(),
            step,
            native: native.to_owned(),
            coverage: Coverage::External,
            per_run: number,
            runs: 1,
            running_ratio: 1.0,
        });
    }

    pub(super) fn add_refusal(&mut self, name: &str, errno: Option<i32>, why: impl ToString) {
        let step = names::find_counter(name).map_or(Step::Cupti, |counter| counter.step);
        self.refusals.push(Refusal { event: name.to_owned(), step, errno, why: why.to_string() });
    }

    /// Reads counters with `read`. A failure rejects these counters and all later ones.
    pub(super) fn read_or_refuse<E: std::fmt::Display>(
        &mut self,
        names: &[&str],
        read: impl FnOnce(&mut CounterReport) -> Result<(), E>,
    ) {
        let why = match &self.failure {
            Some(first) => format!("not tried, because an earlier call failed: {first}"),
            None => match read(self) {
                Ok(()) => return,
                Err(error) => {
                    let why = format!("{error:#}");
                    self.failure = Some(why.clone());
                    why
                }
            },
        };
        for name in names {
            let is_reported = self.values.iter().any(|value| value.name == *name)
                || self.refusals.iter().any(|refusal| refusal.event == *name);
            if !is_reported {
                self.add_refusal(name, None, &why);
            }
        }
    }
}
