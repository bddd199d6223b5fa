//! The plan of a folder of artifacts: all its data except the code. It is parsed as untrusted input.

use crate::campaign::{Config, PlannedTask};
use bench::Versions;
use job::Packing;
use job::device::{Architecture, Count, Kernel, Launch};
use job::revision::Revisions;
use job::space::Schedule;
use serde::de::{DeserializeOwned, Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use targets::Target;

pub const PLAN: &str = "plan.json";
/// Version of the plan format; version 6 added the hash of the plan.
pub const FORMAT: u32 = 6;

/// Maximum size of an entry's text, because its parsed tree takes many times the memory of the text.
const MAX_ENTRY_BYTES: usize = 1 << 20;

/// All data of a folder of artifacts except the code.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub(super) format: u32,
    pub(super) program_version: String,
    pub(super) versions: Versions,
    #[serde(deserialize_with = "read_entry")]
    pub(super) target: Target,
    #[serde(deserialize_with = "read_entry")]
    pub(super) config: Config,
    pub(super) revisions: Revisions,
    #[serde(deserialize_with = "read_entries")]
    pub(super) tasks: Vec<PlannedTask>,
    #[serde(deserialize_with = "read_entries")]
    pub(super) builds: Vec<BuildEntry>,
}

/// Result of building one schedule of a task.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuildEntry {
    pub(super) task: usize,
    pub(super) schedule: String,
    /// Object file next to the plan, named after the hash of its content.
    pub(super) object: Option<String>,
    /// Device kernels; their code is in files next to the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) device: Option<BuiltDevice>,
    pub(super) failure: Option<String>,
    pub(super) packings: Vec<Packing>,
    pub(super) trace: Option<String>,
    pub(super) code_bytes: u64,
    pub(super) schedule_ms: f64,
    pub(super) lower_ms: f64,
    pub(super) codegen_ms: f64,
    /// Features of the scheduled program and its code that predict the time.
    #[serde(default)]
    pub(super) features: BTreeMap<String, f64>,
}

/// Device code of a build, whose machine code is stored in separate files.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuiltDevice {
    /// Name of the file with the CUDA C source.
    pub(super) source: String,
    pub(super) launches: Vec<Launch>,
    /// Sizes in bytes of the buffers that only kernels access, not the host.
    pub(super) workspaces: Vec<Count>,
    pub(super) cubins: Vec<BuiltCubin>,
}

/// Machine code for one architecture, in a file named after the hash of its content.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuiltCubin {
    pub(super) architecture: Architecture,
    pub(super) compiler: String,
    pub(super) file: String,
    pub(super) kernels: Vec<Kernel>,
}

impl BuildEntry {
    pub(super) fn is_built(&self) -> bool {
        self.object.is_some() || self.device.is_some()
    }
}

fn read_entry<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<T, D::Error> {
    parse_entry(<&RawValue>::deserialize(deserializer)?)
}

fn parse_entry<T: DeserializeOwned, E: Error>(text: &RawValue) -> Result<T, E> {
    let length = text.get().len();
    if length > MAX_ENTRY_BYTES {
        let start: String = text.get().chars().take(40).collect();
        let most = MAX_ENTRY_BYTES >> 20;
        return Err(E::custom(format!("the entry `{start}…` has {length} bytes; an entry has at most {most} MiB")));
    }
    serde_json::from_str(text.get()).map_err(E::custom)
}

fn read_entries<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_seq(Entries(PhantomData))
}

struct Entries<T>(PhantomData<T>);

impl<'de, T: DeserializeOwned> Visitor<'de> for Entries<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut entries = Vec::new();
        while let Some(text) = list.next_element::<&RawValue>()? {
            entries.push(parse_entry(text)?);
        }
        Ok(entries)
    }
}

impl Plan {
    /// Parses and validates a plan of this format version. The error describes what is wrong.
    pub fn parse(text: &str) -> Result<Plan, String> {
        let plan: Plan = serde_json::from_str(text).map_err(|error| error.to_string())?;
        plan.check()?;
        Ok(plan)
    }

    fn check(&self) -> Result<(), String> {
        self.config.check().map_err(|error| error.to_string())?;
        self.target.check()?;
        self.tasks.iter().try_for_each(check_task)?;
        self.builds.iter().try_for_each(|built| built.check(self.tasks.len()))
    }
}

fn check_task(planned: &PlannedTask) -> Result<(), String> {
    planned.task.check().map_err(|error| error.to_string())?;
    check_text(&planned.task, &planned.json)?;
    let Some(symbolic) = &planned.symbolic else { return Ok(()) };
    symbolic.task.check().map_err(|error| error.to_string())?;
    check_text(&symbolic.task, &symbolic.json)
}

/// Checks that the text of a task, which workers receive, describes the task that records contain.
fn check_text(task: &models::Task, text: &str) -> Result<(), String> {
    let parsed: models::Task =
        serde_json::from_str(text).map_err(|error| format!("the text of a task is invalid: {error}"))?;
    if parsed == *task { Ok(()) } else { Err(format!("the text of `{}` describes another task", task.describe())) }
}

impl BuildEntry {
    fn check(&self, tasks: usize) -> Result<(), String> {
        if self.task >= tasks {
            return Err(format!("the plan has no task {}", self.task));
        }
        Schedule::from_json(&self.schedule).map_err(|error| error.to_string())?;
        let times = [self.schedule_ms, self.lower_ms, self.codegen_ms];
        if times.iter().any(|ms| *ms < 0.0) {
            return Err("a build has a negative duration".to_owned());
        }
        if self.packings.iter().all(Packing::is_sound) {
            Ok(())
        } else {
            Err("a packing has blocks of size 0".to_owned())
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::memory::{alone, peak_bytes};
    use super::*;
    use crate::campaign::graphs::LoadedModels;
    use crate::campaign::{Settings, planned_tasks};
    use job::space;
    use serde_json::{Value, json};

    const CONFIG: &str = "models = [{ source = 'simple', name = 'dense:m=4,n=6,k=8,bias=1,act=relu' }]\n\
                          threads = [1]\nschedules = 2\nbudget_seconds = 60.0\n[counters]\nbackend = 'none'";

    pub fn plan() -> Plan {
        let config = Settings::parse(CONFIG).unwrap().check(1).unwrap();
        let tasks = planned_tasks(&config, &LoadedModels::default()).unwrap();
        let target = targets::llvm_target("x86-64", &[], 1);
        let knobs = space::task_space(&tasks[0].task, &target.machine).default;
        let built = BuildEntry {
            task: 0,
            schedule: Schedule::Template { knobs }.to_json(),
            object: Some("0123456789abcdef0123456789abcdef.o".to_owned()),
            device: None,
            failure: None,
            packings: vec![Packing::Plain, Packing::Blocked { block: 8 }, Packing::Plain, Packing::Plain],
            trace: None,
            code_bytes: 10,
            schedule_ms: 1.0,
            lower_ms: 1.0,
            codegen_ms: 1.0,
            features: BTreeMap::from([("loads".to_owned(), 2.0)]),
        };
        let revisions = Revisions::embedded_table().clone();
        let (program_version, versions) = ("0".to_owned(), Versions::new());
        Plan { format: FORMAT, program_version, versions, target, config, revisions, tasks, builds: vec![built] }
    }

    fn evaluate_plan(plan: &Plan) {
        let limits = &plan.config.limits;
        for seconds in [limits.start_seconds, limits.build_seconds, limits.run_seconds] {
            assert!(std::time::Duration::from_secs_f64(seconds) <= std::time::Duration::from_secs(86_400));
        }
        assert!(limits.build_batch > 0 && !plan.config.threads.is_empty() && !plan.config.cache.is_empty());
        assert!(limits.run_memory_mib.checked_mul(1 << 20).is_some());
        for planned in &plan.tasks {
            let _ = space::sample_points(&space::task_space(planned.scheduled_task(), &plan.target.machine), 1, 2);
            let _ = planned.task.work();
        }
    }

    type Changed<'a> = &'a dyn Fn(Value) -> Value;

    fn with_each(value: &Value, change: &mut dyn FnMut(Changed<'_>)) {
        change(&|new| new);
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    with_each(field, &mut |inner| {
                        change(&|new| {
                            let mut changed = fields.clone();
                            changed.insert(name.clone(), inner(new));
                            Value::Object(changed)
                        });
                    });
                }
            }
            Value::Array(items) => {
                for (place, item) in items.iter().enumerate() {
                    with_each(item, &mut |inner| {
                        change(&|new| {
                            let mut changed = items.clone();
                            changed[place] = inner(new);
                            Value::Array(changed)
                        });
                    });
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn extremes() -> Vec<Value> {
        vec![
            json!(0),
            json!(-1),
            json!(1_u64 << 40),
            json!(u64::MAX),
            json!(i64::MIN),
            json!(-0.5),
            json!(1e19),
            json!(1e300),
            json!(""),
            json!("?"),
            json!([]),
            json!([0]),
            json!({}),
            Value::Null,
            json!(true),
        ]
    }

    #[test]
    fn a_plan_with_any_value_changed_is_refused_or_can_be_used() {
        let whole = serde_json::to_value(plan()).unwrap();
        evaluate_plan(&Plan::parse(&whole.to_string()).unwrap());
        let (mut tried, mut refused) = (0, 0);
        with_each(&whole, &mut |change| {
            for extreme in extremes() {
                tried += 1;
                match Plan::parse(&change(extreme).to_string()) {
                    Ok(plan) => evaluate_plan(&plan),
                    Err(_) => refused += 1,
                }
            }
        });
        assert!(tried > 2000 && refused > tried / 2, "{refused} of {tried} refused");
    }

    #[test]
    fn memory_is_bounded_by_the_length_of_a_plan() {
        alone(plans_of_any_length);
    }

    fn plans_of_any_length() {
        const BYTES: usize = 16 << 20;
        let whole = serde_json::to_value(plan()).unwrap();
        let nested = format!("{}{}", "[".repeat(100), "]".repeat(100));
        let filler = |length: usize| format!("[{}]", vec![nested.as_str(); length / nested.len()].join(","));
        for path in ["/target/machine", "/config/models/0/name", "/tasks/0/task/steps/0/op", "/builds/0/packings"] {
            let mut changed = whole.clone();
            let place = changed.pointer_mut(path).unwrap();
            *place = json!({ "kind": "dense", "filler": "FILLER" });
            let text = changed.to_string().replace("\"FILLER\"", &filler(BYTES));
            let before = peak_bytes();
            let error = Plan::parse(&text).err().unwrap();
            let taken = peak_bytes() - before;
            assert!(taken < 4 * text.len(), "{path}: {taken} bytes for {}", text.len());
            assert!(error.contains("an entry has at most 1 MiB"), "{path}: {error}");
        }
        // Valid entries must take memory only for the parts that are kept.
        let mut many = whole.clone();
        let build = many["builds"][0].clone();
        many["builds"] = json!("BUILDS");
        let builds = vec![build.to_string(); BYTES / build.to_string().len()].join(",");
        let text = many.to_string().replace("\"BUILDS\"", &format!("[{builds}]"));
        let before = peak_bytes();
        let plan = Plan::parse(&text).unwrap();
        let taken = peak_bytes() - before;
        assert!(taken < 16 * text.len() && plan.builds.len() > 1000, "{taken} bytes for {}", text.len());
    }

    #[test]
    fn a_plan_that_is_cut_is_refused() {
        let text = serde_json::to_string(&plan()).unwrap();
        assert!((0..text.len()).step_by(7).all(|length| Plan::parse(&text[..length]).is_err()));
    }

    #[test]
    fn a_plan_rejects_invalid_configurations() {
        let refused = |path: &str, value: Value| {
            let mut whole = serde_json::to_value(plan()).unwrap();
            *whole.pointer_mut(path).unwrap() = value;
            Plan::parse(&whole.to_string()).err().unwrap_or_else(|| "accepted".to_owned())
        };
        expect_test::expect![[r#"
            `limits.build_batch` is 0; allowed are 1 to 1024
            `limits.run_seconds` is -1.0; allowed are 0.001 to 86400, a day
            `limits.run_seconds` is 1e-9; allowed are 0.001 to 86400, a day
            `limits.start_seconds` is 1e+300; allowed are 0.001 to 86400, a day
            `limits.run_memory_mib` is 1; allowed are 64 to 16777216
            `threads` is empty; give at least one
            `cache` is empty; give at least one
            `budget_seconds` is -1.0; it must be above 0 and at most 31622400, a year
            measuring plan: `precision` is 0, but must be between 0 and 1
            the target has the kind `cuda`, but fields of another kind
            the target's `vector_lanes` is 0; allowed are 1..=1024
            the plan has no task 1
            a packing has blocks of size 0
        "#]]
        .assert_eq(
            &[
                refused("/config/limits/build_batch", json!(0)),
                refused("/config/limits/run_seconds", json!(-1.0)),
                refused("/config/limits/run_seconds", json!(1e-9)),
                refused("/config/limits/start_seconds", json!(1e300)),
                refused("/config/limits/run_memory_mib", json!(1)),
                refused("/config/threads", json!([])),
                refused("/config/cache", json!([])),
                refused("/config/budget_seconds", json!(-1.0)),
                refused("/config/measure/precision", json!(0.0)),
                refused("/target/kind", json!("cuda")),
                refused("/target/machine/cpu/vector_lanes", json!(0)),
                refused("/builds/0/task", json!(1)),
                refused("/builds/0/packings/1/Blocked/block", json!(0)),
            ]
            .map(|line| line + "\n")
            .concat(),
        );
    }
}
