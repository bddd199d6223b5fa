//! The table of columns.
//!
//! The `Record` struct, its JSON, the CSV header, the Parquet and SQL schemas and `docs/reference/dataset-format.md`
//! are generated from this list. To add a column, append a line with the next schema version and an `Option` type
//! (because older files lack the column), raise `SCHEMA_VERSION`, and update the change log. Names end with their unit
//! and are never changed or reused.
//!
//! A line reads `name: type = kind, unit, when known, since version`. A predictor may use only columns known `Before`
//! the run.

use super::cell::{Cell, Field};
use super::column::{Kind, KnownWhen};
use super::columns;
use super::json::Json;
use super::key::Key;
use super::words::{CacheState, Covers, Outcome, ScheduleSource, Source, Target};
use crate::error::RowError;
use serde::de::MapAccess;

columns! {
    "Identity" {
        /// Version of this table that the row was written with.
        schema_version: i64 = Integer, "count", Before, since 1;
        /// Key of the experiment: equal keys mean the same candidate, host class, plan, seed and versions.
        key: Key = Key, "hex", Before, since 1;
        /// Number of this attempt at the experiment, counted from 1 by time over all records that are read.
        attempt: i64 = Integer, "count", Before, since 1;
        /// Identifier of the program run that produced the row.
        run_id: String = Label, "text", Before, since 1;
        /// Start of the attempt, in microseconds since 1970-01-01 UTC.
        started_at_us: i64 = Time, "us", Before, since 1;
    }
    "Model" {
        /// Source of the model: `local`, `transformers`, `onnx`, `torch`, `tflite`, `simple`.
        model_source: Option<String> = Label, "name", Before, since 1;
        /// Name, architecture or file of the model that contains the task.
        model_name: Option<String> = Label, "name", Before, since 1;
        /// Batch size the model was loaded with.
        batch: Option<i64> = Integer, "count", Before, since 1;
        /// Scope of the task's first occurrence in the model.
        place: Option<String> = Text, "text", Before, since 1;
        /// Number of occurrences of the task in the model.
        place_count: Option<i64> = Integer, "count", Before, since 1;
        /// Scopes of all occurrences, a list of texts.
        places: Option<Json> = Json, "JSON", Before, since 1;
    }
    "Operator" {
        /// Stable hash of the task: operator, fused epilogue, shapes and element types; for a network, of its tasks in
        /// call order.
        task_hash: String = Label, "hex", Before, since 1;
        /// Kind of the anchor operator; `network` for a whole model, `module` for a whole TorchScript file.
        op_kind: String = Label, "name", Before, since 1;
        /// Anchor and epilogue, such as `conv2d+bias+relu`.
        op_name: String = Label, "name", Before, since 1;
        /// The task as readable text: operators, attributes, shapes.
        op_text: String = Label, "text", Before, since 1;
        /// The task in machine-readable form: enough to compile it again.
        task: Option<Json> = Json, "JSON", Before, since 1;
        /// Data layout, such as `NCHW`.
        layout: Option<String> = Label, "name", Before, since 1;
        /// Shapes of the inputs in argument order, a list of lists.
        input_shapes: Option<Json> = Json, "JSON", Before, since 1;
        /// Shape of the output, a list.
        output_shape: Option<Json> = Json, "JSON", Before, since 1;
        /// Element type of the anchor's first input.
        dtype: Option<String> = Label, "name", Before, since 1;
        /// The compiled task with symbols for sizes, if the code serves several sizes.
        symbolic_task: Option<String> = Label, "text", Before, since 2;
        /// Values of the symbols of `symbolic_task` in this row, name to number.
        sizes: Option<Json> = Json, "JSON", Before, since 2;
        /// For an operator timed in a running network, the `task_hash` of that network: caches held the data of its
        /// neighbours, and samples cover all its occurrences. Absent for an operator that ran alone.
        network_hash: Option<String> = Label, "hex", Before, since 4;
    }
    "Work" {
        /// Floating-point (or integer) operations of one run, a multiply-add counting as two.
        flops: Option<i64> = Integer, "operations", Before, since 1;
        /// Multiply-adds of one run.
        macs: Option<i64> = Integer, "operations", Before, since 1;
        /// Bytes of all inputs that are not weights.
        bytes_in: Option<i64> = Integer, "bytes", Before, since 1;
        /// Bytes of the output.
        bytes_out: Option<i64> = Integer, "bytes", Before, since 1;
        /// Bytes of the inputs that are constants of the model.
        bytes_weights: Option<i64> = Integer, "bytes", Before, since 1;
        /// Operations per byte of inputs, weights and output, each moved once.
        arithmetic_intensity: Option<f64> = Float, "operations/byte", Before, since 1;
    }
    "Schedule" {
        /// Stable hash of the schedule.
        schedule_hash: Option<String> = Text, "hex", Before, since 1;
        /// Source of the schedule.
        schedule_source: Option<ScheduleSource> = Label, "name", Before, since 1;
        /// Knob values or trace, sufficient to apply the schedule again; for a network, the schedule of each task by
        /// its hash.
        schedule: Option<Json> = Json, "JSON", Before, since 1;
        /// Stable hash of the trace of a schedule sampled by TVM. `schedule_hash` excludes the trace, because that hash
        /// must be known before sampling.
        moves_hash: Option<String> = Text, "hex", Before, since 6;
        /// Revision of the code that the program generates for the task's operators; a change of the lowering changes
        /// the revision.
        code_revision: Option<String> = Label, "hex", Before, since 3;
        /// Size of the generated machine code.
        code_bytes: Option<i64> = Integer, "bytes", Before, since 1;
        /// Time to compile the artifact.
        build_ms: Option<f64> = Float, "ms", After, since 1;
        /// Static features of the generated code, a map from name to number.
        features: Option<Json> = Json, "JSON", Before, since 1;
    }
    "Target" {
        /// Kind of target.
        target: Target = Label, "name", Before, since 1;
        /// The full target as given to the compiler.
        target_text: Option<String> = Label, "text", Before, since 1;
        /// Name of the board, if the target is a board.
        board: Option<String> = Label, "name", Before, since 1;
        /// Device that ran the artifact, such as the name of a GPU.
        device: Option<String> = Label, "name", Before, since 1;
        /// Unit of a board that ran the artifact:
        /// `arm` for the processor's cores, `fpga` for an accelerator on its FPGA.
        unit: Option<String> = Label, "name", Before, since 5;
        /// Connection to a board: `rpc` for a server, `tracker` for a device assigned by a tracker; `local` for a
        /// simulator on this host in place of the board.
        transport: Option<String> = Label, "name", Before, since 5;
        /// Version of the agent on the board, if it reports one.
        agent_version: Option<String> = Label, "text", Before, since 5;
    }
    "Threads" {
        /// Maximum number of threads of the operator.
        threads: Option<i64> = Integer, "count", Before, since 1;
        /// Numbers of the CPUs the threads were bound to, a list.
        cpus: Option<Json> = Json, "JSON", Before, since 1;
        /// NUMA nodes of the CPUs in `cpus`, an ascending list; absent on boards, and if the system lists none.
        numa_nodes: Option<Json> = Json, "JSON", Before, since 6;
        /// How threads were bound to CPUs.
        thread_mode: Option<String> = Label, "name", Before, since 1;
        /// Number of polls of an idle worker thread before it sleeps.
        spin_count: Option<i64> = Integer, "count", Before, since 1;
        /// How operators share the machine in a co-run: `stream` (separate cores) or `full` (all cores).
        parallel_type: Option<String> = Label, "name", Before, since 1;
        /// Task hashes of the operators that ran concurrently with this one, a list.
        co_run: Option<Json> = Json, "JSON", Before, since 1;
        /// Share of the last-level cache given to the run, from 0 to 1.
        cache_share: Option<f64> = Float, "fraction", Before, since 1;
    }
    "Host" {
        /// Name of the host.
        host: String = Label, "name", Before, since 1;
        /// Class of hosts whose times may be compared.
        host_class: String = Label, "name", Before, since 1;
        /// CPU model name.
        cpu_model: Option<String> = Label, "name", Before, since 1;
        /// CPU architecture.
        cpu_arch: Option<String> = Label, "name", Before, since 1;
        /// CPUs the operating system schedules on.
        logical_cpus: Option<i64> = Integer, "count", Before, since 1;
        /// Physical cores.
        physical_cores: Option<i64> = Integer, "count", Before, since 1;
        /// Size of the first-level data cache of one core.
        l1d_bytes: Option<i64> = Integer, "bytes", Before, since 1;
        /// Size of the second-level cache of one core.
        l2_bytes: Option<i64> = Integer, "bytes", Before, since 1;
        /// Size of the last-level cache.
        l3_bytes: Option<i64> = Integer, "bytes", Before, since 1;
        /// Size of the main memory.
        memory_bytes: Option<i64> = Integer, "bytes", Before, since 1;
        /// Clock governor and limits in force.
        clock_policy: Option<String> = Label, "text", Before, since 1;
        /// Whether the host is a virtual machine.
        is_virtual_machine: Option<bool> = Bool, "claim", Before, since 1;
        /// Operating system.
        os: Option<String> = Label, "name", Before, since 1;
        /// Kernel release.
        kernel: Option<String> = Label, "name", Before, since 1;
        /// Version of TVM.
        tvm_version: Option<String> = Label, "name", Before, since 1;
        /// Version of LLVM inside TVM.
        llvm_version: Option<String> = Label, "name", Before, since 1;
        /// Version of the accelerator's driver.
        driver_version: Option<String> = Label, "name", Before, since 1;
    }
    "Outcome" {
        /// Origin of the time; different sources are never mixed in an average, fit or table.
        source: Source = Label, "name", Before, since 1;
        /// How the attempt ended.
        outcome: Outcome = Label, "name", After, since 1;
        /// Reason of the outcome; present for every outcome except `ok`.
        reason: Option<String> = Text, "text", After, since 1;
    }
    "Times" {
        /// Number of samples.
        n: i64 = Integer, "count", After, since 1;
        /// Median time of one run.
        median_ns: Option<f64> = Float, "ns", After, since 1;
        /// Mean time of one run.
        mean_ns: Option<f64> = Float, "ns", After, since 1;
        /// Smallest sample.
        min_ns: Option<f64> = Float, "ns", After, since 1;
        /// 95th percentile of the samples.
        p95_ns: Option<f64> = Float, "ns", After, since 1;
        /// Standard deviation of the samples.
        std_ns: Option<f64> = Float, "ns", After, since 1;
        /// Standard deviation over mean.
        cv: Option<f64> = Float, "fraction", After, since 1;
        /// Time of the first run, before any warm-up.
        first_run_ns: Option<f64> = Float, "ns", After, since 1;
        /// Number of runs that are timed together as one sample.
        batch_size: Option<i64> = Integer, "count", After, since 1;
        /// Half-width of the 95 % confidence interval of the median;
        /// `interval_covers` states which scatter it covers.
        median_interval_ns: Option<f64> = Float, "ns", After, since 1;
        /// Whether caches held the operands when a sample began.
        cache_state: Option<CacheState> = Label, "name", Before, since 1;
        /// Samples in the order taken, each the time of one run; an evenly spaced selection if there are more than the
        /// plan allows to store.
        samples_ns: Vec<f64> = List, "ns", After, since 1;
        /// Lower end of the 95 % interval of the median.
        median_low_ns: Option<f64> = Float, "ns", After, since 6;
        /// Upper end of the 95 % interval of the median; times are skewed, so it may be farther from the median than
        /// the lower end.
        median_high_ns: Option<f64> = Float, "ns", After, since 6;
        /// Scatter that the confidence interval covers: `visit` for scatter within one process, `visits` for scatter
        /// between processes, too. Absent in older rows, whose intervals cover `visit`.
        interval_covers: Option<Covers> = Label, "name", After, since 6;
        /// Medians of the processes (visits) that the row combines, in time order, a list; absent for a single visit.
        visits_ns: Option<Json> = Json, "JSON", After, since 6;
        /// Standard deviation of the logarithms of the medians in `visits_ns`: the influence of memory placement and of
        /// the moment of the measurement.
        visit_spread: Option<f64> = Float, "fraction", After, since 6;
        /// `visit_spread`, pooled over all experiments with the same number of threads and several visits that the
        /// program had measured when it wrote the row.
        noise_floor: Option<f64> = Float, "fraction", After, since 6;
        /// Memory placement of the visit: the offsets of stacks and tensors within a page (`stack_bytes`,
        /// `buffer_bytes`), and the number of the runner's `process`.
        placement: Option<Json> = Json, "JSON", After, since 6;
        /// Median time of a fixed chain of 10,000 multiplications between the samples: inverse to the clock rate of the
        /// processor. Noisy for one row; the median over many rows tells two campaigns apart. Absent for boards, devices
        /// and simulations.
        clock_probe_ns: Option<f64> = Float, "ns", After, since 7;
    }
    "Check" {
        /// Largest absolute difference from the reference computation.
        max_abs_error: Option<f64> = Float, "value", After, since 1;
        /// Largest relative difference from the reference computation.
        max_rel_error: Option<f64> = Float, "fraction", After, since 1;
    }
    "Counters" {
        /// Counters of one run, a map from name to value.
        counters: Option<Json> = Json, "JSON", After, since 1;
        /// Origin of each counter, a map from its name to `source`, its name in the source (`native`), `unit`, the
        /// threads or processes that are counted (`coverage`), the number of counted `runs`, and the share of the time
        /// in which the counter was active (`running_share`; below 1 the value is extrapolated).
        counter_origins: Option<Json> = Json, "JSON", After, since 3;
        /// Requested counters that are not available, a map from name to reason.
        counters_refused: Option<Json> = Json, "JSON", After, since 1;
        /// Source of the counters.
        counter_source: Option<String> = Label, "name", After, since 1;
        /// CPU time of all threads in one run.
        cpu_time_ns: Option<f64> = Float, "ns", After, since 1;
    }
    "Memory and energy" {
        /// Largest resident memory of the runner.
        peak_memory_bytes: Option<i64> = Integer, "bytes", After, since 1;
        /// Scratch memory of the artifact in addition to its operands; for a network, the memory of its intermediate
        /// tensors.
        workspace_bytes: Option<i64> = Integer, "bytes", Before, since 1;
        /// Energy of one run.
        energy_joules: Option<f64> = Float, "joules", After, since 1;
    }
    "Provenance" {
        /// Reasons to doubt the row, a list of texts.
        warnings: Option<Json> = Json, "JSON", After, since 1;
        /// Version of the program that wrote the row.
        program_version: String = Label, "name", Before, since 1;
        /// Hash of the resolved configuration; the store keeps its text in `configs/<hash>.json`.
        config_hash: Option<String> = Label, "hex", Before, since 1;
        /// Seed of everything random in the run.
        seed: Option<i64> = Integer, "number", Before, since 1;
        /// Measurement settings: warm-up, repeats, stopping rule, deadlines.
        plan: Option<Json> = Json, "JSON", Before, since 1;
    }
}

/// One column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Index in the table.
    pub id: ColumnId,
    /// Name in every file and database.
    pub name: &'static str,
    /// Group in the documentation.
    pub group: &'static str,
    /// Storage kind.
    pub kind: Kind,
    /// Unit of numbers, or form of texts.
    pub unit: &'static str,
    /// Whether a row may lack the column.
    pub nullable: bool,
    /// Description; may begin with a space, see [`Column::trimmed_doc`].
    pub doc: &'static str,
    /// First schema version with the column.
    pub since: i64,
    /// Whether the value is known before the run.
    pub known: KnownWhen,
}

impl Column {
    /// Returns the trimmed description.
    pub fn trimmed_doc(&self) -> &'static str {
        self.doc.trim()
    }
}

impl ColumnId {
    /// Returns the column's metadata.
    pub fn column_metadata(self) -> &'static Column {
        &COLUMNS[self as usize]
    }

    /// Returns the column's name.
    pub fn name(self) -> &'static str {
        self.column_metadata().name
    }
}
