//! `keelson serve --config FILE`: flags in a YAML file.
//!
//! A flag of the command line wins over its variable, and the variable over the file. The file becomes flags at the end
//! of the line, so the parser checks its values like any others.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Command, Error};

/// The flag that names the file, and its variable.
const FLAG: &str = "config";
const VARIABLE: &str = "KEELSON_CONFIG";
/// Flags that have no meaning in a file.
const NOT_IN_FILES: [&str; 4] = [FLAG, "help", "help-all", "version"];

/// Adds the flags of the file that a line of `serve` names, if it names one.
///
/// # Errors
/// The file cannot be read, or has an unknown field.
pub(super) fn with_file(mut line: Vec<OsString>, keelson: &Command) -> Result<Vec<OsString>, Error> {
    if line.get(1).is_none_or(|command| command != "serve") {
        return Ok(line);
    }
    let Some(serve) = keelson.find_subcommand("serve") else { return Ok(line) };
    let given = stated(&line, FLAG).or_else(|| std::env::var_os(VARIABLE).filter(|file| !file.is_empty()));
    let Some(file) = given.map(PathBuf::from) else { return Ok(line) };
    let refused = |why: String| Error::raw(ErrorKind::InvalidValue, format!("{why}\n"));
    let settings = keelson_server::read_settings(&file).map_err(|error| refused(format!("--config: {error:#}")))?;
    let mut added = Vec::new();
    for (name, values) in settings {
        let known = serve.get_arguments().find(|arg| arg.get_long() == Some(&*name));
        let Some(arg) = known.filter(|_| !NOT_IN_FILES.contains(&&*name)) else {
            return Err(refused(format!("--config: {} has the unknown field {name:?}", file.display())));
        };
        let is_set = arg.get_env().is_some_and(|variable| std::env::var_os(variable).is_some());
        if !is_set && !is_stated(&line, &name) {
            added.extend(values.into_iter().map(|value| OsString::from(format!("--{name}={value}"))));
        }
    }
    line.extend(added);
    Ok(line)
}

/// The last value of a flag in a line.
fn stated(line: &[OsString], name: &str) -> Option<OsString> {
    let (flag, begin) = (format!("--{name}"), format!("--{name}="));
    let mut found = None;
    for (at, word) in line.iter().enumerate() {
        if word == OsStr::new(&flag) {
            found = line.get(at + 1).cloned();
        } else if let Some(value) = word.to_str().and_then(|word| word.strip_prefix(&begin)) {
            found = Some(value.into());
        }
    }
    found
}

fn is_stated(line: &[OsString], name: &str) -> bool {
    let (flag, begin) = (format!("--{name}"), format!("--{name}="));
    line.iter().filter_map(|word| word.to_str()).any(|word| word == flag || word.starts_with(&begin))
}

#[cfg(test)]
mod tests {
    use super::super::{Args, Command as Parsed};
    use crate::args::ListValues as _;

    fn serve(file: &str, flags: &[&str]) -> Result<Box<super::super::Serve>, String> {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("keelson.yaml");
        std::fs::write(&path, file).unwrap();
        let path = path.to_str().unwrap();
        let line = ["keelson", "serve", "--config", path].into_iter().chain(flags.iter().copied());
        match Args::read(line).map_err(|error| error.to_string().replace(path, "FILE"))?.command {
            Parsed::Serve(serve) => Ok(serve),
            _ => Err("it is serve".to_owned()),
        }
    }

    #[test]
    fn fields_are_flags_and_flags_win() {
        let file = "bind: 127.0.0.1:7443\ntls-san: [a.example.org, b.example.org]\nconsole: false\nevent-ttl: 1h\n";
        let read = serve(file, &[]).unwrap();
        assert_eq!((read.bind.port(), read.console), (7443, false));
        assert_eq!(read.tls_san.joined(), ["a.example.org", "b.example.org"]);
        let read = serve(file, &["--bind=127.0.0.1:8443", "--tls-san", "c.example.org"]).unwrap();
        assert_eq!((read.bind.port(), read.tls_san.joined()), (8443, vec!["c.example.org".to_owned()]));
        assert!(serve("", &[]).is_ok());
    }

    #[test]
    fn files_that_are_wrong_are_refused() {
        let refused = |file: &str| serve(file, &[]).err().unwrap();
        assert!(refused("nosuch: 1").contains("FILE has the unknown field \"nosuch\""));
        assert!(refused("config: other.yaml").contains("unknown field \"config\""));
        assert!(refused("bind: {a: b}").contains("bind is not a string, number, boolean or list of these"));
        assert!(refused("bind: 127.0.0.1:1\nbind: 127.0.0.1:2").contains("bind"));
        assert!(refused("- a").contains("is not an object of flags"));
        assert!(refused("bind: nowhere").contains("nowhere"));
        let missing = Args::read(["keelson", "serve", "--config=/nonexistent.yaml"]).err().unwrap().to_string();
        assert!(missing.contains("/nonexistent.yaml"), "{missing}");
    }
}
