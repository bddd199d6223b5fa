//! `profile`: where the time of a model goes, operator by operator.

pub mod arguments;

use super::{DONE, DONE_WITH_LOSSES, Result, paper, print, print_json, settings, tell};
use crate::options::{Sampling, Sweep};
use crate::pace::Pace;
use crate::profile::arguments::{ProfileCommand, ProfileDiff, ProfileRun};
use crate::progress::terminal;
use engine::campaign::settings::Resolved;
use engine::input_files::InputFiles;
use engine::profile::{self, CodeOptions, FileOptions, ProfileOptions};
use engine::report::profile::ProfileView;
use std::sync::Arc;

/// Profiles a model, or compares two profiles.
pub fn run(arguments: &ProfileRun) -> Result<u8> {
    match &arguments.command {
        Some(ProfileCommand::Diff(diff)) => compare(diff),
        None => profile_model(arguments),
    }
}

fn profile_model(arguments: &ProfileRun) -> Result<u8> {
    let sweep = Sweep {
        counters: profile::counters(&arguments.counters),
        ..Sweep::of_run(arguments.threads, arguments.seed, &Sampling::default())
    };
    let Resolved { config, loaded } = settings::config(&arguments.models, &sweep)?;
    let inputs = arguments.given.files();
    let profiled = profile::run(&options(arguments, &inputs), config, &loaded, &terminal(Pace::default()))?;
    let view = ProfileView { row_limit: arguments.table.row_limit, has_memory: arguments.table.profile_memory };
    match (&profiled.styled, arguments.json) {
        (Some(styled), true) => {
            tell(&profiled.report.notes);
            print_json(styled)?
        }
        (None, true) => print_json(&profiled.report)?,
        (_, false) => print(&profiled.text(view, &paper()))?,
    }
    Ok(if profiled.has_losses { DONE_WITH_LOSSES } else { DONE })
}

fn options<'a>(arguments: &'a ProfileRun, inputs: &'a InputFiles) -> ProfileOptions<'a> {
    let ProfileRun { table, code, pictures, .. } = arguments;
    ProfileOptions {
        threads: arguments.threads,
        inputs,
        is_checked: !arguments.no_check,
        schedule: arguments.schedule,
        sample: arguments.sample,
        seconds: arguments.seconds,
        counters: &arguments.counters,
        on_trace_ready: arguments.on_trace_ready.as_deref(),
        wait_seconds: arguments.exclusive.wait,
        store: arguments.store.as_deref(),
        code: CodeOptions {
            annotate: code.annotate.as_deref(),
            folder: code.annotate_to.as_deref(),
            sample_hertz: code.sample_hertz,
            has_perf_map: code.perf_map,
        },
        group_by: table.group_by.with_levels(table.levels),
        sort_by: table.sort_by,
        style: table.style,
        files: FileOptions {
            profile: arguments.out.as_deref(),
            csv: table.csv.as_deref(),
            perfetto: pictures.perfetto.as_deref(),
            chrome_trace: pictures.chrome_trace.as_deref(),
            page: pictures.html.as_deref(),
            trace_mib: pictures.trace_mib,
        },
        signal: Arc::default(),
    }
}

fn compare(asked: &ProfileDiff) -> Result<u8> {
    let found = profile::diff(&asked.before, &asked.after, asked.group_by.with_levels(asked.levels))?;
    if asked.json {
        print_json(&found.changes)?
    } else {
        print(&found.text(asked.row_limit, &paper()))?
    }
    Ok(DONE)
}
