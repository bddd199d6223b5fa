//! `profile`: the time of a model, by operator.

pub mod arguments;

use super::{DONE, DONE_WITH_LOSSES, Result, print_json, print_note_lines, print_text, settings, stdout_paper};
use crate::options::{Sampling, Sweep};
use crate::pace::Pace;
use crate::profile::arguments::{ProfileCommand, ProfileDiff, ProfileRun};
use crate::progress::terminal_observer;
use engine::campaign::settings::ResolvedConfig;
use engine::input_files::InputFiles;
use engine::profile::{self, CodeOptions, FileOptions, ProfileOptions};
use engine::report::profile::ProfileView;
use std::sync::Arc;

pub fn run(arguments: &ProfileRun) -> Result<u8> {
    match &arguments.command {
        Some(ProfileCommand::Diff(diff)) => compare_profiles(diff),
        None => profile_model(arguments),
    }
}

fn profile_model(arguments: &ProfileRun) -> Result<u8> {
    let sweep = Sweep {
        counters: profile::requested_counters(&arguments.counters),
        ..Sweep::of_run(arguments.threads, arguments.seed, &Sampling::default())
    };
    let ResolvedConfig { config, loaded } = settings::resolve_config(&arguments.models, &sweep)?;
    let inputs = arguments.given.input_files();
    let profiled = profile::profile_model(
        &profile_options(arguments, &inputs),
        config,
        &loaded,
        &terminal_observer(Pace::default()),
    )?;
    let view = ProfileView { row_limit: arguments.table.row_limit, has_memory: arguments.table.profile_memory };
    match (&profiled.styled, arguments.json) {
        (Some(styled), true) => {
            print_note_lines(&profiled.report.notes);
            print_json(styled)?
        }
        (None, true) => print_json(&profiled.report)?,
        (_, false) => print_text(&profiled.text(view, &stdout_paper()))?,
    }
    Ok(if profiled.has_losses { DONE_WITH_LOSSES } else { DONE })
}

fn profile_options<'a>(arguments: &'a ProfileRun, inputs: &'a InputFiles) -> ProfileOptions<'a> {
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

fn compare_profiles(arguments: &ProfileDiff) -> Result<u8> {
    let found =
        profile::compare_files(&arguments.before, &arguments.after, arguments.group_by.with_levels(arguments.levels))?;
    if arguments.json {
        print_json(&found.changes)?
    } else {
        print_text(&found.text(arguments.row_limit, &stdout_paper()))?
    }
    Ok(DONE)
}
