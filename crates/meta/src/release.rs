//! The releases of Kubernetes whose API this server can have.
//!
//! A server has the API of one release: its own, or an older one that it emulates. The release decides the served
//! versions, the fields, the defaults of feature gates and the storage versions. It is a value that is passed on,
//! so that servers of two releases can run in one process.

use std::fmt;
use std::str::FromStr;

/// The release of Kubernetes whose API a server has by default.
pub const KUBERNETES_VERSION: &str = Release::DEFAULT.git_version();

/// The versions as `/version` and the OpenAPI documents name them. The build metadata after `+` says that the server is
/// not kube-apiserver. A `-` would make it a pre-release when versions are compared.
const GIT_VERSIONS: [&str; 2] = ["v1.36.2+keelson", "v1.37.0+keelson"];

/// A minor release of Kubernetes that this program has the data of, or one that facts name. Ordered by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    minor: u32,
}

/// A text that names no release, or one that this program does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseError {
    /// The text is no version such as `1.36`.
    #[error("could not parse {0:?} as version")]
    Form(String),
    /// The version has more than two numbers.
    #[error("patch version not allowed, got: kube={0}")]
    Patch(String),
    /// The text names another component than `kube`.
    #[error("component not registered: {0}")]
    Component(String),
    /// The program cannot emulate the release.
    #[error("emulation version {0} is not between [{oldest}, {newest}]", oldest = Release::OLDEST, newest = Release::NEWEST)]
    Unsupported(String),
}

impl Release {
    /// Kubernetes 1.36.
    pub const V1_36: Self = Self { minor: 36 };
    /// Kubernetes 1.37.
    pub const V1_37: Self = Self { minor: 37 };
    /// The newest release whose data this program has.
    pub const NEWEST: Self = Self::V1_37;
    /// The oldest release that can be emulated.
    pub const OLDEST: Self = Self::V1_36;
    /// The release of a server without another setting: that of [`KUBERNETES_VERSION`].
    pub const DEFAULT: Self = Self::NEWEST;

    /// The minor version: 36 for Kubernetes 1.36.
    pub const fn minor(self) -> u32 {
        self.minor
    }

    /// The version with its patch, as `/version` names it.
    pub const fn git_version(self) -> &'static str {
        if self.minor <= Self::V1_36.minor { GIT_VERSIONS[0] } else { GIT_VERSIONS[1] }
    }

    /// The oldest minor version whose servers can run beside a server of this release, on the same store.
    pub const fn min_compatibility_minor(self) -> u32 {
        self.minor - 1
    }

    /// Parses a value of `--emulated-version`: `1.36` or `kube=1.36`.
    ///
    /// # Errors
    /// The text has another form, or names a release that the program does not have.
    pub fn emulated(text: &str) -> Result<Self, ReleaseError> {
        let (component, version) = text.split_once('=').unwrap_or(("kube", text));
        let (component, version) = (component.trim(), version.trim());
        if component != "kube" {
            return Err(ReleaseError::Component(component.to_owned()));
        }
        let release: Self = version.parse()?;
        if release < Self::OLDEST || release > Self::NEWEST {
            return Err(ReleaseError::Unsupported(version.trim_start_matches('v').to_owned()));
        }
        Ok(release)
    }
}

impl Default for Release {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Formats the release as `1.36`.
impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.minor)
    }
}

/// Parses `1.36` and `v1.36`. Every minor version is accepted, since facts name releases that are not served too.
impl FromStr for Release {
    type Err = ReleaseError;

    fn from_str(text: &str) -> Result<Self, ReleaseError> {
        let malformed = || ReleaseError::Form(text.to_owned());
        let numbers: Vec<&str> = text.strip_prefix('v').unwrap_or(text).split('.').collect();
        match numbers.as_slice() {
            ["1", minor] => Ok(Self { minor: minor.parse().map_err(|_| malformed())? }),
            [_, _] => Err(malformed()),
            [_, _, _] => Err(ReleaseError::Patch(text.to_owned())),
            _ => Err(malformed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_release_has_its_version() {
        for release in [Release::V1_36, Release::V1_37] {
            assert!(release.git_version().starts_with(&format!("v{release}.")), "{release}");
        }
    }

    #[test]
    fn emulated_versions_are_read_as_upstream_reads_them() {
        let check = |text: &str, expected: Result<Release, &str>| {
            let found = Release::emulated(text).map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(str::to_owned), "{text}");
        };
        check("1.36", Ok(Release::V1_36));
        check("v1.36", Ok(Release::V1_36));
        check("kube=1.36", Ok(Release::V1_36));
        check("kube = 1.36", Ok(Release::V1_36));
        check("wardle=1.2", Err("component not registered: wardle"));
        check("1.36.1", Err("patch version not allowed, got: kube=1.36.1"));
        check("2.36", Err("could not parse \"2.36\" as version"));
        check("newest", Err("could not parse \"newest\" as version"));
        check("1.37", Ok(Release::V1_37));
        check("1.35", Err("emulation version 1.35 is not between [1.36, 1.37]"));
        check("1.38", Err("emulation version 1.38 is not between [1.36, 1.37]"));
    }
}
