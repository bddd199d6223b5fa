//! Settings of a nightly run: duration, frequency of sentinel measurements, and work in addition to new experiments.

use serde::{Deserialize, Serialize};

/// Settings of nightly runs: the table `[night]` of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Night {
    /// Duration of a nightly run in minutes.
    pub minutes: f64,
    /// Latest end of a nightly run, as `HH:MM` in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// Interval between sentinel runs in minutes. Sentinels also run at the beginning and the end.
    pub sentinel_minutes: f64,
    /// Share of the run's time for repeated measurements of default schedules and doubtful results.
    pub again_share: f64,
    /// Number of resized variants of each task that are measured when all other work is done.
    pub variations: usize,
    /// Number of earlier nightly runs with which this run is compared.
    pub nights: usize,
}

impl Default for Night {
    fn default() -> Night {
        Night { minutes: 480.0, deadline: None, sentinel_minutes: 10.0, again_share: 0.5, variations: 0, nights: 10 }
    }
}

impl Night {
    /// Validates the settings. An error contains the setting's name, its value, and the allowed values.
    pub fn check(&self) -> Result<(), (&'static str, String, String)> {
        let refuse = |field: &'static str, found: String, allowed: &str| Err((field, found, allowed.to_owned()));
        if !(self.minutes > 0.0 && self.minutes <= 10_080.0) {
            return refuse("night.minutes", self.minutes.to_string(), "it must be above 0 and at most 10080, a week");
        }
        if !(self.sentinel_minutes > 0.0 && self.sentinel_minutes <= 1440.0) {
            let found = self.sentinel_minutes.to_string();
            return refuse("night.sentinel_minutes", found, "it must be above 0 and at most 1440, a day");
        }
        if !(0.0..=1.0).contains(&self.again_share) {
            return refuse("night.again_share", self.again_share.to_string(), "allowed are 0 to 1");
        }
        if self.variations > 1000 {
            return refuse("night.variations", self.variations.to_string(), "allowed are 0 to 1000");
        }
        if !(1..=1000).contains(&self.nights) {
            return refuse("night.nights", self.nights.to_string(), "allowed are 1 to 1000");
        }
        match &self.deadline {
            Some(text) if minute_of_day(text).is_none() => {
                refuse("night.deadline", format!("`{text}`"), "write a time of day in UTC, such as `06:30`")
            }
            _ => Ok(()),
        }
    }

    /// Returns the duration in seconds of a nightly run that begins at `now`, in seconds since 1970.
    pub fn duration_seconds(&self, now: u64) -> f64 {
        let budget = 60.0 * self.minutes;
        let Some(minute) = self.deadline.as_deref().and_then(minute_of_day) else { return budget };
        let until = (minute * 60 + 86_400 - now % 86_400) % 86_400;
        // If the run begins exactly at the deadline, the deadline of the next day counts.
        budget.min(if until == 0 { 86_400.0 } else { until as f64 })
    }
}

fn minute_of_day(text: &str) -> Option<u64> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |text: &str| (text.len() == 2).then(|| text.parse::<u64>().ok()).flatten();
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_night_ends_by_budget_or_by_the_next_deadline() {
        let night = |minutes: f64, deadline: Option<&str>| Night {
            minutes,
            deadline: deadline.map(str::to_owned),
            ..Night::default()
        };
        // An arbitrary day at 22:00.
        let now = 20_000 * 86_400 + 22 * 3600;
        assert_eq!(night(60.0, None).duration_seconds(now), 3600.0);
        assert_eq!(night(1000.0, Some("06:30")).duration_seconds(now), 8.5 * 3600.0);
        assert_eq!(night(60.0, Some("06:30")).duration_seconds(now), 3600.0);
        assert_eq!(night(10_000.0, Some("22:00")).duration_seconds(now), 86_400.0);
        assert!(night(1.0, Some("24:00")).check().is_err() && night(1.0, Some("6:30")).check().is_err());
        assert!(night(f64::NAN, None).check().is_err() && night(0.0, None).check().is_err());
        assert!(Night::default().check().is_ok());
    }
}
