//! The certificates and keys of a server, which are applied as soon as their files change.
//!
//! The files are checked every second, and the expiry of certificates every five seconds. Unusable files change
//! nothing, since a certificate and its key are never written at the same moment. Open connections keep their serving
//! certificate, but client certificates are verified again at the next request.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use keelson_access::{
    AuthenticationInfo, CertificateEnd, ClientSigner, FileChanges, FileReads, Pki, PkiOptions, PublishedAuthorities,
    Renewal, RenewalTime, TokenIssuer, Trust,
};
use keelson_controllers::UNPUBLISHED_ANNOTATION;
use keelson_http::listener::TlsSettings;
use keelson_meta::{Clock, Random};
use keelson_outbound::Outbound;
use keelson_supervision::TaskGroup;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::config::Config;
use crate::peer_access;
use crate::remote;
use crate::settings::Settings;

/// The interval at which the expiry of certificates is checked.
const RENEWAL_LOOK: Duration = Duration::from_secs(5);
/// The time from a failed renewal to the next attempt.
const RENEWAL_RETRY: Duration = Duration::from_secs(60 * 60);

/// The administrator's kubeconfig: its file, and the server URL in it.
pub(crate) type Kubeconfig = (PathBuf, String);

/// The keys of a running server.
pub(crate) struct LiveKeys {
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    renewal_time: RenewalTime,
    /// Renewed certificates that could not be written yet.
    unwritten: Mutex<Option<Renewal<Pki>>>,
    data_dir: Option<PathBuf>,
    options: PkiOptions,
    /// True if front proxies or peers are trusted.
    believes_proxies: bool,
    current: ArcSwap<Pki>,
    certificates: Arc<PublishedAuthorities>,
    tls: TlsSettings,
    authentication: watch::Sender<AuthenticationInfo>,
    root_certificates: watch::Sender<String>,
    signer: watch::Sender<Arc<ClientSigner>>,
    issuer: Arc<TokenIssuer>,
    /// The trust settings that this server publishes to the others on the store.
    published: watch::Sender<BTreeMap<String, String>>,
    unchanging: BTreeMap<String, String>,
    reads: FileReads,
}

impl LiveKeys {
    /// The keys at the start of a server.
    ///
    /// # Errors
    /// When the keys are unusable, or would let any client impersonate other users.
    pub(crate) fn new(config: &Config, pki: &Pki, issuer: &Arc<TokenIssuer>) -> anyhow::Result<Self> {
        let info = AuthenticationInfo::new(pki).context("reading the certificate authorities")?;
        let believes_proxies = peer_access::believes_proxies(config);
        let certificates = Arc::new(PublishedAuthorities::default());
        certificates.publish(believed(&info, believes_proxies)?);
        let tls = certificates.serving_config((&pki.serving, &pki.named), &config.pki.tls).context("preparing TLS")?;
        let mut unchanging = Settings::from_config(config).to_annotations();
        if !config.registry.storage_version_api {
            unchanging.insert(UNPUBLISHED_ANNOTATION.to_owned(), "true".to_owned());
        }
        let signer = pki.client_signer().context("reading the authority that signs certificates of clients")?;
        Ok(Self {
            clock: config.clock.clone(),
            random: config.random.clone(),
            renewal_time: RenewalTime::new(&*config.random),
            unwritten: Mutex::default(),
            data_dir: config.data_dir.clone(),
            options: config.pki.clone(),
            believes_proxies,
            current: ArcSwap::from_pointee(pki.clone()),
            certificates,
            tls: TlsSettings::new(tls),
            authentication: watch::Sender::new(info),
            root_certificates: watch::Sender::new(pki.server_ca_pem.clone()),
            signer: watch::Sender::new(Arc::new(signer)),
            issuer: issuer.clone(),
            published: watch::Sender::new(published(pki, issuer, &unchanging)?),
            unchanging,
            reads: FileReads::default(),
        })
    }

    /// The signer of client certificates.
    pub(crate) fn signer(&self) -> watch::Receiver<Arc<ClientSigner>> {
        self.signer.subscribe()
    }

    /// The annotations for other servers on the store.
    pub(crate) fn published(&self) -> watch::Receiver<BTreeMap<String, String>> {
        self.published.subscribe()
    }

    /// The counts of file reads.
    pub(crate) fn reads(&self) -> &FileReads {
        &self.reads
    }

    /// The TLS settings of the listener.
    pub(crate) fn tls(&self) -> TlsSettings {
        self.tls.clone()
    }

    /// The verifier of client certificates.
    pub(crate) fn certificates(&self) -> Arc<PublishedAuthorities> {
        self.certificates.clone()
    }

    /// The trust settings for aggregated servers.
    pub(crate) fn authentication(&self) -> watch::Receiver<AuthenticationInfo> {
        self.authentication.subscribe()
    }

    /// The authorities of the serving certificate, in PEM.
    pub(crate) fn root_certificates(&self) -> watch::Receiver<String> {
        self.root_certificates.subscribe()
    }

    /// The expiry times of the certificates.
    pub(crate) fn ends(&self) -> Vec<CertificateEnd> {
        self.current.load().ends(&self.options)
    }

    /// Reads files again when they change, and renews certificates before they expire, until the server stops.
    pub(crate) fn follow(
        self: Arc<Self>,
        outbound: &Arc<Outbound>,
        kubeconfig: Option<Kubeconfig>,
        background: &TaskGroup,
    ) {
        let (stopping, following) = (background.stopping().clone(), self.keep_up(outbound.clone(), kubeconfig));
        background.spawn("certificates", async move {
            let _: Option<()> = stopping.run_until_cancelled_owned(following).await;
        });
    }

    async fn keep_up(self: Arc<Self>, outbound: Arc<Outbound>, kubeconfig: Option<Kubeconfig>) {
        let mut changes = FileChanges::of_all(Pki::files(self.data_dir.as_deref(), &self.options)).await;
        // Changes of the files since the start are applied too.
        self.follow_files(&outbound).await;
        let mut looks = tokio::time::interval(RENEWAL_LOOK);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut not_before = SystemTime::UNIX_EPOCH;
        loop {
            tokio::select! {
                () = changes.changed() => self.follow_files(&outbound).await,
                _ = looks.tick() => {
                    let now = self.clock.now();
                    if now < not_before {
                        continue;
                    }
                    let (keys, calls, kubeconfig) = (self.clone(), outbound.clone(), kubeconfig.clone());
                    let renewed = keelson_supervision::spawn_blocking(move || keys.renew(&calls, kubeconfig.as_ref())).await;
                    if let Err(error) = renewed.map_err(anyhow::Error::from).flatten() {
                        tracing::error!("renewing certificates failed, retrying in {RENEWAL_RETRY:?}: {error:#}");
                        not_before = now + RENEWAL_RETRY;
                    }
                }
            }
        }
    }

    async fn follow_files(self: &Arc<Self>, outbound: &Arc<Outbound>) {
        let (keys, calls) = (self.clone(), outbound.clone());
        match keelson_supervision::spawn_blocking(move || keys.read_again(&calls)).await {
            Ok(Ok(true)) => {
                self.reads.note(true);
                tracing::info!("certificates and keys were read again");
            }
            Ok(Ok(false)) => {}
            Ok(Err(error)) => {
                self.reads.note(false);
                tracing::error!("certificates or keys are invalid; the previous ones stay in use: {error:#}");
            }
            Err(error) => {
                self.reads.note(false);
                tracing::error!(%error, "reading certificates and keys failed; the previous ones stay in use");
            }
        }
    }

    /// Replaces certificates that expire soon by new ones, applies these, and writes them.
    fn renew(&self, outbound: &Outbound, kubeconfig: Option<&Kubeconfig>) -> anyhow::Result<()> {
        let known = self.current.load_full();
        let now = self.clock.now();
        let mut unwritten = self.unwritten.lock();
        if let Some(renewal) = known.renewed(&self.options, self.renewal_time, now, &*self.random)? {
            // ORDER: they are applied before they are written, since a full disk must not leave clients with expired
            // certificates.
            self.adopt(&known, renewal.pki.clone(), outbound)?;
            tracing::info!(certificates = renewal.renewed.join(","), "certificates of this server were renewed");
            *unwritten = Some(renewal);
        }
        if let (Some(data_dir), Some(renewal)) = (&self.data_dir, &*unwritten) {
            let mut unsaved = renewal.unsaved(data_dir)?;
            if let Some((path, url)) = kubeconfig {
                renewal.pki.keep_kubeconfig(path, url, &mut unsaved)?;
            }
            let _ = unsaved.save().context("writing renewed certificates")?;
        }
        *unwritten = None;
        Ok(())
    }

    /// Reads changed files. Returns true if something changed.
    fn read_again(&self, outbound: &Outbound) -> anyhow::Result<bool> {
        let known = self.current.load_full();
        let next = known.read_again(self.data_dir.as_deref(), &self.options)?;
        self.adopt(&known, next, outbound)
    }

    /// Applies new keys and certificates. Returns true if something changed.
    fn adopt(&self, known: &Pki, next: Pki, outbound: &Outbound) -> anyhow::Result<bool> {
        let info = AuthenticationInfo::new(&next).context("reading the certificate authorities")?;
        let believed = believed(&info, self.believes_proxies)?;
        // ORDER: all steps that can fail come before the first change.
        let has_other_signer = next.has_other_signer(known);
        let signer = next.client_signer().context("reading the authority that signs certificates of clients")?;
        let has_new_token_keys = self.issuer.change(&next.service_account).context("reading the keys of tokens")?;
        let has_new_authorities = info != *self.authentication.borrow();
        let has_new_certificate = next.serving != known.serving || next.named != known.named;
        if has_new_authorities {
            self.certificates.publish(believed);
        }
        if has_new_authorities || has_new_certificate {
            let pairs = (&next.serving, &*next.named);
            let tls = self.certificates.serving_config(pairs, &self.options.tls).context("preparing TLS")?;
            self.tls.change(tls);
        }
        let has_new_proxy = next.front_proxy.client != known.front_proxy.client;
        if has_new_proxy {
            outbound.change_certificate(&remote::certificate(&next));
        }
        self.authentication.send_if_modified(|known| std::mem::replace(known, info.clone()) != info);
        let roots = &next.server_ca_pem;
        let has_new_roots = self.root_certificates.send_if_modified(|known| {
            let is_new = known != roots;
            known.clone_from(roots);
            is_new
        });
        if has_other_signer {
            self.signer.send_replace(Arc::new(signer));
        }
        let annotations = published(&next, &self.issuer, &self.unchanging)?;
        self.published.send_if_modified(|known| std::mem::replace(known, annotations.clone()) != annotations);
        self.current.store(Arc::new(next));
        let has_new_keys = has_other_signer || has_new_token_keys;
        Ok(has_new_keys || has_new_authorities || has_new_certificate || has_new_proxy || has_new_roots)
    }
}

/// The annotations for other servers on the store.
fn published(
    pki: &Pki,
    issuer: &TokenIssuer,
    unchanging: &BTreeMap<String, String>,
) -> anyhow::Result<BTreeMap<String, String>> {
    let trust = Trust::new(pki, issuer).context("reading the certificate authorities")?;
    Ok(trust.to_annotations().into_iter().chain(unchanging.clone()).collect())
}

/// The trusted authorities of client certificates.
///
/// # Errors
/// Any client could impersonate other users.
fn believed(info: &AuthenticationInfo, believes_proxies: bool) -> anyhow::Result<AuthenticationInfo> {
    if believes_proxies {
        peer_access::check_front_proxies(info)?;
        return Ok(info.clone());
    }
    Ok(info.clone().of_clients())
}
