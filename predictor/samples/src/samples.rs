//! Samples, the training data: one per measured row, with its groups, its bound and its features.
//!
//! No row is dropped silently: every row that does not become a sample is counted under a reason.

use crate::error::{Error, Result};
use crate::features::{self, CHOICE, Derived, Device, FEATURES, Form, KNOWN, Matrix, Revision, View, Work};
use crate::placed::PlacedNetwork;
use crate::provenance::Provenance;
use crate::schedules::Schedules;
use crate::stand_in::StandIn;
use models::Choice;
use report::format_count;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub operator: u32,
    pub device: u32,
    pub model: u32,
    /// Hash of operator and sizes.
    pub shape: u64,
    /// Hash of operator, sizes, device and thread count; schedules of the same task compete with each other.
    pub task: u64,
    pub threads: f64,
    /// Number of threads with work under the schedule; all threads if unknown.
    pub busy_threads: f64,
    pub is_default: bool,
    /// Measured median; with repeats, the median of the chosen measurement.
    pub time_ns: f64,
    /// Medians of repeated measurements in ascending order; empty without repeats.
    pub measured_ns: Vec<f64>,
    pub attainable_ns: f64,
    pub estimated_ns: Option<f64>,
    pub form: Form,
    /// See [`Work::may_skip_products`].
    pub may_skip_products: bool,
    pub flops: f64,
    /// Compulsory bytes: inputs, weights and result, each once.
    pub bytes: f64,
    pub cv: Option<f64>,
    /// Index into `Samples::choices` of a library's choice, such as a kernel, if recorded. Known only after the run.
    pub choice: Option<u32>,
}

impl Sample {
    /// Returns the largest relative deviation of a repeated measurement from the chosen one; None without repeats.
    pub fn max_deviation(&self) -> Option<f64> {
        let far = |time: &f64| (time / self.time_ns - 1.0).abs();
        self.measured_ns.iter().map(far).max_by(f64::total_cmp)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    pub name: String,
    pub setting: String,
    pub uses: BTreeMap<u64, f64>,
}

#[derive(Clone, Debug, Default)]
pub struct Samples {
    pub rows: Vec<Sample>,
    pub features: Matrix,
    pub names: Vec<String>,
    /// Views (how much of the schedule is known) that queries may have; each needs its own trees.
    pub views: Vec<View>,
    pub operators: Vec<String>,
    pub devices: Vec<(String, Device)>,
    pub models: Vec<String>,
    pub networks: Vec<Network>,
    pub placed: Vec<PlacedNetwork>,
    pub choices: Vec<String>,
    /// Knob settings and default schedules by operator, including those of rejected rows.
    pub schedules: BTreeMap<String, Schedules>,
    /// Column names of sizes in foreign tables, by operator and feature name.
    pub size_names: BTreeMap<String, BTreeMap<String, String>>,
    /// Operators of foreign tables that can replace a network's operator in queries, by the operator's task name.
    pub stand_ins: BTreeMap<String, Vec<StandIn>>,
    /// Command-line form of operator and sizes, by shape hash.
    pub shape_texts: Arc<BTreeMap<u64, String>>,
    pub left_out: BTreeMap<String, u64>,
    pub warnings: Vec<String>,
    pub filter_hints: Option<FilterHints>,
    pub provenance: Option<Provenance>,
    /// Whether peaks were raised to the rates that samples reached; if so, no device can be held out.
    pub has_reached_peaks: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterHints {
    pub measured: usize,
    pub left_out: usize,
    pub flags: Vec<(String, usize)>,
}

impl std::fmt::Display for FilterHints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let FilterHints { measured, left_out, flags } = self;
        write!(f, "{left_out} of {measured} measurements are skipped")?;
        let mut flags = flags.iter().map(|(flag, rows)| format!("`{flag}` includes {rows} of them"));
        if let Some(first) = flags.next() {
            write!(f, "; {first}")?;
        }
        flags.try_for_each(|flag| write!(f, ", {flag}"))
    }
}

impl Samples {
    pub fn keep_rows(&mut self, rows: &[usize]) {
        *self = self.select_rows(rows);
    }

    pub fn select_rows(&self, rows: &[usize]) -> Samples {
        Samples {
            rows: rows.iter().map(|row| self.rows[*row].clone()).collect(),
            features: self.features.select_rows(rows),
            names: self.names.clone(),
            views: self.views.clone(),
            operators: self.operators.clone(),
            devices: self.devices.clone(),
            models: self.models.clone(),
            networks: self.networks.clone(),
            placed: self.placed.clone(),
            choices: self.choices.clone(),
            schedules: self.schedules.clone(),
            size_names: self.size_names.clone(),
            stand_ins: self.stand_ins.clone(),
            shape_texts: Arc::clone(&self.shape_texts),
            left_out: self.left_out.clone(),
            warnings: self.warnings.clone(),
            filter_hints: self.filter_hints.clone(),
            provenance: self.provenance.clone(),
            has_reached_peaks: self.has_reached_peaks,
        }
    }

    pub fn known_column(&self) -> Option<usize> {
        self.names.len().checked_sub(1).filter(|last| self.names[*last] == KNOWN)
    }

    pub fn with_features(mut self, names: &[String]) -> Samples {
        let columns: Vec<Option<usize>> =
            names.iter().map(|name| self.names.iter().position(|known| known == name)).collect();
        let mut matrix = Matrix::new(names.len());
        let mut row = Vec::new();
        for place in 0..self.rows.len() {
            let values = self.features.row(place);
            row.clear();
            row.extend(columns.iter().map(|column| column.map_or(f32::NAN, |column| values[column])));
            matrix.push_row(&row);
        }
        self.features = matrix;
        self.names = names.to_vec();
        self
    }

    /// Returns the column of the library's run-time choice, if present; for queries, it contains a prediction.
    pub fn choice_column(&self) -> Option<usize> {
        self.names.iter().rposition(|name| name == CHOICE)
    }

    pub fn row_view(&self, row: usize) -> View {
        self.known_column().map_or(View::Sizes, |column| View::from_number(self.features.row(row)[column]))
    }

    /// Restricts samples to what a view may use: hidden features become missing; `Sizes` keeps only default schedules.
    pub fn restrict_view(mut self, view: View) -> Result<Samples> {
        let Some(known) = self.known_column() else { return Ok(self) };
        if view == View::Sizes {
            let kept: Vec<usize> = (0..self.rows.len()).filter(|row| self.rows[*row].is_default).collect();
            if kept.is_empty() {
                return Err(Error::Data("the training data has no default schedules".to_owned()));
            }
            let others = (self.rows.len() - kept.len()) as u64;
            self.left_out.insert("not the default schedule".to_owned(), others);
            self.keep_rows(&kept);
        }
        let hides = |(column, name): &(usize, &String)| *column >= FEATURES.len() && view.hides_feature(*column, name);
        let hidden: Vec<usize> = self.names.iter().enumerate().filter(hides).map(|(column, _)| column).collect();
        for row in 0..self.rows.len() {
            let number = View::from_number(self.features.row(row)[known]).min(view).number();
            hidden.iter().for_each(|column| self.features.set(row, *column, f32::NAN));
            self.features.set(row, known, number);
        }
        let occurs = |view: &View| (0..self.rows.len()).any(|row| self.row_view(row) == *view);
        self.views = View::ALL.iter().copied().filter(occurs).collect();
        Ok(self)
    }

    pub fn device_name(&self, row: usize) -> &str {
        &self.devices[self.rows[row].device as usize].0
    }
}

#[derive(Clone, Debug)]
pub struct RawSample {
    pub operator: String,
    pub device: u32,
    /// Name of the neural network; empty for none.
    pub model: String,
    /// Text that distinguishes operators with equal names and sizes, such as the name with the epilogue.
    pub detail: String,
    pub work: Work,
    pub threads: f64,
    pub is_default: bool,
    pub extras: BTreeMap<String, f64>,
    pub choice: Option<String>,
    /// Command-line form of operator and sizes; empty if there is none.
    pub text: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timing {
    pub time_ns: f64,
    pub measured_ns: Vec<f64>,
    pub cv: Option<f64>,
}

impl Timing {
    pub fn single_timing(time_ns: f64, cv: Option<f64>) -> Timing {
        Timing { time_ns, measured_ns: Vec::new(), cv }
    }
}

pub struct SamplesBuilder {
    samples: Samples,
    extras: Vec<BTreeMap<String, f64>>,
    described: Vec<f32>,
    operators: Interner,
    models: Interner,
    choices: Interner,
}

impl SamplesBuilder {
    pub fn new(devices: Vec<(String, Device)>) -> SamplesBuilder {
        let samples = Samples { devices, ..Samples::default() };
        SamplesBuilder {
            samples,
            extras: Vec::new(),
            described: Vec::new(),
            operators: Interner::default(),
            models: Interner::default(),
            choices: Interner::default(),
        }
    }

    pub fn leave_out(&mut self, reason: &str) {
        match self.samples.left_out.get_mut(reason) {
            Some(count) => *count += 1,
            None => {
                self.samples.left_out.insert(reason.to_owned(), 1);
            }
        }
    }

    pub fn add_warning(&mut self, warning: String) {
        self.samples.warnings.push(warning);
    }

    /// Sets the origin of the records, and warns about operators with rows of several code revisions.
    pub fn set_provenance(&mut self, provenance: Provenance, has_reached_peaks: bool) {
        for (operator, (most, others)) in provenance.mixed_revisions() {
            self.add_warning(format!(
                "`{operator}`: {} of the main code revision and {} of others are used together, because their tasks were not measured again",
                format_count(most, "row"),
                format_count(others, "row")
            ));
        }
        self.samples.provenance = Some(provenance);
        self.samples.has_reached_peaks = has_reached_peaks;
    }

    pub fn set_filter_hints(&mut self, filter_hints: Option<FilterHints>) {
        self.samples.filter_hints = filter_hints;
    }

    pub fn push_sample(&mut self, mut question: RawSample, timing: Timing) {
        let Timing { time_ns, measured_ns, cv } = timing;
        if !(time_ns.is_finite() && time_ns > 0.0) {
            return self.leave_out("time is not a positive number");
        }
        if !question.work.is_sound() {
            return self.leave_out("sizes are not positive numbers");
        }
        let device = &self.samples.devices[question.device as usize].1;
        let attainable_ns = features::attainable_ns(&question.work, device, question.threads);
        if !is_possible(time_ns, attainable_ns) {
            return self.leave_out("time is under a millionth or over a million times of the bound");
        }
        if !question.extras.is_empty() {
            self.samples.schedules.entry(question.operator.clone()).or_default().add_settings(&question.extras);
        }
        if question.is_default {
            self.add_default_schedule(&question);
        }
        let device = &self.samples.devices[question.device as usize].1;
        features::push_features(&question.work, device, question.threads, &mut self.described);
        let Derived { busy_threads, estimated_ns } =
            features::derive_features(&question.work, device, question.threads, Revision::Second, &mut question.extras);
        let shape = shape_hash(&question.operator, &question.detail, &question.work);
        if !question.text.is_empty() {
            Arc::make_mut(&mut self.samples.shape_texts).entry(shape).or_insert(question.text);
        }
        self.samples.rows.push(Sample {
            operator: self.operators.index_of(question.operator, &mut self.samples.operators),
            device: question.device,
            model: self.models.index_of(question.model, &mut self.samples.models),
            shape,
            task: stable_hash(&format!("{shape} {} {}", question.device, question.threads)),
            threads: question.threads,
            busy_threads,
            is_default: question.is_default,
            time_ns,
            measured_ns,
            attainable_ns,
            estimated_ns,
            form: question.work.form,
            may_skip_products: question.work.may_skip_products(),
            flops: question.work.flops,
            bytes: question.work.bytes(),
            cv,
            choice: question.choice.map(|choice| self.choices.index_of(choice, &mut self.samples.choices)),
        });
        self.extras.push(question.extras);
    }

    pub fn set_size_names(&mut self, operator: &str, size_names: BTreeMap<String, String>) {
        self.samples.size_names.insert(operator.to_owned(), size_names);
    }

    pub fn set_stand_ins(&mut self, stand_ins: BTreeMap<String, Vec<StandIn>>) {
        self.samples.stand_ins = stand_ins;
    }

    /// Adds an operator's default schedule, also for rows whose time is rejected.
    pub fn add_default_schedule(&mut self, question: &RawSample) {
        let device = &self.samples.devices[question.device as usize].0;
        let schedules = self.samples.schedules.entry(question.operator.clone()).or_default();
        schedules.add_default(device, &question.work, &question.extras);
    }

    /// Sets the shapes of each network with their counts. By default, a network has each shape measured for it, once.
    pub fn set_networks(&mut self, networks: Vec<Network>) {
        self.samples.networks = networks;
    }

    pub fn set_placed(&mut self, placed: Vec<PlacedNetwork>) {
        self.samples.placed = placed;
    }

    pub fn finish_samples(self) -> Result<Samples> {
        let mut samples = self.samples;
        if samples.rows.is_empty() {
            let why: Vec<_> = samples
                .left_out
                .iter()
                .map(|(reason, count)| format!("{}: {reason}", format_count(*count, "row")))
                .collect();
            let hint = samples.filter_hints.map_or(String::new(), |filter_hints| format!("\nhint: {filter_hints}"));
            let why = if why.is_empty() { "no rows".to_owned() } else { why.join("; ") };
            return Err(Error::Data(format!("no training data ({why}){hint}")));
        }
        if samples.networks.is_empty() {
            samples.networks = networks_as_measured(&samples);
        }
        let extra_names: std::collections::BTreeSet<&String> = self.extras.iter().flat_map(BTreeMap::keys).collect();
        samples.names = FEATURES.iter().map(|feature| feature.name.to_owned()).collect();
        samples.names.extend(extra_names.iter().map(|name| (*name).clone()));
        let has_choices = !samples.choices.is_empty();
        samples.names.extend(has_choices.then(|| CHOICE.to_owned()));
        let has_schedules = self.extras.iter().any(|extras| View::from_extras(extras) != View::Sizes);
        samples.names.extend(has_schedules.then(|| KNOWN.to_owned()));
        samples.views = if has_schedules { View::ALL.to_vec() } else { vec![View::Sizes] };
        if samples.names.len() == FEATURES.len() {
            samples.features = Matrix::from_rows(FEATURES.len(), self.described);
            return Ok(samples);
        }
        let mut matrix = Matrix::new(samples.names.len());
        let mut row = Vec::new();
        for (described, extras) in self.described.chunks(FEATURES.len()).zip(&self.extras) {
            row.clear();
            row.extend_from_slice(described);
            row.extend(extra_names.iter().map(|name| extras.get(*name).map_or(f32::NAN, |value| *value as f32)));
            row.extend(has_choices.then_some(0.0));
            row.extend(has_schedules.then(|| View::from_extras(extras).number()));
            matrix.push_row(&row);
        }
        samples.features = matrix;
        Ok(samples)
    }
}

/// Ratio of time to bound that no measurement exceeds.
pub const MOST_POSSIBLE: f64 = 1e6;

/// Returns whether a measured time can be true. One absurd time would change the answers for all operators of its size.
fn is_possible(time_ns: f64, attainable_ns: f64) -> bool {
    /// Ratio to the bound that no measurement falls below.
    const LEAST: f64 = 1e-6;
    /// No launch takes longer, so that tiny operators are possible.
    const LAUNCH_NS: f64 = 1e6;
    !attainable_ns.is_finite()
        || (time_ns >= LEAST * attainable_ns && time_ns <= MOST_POSSIBLE * (attainable_ns + LAUNCH_NS))
}

pub fn shape_hash(operator: &str, detail: &str, work: &Work) -> u64 {
    stable_hash(&format!("{operator} {detail} {work:?}"))
}

fn networks_as_measured(samples: &Samples) -> Vec<Network> {
    let mut networks: Vec<Network> = Vec::new();
    for (model, name) in samples.models.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
        let mine = samples.rows.iter().filter(|sample| sample.model as usize == model);
        let uses = mine.map(|sample| (sample.shape, 1.0)).collect();
        networks.push(Network { name: name.clone(), setting: String::new(), uses });
    }
    networks
}

#[derive(Default)]
struct Interner(HashMap<String, u32>);

impl Interner {
    fn index_of(&mut self, name: String, names: &mut Vec<String>) -> u32 {
        let next = names.len() as u32;
        *self.0.entry(name).or_insert_with_key(|name| {
            names.push(name.clone());
            next
        })
    }
}

pub fn stable_hash(text: &str) -> u64 {
    let bytes = *blake3::hash(text.as_bytes()).as_bytes();
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}
