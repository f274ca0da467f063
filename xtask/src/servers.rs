//! Finds the PostgreSQL, the etcds and the browser of the tests: those in variables, installed ones, or packages
//! unpacked below the target directory. The system is not changed, and no root access is needed.
//!
//! Without them all other tests still run: a missing part is a message here, not a failure, and the tests that did not
//! run are listed at the end.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::workspace::Workspace;
use crate::{registry, run};

mod debian;

/// An external program with its sources.
struct Make {
    /// Its name in messages.
    name: &'static str,
    /// The environment variable with the path of the program. The user sets it to choose an installation, and xtask
    /// sets it for the tests. Empty if the program is missing.
    variable: &'static str,
    /// The source, if none is installed.
    source: Source,
    /// The name of the executable, which identifies its directory.
    program: &'static str,
    /// True if the variable names the directory of the program instead of the program.
    by_directory: bool,
}

enum Source {
    /// An installed program, or Debian's package.
    Debian {
        /// The package that depends on the newest version.
        package: &'static str,
        /// The prefixes of the dependencies that are fetched too.
        follow: &'static [&'static str],
        /// The program's directories in a system or an unpacked package, below its root; `*` is one directory.
        directories: &'static [&'static str],
    },
    /// A crate of this version that contains the program. The tested version must not depend on installed programs.
    Crate {
        /// The prefix of the crate's name; the machine's name follows.
        package: &'static str,
        version: &'static str,
        /// The path of the program in the crate.
        file: &'static str,
    },
}

/// The prefixes of Chromium's required libraries, and of its own packages.
const CHROMIUM: &[&str] = &["chromium", "lib"];

const MAKES: [Make; 5] = [
    Make {
        name: "PostgreSQL",
        variable: "KEELSON_POSTGRES_BIN",
        source: Source::Debian {
            package: "postgresql",
            follow: &["postgresql-1", "postgresql-2", "postgresql-client-1", "postgresql-client-2", "lib"],
            directories: &["usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "usr/local/pgsql/bin"],
        },
        program: "initdb",
        by_directory: true,
    },
    Make {
        name: "etcd",
        variable: "KEELSON_ETCD",
        source: Source::Debian { package: "etcd-server", follow: &[], directories: &["usr/bin", "usr/local/bin"] },
        program: "etcd",
        by_directory: false,
    },
    Make {
        name: "the newest etcd",
        variable: "KEELSON_ETCD_NEWEST",
        source: Source::Crate { package: "etcd-bin-vendored", version: "3.7.2", file: "bin/etcd" },
        program: "etcd",
        by_directory: false,
    },
    Make {
        name: "Chromium",
        variable: "KEELSON_CHROMIUM",
        source: Source::Debian {
            package: "chromium-driver",
            follow: CHROMIUM,
            directories: &["usr/lib/chromium", "usr/bin", "usr/local/bin"],
        },
        program: "chromium",
        by_directory: false,
    },
    Make {
        name: "ChromeDriver",
        variable: "KEELSON_CHROMEDRIVER",
        source: Source::Debian {
            package: "chromium-driver",
            follow: CHROMIUM,
            directories: &["usr/bin", "usr/local/bin"],
        },
        program: "chromedriver",
        by_directory: false,
    },
];

/// The found programs as variables for the tests, and the missing ones.
pub(crate) struct Servers {
    /// A variable with its value for each program.
    pub(crate) variables: Vec<(&'static str, PathBuf)>,
    /// One sentence for each program whose tests can't run.
    pub(crate) missing: Vec<String>,
}

/// The names of the variables.
pub(crate) fn variables() -> impl Iterator<Item = &'static str> {
    MAKES.into_iter().map(|make| make.variable)
}

/// Finds or fetches all programs.
pub(crate) fn find(workspace: &Workspace) -> Result<Servers> {
    let mut servers = Servers { variables: Vec::new(), missing: Vec::new() };
    for make in MAKES {
        let found = match make.named_by_user()? {
            Some(path) => path,
            None => make.find(workspace).unwrap_or_else(|error| {
                servers.missing.push(make.how_to_get(&error));
                PathBuf::new()
            }),
        };
        servers.variables.push((make.variable, found));
    }
    Ok(servers)
}

impl Make {
    /// The path in the user's variable. A wrong path is an error, since the user wants that program and no other.
    fn named_by_user(&self) -> Result<Option<PathBuf>> {
        let Some(path) = std::env::var_os(self.variable).filter(|path| !path.is_empty()).map(PathBuf::from) else {
            return Ok(None);
        };
        let directory = if self.by_directory { Some(path.as_path()) } else { path.parent() };
        match directory.and_then(|directory| self.check(directory)) {
            Some(_) => Ok(Some(path)),
            None => bail!("{} is {}, where no {} can be started", self.variable, path.display(), self.program),
        }
    }

    fn find(&self, workspace: &Workspace) -> Result<PathBuf> {
        let servers = workspace.target.join("servers");
        match self.source {
            Source::Debian { package, follow, directories } => {
                let unpacked = servers.join(package);
                let below = |root: &Path| self.below(root, directories);
                if let Some(found) = below(Path::new("/")).or_else(|| self.on_path()).or_else(|| below(&unpacked)) {
                    return Ok(found);
                }
                debian::unpack(package, follow, &unpacked)?;
                below(&unpacked).with_context(|| format!("Debian's {package} holds no {}", self.program))
            }
            Source::Crate { package, version, file } => {
                let directory = servers.join(format!("{package}-{version}"));
                if let Some(found) = self.check(&directory) {
                    return Ok(found);
                }
                registry::copy_out(&format!("{package}-{}", machine()), version, file, &directory.join(self.program))?;
                self.check(&directory).with_context(|| format!("the {} of {package} does not run here", self.program))
            }
        }
    }

    fn below(&self, root: &Path, directories: &[&str]) -> Option<PathBuf> {
        directories.iter().flat_map(|pattern| matching(root, pattern)).find_map(|path| self.check(&path))
    }

    fn on_path(&self) -> Option<PathBuf> {
        let path = std::env::var_os("PATH")?;
        // PostgreSQL searches its files next to the program, not next to a link to it.
        std::env::split_paths(&path)
            .filter_map(|directory| directory.join(self.program).canonicalize().ok())
            .find_map(|program| self.check(program.parent()?))
    }

    /// Starts the program in the directory, to check that it runs here. Returns the value of the variable.
    fn check(&self, directory: &Path) -> Option<PathBuf> {
        let program = directory.join(self.program);
        let libraries = debian::libraries_beside(directory);
        let mut command = Command::new(&program);
        command.arg("--version").env("LD_LIBRARY_PATH", libraries);
        run::output(&mut command).ok()?;
        Some(if self.by_directory { directory.to_path_buf() } else { program })
    }

    fn how_to_get(&self, error: &anyhow::Error) -> String {
        let remedy = match self.source {
            Source::Debian { package, .. } => {
                format!("either install it (Debian: apt-get install {package}),\n  or make `apt-get download` work")
            }
            Source::Crate { .. } => "either make `cargo fetch` work".to_owned(),
        };
        format!(
            "the tests on {name} were NOT run: there is no {name} here, and fetching it failed ({error:#})\n\
             \x20 {remedy}, or set {variable} to {what} that you have",
            name = self.name,
            variable = self.variable,
            what = if self.by_directory { "the bin directory of one" } else { "the path of one" },
        )
    }
}

/// The machine's name in Go's notation.
fn machine() -> String {
    let system = match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    let processor = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    };
    format!("{system}-{processor}")
}

/// The directories that match a pattern with `*` in at most one component, the highest version first.
fn matching(root: &Path, pattern: &str) -> Vec<PathBuf> {
    let Some((before, after)) = pattern.split_once('*') else { return vec![root.join(pattern)] };
    let (parent, prefix) = before.rsplit_once('/').unwrap_or(("", before));
    let Ok(entries) = std::fs::read_dir(root.join(parent)) else { return Vec::new() };
    let mut found: Vec<(u32, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let version = name.strip_prefix(prefix)?.parse().ok()?;
            Some((version, entry.path().join(after.trim_start_matches('/'))))
        })
        .collect();
    found.sort();
    found.into_iter().rev().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::matching;

    #[test]
    fn the_highest_version_comes_first() {
        let root = std::env::temp_dir().join(format!("keelson-xtask-{}", std::process::id()));
        for version in ["9", "15", "notes"] {
            std::fs::create_dir_all(root.join("usr/lib/postgresql").join(version).join("bin")).expect("it is writable");
        }
        let found = matching(&root, "usr/lib/postgresql/*/bin");
        let expected = ["15", "9"].map(|version| root.join("usr/lib/postgresql").join(version).join("bin"));
        std::fs::remove_dir_all(&root).expect("it was made above");
        assert_eq!(found, expected);
    }
}
