//! Finds experiments for which given hardware counters were requested. Counters are not part of an experiment's key.

use super::index::row_key;
use super::{Store, retry_if_missing};
use crate::error::Result;
use crate::record::batch::{Batch, Row};
use crate::record::cell::Cell;
use crate::record::key::Key;
use crate::record::table::ColumnId;
use serde::de::IgnoredAny;
use std::collections::{BTreeMap, HashSet};

impl Store {
    /// Returns the experiments with an attempt that has or refused each of `counters`, or that used this configuration.
    pub fn counted_experiments(&self, counters: &[String], config_hash: &str) -> Result<HashSet<Key>> {
        let columns = [ColumnId::key, ColumnId::config_hash, ColumnId::counters, ColumnId::counters_refused];
        let note = |batch: &Batch, counted: &mut HashSet<Key>| {
            let asked = batch.rows().filter(|row| was_asked(row, counters, config_hash));
            counted.extend(asked.map(|row| row_key(&row)));
        };
        let (all, _) = retry_if_missing(|| self.scan_batches(&columns, HashSet::new, note))?;
        Ok(all.into_iter().flatten().collect())
    }
}

fn was_asked(row: &impl Row, counters: &[String], config_hash: &str) -> bool {
    let names = |id| match row.cell(id) {
        Cell::Text(text) => serde_json::from_str::<BTreeMap<String, IgnoredAny>>(text).unwrap_or_default(),
        _ => BTreeMap::new(),
    };
    if row.cell(ColumnId::config_hash) == Cell::Text(config_hash) {
        return true;
    }
    let (read, refused) = (names(ColumnId::counters), names(ColumnId::counters_refused));
    counters.iter().all(|name| read.contains_key(name) || refused.contains_key(name))
}
