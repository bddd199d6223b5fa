//! Queries on a store of measurements: the best measured schedules, and the list of tasks.

use crate::error::{Error, Result};
use datasets::best::{Question, best_records, host_names};
use datasets::{Choose, Key, Record, Store};
use measure::host::Facts;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

#[derive(Default)]
pub struct StoredRecords(Vec<Record>);

impl StoredRecords {
    /// Reads all records of a store; records that are added later are ignored.
    pub fn read_store(path: &Path) -> Result<StoredRecords> {
        let failed = |error: datasets::Error| Error::Data(error.to_string());
        let records = Store::open(path).and_then(|store| store.select_records(Choose::All)).map_err(failed)?;
        Ok(StoredRecords(
            records
                .map(|record| record.map(Record::without_long_columns))
                .collect::<datasets::Result<_>>()
                .map_err(failed)?,
        ))
    }

    /// Returns the best schedule of each task, from records of the newest versions: on the named host, or on that which
    /// is most like the server's.
    pub(super) fn best_schedules(&self, question: Question) -> Result<Value> {
        let here = match &question.host {
            None => this_host(),
            Some(host) => {
                let is_it = |record: &&Record| record.host == *host || record.host_class == *host;
                let unknown = || {
                    let hint = models::names::name_hint(host, host_names(&self.0));
                    Error::Query(format!("the store has no record of the host `{host}`: {hint}"))
                };
                self.0.iter().find(is_it).cloned().ok_or_else(unknown)?
            }
        };
        // For a task that the host did not measure, the nearest host with records is used.
        let question = Question { host: None, ..question };
        Ok(json!(best_records(&self.0, &question, &here)))
    }

    pub(super) fn list_tasks(&self) -> Value {
        let mut tasks: BTreeMap<&str, (&Record, BTreeSet<Key>, BTreeSet<&str>)> = BTreeMap::new();
        for record in self.0.iter().filter(|record| record.is_alone()) {
            let task = tasks.entry(&record.task_hash).or_insert_with(|| (record, BTreeSet::new(), BTreeSet::new()));
            task.1.insert(record.key);
            task.2.insert(&record.host);
        }
        let entries = tasks.into_values().map(|(record, experiments, hosts)| {
            json!({
                "task_hash": record.task_hash, "op_kind": record.op_kind, "task": record.op_text,
                "experiments": experiments.len(), "hosts": hosts,
            })
        });
        json!({ "tasks": entries.collect::<Vec<Value>>() })
    }
}

/// Returns a record with the columns by which hosts are compared.
fn this_host() -> Record {
    let facts = Facts::read_facts();
    let cache = |level: u32| facts.cache_bytes(level).and_then(|bytes| i64::try_from(bytes).ok());
    Record {
        host: facts.hostname.clone().unwrap_or_default(),
        host_class: facts.host_class(),
        cpu_model: facts.cpu_model.clone(),
        cpu_arch: Some(facts.architecture.clone()),
        logical_cpus: Some(i64::from(facts.logical_cpus)),
        l2_bytes: cache(2),
        l3_bytes: cache(3),
        ..Record::default()
    }
}
