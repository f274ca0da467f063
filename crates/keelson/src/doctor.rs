//! `keelson doctor`: checks everything that a server needs, reports faults and their remedies, and changes nothing.
//!
//! Each check is a [`Finding`] with a state, and a remedy if something is wrong. The exit code is 1 if a check has
//! failed.

mod directory;
mod surroundings;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::json;

use crate::args::Doctor;
use crate::output::answer;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    Ok,
    /// The checked part works now, but may fail later or is not configured as recommended.
    Warning,
    Failed,
}

/// The report of one check.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    subject: &'static str,
    state: State,
    text: String,
    /// The remedy.
    way_out: Option<String>,
}

impl Finding {
    pub(super) fn ok(subject: &'static str, text: impl fmt::Display) -> Self {
        Self { subject, state: State::Ok, text: text.to_string(), way_out: None }
    }

    pub(super) fn warning(subject: &'static str, text: impl fmt::Display, way_out: impl fmt::Display) -> Self {
        Self { subject, state: State::Warning, text: text.to_string(), way_out: Some(way_out.to_string()) }
    }

    pub(super) fn failed(subject: &'static str, text: impl fmt::Display, way_out: impl fmt::Display) -> Self {
        Self { subject, state: State::Failed, text: text.to_string(), way_out: Some(way_out.to_string()) }
    }

    fn line(&self) -> String {
        let state = match self.state {
            State::Ok => "ok     ",
            State::Warning => "warning",
            State::Failed => "FAILED ",
        };
        let way_out = self.way_out.as_ref().map(|way| format!("\n        {way}")).unwrap_or_default();
        format!("{state} {}: {}{way_out}", self.subject, self.text)
    }

    fn json(&self) -> String {
        let state = match self.state {
            State::Ok => "ok",
            State::Warning => "warning",
            State::Failed => "failed",
        };
        json!({"check": self.subject, "state": state, "message": self.text, "remedy": self.way_out}).to_string()
    }
}

/// The data directory, and the server that runs on it.
pub(super) struct Place {
    pub(super) directory: PathBuf,
    pub(super) is_in_use: bool,
}

impl Place {
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    pub(super) fn keys(&self) -> PathBuf {
        self.directory.join("pki")
    }
}

/// Runs all checks and prints their findings.
///
/// # Errors
/// When a check has failed.
pub(crate) fn run(settings: &Doctor) -> anyhow::Result<()> {
    let directory = std::path::absolute(&settings.data_dir).context("finding the data directory")?;
    let place = Place { is_in_use: directory::is_in_use(&directory), directory };
    let mut findings = directory::check(&place);
    findings.extend(directory::store(&place, settings.store.as_deref(), settings.thorough));
    findings.extend(directory::certificates(&place));
    findings.extend(surroundings::check(&place, settings.bind));
    for finding in &findings {
        answer(if settings.json { finding.json() } else { finding.line() })?;
    }
    let failed = findings.iter().filter(|finding| finding.state == State::Failed).count();
    ensure!(failed == 0, "{failed} of {} checks failed", findings.len());
    Ok(())
}

/// A path in the form for messages.
pub(super) fn shown(path: &Path) -> std::path::Display<'_> {
    path.display()
}
