//! The usable versions of etcd, and those with reliable progress reports.
//!
//! An older etcd may report a revision before it has sent earlier events. Tails do not use such reports.

use std::fmt;

/// The version of an etcd server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EtcdVersion {
    major: u32,
    minor: u32,
    patch: u32,
}

/// The first version with progress requests and fragments of large events.
pub(crate) const OLDEST_USABLE: EtcdVersion = EtcdVersion::new(3, 4, 0);

impl EtcdVersion {
    const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// Parses `3.5.13`. For `3.6.0-rc.4`, returns the version before the hyphen.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('-').next()?.split('.').map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Self::new(next()?, next()?, next()?))
    }

    /// Returns true if etcd sends all events up to a reported revision before the report. Fixed in 3.4.31 and 3.5.13.
    pub(crate) fn reports_progress_truthfully(self) -> bool {
        match (self.major, self.minor) {
            (3, ..4) => false,
            (3, 4) => self.patch >= 31,
            (3, 5) => self.patch >= 13,
            (major, _) => major >= 3,
        }
    }
}

impl fmt::Display for EtcdVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, usable: bool, truthful: bool) {
        let version = EtcdVersion::parse(text).unwrap();
        assert_eq!((version >= OLDEST_USABLE, version.reports_progress_truthfully()), (usable, truthful), "{text}");
    }

    #[test]
    fn progress_is_believed_from_the_versions_that_mended_it() {
        check("3.3.27", false, false);
        check("3.4.0", true, false);
        check("3.4.23", true, false);
        check("3.4.30", true, false);
        check("3.4.31", true, true);
        check("3.5.0", true, false);
        check("3.5.12", true, false);
        check("3.5.13", true, true);
        check("3.6.0-rc.4", true, true);
        check("4.0.0", true, true);
        check("2.3.8", false, false);
    }

    #[test]
    fn invalid_versions_are_refused() {
        for text in ["", "3", "3.5", "3.x.1", "etcd 3.5.1"] {
            assert_eq!(EtcdVersion::parse(text), None, "{text}");
        }
    }
}
