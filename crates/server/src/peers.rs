//! Compares the keys of this server with those of its peers, the other servers on its store, before it serves.
//!
//! Clients must get the same from each server. No server may therefore sign client certificates, serving certificates
//! or tokens that another refuses. A server publishes its trusted keys in the annotations of its lease.
//!
//! Only running servers count, and a lease renewal proves that a server runs. Nothing waits while all agree.
//! `keelson_controllers` finds the running servers, and `keelson_access` has the keys.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use keelson_access::{Mismatch, Pki, TokenIssuer, Trust};
use keelson_controllers::{IdentityLease, RegisteredServer, RegisteredServers, ServerState};
use keelson_meta::Revision;

use crate::config::Config;

/// The interval of checks for a renewed lease.
const LOOK: Duration = Duration::from_millis(250);

/// The servers on a store, and the comparison with their keys.
pub(crate) struct Peers {
    servers: Arc<RegisteredServers>,
    own: Trust,
    server_id: String,
    /// The directory of this server's keys.
    keys: Option<PathBuf>,
    /// True if other servers can use the store. Their keys must then agree.
    strict: bool,
    /// The first revision observed of the lease of each process.
    first_seen: BTreeMap<String, Revision>,
}

/// A registered process that may be running, with its published keys.
struct OtherServer {
    server: RegisteredServer,
    trust: Trust,
    /// True if its lease was renewed, which happens only after a server has joined.
    has_joined: bool,
}

/// The result of the comparison with other servers.
enum Verdict<'a> {
    /// All agree with it.
    Agreed,
    /// The other server disagrees and may still leave. It leaves or renews its lease within the lease's time.
    Wait(&'a OtherServer),
    /// The other server disagrees and stays.
    Refused(&'a OtherServer, Vec<Mismatch>),
}

impl Peers {
    pub(crate) fn new(
        config: &Config,
        pki: &Pki,
        issuer: &TokenIssuer,
        servers: Arc<RegisteredServers>,
    ) -> anyhow::Result<Self> {
        let own = Trust::new(pki, issuer).context("reading the certificate authorities")?;
        let strict = config.store.is_shared() && !config.allow_other_keys;
        let keys = config.data_dir.as_ref().map(|directory| directory.join("pki"));
        Ok(Self { servers, own, server_id: config.server_id.clone(), keys, strict, first_seen: BTreeMap::new() })
    }

    /// All servers on the store.
    pub(crate) fn servers(&self) -> Arc<RegisteredServers> {
        self.servers.clone()
    }

    /// Waits for the comparison with running servers before this server starts.
    ///
    /// # Errors
    /// A running server signs what this one would refuse, or the other way round. The text says how to resolve it.
    pub(crate) async fn check(&mut self) -> anyhow::Result<()> {
        if !self.strict {
            return Ok(());
        }
        let mut told = false;
        loop {
            let others = self.look().await?;
            match judge(&self.own, &others, |other| other.server.life.was_seen()) {
                Verdict::Refused(other, mismatches) => bail!(self.refusal(&other.server, &mismatches)),
                Verdict::Agreed => {
                    self.warn_of_clients(&others);
                    return Ok(());
                }
                Verdict::Wait(OtherServer { server, .. }) if !told => {
                    tracing::warn!(
                        server_id = server.id,
                        "this server has been registered with other keys; waiting to see whether it still runs"
                    );
                    told = true;
                }
                Verdict::Wait(_) => {}
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Compares again after registration, since another server may have registered meanwhile. Of servers that register
    /// at the same time, the first one stays. If this server must leave, its registration is removed.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub(crate) async fn join(&mut self, own: IdentityLease) -> anyhow::Result<IdentityLease> {
        match self.await_later_peers(&own).await {
            Ok(()) => Ok(own),
            Err(error) => {
                own.release().await;
                Err(error)
            }
        }
    }

    /// Waits until disagreeing servers that registered after this one have left. They find this server's lease.
    async fn await_later_peers(&mut self, own: &IdentityLease) -> anyhow::Result<()> {
        let Some(since) = own.revision().filter(|_| self.strict) else { return Ok(()) };
        loop {
            let mut others = self.look().await?;
            others.retain(|other| other.server.holder != own.holder());
            match judge(&self.own, &others, |other| other.came_before(since)) {
                Verdict::Refused(other, mismatches) => bail!(self.refusal(&other.server, &mismatches)),
                Verdict::Agreed => return Ok(()),
                Verdict::Wait(_) => {}
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The servers that may be running. A server without published keys has an older release, and counts as agreeing.
    async fn look(&mut self) -> anyhow::Result<Vec<OtherServer>> {
        let mut all = self.servers.all().await.context("looking which servers run on the store")?;
        all.retain(|server| server.life != ServerState::Dead);
        let first = |server: &RegisteredServer| *self.first_seen.get(&server.holder).unwrap_or(&server.revision);
        self.first_seen = all.iter().map(|server| (server.holder.clone(), first(server))).collect();
        let other = |server: RegisteredServer| {
            let has_joined = self.first_seen.get(&server.holder).is_some_and(|first| *first != server.revision);
            Some(OtherServer { trust: Trust::read(&server.annotations)?, has_joined, server })
        };
        Ok(all.into_iter().filter_map(other).collect())
    }

    /// Logs a warning about servers with other client certificate authorities. This is not an error, since none of the
    /// servers signs with these authorities.
    fn warn_of_clients(&self, others: &[OtherServer]) {
        let differ =
            |other: &&OtherServer| other.server.id != self.server_id && !self.own.has_same_clients(&other.trust);
        for OtherServer { server, .. } in others.iter().filter(differ) {
            tracing::warn!(
                server_id = server.id,
                "this server does not accept client certificates of the same authorities as the one that starts: give all the \
                 same --client-ca-file"
            );
        }
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
            "this server ({}) and the server {}{address}, which runs on the same store, do not agree on {}: {}, or start \
             with --allow-other-keys",
            self.server_id,
            other.id,
            what.join(", "),
            ways.join(" and "),
        )
    }
}

impl OtherServer {
    fn came_before(&self, revision: Revision) -> bool {
        self.has_joined || self.server.revision < revision
    }

    /// Returns true if the server is about to leave because an earlier one disagrees with it. If it does not leave, it
    /// renews its lease. If either of them dies, its lease shows that too. The wait is short.
    fn gives_way(&self, others: &[Self]) -> bool {
        let is_in_its_way =
            |other: &Self| other.came_before(self.server.revision) && !other.trust.mismatches(&self.trust).is_empty();
        !self.has_joined && others.iter().any(is_in_its_way)
    }
}

/// The result for a server with the trust `own`. It must leave if a disagreeing server `is_first`.
fn judge<'a>(own: &Trust, others: &'a [OtherServer], is_first: impl Fn(&OtherServer) -> bool) -> Verdict<'a> {
    let mut verdict = Verdict::Agreed;
    for other in others {
        let mismatches = own.mismatches(&other.trust);
        match mismatches.is_empty() {
            true => {}
            false if is_first(other) && !other.gives_way(others) => return Verdict::Refused(other, mismatches),
            false => verdict = Verdict::Wait(other),
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server with a lease of this revision and one authority.
    fn other(id: &str, revision: u64, authority: &str, has_joined: bool) -> OtherServer {
        let annotations = BTreeMap::from([
            ("keelson.io/certificate-authorities".to_owned(), authority.to_owned()),
            ("keelson.io/service-account-keys".to_owned(), "k".to_owned()),
        ]);
        let trust = Trust::read(&annotations).unwrap();
        let (id, holder, revision) = (id.to_owned(), format!("{id}_1"), Revision::new(revision));
        let server = RegisteredServer {
            id,
            holder,
            address: None,
            peer_address: None,
            annotations,
            revision,
            life: ServerState::Live,
        };
        OtherServer { server, trust, has_joined }
    }

    /// Checks the result for a server with authority `a` that registered at revision 14.
    fn check(others: &[OtherServer], expect: &str) {
        let own = other("own", 14, "a", false);
        let found = match judge(&own.trust, others, |other| other.came_before(own.server.revision)) {
            Verdict::Agreed => "agreed".to_owned(),
            Verdict::Wait(other) => format!("wait for {}", other.server.id),
            Verdict::Refused(other, _) => format!("refused for {}", other.server.id),
        };
        assert_eq!(found, expect);
    }

    #[test]
    fn the_earlier_of_two_conflicting_servers_stays() {
        check(&[other("one", 10, "a", false), other("two", 20, "a", true)], "agreed");
        check(&[other("later", 16, "b", false)], "wait for later");
        check(&[other("earlier", 12, "b", false)], "refused for earlier");
        check(&[other("renewed", 16, "b", true)], "refused for renewed");
    }

    #[test]
    fn a_stopping_server_blocks_no_others() {
        check(&[other("first", 10, "a", false), other("earlier", 12, "b", false)], "wait for earlier");
        check(&[other("renewed", 20, "a", true), other("earlier", 12, "b", false)], "wait for earlier");
        // The earlier server disagrees with both others.
        check(&[other("first", 10, "c", false), other("earlier", 12, "b", false)], "refused for first");
        // It stays, because of its flag.
        check(&[other("first", 10, "a", false), other("earlier", 18, "b", true)], "refused for earlier");
        check(&[other("earlier", 12, "b", false), other("second", 13, "a", false)], "refused for earlier");
    }
}
