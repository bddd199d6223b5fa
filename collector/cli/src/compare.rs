//! `model compare`: ways to run one model, timed in turns.

use super::arguments::{ModelCompare, Sweep, VariantArgument};
use super::pace::Pace;
use super::progress::terminal;
use super::settings::Settled;
use super::{DONE, DONE_WITH_LOSSES, Result, paper, print, print_json, settings};
use engine::compare::{Wanted, Way, describe, make, time};
use engine::failure::Failure;
use engine::prepared::{Asked, On, PreparedModel};
use engine::{machine, staging};
use job::Engine;

impl From<VariantArgument> for Way {
    fn from(argument: VariantArgument) -> Way {
        match argument {
            VariantArgument::Default => Way::Default,
            VariantArgument::Best => Way::Best,
            VariantArgument::Onnxruntime => Way::Onnxruntime,
            VariantArgument::Openvino => Way::Openvino,
            VariantArgument::Torch => Way::Torch,
            VariantArgument::Plan => Way::Plan,
            VariantArgument::Sequential => Way::Sequential,
            VariantArgument::Stream => Way::Stream,
            VariantArgument::Full => Way::Full,
        }
    }
}

/// Compares.
pub fn run(arguments: &ModelCompare) -> Result<u8> {
    let wanted = variants(arguments)?;
    let engines: Vec<Engine> = wanted.iter().map(|variant| variant.engine()).collect();
    let sweep = Sweep { threads: arguments.threads.into_iter().collect(), seed: arguments.seed, ..Sweep::default() };
    let Settled { config, loaded } = settings::config(&arguments.models, &sweep)?;
    let mut whole = PreparedModel::of(Asked {
        config,
        models: &loaded,
        threads: arguments.threads,
        inputs: &Default::default(),
        is_checked: !arguments.no_check,
        engines: &engines,
        on: On::Cpus,
        observer: terminal(Pace::default()),
    })?;
    let best = arguments.store.as_ref().map(|store| whole.best(store, arguments.all_versions)).transpose()?;
    let plan = arguments.plan.as_ref().map(|path| staging::read(path, &whole)).transpose()?;
    let wanted = Wanted { variants: &wanted, best: best.as_ref(), plan: plan.as_ref() };
    let variants = make(&wanted, &mut whole)?;
    let _exclusive = machine::exclusive(arguments.wait, terminal(Pace::default()).as_ref())?;
    let report = time(variants, arguments.rounds, &mut whole)?;
    if arguments.json {
        print_json(&report)?
    } else {
        print(&describe(&report, &paper()))?
    }
    Ok(if report.is_wrong() { DONE_WITH_LOSSES } else { DONE })
}

/// The ways that are asked for, each once.
fn variants(arguments: &ModelCompare) -> Result<Vec<Way>> {
    let wanted = match arguments.variant.as_slice() {
        [] => vec![Way::Default, Way::Onnxruntime],
        given => given.iter().map(|argument| Way::from(*argument)).collect(),
    };
    if let Some(place) = (1..wanted.len()).find(|place| wanted[..*place].contains(&wanted[*place])) {
        return Err(Failure::usage(format!("`--variant {}` is given twice", wanted[place].name())));
    }
    match (wanted.contains(&Way::Plan), &arguments.plan) {
        (true, None) => {
            return Err(Failure::usage("`--variant plan` needs a plan")
                .with_hint("give `--plan FILE`; `oppredict plan --model M --data STORE --out FILE` makes one"));
        }
        (false, Some(_)) => {
            return Err(
                Failure::usage("`--plan` is for `--variant plan`").with_hint("add `--variant plan`, or leave it out")
            );
        }
        _ => {}
    }
    match (wanted.contains(&Way::Best), &arguments.store) {
        (true, None) => Err(Failure::usage("`--variant best` needs a store with measured schedules")
            .with_hint("give `--store DIR`; a store is made by `opcollect --modelname … --store DIR`")),
        (false, Some(_)) => {
            Err(Failure::usage("`--store` is for `--variant best`").with_hint("add `--variant best`, or leave it out"))
        }
        _ => Ok(wanted),
    }
}
