//! The checks of the data directory: its owner and mode, the store in it, and the expiry of certificates.
//!
//! Files are read and never written. A store that a running server has open is only read.

use std::fs::{File, TryLockError};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use keelson_server::{StoreConfig, certificate_end};

use super::{Finding, Place, shown};

/// The permission bits of the group and of other users.
const OTHERS: u32 = 0o077;
/// The time before the expiry of a certificate at which the warning begins.
const SOON: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The largest embedded store, in bytes, that is verified without a flag.
const VERIFIED: u64 = 256 * 1024 * 1024;
/// The least free space on the disk of an embedded store, in bytes.
const LEAST_ROOM: u64 = 256 * 1024 * 1024;
const DATABASE: &str = "keelson.db";
const DIRECTORY: &str = "data directory";
const STORE: &str = "store";
const CERTIFICATES: &str = "certificates";

/// Returns true while a server runs on the directory: the server holds a lock on it.
pub(super) fn is_in_use(directory: &Path) -> bool {
    File::open(directory).is_ok_and(|opened| matches!(opened.try_lock(), Err(TryLockError::WouldBlock)))
}

/// Checks the directory itself.
pub(super) fn check(place: &Place) -> Vec<Finding> {
    let directory = &place.directory;
    let path = shown(directory);
    let found = match std::fs::metadata(directory) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let text = format!("{path} does not exist; the first start of a server makes it");
            return vec![Finding::ok(DIRECTORY, text)];
        }
        Err(error) => {
            let way_out = "run the command as the user of the server, or name another directory with --data-dir";
            return vec![Finding::failed(DIRECTORY, format!("{path} can't be read: {error}"), way_out)];
        }
    };
    if !found.is_dir() {
        return vec![Finding::failed(
            DIRECTORY,
            format!("{path} is not a directory"),
            "name another one with --data-dir",
        )];
    }
    let mut findings = Vec::new();
    let own = rustix::process::geteuid().as_raw();
    if own != 0 && found.uid() != own {
        let text = format!("{path} belongs to user {} and this is user {own}", found.uid());
        findings.push(Finding::failed(
            DIRECTORY,
            text,
            "run the server and this command as the owner of the directory",
        ));
    }
    let mode = found.permissions().mode() & 0o7777;
    if mode & OTHERS != 0 {
        findings.push(Finding::warning(
            DIRECTORY,
            format!("{path} can be entered by others (mode {mode:04o})"),
            format!("chmod 700 {path}"),
        ));
    }
    for file in private_files(place) {
        let mode = std::fs::metadata(&file).map_or(0, |found| found.permissions().mode() & 0o7777);
        if mode & OTHERS != 0 {
            let text = format!("{} holds a private key and can be read by others (mode {mode:04o})", shown(&file));
            findings.push(Finding::warning(DIRECTORY, text, format!("chmod 600 {}", shown(&file))));
        }
    }
    if findings.is_empty() {
        let used = if place.is_in_use { ", in use by a running server" } else { "" };
        findings.push(Finding::ok(DIRECTORY, format!("{path}{used}")));
    }
    findings
}

fn private_files(place: &Place) -> Vec<std::path::PathBuf> {
    let keys = std::fs::read_dir(place.keys()).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    let keys = keys.filter(|path| path.extension().is_some_and(|end| end == "key"));
    keys.chain([place.kubeconfig()]).filter(|path| path.exists()).collect()
}

/// Checks the store. A store that a running server has open is not opened.
pub(super) fn store(place: &Place, url: Option<&str>, thorough: bool) -> Vec<Finding> {
    let embedded = match url.map(StoreConfig::parse) {
        None => place.directory.clone(),
        Some(Ok(StoreConfig::Sqlite(directory))) => directory,
        Some(Ok(StoreConfig::Memory)) => return vec![Finding::ok(STORE, "in memory: it ends with the server")],
        Some(Ok(other)) => return vec![reached(&other)],
        Some(Err(error)) => {
            return vec![Finding::failed(STORE, format!("--store: {error:#}"), "see --store in keelson serve --help")];
        }
    };
    let file = embedded.join(DATABASE);
    let Ok(found) = std::fs::metadata(&file) else {
        let elsewhere = std::fs::read_to_string(place.directory.join("keelson.store")).unwrap_or_default();
        let elsewhere = elsewhere.trim();
        return vec![if elsewhere == "sqlite" {
            let text =
                format!("{} is missing, although servers of this directory have stored objects in it", shown(&file));
            Finding::failed(STORE, text, "restore a backup with keelson storage restore")
        } else if elsewhere == "memory" {
            Finding::ok(STORE, "in memory: it ends with the server")
        } else if elsewhere.is_empty() {
            Finding::ok(STORE, format!("no store in {} yet", shown(&embedded)))
        } else {
            let text =
                format!("the servers of this directory keep their objects in {elsewhere}, which was not checked");
            Finding::warning(STORE, text, "give --store with its URL to have it checked")
        }];
    };
    let mut findings = vec![room(&embedded)];
    if found.len() > VERIFIED && !thorough {
        let size = found.len() / (1024 * 1024);
        findings.push(Finding::ok(
            STORE,
            format!("{} has {size} MiB and was not verified (--thorough does)", shown(&file)),
        ));
        return findings;
    }
    findings.push(match keelson_server::check(&embedded, &mut keelson_server::unobserved) {
        Ok(checked) if checked.findings.is_empty() => {
            let text = format!("{} is whole: {} versions, revision {}", shown(&file), checked.rows, checked.revision);
            Finding::ok(STORE, text)
        }
        Ok(checked) => {
            let text =
                format!("{} is damaged in {} places: {}", shown(&file), checked.findings.len(), checked.findings[0]);
            Finding::failed(
                STORE,
                text,
                "keelson storage check lists them; keelson storage restore makes a store out of a backup",
            )
        }
        Err(error) => Finding::failed(
            STORE,
            format!("{error:#}"),
            "start the newest keelson that ran on it, or restore a backup with keelson storage restore",
        ),
    });
    findings
}

fn room(directory: &Path) -> Finding {
    let path = shown(directory);
    match keelson_server::disk_room(directory) {
        Ok((free, total)) if free < LEAST_ROOM => Finding::failed(
            "disk",
            format!("{} of {} MiB are free where {path} is", free >> 20, total >> 20),
            "make room on the disk; a store on a full disk takes deletions alone",
        ),
        Ok((free, total)) if free < total / 10 => Finding::warning(
            "disk",
            format!("{} of {} MiB are free where {path} is", free >> 20, total >> 20),
            "make room on the disk, or limit the store with --store-quota",
        ),
        Ok((free, total)) => Finding::ok("disk", format!("{} of {} MiB are free", free >> 20, total >> 20)),
        Err(error) => Finding::warning(
            "disk",
            format!("the room of the disk of {path} is unknown: {error}"),
            "look at it with df",
        ),
    }
}

/// Checks an external store: opens it as a server does.
fn reached(store: &StoreConfig) -> Finding {
    let opened = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(keelson_server::reach_store(store)));
    match opened {
        Ok(revision) => Finding::ok(STORE, format!("{store} answers; its newest revision is {revision}")),
        Err(error) => Finding::failed(
            STORE,
            format!("{store} can't be used: {error:#}"),
            "check that it runs, that its address and password are right, and that its user may read it",
        ),
    }
}

/// Checks the expiry of all certificates in the directory of keys, and of the one in the kubeconfig.
pub(super) fn certificates(place: &Place) -> Vec<Finding> {
    let now = SystemTime::now();
    let files = std::fs::read_dir(place.keys()).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "crt")).collect();
    files.sort();
    if files.is_empty() {
        return vec![Finding::ok(CERTIFICATES, "there are none yet; the first start of a server makes them")];
    }
    let mut findings = Vec::new();
    let mut first = None;
    for file in &files {
        let pem = std::fs::read_to_string(file).unwrap_or_default();
        let path = shown(file);
        match certificate_end(&pem) {
            None => findings.push(Finding::failed(
                CERTIFICATES,
                format!("{path} holds no certificate"),
                "restore the file from a backup of the data directory; without one, start once with --accept-loss",
            )),
            Some(end) if end <= now => findings.push(Finding::failed(
                CERTIFICATES,
                format!("{path} has expired {}", ago(now, end)),
                "start the server again: it renews its own certificates; authorities are replaced by a rotation",
            )),
            Some(end) if end <= now + SOON => {
                let days = end.duration_since(now).unwrap_or_default().as_secs() / 86_400;
                let way_out = "a running server renews its own certificates; plan the rotation of an authority";
                findings.push(Finding::warning(CERTIFICATES, format!("{path} expires in {days} days"), way_out));
            }
            Some(end) => first = Some(first.map_or(end, |first: SystemTime| first.min(end))),
        }
    }
    if let Some(first) = first.filter(|_| findings.is_empty()) {
        let days = first.duration_since(now).unwrap_or_default().as_secs() / 86_400;
        findings.push(Finding::ok(CERTIFICATES, format!("{} are good for {days} days and more", files.len())));
    }
    if !place.kubeconfig().exists() {
        findings.push(Finding::warning(
            "kubeconfig",
            format!("{} is not there", shown(&place.kubeconfig())),
            "start the server again: it writes the file",
        ));
    }
    findings
}

fn ago(now: SystemTime, then: SystemTime) -> String {
    format!("{} days ago", now.duration_since(then).unwrap_or_default().as_secs() / 86_400)
}
