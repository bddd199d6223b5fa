//! Lists of schedules: the output of `opcollect space --sample N --json`, or the plan of `opcollect build`.
//!
//! A schedule stays JSON text until it is read, because a parsed JSON tree takes many times the memory of its text.

use models::Task;
use samples::records::{add_figures, features_of_schedule, knob_features};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::io::Read;

/// Size limit of a list; the same as for plans in `opcollect`.
const MAX_BYTES: u64 = 256 << 20;
/// Size limit of one task, one schedule or the code features of one schedule.
const MAX_ENTRY_BYTES: usize = 1 << 20;

pub fn read_text(source: impl Read) -> std::io::Result<String> {
    let mut text = String::new();
    source.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        let most = MAX_BYTES >> 20;
        let fewer = "`opcollect space --sample` and `opcollect build --schedules`";
        let problem = format!("the list has more than {most} MiB; list fewer schedules with {fewer}");
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, problem));
    }
    Ok(text)
}

pub enum ScheduleList<'a> {
    Spaces(Vec<Space<'a>>),
    /// A plan: tasks, and builds with their knobs and code features.
    Plan {
        tasks: Vec<String>,
        builds: Vec<Build<'a>>,
    },
}

#[derive(Deserialize)]
pub struct Space<'a> {
    text: String,
    #[serde(default, borrow)]
    sample: Vec<ListedKnobs<'a>>,
}

struct ListedKnobs<'a>(&'a str);

#[derive(Deserialize)]
struct Plan<'a> {
    #[serde(borrow)]
    tasks: Vec<&'a RawValue>,
    #[serde(borrow)]
    builds: Vec<Build<'a>>,
}

#[derive(Deserialize)]
struct PlannedTask {
    task: Task,
}

#[derive(Deserialize)]
pub struct Build<'a> {
    task: usize,
    schedule: String,
    failure: Option<String>,
    #[serde(default)]
    code_bytes: f64,
    #[serde(borrow)]
    features: Option<&'a RawValue>,
}

/// A schedule as JSON to print, and its features for the predictor.
pub type NamedSchedule = (Value, BTreeMap<String, f64>);

pub struct ListedSchedule<'a>(ListSource<'a>);

enum ListSource<'a> {
    Knobs(&'a str),
    Build(&'a Build<'a>),
}

impl<'de: 'a, 'a> Deserialize<'de> for ListedKnobs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?.get();
        match text.starts_with('{') {
            true => Ok(ListedKnobs(text)),
            false => Err(de::Error::custom("knobs must be a JSON object")),
        }
    }
}

fn check_length(text: &str) -> Result<(), String> {
    if text.len() <= MAX_ENTRY_BYTES {
        return Ok(());
    }
    let start: String = text.chars().take(40).collect();
    let most = MAX_ENTRY_BYTES >> 20;
    Err(format!("the entry `{start}…` has {} bytes; the limit is {most} MiB", text.len()))
}

impl<'a> ScheduleList<'a> {
    /// Parses a plan of `opcollect build`, or the output of `opcollect space`, of which only the last line is used.
    pub fn parse_list(text: &'a str) -> Result<ScheduleList<'a>, String> {
        let is_neither =
            "the file is neither the output of `opcollect space --sample N --json` nor a plan of `opcollect build`";
        let last = text.lines().last().unwrap_or_default();
        for document in [text, last] {
            if let Ok(spaces) = serde_json::from_str(document) {
                return Ok(ScheduleList::Spaces(spaces));
            }
            if let Ok(Plan { tasks, builds }) = serde_json::from_str(document) {
                let tasks = tasks.into_iter().map(|task| {
                    check_length(task.get())?;
                    let planned: PlannedTask = serde_json::from_str(task.get()).map_err(|_| is_neither.to_owned())?;
                    Ok(planned.task.describe())
                });
                return Ok(ScheduleList::Plan { tasks: tasks.collect::<Result<_, String>>()?, builds });
            }
        }
        Err(is_neither.to_owned())
    }

    pub fn schedules_of(&self, operator: &str) -> Vec<ListedSchedule<'_>> {
        match self {
            ScheduleList::Spaces(spaces) => {
                let samples = spaces.iter().find(|space| space.text == operator).map(|space| &space.sample);
                samples.into_iter().flatten().map(|knobs| ListedSchedule(ListSource::Knobs(knobs.0))).collect()
            }
            ScheduleList::Plan { tasks, builds } => {
                let is_wanted: Vec<bool> = tasks.iter().map(|task| task == operator).collect();
                let is_built =
                    |build: &&Build<'_>| build.failure.is_none() && is_wanted.get(build.task).is_some_and(|is| *is);
                builds.iter().filter(is_built).map(|build| ListedSchedule(ListSource::Build(build))).collect()
            }
        }
    }
}

impl ListedSchedule<'_> {
    /// Parses the schedule; None if the text is not a schedule.
    pub fn read_schedule(&self) -> Result<Option<NamedSchedule>, String> {
        match self.0 {
            ListSource::Knobs(text) => {
                check_length(text)?;
                let knobs = serde_json::from_str(text).map_err(|error| error.to_string())?;
                let extras = knob_features(&knobs);
                Ok(Some((knobs.into(), extras)))
            }
            ListSource::Build(build) => build.read_schedule(),
        }
    }
}

impl Build<'_> {
    fn read_schedule(&self) -> Result<Option<NamedSchedule>, String> {
        check_length(&self.schedule)?;
        let Ok(schedule) = serde_json::from_str::<Value>(&self.schedule) else { return Ok(None) };
        let mut extras = features_of_schedule(&schedule);
        if let Some(features) = self.features {
            check_length(features.get())?;
            add_figures(&serde_json::from_str(features.get()).map_err(|error| error.to_string())?, &mut extras);
            extras.insert("code.bytes".to_owned(), self.code_bytes);
        }
        Ok(Some((schedule.get("knobs").cloned().unwrap_or(schedule), extras)))
    }
}

#[cfg(test)]
#[path = "../../tests/memory.rs"]
mod memory;

#[cfg(test)]
mod tests {
    use super::memory::{alone, peak_bytes};
    use super::*;
    use serde_json::json;

    fn plan(schedule: &Value, features: &str) -> String {
        let task = Task::from_text(r#"dense(f32[4,8], const f32[6,8])"#).unwrap();
        let build = json!({ "task": 0, "schedule": schedule.to_string(), "features": "FEATURES", "code_bytes": 7 });
        let plan = json!({ "tasks": [{ "task": task }], "builds": [build] });
        plan.to_string().replace("\"FEATURES\"", features)
    }

    fn read(text: &str) -> Result<Vec<NamedSchedule>, String> {
        let list = ScheduleList::parse_list(text)?;
        let schedules = list.schedules_of(&Task::from_text(r#"dense(f32[4,8], const f32[6,8])"#).unwrap().describe());
        schedules.iter().filter_map(|schedule| schedule.read_schedule().transpose()).collect()
    }

    #[test]
    fn schedules_of_a_plan_and_of_a_printed_space_are_read() {
        let knobs = json!({ "tile_x": 4, "layout": "plain" });
        let (shown, extras) =
            read(&plan(&json!({ "from": "template", "knobs": knobs }), r#"{"loads":2.0}"#)).unwrap().remove(0);
        assert_eq!(shown, knobs);
        assert_eq!((extras["code.bytes"], extras["code.loads"], extras["knob.tile_x"]), (7.0, 2.0, 4.0));
        let (_, extras) = read(&plan(&json!({ "from": "template", "knobs": knobs }), "null")).unwrap().remove(0);
        assert!(!extras.contains_key("code.bytes"));

        let text = Task::from_text(r#"dense(f32[4,8], const f32[6,8])"#).unwrap().describe();
        let printed = format!("a line\n{}\n", json!([{ "text": text, "size": 9, "sample": [knobs] }]));
        assert_eq!(read(&printed).unwrap()[0].0, knobs);
        assert!(read(&printed.replace("[{\"layout", "[7,{\"layout")).is_err());
        assert!(read("{}").is_err() && read("").is_err());
    }

    #[test]
    fn memory_is_bounded_by_the_length_of_a_list() {
        alone(lists_of_any_length);
    }

    fn lists_of_any_length() {
        const BYTES: usize = 16 << 20;
        let nested = format!("{}0{}", r#"{"":"#.repeat(100), "}".repeat(100));
        let filler = format!("[{}]", vec![nested.as_str(); BYTES / nested.len()].join(","));
        let text = Task::from_text(r#"dense(f32[4,8], const f32[6,8])"#).unwrap().describe();
        let schedule = json!({ "from": "template", "knobs": {} });
        let lists = [
            plan(&schedule, &filler),
            plan(&schedule, &filler).replace("\"kind\":\"dense\"", &format!("\"kind\":\"dense\",\"a\":{filler}")),
            json!([{ "text": text, "sample": [{ "a": "FILLER" }] }]).to_string().replace("\"FILLER\"", &filler),
        ];
        for list in lists {
            let before = peak_bytes();
            assert!(read(&list).is_err());
            let taken = peak_bytes() - before;
            assert!(taken < 4 * list.len(), "{taken} bytes for {} of {:.80}", list.len(), list);
        }
        let many = vec![schedule.to_string(); BYTES / 64].join(",");
        let list =
            json!([{ "text": text, "sample": "SAMPLE" }]).to_string().replace("\"SAMPLE\"", &format!("[{many}]"));
        let before = peak_bytes();
        assert_eq!(ScheduleList::parse_list(&list).unwrap().schedules_of(&text).len(), BYTES / 64);
        let taken = peak_bytes() - before;
        assert!(taken < 16 * list.len(), "{taken} bytes for {}", list.len());
    }

    #[test]
    fn a_list_without_end_is_refused() {
        let error = read_text(std::io::repeat(b' ')).unwrap_err().to_string();
        assert!(error.starts_with("the list has more than 256 MiB; list fewer schedules with"), "{error}");
    }
}
