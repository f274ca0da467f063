//! The packed release: its version, commit, date and machine, in the notation of each package format.
//!
//! The version comes from the program, and the commit from the repository. `SOURCE_DATE_EPOCH` and `KEELSON_COMMIT`
//! override date and commit.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};

use crate::run;

/// The names of a release.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    /// The version of the workspace, such as `0.1.0`.
    pub(crate) version: String,
    /// The version of Kubernetes whose API is served, such as `1.36.2`.
    pub(crate) kubernetes: String,
    /// The commit, or empty.
    pub(crate) commit: String,
    /// The time of the commit, in seconds since 1970. All packed files have this time.
    pub(crate) seconds: u64,
}

impl Release {
    /// Reads the release from the program and the repository.
    ///
    /// # Errors
    /// When the program does not run.
    pub(crate) fn read(program: &Path, root: &Path) -> Result<Self> {
        let said = run::output(Command::new(program).arg("--version"))?;
        let (version, kubernetes) = parse(&said).with_context(|| format!("reading the version out of {said:?}"))?;
        let git = |format: &str| {
            let shown = run::output(Command::new("git").current_dir(root).args(["show", "--no-patch", format, "HEAD"]));
            shown.map(|shown| shown.trim().to_owned()).unwrap_or_default()
        };
        let seconds = std::env::var("SOURCE_DATE_EPOCH").unwrap_or_else(|_| git("--format=%ct"));
        let commit = std::env::var("KEELSON_COMMIT").unwrap_or_else(|_| git("--format=%H"));
        // Outside of a repository, such as in an unpacked source archive, a fixed date is used. Debian refuses files of
        // 1970.
        let seconds = seconds.parse().unwrap_or_else(|_| {
            eprintln!("there is no commit, so files have the current time; SOURCE_DATE_EPOCH sets another");
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())
        });
        Ok(Self { version, kubernetes, commit, seconds })
    }

    /// The stem of the names of files for this machine: `keelson-0.1.0-linux-amd64`.
    pub(crate) fn stem(&self) -> String {
        format!("keelson-{}-linux-{}", self.version, debian_machine())
    }

    /// The time of the release in RFC 3339.
    pub(crate) fn rfc3339(&self) -> String {
        let (year, month, day) = self.day();
        let rest = self.seconds % 86_400;
        format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
    }

    /// The time of the release in the format of changelogs: `Fri, 27 Nov 2026 10:00:00 +0000`.
    pub(crate) fn rfc2822(&self) -> String {
        const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
        const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let (year, month, day) = self.day();
        let name = DAYS[(self.seconds / 86_400 % 7) as usize];
        let time = &self.rfc3339()[11..19];
        format!("{name}, {day:02} {} {year} {time} +0000", MONTHS[month as usize - 1])
    }

    /// Year, month and day. Computed in periods of 400 years that begin in March, so that a leap day is the last day.
    fn day(&self) -> (u64, u64, u64) {
        let days = self.seconds / 86_400 + 719_468;
        let (era, of_era) = (days / 146_097, days % 146_097);
        let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        (era * 400 + year + u64::from(month <= 2), month, day)
    }
}

/// The target processor, in Debian's and Go's names.
pub(crate) fn debian_machine() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The versions of keelson and of Kubernetes: `keelson 0.1.0 (Kubernetes 1.36.2, ...)`.
fn parse(said: &str) -> Option<(String, String)> {
    let rest = said.trim().strip_prefix("keelson ")?;
    let (version, rest) = rest.split_once(" (Kubernetes ")?;
    let kubernetes = rest.split([',', ')']).next()?;
    Some((version.to_owned(), kubernetes.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed_from_the_version_output() {
        let check = |said, expected: Option<(&str, &str)>| {
            let found = parse(said);
            assert_eq!(found.as_ref().map(|(version, kubernetes)| (version.as_str(), kubernetes.as_str())), expected);
        };
        check("keelson 0.1.0 (Kubernetes 1.36.2, commit 48f5183f0011, 2026-11-27)\n", Some(("0.1.0", "1.36.2")));
        check("keelson 0.1.0 (Kubernetes 1.36.2)", Some(("0.1.0", "1.36.2")));
        check("keelson 0.1.0", None);
    }

    #[test]
    fn times_are_written_as_formats_want_them() {
        let at =
            |seconds| Release { version: String::new(), kubernetes: String::new(), commit: String::new(), seconds };
        assert_eq!(at(0).rfc3339(), "1970-01-01T00:00:00Z");
        assert_eq!(at(1_709_164_800).rfc3339(), "2024-02-29T00:00:00Z");
        assert_eq!(at(1_795_773_600).rfc2822(), "Fri, 27 Nov 2026 10:00:00 +0000");
    }
}
