//! `keelson storage`: backup, restore and verification of the embedded store, copies between stores, and the storage
//! versions of objects (`versions`).
//!
//! No server may run on the store during these commands. There are two exceptions: a backup works while a server runs,
//! and the versions come from a running server.

mod versions;

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context as _, ensure};
use keelson_server::{BackedUp, CheckResult, CopyProgress, Restored, StoreConfig, WorkProgress, WorkStage};
use serde_json::{Value, json};

use crate::args::{CopyStores, Output, Storage};
use crate::interrupt::Interrupt;
use crate::output::{answer, note};
use crate::progress::{Bytes, Progress, Step, Unit};

/// Runs one of the storage commands.
pub(crate) fn run(command: Storage) -> anyhow::Result<()> {
    match command {
        Storage::Backup { file, data_dir, output } => backup(&file, &data_dir, output.form),
        Storage::Restore { file, data_dir, bump_revision, output } => {
            restore(&file, &data_dir, bump_revision, output.form)
        }
        Storage::Check { data_dir, output } => check(&data_dir, output.form),
        Storage::Versions(settings) => versions::run(&settings),
        Storage::Copy(settings) => copy(&settings),
    }
}

fn backup(file: &Path, data_dir: &Path, output: Output) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen("no backup was written")?;
    let mut progress = Progress::new("backup");
    let written = keelson_server::backup(data_dir, file, &mut reporter(&mut progress, Some(&interrupt)));
    progress.end();
    let written = interrupt.over(written.context("the backup was not made"))?;
    if output == Output::Json {
        return answer(described(file, &written));
    }
    answer(format_args!("wrote {}", file.display()))?;
    answer(summary(&written))
}

fn restore(file: &Path, data_dir: &Path, bump_revision: u64, output: Output) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen("nothing was restored")?;
    let mut progress = Progress::new("restore");
    let restored = {
        let mut report = reporter(&mut progress, Some(&interrupt));
        keelson_server::restore(file, data_dir, bump_revision, &mut report)
    };
    progress.end();
    let Restored { backup, compared, revision } = interrupt.over(restored.context("nothing was restored"))?;
    if output == Output::Json {
        let mut line = described(file, &backup);
        line["checksumCompared"] = json!(compared);
        line["dataDirectory"] = json!(data_dir.display().to_string());
        line["restoredRevision"] = json!(revision.get());
        return answer(line);
    }
    if !compared {
        note(format_args!("there is no {}.sha256, so the checksum was not compared", file.display()));
    }
    answer(format_args!("restored {} into {}; revisions continue at {revision}", file.display(), data_dir.display()))?;
    answer(summary(&backup))
}

fn check(data_dir: &Path, output: Output) -> anyhow::Result<()> {
    let mut progress = Progress::new("check");
    // A check writes nothing, so a signal may end it at any point.
    let checked = keelson_server::check(data_dir, &mut reporter(&mut progress, None));
    progress.end();
    let CheckResult { rows, revision, in_use, findings } = checked.context("the store was not checked")?;
    if output == Output::Json {
        let line = json!({
            "dataDirectory": data_dir.display().to_string(), "versions": rows, "revision": revision.get(), "inUse": in_use,
            "findings": findings,
        });
        answer(line)?;
    } else {
        findings.iter().try_for_each(answer)?;
        if in_use {
            answer("a server uses the store, so its log was not checked")?;
        }
    }
    let found = findings.len();
    ensure!(found == 0, "the store in {} is damaged in {found} places; restore a backup", data_dir.display());
    match output {
        Output::Text => {
            answer(format_args!("the store in {} is whole: {rows} versions, revision {revision}", data_dir.display()))
        }
        Output::Json | Output::Silent => Ok(()),
    }
}

fn copy(settings: &CopyStores) -> anyhow::Result<()> {
    let CopyStores { from, to, allow_empty, encryption_provider_config, output } = settings;
    let from = StoreConfig::parse(from).and_then(|store| store.with_password(None));
    let from = from.context("reading the URL of the source")?;
    let to = StoreConfig::parse(to).and_then(|store| store.with_password(None));
    let to = to.context("reading the URL of the target")?;
    let interrupt = Interrupt::listen("repeat the command to continue the copy; no server starts on it before")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting threads")?;
    let mut progress = Progress::new("copy");
    let report = |CopyProgress { pass, compared, total, .. }| {
        let stage = if pass == 1 { "copying" } else { "comparing" };
        progress.step(Step { stage, unit: Unit::Objects, done: compared, total });
    };
    let copy = keelson_server::copy_store(&from, &to, *allow_empty, encryption_provider_config.as_deref(), report);
    let copied = runtime.block_on(interrupt.or(copy));
    progress.end();
    let copied = copied.context("the copy is not finished")?;
    if output.form == Output::Json {
        let CopyProgress { pass, compared, written, deleted, .. } = copied;
        return answer(json!({
            "from": from.to_string(), "to": to.to_string(), "objects": compared, "written": written,
            "deleted": deleted, "passes": pass,
        }));
    }
    answer(format_args!("copied {} objects from {from} to {to}, and found them equal", copied.compared))
}

/// Reports the progress of work on the embedded store, and ends it after a signal.
fn reporter<'p>(
    progress: &'p mut Progress,
    interrupt: Option<&'p Interrupt>,
) -> impl FnMut(WorkProgress) -> ControlFlow<()> + use<'p> {
    move |WorkProgress { stage, done, total }| {
        let (stage, unit) = match stage {
            WorkStage::Copying => ("copying", Unit::Bytes),
            WorkStage::Verifying => ("verifying", Unit::Versions),
            WorkStage::Summing => ("checksum", Unit::Bytes),
        };
        progress.step(Step { stage, unit, done, total });
        match interrupt.is_some_and(Interrupt::is_received) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// The content of a backup for people.
fn summary(backup: &BackedUp) -> String {
    let BackedUp { bytes, objects, revision, sha256 } = backup;
    format!("  {}, {objects} objects at revision {revision}\n  sha256 {sha256}", Bytes(*bytes))
}

/// The content of a backup for programs.
fn described(file: &Path, backup: &BackedUp) -> Value {
    let BackedUp { bytes, objects, revision, sha256 } = backup;
    let file = file.display().to_string();
    json!({ "file": file, "bytes": bytes, "objects": objects, "revision": revision.get(), "sha256": sha256 })
}
