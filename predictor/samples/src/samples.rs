//! What is learned from: one sample per measured row, with its groups, its bound and its features.
//!
//! Nothing is dropped silently: every row that does not become a sample is counted under the reason.

use crate::error::{Error, Result};
use crate::features::{self, CHOICE, Derived, Device, FEATURES, Form, KNOWN, Matrix, Revision, View, Work};
use crate::placed::PlacedNetwork;
use crate::provenance::Provenance;
use crate::schedules::Schedules;
use crate::stand_in::StandIn;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// One measured row, as far as splitting and scoring see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Index into `Samples::operators`.
    pub operator: u32,
    /// Index into `Samples::devices`.
    pub device: u32,
    /// Index into `Samples::models`; the neural network it was found in.
    pub model: u32,
    /// Same operator and sizes, whatever runs it.
    pub shape: u64,
    /// Same operator, sizes, device and setting: what schedules compete within.
    pub task: u64,
    /// Threads it was run with.
    pub threads: f64,
    /// Those of them that its schedule gives something to do, as far as that is known.
    pub busy_threads: f64,
    /// Whether the schedule is the one that is taken where none is asked for.
    pub is_default: bool,
    /// Measured median time; of several measurements that of the chosen one.
    pub time_ns: f64,
    /// The medians of all its measurements where there are several, ascending.
    pub measured_ns: Vec<f64>,
    /// Time that no implementation can beat by the device's descriptor.
    pub attainable_ns: f64,
    /// Time that the instructions of its code should take, where that is known.
    pub estimated_ns: Option<f64>,
    /// How the operator walks its data.
    pub form: Form,
    pub flops: f64,
    /// Bytes moved at least once.
    pub bytes: f64,
    /// Spread of the measurement, standard deviation over mean, where it is known; of several that of the chosen one.
    pub cv: Option<f64>,
    /// Index into `Samples::choices`: what a library chose, where the data says it. Known only after the run.
    pub choice: Option<u32>,
}

impl Sample {
    /// How far the furthest of several measurements is from the chosen one, as a share of it.
    pub fn max_deviation(&self) -> Option<f64> {
        let far = |time: &f64| (time / self.time_ns - 1.0).abs();
        self.measured_ns.iter().map(far).max_by(f64::total_cmp)
    }
}

/// A neural network as what it is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Its name, without what it was run with.
    pub name: String,
    /// What it was run with, such as `batch 8`.
    pub setting: String,
    /// How often each shape occurs.
    pub uses: BTreeMap<u64, f64>,
}

/// Everything that is learned from.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    pub rows: Vec<Sample>,
    /// Their features, in the same order.
    pub features: Matrix,
    pub names: Vec<String>,
    /// How much may be known when questions are asked: each needs trees of its own.
    pub views: Vec<View>,
    pub operators: Vec<String>,
    pub devices: Vec<(String, Device)>,
    /// Names of neural networks.
    pub models: Vec<String>,
    /// What neural networks are made of.
    pub networks: Vec<Network>,
    /// Networks whose operators were timed in their places.
    pub placed: Vec<PlacedNetwork>,
    /// Names of what libraries chose, such as those of their kernels.
    pub choices: Vec<String>,
    /// By operator, the settings of its knobs and its default schedules, those of rows that were left out among them.
    pub schedules: BTreeMap<String, Schedules>,
    /// By operator, what its sizes are called in a foreign table, by the names of features.
    pub size_names: BTreeMap<String, BTreeMap<String, String>>,
    /// By the names of tasks, what stands for operators of neural networks in a foreign table.
    pub stand_ins: BTreeMap<String, Vec<StandIn>>,
    /// Operators and sizes as a command line takes them, by shape.
    pub shape_texts: Arc<BTreeMap<u64, String>>,
    /// Rows that did not become samples, by reason.
    pub left_out: BTreeMap<String, u64>,
    /// What speaks against the data being what it is said to be, for a person to look at.
    pub warnings: Vec<String>,
    /// Where those are most of what was measured, what would bring them back.
    pub filter_hints: Option<FilterHints>,
    /// Where the records come from that all of them were made of; nothing of tables of others.
    pub provenance: Option<Provenance>,
    /// Whether the figures of a device hold what its own samples reached: then none of them can be held out to judge answers for a
    /// new device.
    pub has_reached_peaks: bool,
}

/// What would bring back measurements that were left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterHints {
    /// Measurements, without failures.
    pub measured: usize,
    pub left_out: usize,
    /// Flags, and how many each would bring back.
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
    /// Drops all but some samples.
    pub fn keep(&mut self, rows: &[usize]) {
        *self = self.select(rows);
    }

    pub fn select(&self, rows: &[usize]) -> Samples {
        Samples {
            rows: rows.iter().map(|row| self.rows[*row].clone()).collect(),
            features: self.features.select(rows),
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

    /// The feature that says how much is known of schedules, where there are any.
    pub fn known_column(&self) -> Option<usize> {
        self.names.len().checked_sub(1).filter(|last| self.names[*last] == KNOWN)
    }

    /// The same samples with these features in this order; absent where they have none of that name.
    pub fn with_features(mut self, names: &[String]) -> Samples {
        let columns: Vec<Option<usize>> =
            names.iter().map(|name| self.names.iter().position(|known| known == name)).collect();
        let mut matrix = Matrix::new(names.len());
        let mut row = Vec::new();
        for place in 0..self.rows.len() {
            let values = self.features.row(place);
            row.clear();
            row.extend(columns.iter().map(|column| column.map_or(f32::NAN, |column| values[column])));
            matrix.push(&row);
        }
        self.features = matrix;
        self.names = names.to_vec();
        self
    }

    /// The feature that a library's choice stands under, where the data says what was chosen. Samples do not hold it, because
    /// it is known only after the run: learners fill in what was chosen or what they guess.
    pub fn choice_column(&self) -> Option<usize> {
        self.names.iter().rposition(|name| name == CHOICE)
    }

    /// How much is known of a sample's schedule.
    pub fn view(&self, row: usize) -> View {
        self.known_column().map_or(View::Sizes, |column| View::of_number(self.features.row(row)[column]))
    }

    /// The same samples as they are before so much is known, asked for nothing that knows less than they do: only default
    /// schedules where knobs are not, and features that come later are absent.
    pub fn before(mut self, view: View) -> Result<Samples> {
        let Some(known) = self.known_column() else { return Ok(self) };
        if view == View::Sizes {
            let kept: Vec<usize> = (0..self.rows.len()).filter(|row| self.rows[*row].is_default).collect();
            if kept.is_empty() {
                return Err(Error::Data("there are no default schedules for training".to_owned()));
            }
            let others = (self.rows.len() - kept.len()) as u64;
            self.left_out.insert("schedule is not the default one".to_owned(), others);
            self.keep(&kept);
        }
        let hides = |(column, name): &(usize, &String)| *column >= FEATURES.len() && view.hides(*column, name);
        let hidden: Vec<usize> = self.names.iter().enumerate().filter(hides).map(|(column, _)| column).collect();
        for row in 0..self.rows.len() {
            let number = View::of_number(self.features.row(row)[known]).min(view).number();
            hidden.iter().for_each(|column| self.features.set(row, *column, f32::NAN));
            self.features.set(row, known, number);
        }
        let occurs = |view: &View| (0..self.rows.len()).any(|row| self.view(row) == *view);
        self.views = View::ALL.into_iter().filter(occurs).collect();
        Ok(self)
    }

    pub fn device_name(&self, row: usize) -> &str {
        &self.devices[self.rows[row].device as usize].0
    }
}

/// A row before its features are computed.
#[derive(Clone, Debug)]
pub struct RawSample {
    pub operator: String,
    /// Index into the devices.
    pub device: u32,
    /// The neural network, or nothing.
    pub model: String,
    /// What tells operators of the same name and sizes apart, such as what is fused behind them.
    pub detail: String,
    /// Its sizes and costs.
    pub work: Work,
    pub threads: f64,
    /// Whether the schedule is the one that is taken where none is asked for.
    pub is_default: bool,
    /// Knobs and code features by name.
    pub extras: BTreeMap<String, f64>,
    /// What a library chose, where that is known.
    pub choice: Option<String>,
    /// Operator and sizes as a command line takes them; empty if there is no such text.
    pub text: String,
}

/// What was measured of a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timing {
    /// The median time; of several measurements that of the chosen one.
    pub time_ns: f64,
    /// The medians of all measurements where there are several, ascending.
    pub measured_ns: Vec<f64>,
    /// Spread of the chosen measurement, standard deviation over mean, where it is known.
    pub cv: Option<f64>,
}

impl Timing {
    /// Of a single measurement.
    pub fn once(time_ns: f64, cv: Option<f64>) -> Timing {
        Timing { time_ns, measured_ns: Vec::new(), cv }
    }
}

/// Gathers samples whose extras are only known together.
pub struct SamplesBuilder {
    samples: Samples,
    extras: Vec<BTreeMap<String, f64>>,
    described: Vec<f32>,
    operators: Interner,
    models: Interner,
    choices: Interner,
}

impl SamplesBuilder {
    /// Nothing yet, for rows on these devices.
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

    /// Counts a row that is not learned from.
    pub fn leave_out(&mut self, reason: &str) {
        match self.samples.left_out.get_mut(reason) {
            Some(count) => *count += 1,
            None => {
                self.samples.left_out.insert(reason.to_owned(), 1);
            }
        }
    }

    /// Notes what speaks against the data.
    pub fn warn(&mut self, warning: String) {
        self.samples.warnings.push(warning);
    }

    /// Says where the records come from, and whether figures of devices hold what their records reached. What of their code
    /// cannot be told apart is noted.
    pub fn set_provenance(&mut self, provenance: Provenance, has_reached_peaks: bool) {
        for (operator, (most, others)) in provenance.mixed() {
            self.warn(format!(
                "`{operator}`: {others} rows of other code revisions are used with {most} of the main one, because their tasks were not measured again"
            ));
        }
        self.samples.provenance = Some(provenance);
        self.samples.has_reached_peaks = has_reached_peaks;
    }

    /// Says what would bring back what was left out.
    pub fn set_filter_hints(&mut self, filter_hints: Option<FilterHints>) {
        self.samples.filter_hints = filter_hints;
    }

    /// Adds a row with what was measured of it.
    pub fn push(&mut self, mut question: RawSample, timing: Timing) {
        let Timing { time_ns, measured_ns, cv } = timing;
        if !(time_ns.is_finite() && time_ns > 0.0) {
            return self.leave_out("time is not a positive number");
        }
        if !question.work.is_sound() {
            return self.leave_out("sizes are not positive numbers");
        }
        if !question.extras.is_empty() {
            self.samples.schedules.entry(question.operator.clone()).or_default().add(&question.extras);
        }
        if question.is_default {
            self.add_default_schedule(&question);
        }
        let device = &self.samples.devices[question.device as usize].1;
        features::describe(&question.work, device, question.threads, &mut self.described);
        let attainable_ns = features::attainable_ns(&question.work, device, question.threads);
        let Derived { busy_threads, estimated_ns } =
            features::derive(&question.work, device, question.threads, Revision::Second, &mut question.extras);
        let shape = shape(&question.operator, &question.detail, &question.work);
        if !question.text.is_empty() {
            Arc::make_mut(&mut self.samples.shape_texts).entry(shape).or_insert(question.text);
        }
        self.samples.rows.push(Sample {
            operator: self.operators.of(question.operator, &mut self.samples.operators),
            device: question.device,
            model: self.models.of(question.model, &mut self.samples.models),
            shape,
            task: hash(&format!("{shape} {} {}", question.device, question.threads)),
            threads: question.threads,
            busy_threads,
            is_default: question.is_default,
            time_ns,
            measured_ns,
            attainable_ns,
            estimated_ns,
            form: question.work.form,
            flops: question.work.flops,
            bytes: question.work.bytes(),
            cv,
            choice: question.choice.map(|choice| self.choices.of(choice, &mut self.samples.choices)),
        });
        self.extras.push(question.extras);
    }

    /// Says what the sizes of an operator are called, by the names of features.
    pub fn set_size_names(&mut self, operator: &str, size_names: BTreeMap<String, String>) {
        self.samples.size_names.insert(operator.to_owned(), size_names);
    }

    /// Says what stands for operators of neural networks.
    pub fn set_stand_ins(&mut self, stand_ins: BTreeMap<String, Vec<StandIn>>) {
        self.samples.stand_ins = stand_ins;
    }

    /// Says what the default schedule of an operator is, whether or not its time is learned from.
    pub fn add_default_schedule(&mut self, question: &RawSample) {
        let device = &self.samples.devices[question.device as usize].0;
        let schedules = self.samples.schedules.entry(question.operator.clone()).or_default();
        schedules.add_default(device, &question.work, &question.extras);
    }

    /// Says what neural networks are made of; without it, each is made of the shapes that were measured for it.
    pub fn set_networks(&mut self, networks: Vec<Network>) {
        self.samples.networks = networks;
    }

    /// Says which networks' operators were timed in their places.
    pub fn set_placed(&mut self, placed: Vec<PlacedNetwork>) {
        self.samples.placed = placed;
    }

    /// The samples with all features, those of the table first.
    pub fn finish(self) -> Result<Samples> {
        let mut samples = self.samples;
        if samples.rows.is_empty() {
            let why: Vec<_> =
                samples.left_out.iter().map(|(reason, count)| format!("{count} rows: {reason}")).collect();
            let hint = samples.filter_hints.map_or(String::new(), |filter_hints| format!("\nhint: {filter_hints}"));
            return Err(Error::Data(format!("there is no training data ({}){hint}", why.join("; "))));
        }
        if samples.networks.is_empty() {
            samples.networks = networks_as_measured(&samples);
        }
        let extra_names: std::collections::BTreeSet<&String> = self.extras.iter().flat_map(BTreeMap::keys).collect();
        samples.names = FEATURES.iter().map(|feature| feature.name.to_owned()).collect();
        samples.names.extend(extra_names.iter().map(|name| (*name).clone()));
        let has_choices = !samples.choices.is_empty();
        samples.names.extend(has_choices.then(|| CHOICE.to_owned()));
        let has_schedules = self.extras.iter().any(|extras| View::of_extras(extras) != View::Sizes);
        samples.names.extend(has_schedules.then(|| KNOWN.to_owned()));
        samples.views = if has_schedules { View::ALL.to_vec() } else { vec![View::Sizes] };
        if samples.names.len() == FEATURES.len() {
            samples.features = Matrix::of(FEATURES.len(), self.described);
            return Ok(samples);
        }
        let mut matrix = Matrix::new(samples.names.len());
        let mut row = Vec::new();
        for (described, extras) in self.described.chunks(FEATURES.len()).zip(&self.extras) {
            row.clear();
            row.extend_from_slice(described);
            row.extend(extra_names.iter().map(|name| extras.get(*name).map_or(f32::NAN, |value| *value as f32)));
            row.extend(has_choices.then_some(0.0));
            row.extend(has_schedules.then(|| View::of_extras(extras).number()));
            matrix.push(&row);
        }
        samples.features = matrix;
        Ok(samples)
    }
}

/// Same operator and sizes.
pub fn shape(operator: &str, detail: &str, work: &Work) -> u64 {
    hash(&format!("{operator} {detail} {work:?}"))
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

/// Where names stand in a list.
#[derive(Default)]
struct Interner(HashMap<String, u32>);

impl Interner {
    /// The index of a name, which is added to the list if it is new.
    fn of(&mut self, name: String, names: &mut Vec<String>) -> u32 {
        let next = names.len() as u32;
        *self.0.entry(name).or_insert_with_key(|name| {
            names.push(name.clone());
            next
        })
    }
}

/// A stable hash of a text.
pub fn hash(text: &str) -> u64 {
    let bytes = *blake3::hash(text.as_bytes()).as_bytes();
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}
