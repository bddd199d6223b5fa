//! Applies the caller's selection among the measurements of each experiment during a merge.

use super::merge::Merge;
use crate::error::Result;
use crate::record::batch::Batch;
use crate::record::choose::Choose;
use crate::record::visits::{AttemptTime, OverVisits, Visit, state_in_batch, statistics_over_visits};
use std::ops::Range;

pub(super) struct SelectedRows {
    merge: Merge,
    choose: Choose,
    /// Attempts of the experiment that was read last; the next rows may contain more attempts of this experiment.
    open: Batch,
}

impl SelectedRows {
    pub fn new(merge: Merge, choose: Choose) -> SelectedRows {
        SelectedRows { merge, choose, open: Batch::all_columns() }
    }

    pub fn next_rows(&mut self) -> Result<Option<Batch>> {
        if self.choose == Choose::All {
            return self.merge.next_rows();
        }
        let mut chosen = Batch::all_columns();
        let mut known: Vec<Option<OverVisits>> = Vec::new();
        while chosen.is_empty() {
            let Some(rows) = self.merge.next_rows()? else {
                self.close_experiment(&mut chosen, &mut known);
                break;
            };
            // The first attempt starts an experiment.
            let begins: Vec<usize> = (0..rows.len()).filter(|row| rows.attempt_number(*row) == 1).collect();
            self.open.extend(&rows, 0..begins.first().copied().unwrap_or(rows.len()));
            let Some(&last) = begins.last() else { continue };
            self.close_experiment(&mut chosen, &mut known);
            let experiments = begins.windows(2).map(|pair| pair[0]..pair[1]);
            known.extend(experiments.clone().flat_map(|places| self.over_visits(&rows, places)));
            for places in join_ranges(experiments.map(|places| self.selected_rows(&rows, places))) {
                chosen.extend(&rows, places);
            }
            self.open.extend(&rows, last..rows.len());
        }
        state_in_batch(&mut chosen, &known);
        Ok(Some(chosen).filter(|chosen| !chosen.is_empty()))
    }

    fn close_experiment(&mut self, chosen: &mut Batch, known: &mut Vec<Option<OverVisits>>) {
        let open = std::mem::replace(&mut self.open, Batch::all_columns());
        known.extend(self.over_visits(&open, 0..open.len()));
        chosen.extend(&open, self.selected_rows(&open, 0..open.len()));
    }

    fn over_visits(&self, rows: &Batch, places: Range<usize>) -> Vec<Option<OverVisits>> {
        let chosen = self.selected_rows(rows, places.clone());
        if self.choose != Choose::Middle {
            return vec![None; chosen.len()];
        }
        let visits: Vec<Visit> = places.filter_map(|row| Visit::from_row(&rows.row(row))).collect();
        chosen
            .map(|row| {
                AttemptTime::from_row(&rows.row(row))
                    .median_ns
                    .map(|shown_ns| statistics_over_visits(shown_ns, &visits))
            })
            .collect()
    }

    fn selected_rows(&self, rows: &Batch, places: Range<usize>) -> Range<usize> {
        let tried: Vec<AttemptTime> = places.clone().map(|row| AttemptTime::from_row(&rows.row(row))).collect();
        let chosen = self.choose.selected_range(&tried);
        places.start + chosen.start..places.start + chosen.end
    }
}

/// Joins adjacent ranges, because larger copies are faster.
fn join_ranges(places: impl Iterator<Item = Range<usize>>) -> Vec<Range<usize>> {
    let mut joined: Vec<Range<usize>> = Vec::new();
    for next in places {
        match joined.last_mut() {
            Some(last) if last.end == next.start => last.end = next.end,
            _ => joined.push(next),
        }
    }
    joined
}
