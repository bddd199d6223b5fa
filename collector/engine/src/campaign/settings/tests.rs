//! Tests of settings in configuration files, including invalid settings.

use super::*;
use crate::campaign::config::Config;
use std::time::Duration;
use toml::{Table, Value};

const WHOLE: &str = r#"
    models = [
        { source = "transformers", name = "x" },
        { source = "onnx", name = "y", shapes = { a = [1, 2] }, values = { n = [3.0] }, skip_unsupported = true },
    ]
    batch = [1, 8]
    sequence = [16]
    phase = ["decode"]
    attention = "both"
    executor = "default"
    variations = 3
    target = "llvm"
    backend = "tvm"
    threads = [1, 2]
    samplers = ["template"]
    schedules = 4
    fuse = "none"
    cache = ["warm", "cold"]
    seed = 7
    budget_seconds = 60.5
    [tune]
    tuner = "xgb-rank"
    trials = 300
    trials_per_task = 64
    patience = 50
    [measure]
    precision = 0.02
    time_limit_ns = 1000
    samples_max = 100
    [counters]
    backend = "none"
    [limits]
    builders = 1
    build_batch = 2
    overlap = false
    start_seconds = 1.5
    build_seconds = 2.5
    run_seconds = 3.5
    build_memory_mib = 100
    run_memory_mib = 200
    runner_jobs = 5
    spin_count = 6
    measure_peaks = false
    [night]
    minutes = 60
    deadline = "06:30"
    sentinel_minutes = 10
    again_share = 0.5
    variations = 2
    nights = 10
"#;

fn extremes() -> Vec<Value> {
    let numbers = [0, -1, 1, 1 << 40, i64::MAX, i64::MIN].map(Value::Integer);
    let floats = [0.0, -0.5, 1e19, 1e300, f64::INFINITY, f64::NAN, 1e-300].map(Value::Float);
    let lists = [Vec::new(), vec![Value::Integer(0)], vec![Value::Integer(1); 5000]].map(Value::Array);
    let others = [Value::String(String::new()), Value::String("?".to_owned()), Value::Boolean(true)];
    numbers.into_iter().chain(floats).chain(lists).chain(others).collect()
}

fn check_usable(config: &Config) {
    let Limits { start_seconds, build_seconds, run_seconds, .. } = config.limits;
    for seconds in [start_seconds, build_seconds, run_seconds].into_iter().chain(config.budget_seconds) {
        assert!(Duration::from_secs_f64(seconds) <= Duration::from_secs(366 * 86_400), "{seconds}");
    }
    for mib in [config.limits.build_memory_mib, config.limits.run_memory_mib] {
        assert!((64..=1 << 24).contains(&mib), "{mib}");
    }
    assert!(config.limits.build_batch > 0 && !config.threads.is_empty());
}

fn try_all(table: &Table, whole: &Table, path: &[String], tried: &mut usize) {
    for (name, value) in table {
        let path: Vec<String> = path.iter().chain([name]).cloned().collect();
        for extreme in extremes() {
            let mut changed = whole.clone();
            let (last, folders) = path.split_last().expect("a path has a name");
            let place = folders.iter().fold(&mut changed, |table, name| {
                table.get_mut(name).and_then(Value::as_table_mut).expect("the path leads through tables")
            });
            place.insert(last.clone(), extreme);
            *tried += 1;
            let text = toml::to_string(&changed).expect("a table is TOML");
            if let Ok(config) = Settings::parse(&text).map_err(drop).and_then(|raw| raw.check(4).map_err(drop)) {
                check_usable(&config);
            }
        }
        if let Value::Table(inner) = value {
            try_all(inner, whole, &path, tried);
        }
    }
}

#[test]
fn a_file_with_any_setting_changed_is_refused_or_can_be_used() {
    let whole: Table = toml::from_str(WHOLE).unwrap();
    check_usable(&Settings::parse(WHOLE).unwrap().check(4).unwrap());
    let mut tried = 0;
    try_all(&whole, &whole, &[], &mut tried);
    assert!(tried > 500, "{tried}");
}

#[test]
fn settings_without_effect_are_refused() {
    let refused = |text: &str| Settings::parse(text).unwrap().check(4).unwrap_err().to_string();
    let simple = "models = [{ source = 'simple', name = 'relu:shape=8' }]\n";
    expect_test::expect!["`batch` is 8; the text of a simple operator contains its batch, such as `n=8`"]
        .assert_eq(&refused(&format!("{simple}batch = [8]")));
    expect_test::expect!["`sequence` is [8]; it applies only to models from `transformers` and ONNX files"]
        .assert_eq(&refused(&format!("{simple}sequence = [8]")));
    expect_test::expect![[r#"`measure.cache` is {"cold":{"flush_bytes":4096}}; give `cache = ["cold"]`, which writes as many bytes as the caches of this machine hold"#]]
        .assert_eq(&refused(&format!("{simple}[measure]\ncache = {{ cold = {{ flush_bytes = 4096 }} }}")));
    for other in ["target = 'cuda'", "target = 'cpu-vendor, llvm'", "backend = 'torch'"] {
        let told = refused(&format!("{simple}{other}\ncache = ['warm', 'network']"));
        let allowed = "`cache` is \"network\"; it needs the target `llvm` without a partner library";
        assert_eq!(told, allowed, "{other}");
    }
    expect_test::expect!["`threads` is 8; allowed are 1 to 4 on the CPUs that this process may use"]
        .assert_eq(&refused(&format!("{simple}threads = [1, 8]")));
}

fn check_tune(text: &str, expected: expect_test::Expect) {
    let told = match Settings::parse(text).map(|raw| raw.check(2)) {
        Ok(Ok(config)) => format!("{:?}", config.tune),
        Ok(Err(error)) => error.to_string(),
        Err(why) => why,
    };
    expected.assert_eq(&told);
}

#[test]
fn unsupported_searches_are_refused() {
    check_tune("", expect_test::expect!["None"]);
    check_tune(
        "[tune]",
        expect_test::expect![
            "Some(Tune { tuner: Draft, trials: 3000, trials_per_task: None, patience: 100, only: Filter({}), in_place: true, spaces: 9 })"
        ],
    );
    check_tune("[tune]\ntrials = 0", expect_test::expect!["`trials` is 0; allowed are 1 to 1000000"]);
    check_tune("[tune]\ntrials_per_task = 0", expect_test::expect!["`trials_per_task` is 0; allowed are 1 to 1000000"]);
    check_tune("[tune]\npatience = 2000000", expect_test::expect!["`patience` is 2000000; allowed are 0 to 1000000"]);
    check_tune(
        "executor = 'vm'\n[tune]",
        expect_test::expect!["`tuner` is draft; a search needs static sizes: remove the executor `vm`"],
    );
    check_tune(
        "backend = 'torch'\n[tune]",
        expect_test::expect!["`tuner` is draft; `draft` searches schedules, but a library has none"],
    );
    check_tune(
        "target = 'cuda'\narch = ['sm_90']\n[tune]\ntuner = 'xgb_curve'",
        expect_test::expect![
            "`tuner` is xgb_curve; `xgb_curve` learns from loops of CPU templates, so it does not support the target `cuda`; `draft`, `xgb_knob`, `ga`, `random`, `gridsearch` and `metaschedule` do"
        ],
    );
}

#[test]
fn models_of_the_zoo_have_canonical_names() {
    let settings: Settings =
        toml::from_str(r#"models = [{ source = "local", name = "MLP" }, { source = "local", name = "mlp" }]"#)
            .expect("settings");
    let names: Vec<String> =
        settings.resolve(2).expect("sound").config.models.into_iter().map(|model| model.name).collect();
    assert_eq!(names, ["mlp"]);
}

#[test]
fn repeated_elements_of_lists_are_dropped() {
    let both = |repeated: &str, once: &str| {
        let config = |text: &str| Settings::parse(text).unwrap().check(4).unwrap();
        assert_eq!(config(repeated), config(once));
    };
    let model = "{ source = 'transformers', name = 'x' }";
    both(
        &format!(
            "models = [{model}, {model}]\nbatch = [8, 1, 8]\nsequence = [16, 16]\nphase = ['decode', 'decode']\n\
             steps = 2\nthreads = [2, 1, 1]\nsamplers = ['template', 'template']\ncache = ['warm', 'cold', 'warm']\n\
             [counters]\nevents = ['cycles', 'cycles']"
        ),
        &format!(
            "models = [{model}]\nbatch = [8, 1]\nsequence = [16]\nphase = ['decode']\nsteps = 2\nthreads = [2, 1]\n\
             samplers = ['template']\ncache = ['warm', 'cold']\n[counters]\nevents = ['cycles']"
        ),
    );
    let cuda = "models = [{ source = 'local', name = 'mlp' }]\ntarget = 'cuda'\n";
    both(&format!("{cuda}arch = ['sm_90', 'sm_90']"), &format!("{cuda}arch = ['sm_90']"));
    let corun = |text: &str| Settings::parse(text).unwrap().corun.unwrap().without_duplicates();
    assert_eq!(
        corun("[corun]\nsizes = [2, 2]\npartners = ['arithmetic', 'arithmetic']\nparallel = ['full', 'full']"),
        corun("[corun]\nsizes = [2]\npartners = ['arithmetic']\nparallel = ['full']")
    );
}
