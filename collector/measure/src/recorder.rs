//! Times batches and accumulates samples, counters and CPU time, read outside of the timed interval. Groups of counters
//! alternate between batches, and each counter is divided by the runs of its own batches.

use super::{Clock, Measurement, StopReason, Warning, statistics, stopping, warning};
use crate::counters::{CountedEvents, CounterReader, CounterValue, Reading, Refusal, Usage};

pub struct Recorder<'a> {
    pub clock: &'a mut dyn Clock,
    counters: &'a mut dyn CounterReader,
    started_ns: u64,
    before: Vec<Option<Reading>>,
    after: Vec<Option<Reading>>,
    totals: Vec<CountedEvents>,
    usage: Usage,
    samples: Vec<f64>,
    sorted: Vec<f64>,
    timed_runs: u64,
    timed_ns: u64,
    preempted: u32,
    last: Option<Batch>,
    probes_ns: Vec<f64>,
    probed_at_ns: Option<u64>,
}

/// Least time between two probes of the clock rate, of which each takes about 10 µs.
const PROBE_EVERY_NS: u64 = 1_000_000;

#[derive(Clone, Copy)]
pub struct Batch {
    pub runs: u32,
    pub elapsed_ns: u64,
    usage: Usage,
}

pub struct Closing {
    pub first_run_ns: u64,
    pub warm_up_runs: u64,
    pub batch_size: u32,
    pub confidence: f64,
    pub samples_kept_max: u32,
    pub flush_bytes: Option<u64>,
    pub stop: StopReason,
    pub wanted: Option<f64>,
    pub samples_min: u32,
    pub speed_ns: (u64, u64),
}

impl<'a> Recorder<'a> {
    pub fn new(clock: &'a mut dyn Clock, counters: &'a mut dyn CounterReader) -> Self {
        let channels = counters.channels().len();
        Self {
            started_ns: clock.now_ns(),
            clock,
            counters,
            before: vec![None; channels],
            after: vec![None; channels],
            totals: vec![CountedEvents::default(); channels],
            usage: Usage::default(),
            samples: Vec::new(),
            sorted: Vec::new(),
            timed_runs: 0,
            timed_ns: 0,
            preempted: 0,
            last: None,
            probes_ns: Vec::new(),
            probed_at_ns: None,
        }
    }

    pub fn elapsed_ns(&mut self) -> u64 {
        self.clock.now_ns().saturating_sub(self.started_ns)
    }

    pub fn sorted_samples(&self) -> &[f64] {
        &self.sorted
    }

    /// Times runs without recording them, for the first run and the warm-up.
    pub fn time_runs<E>(&mut self, run: &mut dyn FnMut(u32) -> Result<(), E>, times: u32) -> Result<u64, E> {
        Ok(self.time_span(run, times, 0)?.1)
    }

    /// Repeats a batch until it took `least_ns` in total. Returns the number of runs and the elapsed time.
    pub fn time_span<E>(
        &mut self,
        run: &mut dyn FnMut(u32) -> Result<(), E>,
        times: u32,
        least_ns: u64,
    ) -> Result<(u32, u64), E> {
        let start = self.clock.now_ns();
        let mut runs = 0u32;
        loop {
            run(times)?;
            runs = runs.saturating_add(times);
            let elapsed_ns = self.clock.now_ns().saturating_sub(start);
            if elapsed_ns >= least_ns {
                return Ok((runs, elapsed_ns));
            }
        }
    }

    /// Times a batch with counters and usage; [`Self::keep_batch`] makes it a sample.
    pub fn time_batch<E>(&mut self, run: &mut dyn FnMut(u32) -> Result<(), E>, times: u32) -> Result<Batch, E> {
        self.time_batches(run, times, 0)
    }

    /// Like [`Self::time_batch`], but repeats the batch until it took `least_ns` in total.
    pub fn time_batches<E>(
        &mut self,
        run: &mut dyn FnMut(u32) -> Result<(), E>,
        times: u32,
        least_ns: u64,
    ) -> Result<Batch, E> {
        self.counters.select_group(self.samples.len() % self.counters.group_count());
        // Reading counters takes CPU time, and reading usage takes little, so usage is read inside.
        self.counters.read_channels(&mut self.before);
        let usage = self.clock.read_usage();
        let (runs, elapsed_ns) = self.time_span(run, times, least_ns)?;
        let usage = self.clock.read_usage().since_reading(&usage);
        self.counters.read_channels(&mut self.after);
        let batch = Batch { runs, elapsed_ns, usage };
        self.last = Some(batch);
        Ok(batch)
    }

    pub fn keep_batch(&mut self) {
        let batch = self.last.take().expect("a batch is kept once, after it was timed");
        let group = self.samples.len() % self.counters.group_count();
        for (place, channel) in self.counters.channels().iter().enumerate() {
            if channel.group.is_none_or(|own| own == group) {
                self.totals[place].add_runs(self.before[place], self.after[place], u64::from(batch.runs));
            }
        }
        let sample = batch.elapsed_ns as f64 / f64::from(batch.runs);
        self.samples.push(sample);
        let place = self.sorted.partition_point(|&other| other <= sample);
        self.sorted.insert(place, sample);
        self.usage.add(&batch.usage);
        self.timed_runs += u64::from(batch.runs);
        self.timed_ns += batch.elapsed_ns;
        self.preempted += u32::from(batch.usage.involuntary_switches > 0);
        self.probe_clock();
    }

    fn probe_clock(&mut self) {
        let now_ns = self.elapsed_ns();
        if self.probed_at_ns.is_none_or(|before_ns| now_ns >= before_ns + PROBE_EVERY_NS) {
            self.probes_ns.extend(self.clock.quick_probe_ns().map(|time_ns| time_ns as f64));
            self.probed_at_ns = Some(now_ns);
        }
    }

    pub fn finish_measurement(mut self, closing: Closing) -> Measurement {
        let elapsed_ns = self.elapsed_ns();
        let summary = statistics::summarise_samples(&self.sorted).expect("at least one sample is taken");
        let stride = self.samples.len().div_ceil(closing.samples_kept_max.max(1) as usize).max(1);
        let (counters, uncounted) = self.counter_values();
        let warnings = self.collect_warnings(&closing, &summary, &counters);
        let runs = self.timed_runs as f64;
        let clock_probe_ns = statistics::median(&self.probes_ns);
        Measurement {
            n: summary.n,
            median_ns: summary.median,
            mean_ns: summary.mean,
            min_ns: summary.min,
            max_ns: summary.max,
            p95_ns: summary.p95,
            std_ns: summary.std,
            cv: summary.cv,
            median_interval_ns: statistics::time_interval(&self.sorted, statistics::CONFIDENCE),
            visits_ns: Vec::new(),
            first_run_ns: closing.first_run_ns,
            warm_up_runs: closing.warm_up_runs,
            batch_size: closing.batch_size,
            timed_runs: self.timed_runs,
            samples_ns: self.samples.iter().copied().step_by(stride).collect(),
            samples_stride: u32::try_from(stride).unwrap_or(u32::MAX),
            timed_ns: self.timed_ns,
            elapsed_ns,
            flush_bytes: closing.flush_bytes,
            stop: closing.stop,
            cpu_time_ns: self.usage.process_cpu_ns as f64 / runs,
            thread_cpu_time_ns: self.usage.thread_cpu_ns as f64 / runs,
            usage: self.usage,
            counters,
            refusals: self.counters.refusals().iter().cloned().chain(uncounted).collect(),
            clock_precision_ns: self.clock.precision_ns(),
            clock_probe_ns,
            warnings,
        }
    }

    fn counter_values(&self) -> (Vec<CounterValue>, Vec<Refusal>) {
        let mut values = Vec::new();
        let mut uncounted = Vec::new();
        for (channel, total) in self.counters.channels().iter().zip(&self.totals) {
            match CounterValue::new(channel, total) {
                Ok(value) => values.push(value),
                Err(refusal) => uncounted.push(refusal),
            }
        }
        (values, uncounted)
    }

    fn collect_warnings(
        &self,
        closing: &Closing,
        summary: &statistics::SampleSummary,
        counters: &[CounterValue],
    ) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let ratio = closing.first_run_ns as f64 / summary.median;
        if ratio > warning::FIRST_RUN_SLOW_RATIO {
            warnings.push(Warning::FirstRunSlow { ratio });
        }
        if summary.n < closing.samples_min {
            warnings.push(Warning::FewSamples { n: summary.n, wanted: closing.samples_min });
        }
        if let Some(wanted) = closing.wanted
            && let Some(half_width) = stopping::relative_half_width(&self.sorted, closing.confidence)
            && half_width > wanted
        {
            warnings.push(Warning::Noisy { half_width, wanted });
        }
        let batch_ns = summary.median * f64::from(closing.batch_size);
        let precision_ns = self.clock.precision_ns();
        if batch_ns < warning::BATCH_PRECISIONS_MIN * precision_ns as f64 {
            warnings.push(Warning::BelowTimerPrecision { batch_ns, precision_ns });
        }
        if let Some(change) =
            statistics::detect_drift(&self.samples).filter(|change| change.abs() > warning::CHANGE_MAX)
        {
            warnings.push(Warning::Drifting { change });
        }
        let (before, after) = closing.speed_ns;
        let change = after as f64 / before.max(1) as f64 - 1.0;
        if change.abs() > warning::CHANGE_MAX {
            warnings.push(Warning::ClockMoved { change });
        }
        let part = f64::from(self.preempted) / f64::from(summary.n);
        if part > warning::PREEMPTED_PART_MAX {
            warnings.push(Warning::Preempted { part, switches: self.usage.involuntary_switches });
        }
        if self.usage.major_faults > 0 {
            warnings.push(Warning::MajorFaults { count: self.usage.major_faults });
        }
        warnings.extend(counters.iter().filter(|value| value.running_ratio < 1.0).map(|value| {
            Warning::CountersMultiplexed { name: value.name.clone(), running_ratio: value.running_ratio }
        }));
        warnings
    }
}
