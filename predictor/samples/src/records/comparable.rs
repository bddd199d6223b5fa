//! Selects records that may be used together: records with equal settings, which affect times but are not features.
//!
//! For each device, the group of settings with the most records is used, unless the user requests other settings, and
//! for each candidate, only records of the newest code. Other records are rejected with a reason.

use super::{Policy, device_name};
use crate::error::{Error, Result};
use datasets::{Record, ScheduleSource};
use std::collections::{BTreeMap, BTreeSet, HashMap};

struct Setting {
    column: &'static str,
    value: fn(&Record) -> Option<String>,
    /// Whether the setting belongs to the machine or the compiler, not to the measurement of an isolated operator.
    is_of_machine: bool,
}

/// All settings. A missing cache state counts as the default cache state.
const SETTINGS: &[Setting] = &[
    Setting {
        column: "cache_state",
        value: |record| Some(record.cache_state.unwrap_or_default().name().to_owned()),
        is_of_machine: false,
    },
    Setting { column: "clock_policy", value: |record| record.clock_policy.clone(), is_of_machine: true },
    Setting { column: "target_text", value: |record| record.target_text.clone(), is_of_machine: true },
    Setting { column: "llvm_version", value: |record| record.llvm_version.clone(), is_of_machine: true },
    Setting { column: "driver_version", value: |record| record.driver_version.clone(), is_of_machine: true },
    Setting { column: "unit", value: |record| record.unit.clone(), is_of_machine: true },
    Setting { column: "thread_mode", value: |record| record.thread_mode.clone(), is_of_machine: false },
    Setting {
        column: "spin_count",
        value: |record| record.spin_count.map(|count| count.to_string()),
        is_of_machine: false,
    },
    Setting {
        column: "cache_share",
        value: |record| record.cache_share.map(|share| share.to_string()),
        is_of_machine: false,
    },
    // Code for symbolic sizes differs from code for fixed sizes; the task determines its symbols.
    Setting {
        column: "symbolic_task",
        value: |record| record.symbolic_task.as_ref().map(|_| "yes".to_owned()),
        is_of_machine: false,
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Operators,
    /// Operators in a network. Only settings of machine and compiler are compared; the network determines the others.
    Networks,
}

impl Scope {
    fn compared_settings(self) -> impl Iterator<Item = &'static Setting> {
        SETTINGS.iter().filter(move |setting| self == Scope::Operators || setting.is_of_machine)
    }

    fn setting_values(self, record: &Record) -> RecordGroup {
        self.compared_settings().map(|setting| (setting.value)(record)).collect()
    }
}

pub fn check_setting(column: &str) -> Result<()> {
    let known = || SETTINGS.iter().map(|setting| setting.column);
    match known().any(|name| name == column) {
        true => Ok(()),
        false => Err(Error::Data(format!("unknown setting `{column}`; {}", models::names::name_hint(column, known())))),
    }
}

type RecordGroup = Vec<Option<String>>;

type Counts = BTreeMap<RecordGroup, (usize, i64)>;

/// Device, target, task, schedule and thread count. A schedule of None means the default schedule of any version.
type Candidate<'a> = (String, &'static str, &'a str, Option<&'a str>, i64);

/// TVM version, code revision of this project, and default schedule.
type Version<'a> = (Option<&'a str>, Option<&'a str>, Option<&'a str>);

fn candidate_version(record: &Record, scope: Scope) -> (Candidate<'_>, Version<'_>) {
    let schedule = record.schedule_hash.as_deref();
    // Features cannot distinguish the default schedule from the default schedule of older code.
    let is_default = scope == Scope::Operators && record.schedule_source == Some(ScheduleSource::Default);
    let (named, default) = if is_default { (None, schedule) } else { (schedule, None) };
    let threads = record.threads.unwrap_or(1);
    let candidate = (device_name(record), record.target.name(), record.task_hash.as_str(), named, threads);
    (candidate, (record.tvm_version.as_deref(), record.code_revision.as_deref(), default))
}

/// Requirements on comparable records: the group of settings per device, and the newest version per candidate.
pub(super) struct Comparable<'a> {
    policy: &'a Policy,
    scope: Scope,
    groups: BTreeMap<String, RecordGroup>,
    newest: HashMap<Candidate<'a>, Version<'a>>,
}

impl<'a> Comparable<'a> {
    pub fn from_records(records: &[&'a Record], policy: &'a Policy, scope: Scope) -> Comparable<'a> {
        let mut counts: BTreeMap<String, Counts> = BTreeMap::new();
        for record in records.iter().filter(|record| request_mismatch(record, policy, scope).is_none()) {
            let of_device = counts.entry(device_name(record)).or_default();
            let (count, newest) = of_device.entry(scope.setting_values(record)).or_insert((0, i64::MIN));
            (*count, *newest) = (*count + 1, (*newest).max(record.started_at_us));
        }
        let most =
            |groups: Counts| groups.into_iter().max_by_key(|(_, rank)| *rank).map_or_else(Vec::new, |(group, _)| group);
        let groups = counts.into_iter().map(|(device, groups)| (device, most(groups))).collect();
        let mut comparable = Comparable { policy, scope, groups, newest: HashMap::new() };
        let mut newest: HashMap<Candidate<'a>, (i64, Version<'a>)> = HashMap::new();
        for record in records.iter().filter(|record| comparable.other_setting(record).is_none()) {
            let (candidate, version) = candidate_version(record, scope);
            let known = newest.entry(candidate).or_insert((i64::MIN, version));
            *known = (*known).max((record.started_at_us, version));
        }
        comparable.newest = newest.into_iter().map(|(candidate, (_, version))| (candidate, version)).collect();
        comparable
    }

    pub fn refusal_reason(&self, record: &Record) -> Option<String> {
        self.other_setting(record).or_else(|| {
            let (candidate, version) = candidate_version(record, self.scope);
            let is_older = self.newest.get(&candidate).is_some_and(|newest| *newest != version);
            (is_older && !self.policy.all_versions)
                .then(|| "older code; the same task and schedule were measured again with newer code".to_owned())
        })
    }

    pub fn other_setting(&self, record: &Record) -> Option<String> {
        let request_mismatch = request_mismatch(record, self.policy, self.scope);
        let others = || {
            let device = device_name(record);
            let group = self.groups.get(&device)?;
            let own = self
                .scope
                .compared_settings()
                .zip(group)
                .map(|(setting, usual)| (setting, (setting.value)(record), usual));
            let (setting, value, usual) = own.into_iter().find(|(_, value, usual)| value != *usual)?;
            let (value, usual) = (or_none(value.as_deref()), or_none(usual.as_deref()));
            Some(format!("`{}` is {value}, but {usual} in most records of `{device}`", setting.column))
        };
        request_mismatch.or_else(others)
    }

    pub fn recorded_settings(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        let named = |group: &RecordGroup| {
            let own = self.scope.compared_settings().zip(group);
            own.filter_map(|(setting, value)| Some((setting.column.to_owned(), value.clone()?))).collect()
        };
        self.groups.iter().map(|(device, group)| (device.clone(), named(group))).collect()
    }
}

pub(super) fn differing_settings<'r>(
    records: impl Iterator<Item = &'r Record>,
    comparable: &Comparable<'_>,
) -> BTreeSet<(&'static str, String)> {
    let mut found = BTreeSet::new();
    for record in records {
        let Some(group) = comparable.groups.get(&device_name(record)) else { continue };
        for (setting, usual) in comparable.scope.compared_settings().zip(group) {
            let value = (setting.value)(record).filter(|value| Some(value) != usual.as_ref());
            found.extend(value.map(|value| (setting.column, value)));
        }
    }
    found
}

fn request_mismatch(record: &Record, policy: &Policy, scope: Scope) -> Option<String> {
    let mut asked =
        scope.compared_settings().filter_map(|setting| Some((setting, policy.settings.get(setting.column)?)));
    asked.find_map(|(setting, asked)| {
        let value = (setting.value)(record);
        let is_other = value.as_ref() != Some(asked);
        is_other.then(|| format!("`{}` is {}, not `{asked}`", setting.column, or_none(value.as_deref())))
    })
}

fn or_none(value: Option<&str>) -> String {
    value.map_or_else(|| "not recorded".to_owned(), |value| format!("`{value}`"))
}
