//! Whether this server may join those that run on its store: clients are to be served by each alike, so none may sign what
//! another refuses.
//!
//! Only servers that run count, and whether one does takes until its next renewal to be seen; so nothing is waited for as
//! long as all agree.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use keelson_access::{Mismatch, Pki, TokenIssuer, Trust};
use keelson_controllers::{IdentityLease, Life, RegisteredServer, RegisteredServers};
use keelson_meta::Revision;

use crate::config::Config;

/// How often it is looked whether a server renews its lease.
const LOOK: Duration = Duration::from_millis(250);

/// The servers on a store, and what this one has in common with them.
pub(crate) struct Company {
    servers: Arc<RegisteredServers>,
    own: Trust,
    server_id: String,
    /// Where the keys of this server are.
    keys: Option<PathBuf>,
    /// Whether others can be on the store, and have to agree.
    strict: bool,
}

impl Company {
    pub(crate) fn new(
        config: &Config,
        pki: &Pki,
        issuer: &TokenIssuer,
        servers: Arc<RegisteredServers>,
    ) -> anyhow::Result<Self> {
        let own = Trust::of(pki, issuer).context("reading the certificate authorities")?;
        let strict = config.store.is_shared() && !config.allow_other_keys;
        let keys = config.data_dir.as_ref().map(|directory| directory.join("pki"));
        Ok(Self { servers, own, server_id: config.server_id.clone(), keys, strict })
    }

    /// What the others are told.
    pub(crate) fn annotations(&self) -> BTreeMap<String, String> {
        self.own.to_annotations()
    }

    /// Whether this server may start.
    ///
    /// # Errors
    /// When a server that runs signs what this one would not accept, or the other way round; says what to do.
    pub(crate) async fn check(&self) -> anyhow::Result<()> {
        if !self.strict {
            return Ok(());
        }
        let mut told = false;
        loop {
            let strangers = self.strangers().await?;
            if let Some((server, mismatches)) = strangers.iter().find(|(server, _)| server.life == Life::Live) {
                bail!(self.refusal(server, mismatches));
            }
            let Some((server, _)) = strangers.iter().find(|(server, _)| server.life == Life::Unknown) else {
                return Ok(());
            };
            if !told {
                tracing::warn!(
                    server_id = server.id,
                    "this server has been registered with other keys; waiting to see whether it still runs"
                );
                told = true;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Whether no other has come in between, now that this server has registered: of those that register at once, the first
    /// stays. Who may not stay is taken off the register.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub(crate) async fn join(&self, own: IdentityLease) -> anyhow::Result<IdentityLease> {
        match self.await_latecomers(own.revision()).await {
            Ok(()) => Ok(own),
            Err(error) => {
                own.release().await;
                Err(error)
            }
        }
    }

    /// Waits until those are gone again that have registered after this server, at `since`: they find it there. Nobody renews
    /// its lease before it has joined, so one that changes was there before.
    async fn await_latecomers(&self, since: Option<Revision>) -> anyhow::Result<()> {
        let Some(since) = since.filter(|_| self.strict) else { return Ok(()) };
        let mut latecomers: BTreeMap<String, Revision> = BTreeMap::new();
        loop {
            let mut strangers = self.strangers().await?;
            strangers.retain(|(server, _)| server.life != Life::Dead);
            let was_first = |server: &RegisteredServer| {
                server.revision < since || latecomers.get(&server.id).is_some_and(|known| *known != server.revision)
            };
            if let Some((server, mismatches)) = strangers.iter().find(|(server, _)| was_first(server)) {
                bail!(self.refusal(server, mismatches));
            }
            if strangers.is_empty() {
                return Ok(());
            }
            latecomers = strangers.into_iter().map(|(server, _)| (server.id, server.revision)).collect();
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The servers that do not accept all that this one signs, or the other way round. Those that say nothing of their keys,
    /// since they are of an older release, are taken to.
    async fn strangers(&self) -> anyhow::Result<Vec<(RegisteredServer, Vec<Mismatch>)>> {
        let all = self.servers.all().await.context("looking which servers run on the store")?;
        let with_mismatches = all.into_iter().filter_map(|server| {
            let mismatches = self.own.mismatches(&Trust::read(&server.annotations)?);
            (!mismatches.is_empty()).then_some((server, mismatches))
        });
        Ok(with_mismatches.collect())
    }

    fn refusal(&self, other: &RegisteredServer, mismatches: &[Mismatch]) -> String {
        let what: Vec<String> = mismatches.iter().map(ToString::to_string).collect();
        let address = other.address.as_ref().map_or_else(String::new, |address: &SocketAddr| format!(" at {address}"));
        let keys =
            self.keys.as_ref().map_or_else(|| "its data directory".to_owned(), |keys| keys.display().to_string());
        let mut ways = Vec::new();
        if mismatches.iter().any(|mismatch| *mismatch != Mismatch::TokenIssuers) {
            ways.push(format!(
                "copy ca.crt, ca.key, sa.key and sa.pub from pki in that server's data directory to {keys}"
            ));
        }
        if mismatches.contains(&Mismatch::TokenIssuers) {
            ways.push("give both the same --service-account-issuer".to_owned());
        }
        format!(
            "this server ({}) and the server {}{address}, which runs on the same store, do not agree on {}: {}, or go on \
             with --allow-other-keys",
            self.server_id,
            other.id,
            what.join(", "),
            ways.join(" and "),
        )
    }
}
