//! Passwords from the same sources as in PostgreSQL's own programs, so that no password has to be in a URL, which all
//! users of the host can read.
//!
//! The order is libpq's: the URL, `PGPASSWORD`, and the file that `PGPASSFILE` names, or `~/.pgpass`. A password file
//! of the server's own setting comes before the variables.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use super::config::PostgresConfig;
use super::error::PostgresError;

/// The port if the URL has none.
const DEFAULT_PORT: u16 = 5432;
/// The host in password files for connections by a socket.
const LOCAL: &str = "localhost";

/// The sources of a password that is not in the URL.
#[derive(Clone, Debug, Default)]
pub struct PasswordSources {
    /// A file that contains only the password. A line break at its end is ignored.
    pub file: Option<PathBuf>,
    /// `PGPASSWORD`.
    pub variable: Option<String>,
    /// A file of lines `host:port:database:user:password`.
    pub passfile: Option<PathBuf>,
}

impl PasswordSources {
    /// The sources that the environment of this process names.
    pub fn of_environment() -> Self {
        let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".pgpass"));
        let text = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        let passfile = std::env::var_os("PGPASSFILE").map(PathBuf::from).or_else(home);
        Self { file: None, variable: text("PGPASSWORD"), passfile }
    }
}

impl PostgresConfig {
    /// Adds the password from one of these sources if the URL has none.
    ///
    /// # Errors
    /// The password file can't be read.
    pub fn with_password_from(mut self, sources: &PasswordSources) -> Result<Self, PostgresError> {
        if self.connection.get_password().is_some() {
            return Ok(self);
        }
        let password = match (&sources.file, &sources.variable) {
            (Some(file), _) => {
                let unreadable = |source| PostgresError::Password { path: file.clone(), source };
                let text = fs::read_to_string(file).map_err(unreadable)?;
                Some(text.trim_end_matches(['\r', '\n']).to_owned())
            }
            (None, Some(password)) => Some(password.clone()),
            (None, None) => sources.passfile.as_deref().and_then(|file| of_passfile(file, &self.connection)),
        };
        if let Some(password) = password {
            self.connection.password(password);
        }
        Ok(self)
    }
}

/// The password that a file has for one of the hosts, if any. As in libpq, a file that other users may read is ignored.
fn of_passfile(file: &Path, connection: &Config) -> Option<String> {
    let metadata = fs::metadata(file).ok()?;
    if metadata.permissions().mode() & 0o077 != 0 {
        tracing::warn!(file = %file.display(), "the file of passwords is not used: others than its owner may read it; chmod 600");
        return None;
    }
    let text = fs::read_to_string(file).ok()?;
    let (user, database) = (connection.get_user()?, connection.get_dbname().unwrap_or_default());
    let hosts = connection.get_hosts().iter().enumerate().map(|(place, host)| {
        let port = connection.get_ports().get(place).or(connection.get_ports().first());
        let name = match host {
            Host::Tcp(name) => name.as_str(),
            Host::Unix(_) => LOCAL,
        };
        (name, port.copied().unwrap_or(DEFAULT_PORT).to_string())
    });
    hosts.into_iter().find_map(|(host, port)| password_of(&text, [host, &port, database, user]))
}

/// The password of the first matching line.
fn password_of(text: &str, wanted: [&str; 4]) -> Option<String> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = fields(line);
        let (known, password) = fields.split_at_checked(wanted.len())?;
        let fits = known.iter().zip(wanted).all(|(known, wanted)| known == "*" || known == wanted);
        // A colon in the password needs no escape.
        (fits && !password.is_empty()).then(|| password.join(":"))
    })
}

/// The fields of a line, separated by colons. A backslash makes the next character an ordinary one.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let field = fields.last_mut().expect("there is one from the beginning");
        match character {
            '\\' => field.extend(characters.next()),
            ':' => fields.push(String::new()),
            other => field.push(other),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "postgres://keelson@db.example:6000,other/objects";

    fn password(url: &str, sources: &PasswordSources) -> Option<String> {
        let config = PostgresConfig::from_url(url).unwrap().with_password_from(sources).unwrap();
        config.connection.get_password().map(|password| String::from_utf8(password.to_vec()).unwrap())
    }

    #[test]
    fn the_password_comes_from_url_file_variable_or_passfile_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            path
        };
        let file = write("password", "in the file\n");
        let passfile =
            write("pgpass", "# of us all\ndb.example:1:*:*:port\n*:*:objects:keelson:a\\:b:c\\\\d\n*:*:*:*:late\n");
        let mut sources = PasswordSources {
            file: Some(file),
            variable: Some("variable".to_owned()),
            passfile: Some(passfile.clone()),
        };
        assert_eq!(password("postgres://keelson:url@db/objects", &sources).as_deref(), Some("url"));
        assert_eq!(password(URL, &sources).as_deref(), Some("in the file"));
        sources.file = None;
        assert_eq!(password(URL, &sources).as_deref(), Some("variable"));
        sources.variable = None;
        assert_eq!(password(URL, &sources).as_deref(), Some("a:b:c\\d"));
        fs::set_permissions(&passfile, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(password(URL, &sources), None, "others may read it");
        sources.file = Some(directory.path().join("none"));
        assert!(PostgresConfig::from_url(URL).unwrap().with_password_from(&sources).is_err());
    }
}
