//! Renews the certificates that a server has signed for itself, while it runs.
//!
//! Authorities and the operator's certificates are not renewed. A certificate is renewed thirty days before its expiry,
//! or after two thirds of its lifetime if that is later. Each server renews earlier by a random time, so that servers
//! that were started together do not renew at the same moment.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use keelson_meta::Random;

use super::issue::{self, Purpose, RENEW_BEFORE};
use super::unsaved::PendingFiles;
use super::{
    ADMIN_NAME, FRONT_PROXY_NAME, KeyAndCertificate, Pki, PkiError, PkiOptions, SERVING_NAME, ServingPki, names,
};
use crate::pki::files::Durability;
use crate::user::MASTERS;

/// The largest random time by which a server renews earlier.
const MOST_EARLY: Duration = Duration::from_secs(3 * 24 * 60 * 60);

/// A random time for one server. It renews certificates earlier by this time.
#[derive(Clone, Copy, Debug)]
pub struct RenewalTime {
    early: Duration,
}

/// New certificates that replace expiring ones.
#[derive(Clone, Debug)]
pub struct Renewal<P> {
    /// All keys and certificates of the server after the renewal.
    pub pki: P,
    /// The names of the renewed certificates.
    pub renewed: Vec<&'static str>,
    pairs: Vec<(&'static str, KeyAndCertificate)>,
}

impl RenewalTime {
    /// Chooses a random time for this server.
    pub fn new(random: &dyn Random) -> Self {
        Self { early: Duration::from_secs(random.u64() % MOST_EARLY.as_secs()) }
    }

    /// The time from which a certificate is renewed; `None` if it cannot be parsed.
    fn renews_from(self, pair: &KeyAndCertificate) -> Option<SystemTime> {
        let (not_before, not_after) = issue::validity(&pair.certificate_pem)?;
        let lifetime = not_after.duration_since(not_before).unwrap_or_default();
        Some(not_after - (RENEW_BEFORE + self.early).min(lifetime / 3))
    }

    fn is_over(self, pair: &KeyAndCertificate, now: SystemTime) -> bool {
        self.renews_from(pair).is_none_or(|from| from <= now)
    }
}

impl Pki {
    /// Renews the certificates that are due; `None` if there are none.
    ///
    /// # Errors
    /// A certificate cannot be created.
    pub fn renewed(
        &self,
        options: &PkiOptions,
        time: RenewalTime,
        now: SystemTime,
        random: &dyn Random,
    ) -> Result<Option<Renewal<Self>>, PkiError> {
        let ca = KeyAndCertificate { certificate_pem: self.ca_pem.clone(), key_pem: self.ca_key.0.clone() };
        let mut renewal = Renewing::begin(self, time, now, random);
        if options.serving.is_none() {
            renewal.serving(&ca, &self.serving, options, |pki| &mut pki.serving)?;
        }
        renewal.client(&ca, ("admin", ADMIN_NAME, &[MASTERS]), &self.admin, |pki| &mut pki.admin)?;
        if let Some(ca) = &self.front_proxy_ca {
            let client = &self.front_proxy.client;
            let names = (FRONT_PROXY_NAME, FRONT_PROXY_NAME, &[][..]);
            renewal.client(&ca.0, names, client, |pki| &mut pki.front_proxy.client)?;
        }
        Ok(renewal.into_result())
    }
}

impl ServingPki {
    /// Renews the certificate if it is due.
    ///
    /// # Errors
    /// The certificate cannot be created.
    pub fn renewed(
        &self,
        options: &PkiOptions,
        time: RenewalTime,
        now: SystemTime,
        random: &dyn Random,
    ) -> Result<Option<Renewal<Self>>, PkiError> {
        let Some(ca) = &self.signer else { return Ok(None) };
        let mut renewal = Renewing::begin(self, time, now, random);
        renewal.serving(&ca.0, &self.pair, options, |pki| &mut pki.pair)?;
        Ok(renewal.into_result())
    }
}

/// A renewal in progress.
struct Renewing<'r, P> {
    renewal: Renewal<P>,
    time: RenewalTime,
    now: SystemTime,
    random: &'r dyn Random,
}

impl<'r, P: Clone> Renewing<'r, P> {
    fn begin(pki: &P, time: RenewalTime, now: SystemTime, random: &'r dyn Random) -> Self {
        let renewal = Renewal { pki: pki.clone(), renewed: Vec::new(), pairs: Vec::new() };
        Self { renewal, time, now, random }
    }

    /// Renews the serving certificate if it is due.
    fn serving(
        &mut self,
        ca: &KeyAndCertificate,
        old: &KeyAndCertificate,
        options: &PkiOptions,
        place: impl FnOnce(&mut P) -> &mut KeyAndCertificate,
    ) -> Result<(), PkiError> {
        if !self.time.is_over(old, self.now) {
            return Ok(());
        }
        let names = names::serving_names(options)?;
        let pair = issue::leaf(ca, SERVING_NAME, &Purpose::Server { names: &names }, self.now, self.random)?;
        self.add("apiserver", pair, place);
        Ok(())
    }

    /// Renews a client certificate with this file name, user name and groups, if it is due.
    fn client(
        &mut self,
        ca: &KeyAndCertificate,
        (stem, name, groups): (&'static str, &str, &[&str]),
        old: &KeyAndCertificate,
        place: impl FnOnce(&mut P) -> &mut KeyAndCertificate,
    ) -> Result<(), PkiError> {
        if !self.time.is_over(old, self.now) {
            return Ok(());
        }
        let pair = issue::leaf(ca, name, &Purpose::Client { groups }, self.now, self.random)?;
        self.add(stem, pair, place);
        Ok(())
    }

    fn add(
        &mut self,
        stem: &'static str,
        pair: KeyAndCertificate,
        place: impl FnOnce(&mut P) -> &mut KeyAndCertificate,
    ) {
        self.renewal.renewed.push(stem);
        place(&mut self.renewal.pki).clone_from(&pair);
        self.renewal.pairs.push((stem, pair));
    }

    /// The result; `None` if nothing was renewed.
    fn into_result(self) -> Option<Renewal<P>> {
        (!self.renewal.renewed.is_empty()).then_some(self.renewal)
    }
}

impl<P> Renewal<P> {
    /// The files to write to the data directory.
    ///
    /// # Errors
    /// A file to be replaced cannot be read.
    pub fn unsaved(&self, data_dir: &Path) -> Result<PendingFiles, PkiError> {
        let keys: PathBuf = data_dir.join("pki");
        let mut unsaved = PendingFiles::below(data_dir, &keys);
        for (stem, pair) in &self.pairs {
            // ORDER: the key is written first. After a crash between the two writes, the next start creates a new pair.
            unsaved.keep(keys.join(format!("{stem}.key")), &pair.key_pem, Durability::Replaceable)?;
            unsaved.keep(keys.join(format!("{stem}.crt")), &pair.certificate_pem, Durability::Replaceable)?;
        }
        Ok(unsaved)
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::Clock as _;
    use keelson_meta::clock::ManualClock;
    use keelson_meta::random::SystemRandom;

    use super::*;
    use crate::pki::{ensure, ephemeral, serving};

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn clock() -> ManualClock {
        ManualClock::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000))
    }

    fn time(early: Duration) -> RenewalTime {
        RenewalTime { early }
    }

    #[test]
    fn self_signed_leaves_are_renewed_before_they_expire_but_not_authorities() {
        let (clock, options) = (clock(), PkiOptions::default());
        let pki = ephemeral(&options, &clock, &SystemRandom).unwrap();
        let renewed = |early| pki.renewed(&options, time(early), clock.now(), &SystemRandom).unwrap();
        assert!(renewed(Duration::ZERO).is_none());
        clock.advance(DAY * 334);
        assert!(renewed(Duration::ZERO).is_none());
        assert!(renewed(DAY * 2).is_some(), "some renew earlier");
        clock.advance(DAY * 2);
        let renewal = renewed(Duration::ZERO).unwrap();
        assert_eq!(renewal.renewed, ["apiserver", "admin", "front-proxy-client"]);
        let next = &renewal.pki;
        assert_eq!((&next.ca_pem, &next.front_proxy.ca_pem), (&pki.ca_pem, &pki.front_proxy.ca_pem));
        assert!(
            next.serving != pki.serving && next.admin != pki.admin && next.front_proxy.client != pki.front_proxy.client
        );
        assert!(issue::is_current(&next.serving, &pki.ca_pem, &names::serving_names(&options).unwrap(), clock.now()));
        assert!(next.renewed(&options, time(Duration::ZERO), clock.now(), &SystemRandom).unwrap().is_none());
    }

    #[test]
    fn the_next_start_reads_the_written_files() {
        let (clock, options, directory) = (clock(), PkiOptions::default(), tempfile::tempdir().unwrap());
        let pki = ensure(directory.path(), &options, &clock, &SystemRandom).unwrap();
        clock.advance(DAY * 340);
        let renewal = pki.renewed(&options, time(Duration::ZERO), clock.now(), &SystemRandom).unwrap().unwrap();
        let _ = renewal.unsaved(directory.path()).unwrap().save().unwrap();
        let again = ensure(directory.path(), &options, &clock, &SystemRandom).unwrap();
        assert_eq!((&again.serving, &again.admin), (&renewal.pki.serving, &renewal.pki.admin));
        assert_eq!(again.front_proxy.client, renewal.pki.front_proxy.client);
        assert_eq!(pki.read_again(Some(directory.path()), &options).unwrap().serving, renewal.pki.serving);
    }

    #[test]
    fn supplied_certificates_are_not_renewed() {
        let (clock, directory) = (clock(), tempfile::tempdir().unwrap());
        ensure(directory.path(), &PkiOptions::default(), &clock, &SystemRandom).unwrap();
        let file = |name: &str| directory.path().join("pki").join(name);
        let mut options =
            PkiOptions { serving: Some((file("apiserver.crt"), file("apiserver.key"))), ..PkiOptions::default() };
        options.front_proxy.client = Some((file("front-proxy-client.crt"), file("front-proxy-client.key")));
        let pki = ephemeral(&options, &clock, &SystemRandom).unwrap();
        clock.advance(DAY * 340);
        let renewal = pki.renewed(&options, time(Duration::ZERO), clock.now(), &SystemRandom).unwrap().unwrap();
        assert_eq!(renewal.renewed, ["admin"]);
    }

    #[test]
    fn the_certificate_of_an_aggregated_server_is_renewed_too() {
        let (clock, options) = (clock(), PkiOptions::default());
        let directory = tempfile::tempdir().unwrap();
        for data_dir in [None, Some(directory.path())] {
            let pki = serving(data_dir, &options, &clock, &SystemRandom).unwrap();
            clock.advance(DAY * 340);
            let renewal = pki.renewed(&options, time(Duration::ZERO), clock.now(), &SystemRandom).unwrap().unwrap();
            assert!(issue::is_current(
                &renewal.pki.pair,
                &pki.ca_pem,
                &names::serving_names(&options).unwrap(),
                clock.now()
            ));
        }
    }
}
