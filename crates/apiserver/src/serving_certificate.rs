//! Renews the serving certificate of a running server before it expires, unless the program supplied the certificate.
//!
//! New connections get the new certificate. It is written to the data directory, if there is one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use keelson_access::pki::{PkiError, ServingPki};
use keelson_access::{PkiOptions, PublishedAuthorities, RenewalTime};
use keelson_http::listener::TlsSettings;
use keelson_meta::{Clock, Random};
use keelson_supervision::outcome;

/// The interval between checks of the certificate's expiry.
const LOOK: Duration = Duration::from_mins(1);

/// The certificate of a running server.
pub(crate) struct ServingCertificate {
    current: ServingPki,
    data_dir: Option<PathBuf>,
    options: PkiOptions,
    tls: TlsSettings,
}

impl ServingCertificate {
    /// The certificate at start.
    pub(crate) fn new(current: ServingPki, data_dir: Option<PathBuf>, options: PkiOptions, tls: TlsSettings) -> Self {
        Self { current, data_dir, options, tls }
    }

    /// Renews it when due. Never ends.
    pub(crate) async fn keep(mut self, clock: Arc<dyn Clock>, random: Arc<dyn Random>) {
        let time = RenewalTime::new(&*random);
        loop {
            tokio::time::sleep(LOOK).await;
            let (now, random) = (clock.now(), random.clone());
            let renewed = tokio::task::spawn_blocking(move || {
                let renewed = self.renew(time, now, &*random);
                (self, renewed)
            });
            let (same, renewed) = outcome(renewed).await;
            self = same;
            if let Err(error) = renewed {
                tracing::error!(%error, "the serving certificate could not be renewed or written; the next start makes one");
            }
        }
    }

    fn renew(&mut self, time: RenewalTime, now: std::time::SystemTime, random: &dyn Random) -> Result<(), PkiError> {
        let Some(renewal) = self.current.renewed(&self.options, time, now, random)? else { return Ok(()) };
        self.tls.change(PublishedAuthorities::default().server_config(&renewal.pki.pair)?);
        self.current = renewal.pki.clone();
        tracing::info!("the serving certificate was renewed");
        match &self.data_dir {
            Some(data_dir) => renewal.unsaved(data_dir)?.save().map(drop),
            None => Ok(()),
        }
    }
}
