//! `keelson verify`: checks of any server that speaks the Kubernetes API, by `keelson-verify`.
//!
//! A broken rule makes the command fail with exit code 1, after the report.

use anyhow::{Context as _, bail};
use keelson_verify::Verify;

use crate::interrupt::Interrupt;
use crate::output::answer;

/// Checks the server, or prints the rules.
///
/// # Errors
/// A rule is broken, or the server can't be checked.
pub(crate) fn run(settings: &Verify) -> anyhow::Result<()> {
    if settings.list {
        return keelson_verify::listing().lines().try_for_each(answer);
    }
    let interrupt = Interrupt::listen("delete the namespace keelson-verify-* that this run created")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting a runtime")?;
    let is_clean = runtime.block_on(interrupt.or(keelson_verify::run(settings)))?;
    if !is_clean {
        bail!("the server breaks rules of the API");
    }
    Ok(())
}
