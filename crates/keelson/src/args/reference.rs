//! The reference of the command line, `docs/reference/flags.md`: made from the definition that parses it.
//!
//! `KEELSON_UPDATE=1` writes the page anew.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, ArgAction, Command, CommandFactory as _};

use super::{Args, kinds};

const HEAD: &str = "\
# Flags and environment variables

Generated from the command line's definition by `cargo xtask docs --write`. A test fails when the page differs from it.

A switch takes an optional value, `--flag=false`. A variable has the same values as its flag, and the flag wins over it.
`keelson COMMAND --help` prints the same texts, and for `serve` those of a first server. `keelson serve --help-all` prints
all flags by topic.
";

fn page() -> String {
    let mut text = HEAD.to_owned();
    let mut keelson = kinds::uniform(Args::command());
    keelson.build();
    describe(&mut text, "keelson", &keelson);
    text
}

fn describe(text: &mut String, path: &str, command: &Command) {
    let arguments =
        command.get_arguments().filter(|arg| !["help", "help-all", "version"].contains(&arg.get_id().as_str()));
    let arguments: Vec<&Arg> = arguments.filter(|arg| !arg.is_hide_set()).collect();
    if path != "keelson" {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        write!(text, "\n## {path}\n\n{}.\n", about.trim_end_matches('.')).unwrap();
    }
    if !arguments.is_empty() {
        text.push_str("\n| flag | variable | default | meaning |\n|---|---|---|---|\n");
        arguments.into_iter().for_each(|arg| row(text, arg));
    }
    for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
        describe(text, &format!("{path} {}", command.get_name()), command);
    }
}

fn row(text: &mut String, arg: &Arg) {
    let name = arg
        .get_long()
        .map_or_else(|| format!("`{}`", arg.get_id().as_str().to_uppercase()), |long| format!("`--{long}`"));
    let variable = arg.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
    let defaults = arg.get_default_values().iter().map(|value| value.to_string_lossy());
    let default = defaults.map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ");
    let default = if matches!(arg.get_action(), ArgAction::SetTrue) { String::new() } else { default };
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "&lt;");
    writeln!(text, "| {name} | {variable} | {default} | {help} |").unwrap();
}

#[test]
fn the_reference_of_flags_is_that_of_the_command_line() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/flags.md");
    let expected = page();
    if std::env::var_os("KEELSON_UPDATE").is_some() {
        std::fs::write(&file, &expected).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(written == expected, "docs/reference/flags.md differs from the flags: KEELSON_UPDATE=1 writes it anew");
}
