//! Flags of `serve` for its log, traces and profiles.
//!
//! `--v`, `--profiling` and `--tracing-config-file` have kube-apiserver's names.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{ArgMatches, Args as ClapArgs};

use super::LogFormat;
use super::kinds::switch;

/// Flags whose values can be secret.
const CLASSIFIED: [&str; 1] = ["store"];
/// The value of a flag that is not shown, as upstream.
const HIDDEN: &str = "CLASSIFIED";

/// The log, traces and profiles.
#[derive(ClapArgs)]
pub(crate) struct Diagnosis {
    /// The log level, unless KEELSON_LOG sets it: debug from 4 on, trace from 8 on. PUT to /debug/flags/v changes it.
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) verbosity: i32,
    /// The format of the log.
    #[arg(long, env = "KEELSON_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    /// Serve profiles below /debug/pprof, and the level of the log at /debug/flags/v.
    #[arg(
        long,
        env = "KEELSON_PROFILING",
        default_value_t = true,
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        value_parser = switch
    )]
    pub(crate) profiling: bool,
    /// A file with a TracingConfiguration: the collector of traces, and the share of requests that are recorded.
    #[arg(long, env = "KEELSON_TRACING_CONFIG_FILE")]
    pub(crate) tracing_config_file: Option<PathBuf>,
    /// The values of all flags, without secrets.
    #[arg(skip)]
    pub(crate) shown: BTreeMap<String, String>,
}

/// The values of a command's flags, as `/flagz` shows them.
pub(crate) fn shown(command: &clap::Command, matches: &ArgMatches) -> BTreeMap<String, String> {
    let flags = command.get_arguments().filter_map(|arg| {
        let name = arg.get_long()?;
        let values = matches.try_get_raw(arg.get_id().as_str()).ok()?;
        let values: Vec<_> = values.into_iter().flatten().map(|value| value.to_string_lossy()).collect();
        let value = values.join(",");
        let is_secret = !value.is_empty() && (CLASSIFIED.contains(&name) || has_credentials(&value));
        Some((name.to_owned(), if is_secret { HIDDEN.to_owned() } else { value }))
    });
    flags.collect()
}

/// Returns true for a text with a URL that may contain a password.
fn has_credentials(value: &str) -> bool {
    value.match_indices("://").any(|(at, mark)| {
        let authority = value[at + mark.len()..].split(['/', '?', '#', ',']).next();
        authority.is_some_and(|authority| authority.contains('@'))
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Args, Command};

    fn shown(line: &str) -> std::collections::BTreeMap<String, String> {
        match Args::read(line.split_whitespace()).ok().unwrap().command {
            Command::Serve(serve) => serve.diagnosis.shown,
            _ => panic!("{line}: it is serve"),
        }
    }

    #[test]
    fn flags_are_shown_without_secrets() {
        let flags = shown(
            "keelson serve --store postgres://ann:hunter2@db/x --v 3 --tls-san a --tls-san b --service-account-issuer https://u:hunter2@i",
        );
        let of = |name: &str| flags[name].as_str();
        assert_eq!((of("store"), of("service-account-issuer")), ("CLASSIFIED", "CLASSIFIED"));
        assert_eq!((of("v"), of("tls-san"), of("profiling"), of("peer-ca-file")), ("3", "a,b", "true", ""));
        assert!(!format!("{flags:?}").contains("hunter2") && flags.len() > 80, "{}", flags.len());
    }
}
