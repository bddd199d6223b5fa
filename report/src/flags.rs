//! Parses command lines with `clap`, with negative numbers, colours and hints.

use crate::activity::begin_activity;
use crate::paper::ColorChoice;
use crate::terminal::{print_usage_advice, take_color_flag};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Command, Error, Parser};

/// Parses the command line of this process and begins its activity. For help and errors, prints in the colours of
/// `--color` and exits, as `clap` does.
pub fn parse_command_line<Arguments: Parser>() -> Arguments {
    let command = take_negative_numbers(Arguments::command());
    let (words, colours) = take_color_flag(std::env::args_os())
        .unwrap_or_else(|problem| Arguments::command().error(ErrorKind::InvalidValue, problem).exit());
    let colours = match colours {
        ColorChoice::Auto => clap::ColorChoice::Auto,
        ColorChoice::Always => clap::ColorChoice::Always,
        ColorChoice::Never => clap::ColorChoice::Never,
    };
    let program = command.get_name().to_owned();
    let matches = command
        .color(colours)
        .try_get_matches_from(words)
        .unwrap_or_else(|error| exit_with_error(&drop_false_suggestion(error)));
    begin_activity(format!("`{program}{}` is running", command_name(&matches)));
    Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn command_name(matches: &ArgMatches) -> String {
    matches.subcommand().map_or_else(String::new, |(name, inner)| format!(" {name}{}", command_name(inner)))
}

fn exit_with_error(error: &Error) -> ! {
    let _ = error.print();
    if error.use_stderr() {
        print_usage_advice(&error.to_string());
    }
    std::process::exit(error.exit_code())
}

/// Lets all options of a command and its subcommands take negative numbers, so that the option's own parser refuses
/// them and states what is allowed. Otherwise `clap` reads `-1` as a flag and suggests `-- -1`, which is no value of the
/// option.
fn take_negative_numbers(command: Command) -> Command {
    let take = |arg: Arg| match arg.is_positional() || !arg.get_action().takes_values() {
        true => arg,
        false => arg.allow_negative_numbers(true),
    };
    command.mut_args(take).mut_subcommands(take_negative_numbers)
}

/// Removes the suggestion of `--` from an error about a value such as `-30m`, which `clap` reads as flags.
fn drop_false_suggestion(mut error: Error) -> Error {
    let is_number =
        |text: &str| text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
    if matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(text)) if is_number(text)) {
        error.remove(ContextKind::Suggested);
    }
    error
}
