//! Conversion of measured times to record columns.

use datasets::Record;
use measure::statistics::summarise_samples;

/// Fills the time columns, and keeps at most `kept` samples. Returns false if there are no samples.
pub fn fill_times(record: &mut Record, samples_ns: &[f64], kept: usize) -> bool {
    let mut sorted = samples_ns.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(numbers) = summarise_samples(&sorted) else { return false };
    record.n = i64::from(numbers.n);
    record.median_ns = Some(numbers.median);
    record.mean_ns = Some(numbers.mean);
    record.min_ns = Some(numbers.min);
    record.p95_ns = Some(numbers.p95);
    record.std_ns = numbers.std;
    record.cv = numbers.cv;
    record.median_interval_ns = numbers.median_interval.map(|(low, high)| (high - low) / 2.0);
    let step = samples_ns.len().div_ceil(kept).max(1);
    record.samples_ns = samples_ns.iter().step_by(step).copied().collect();
    true
}

#[cfg(test)]
mod tests {
    use super::fill_times;
    use datasets::Record;

    #[test]
    fn a_record_has_statistics_and_some_samples() {
        let mut record = Record::default();
        assert!(!fill_times(&mut record, &[], 2));
        assert_eq!(record, Record::default());
        assert!(fill_times(&mut record, &[3.0, 1.0, 2.0], 2));
        assert_eq!((record.n, record.median_ns, record.min_ns), (3, Some(2.0), Some(1.0)));
        assert_eq!(record.samples_ns, [3.0, 2.0]);
    }
}
