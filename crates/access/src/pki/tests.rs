//! Tests of keys and certificates: kept over restarts, recreated, and given by operators.
//!
//! Each test has its own data directory and clock.

mod lost;

use super::*;
use crate::authenticate::ClientIdentity;
use crate::delegated::PublishedAuthorities;
use keelson_meta::clock::ManualClock;
use keelson_meta::random::SystemRandom;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

const START: Duration = Duration::from_secs(1_800_000_000);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

struct Home {
    directory: tempfile::TempDir,
    clock: ManualClock,
}

impl Home {
    fn new() -> Self {
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH + START);
        Self { directory: tempfile::tempdir().unwrap(), clock }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn ensure(&self, extra_names: &[&str]) -> Result<Pki, PkiError> {
        let extra_names = extra_names.iter().map(ToString::to_string).collect();
        let options = PkiOptions { extra_names, ..PkiOptions::default() };
        ensure(&self.path(), &options, &self.clock, &SystemRandom)
    }
}

#[test]
fn later_starts_reuse_the_first_keys() {
    let home = Home::new();
    let first = home.ensure(&[]).unwrap();
    let second = home.ensure(&[]).unwrap();
    assert_eq!(first.ca_pem, second.ca_pem);
    assert_eq!(first.serving, second.serving);
    assert_eq!(first.admin, second.admin);
    assert_eq!(first.service_account.private_pem, second.service_account.private_pem);
    assert_eq!(first.service_account.public_pem, second.service_account.public_pem);
    PublishedAuthorities::default().server_config(&second.serving).unwrap();
}

#[test]
fn written_files_are_private() {
    let home = Home::new();
    let pki = home.ensure(&[]).unwrap();
    let mut unsaved = PendingFiles::default();
    pki.keep_kubeconfig(&home.path().join("kubeconfig"), "https://127.0.0.1:6443", &mut unsaved).unwrap();
    let _ = unsaved.save().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&home.path()), 0o700);
    assert_eq!(mode(&home.path().join("kubeconfig")), 0o600);
    let directory = home.path().join("pki");
    assert_eq!(mode(&directory), 0o700);
    let files: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 12, "{files:?}");
    assert!(files.iter().all(|path| mode(path) == 0o600));
}

/// The files in the directory of keys, by name.
fn files_of(home: &Home) -> Vec<(String, String)> {
    let mut files: Vec<_> = fs::read_dir(home.path().join("pki"))
        .unwrap()
        .map(|file| file.unwrap().path())
        .map(|path| (path.display().to_string(), fs::read_to_string(path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn of_two_that_make_keys_at_once_the_first_keeps_its_own() {
    let home = Home::new();
    let make = || prepare(&home.path(), &PkiOptions::default(), &home.clock, &SystemRandom).unwrap();
    let ((first, first_made), (_, second_made)) = (make(), make());
    let _ = first_made.save().unwrap();
    let before = files_of(&home);
    let refused = second_made.save().err().unwrap();
    assert!(refused.to_string().contains("another server has just created keys in "), "{refused}");
    assert_eq!(files_of(&home), before);
    assert_eq!(home.ensure(&[]).unwrap().ca_pem, first.ca_pem);
}

#[test]
fn a_failed_start_removes_only_its_own_files() {
    let home = Home::new();
    let make = |names: &[&str]| {
        let extra_names = names.iter().map(ToString::to_string).collect();
        prepare(&home.path(), &PkiOptions { extra_names, ..PkiOptions::default() }, &home.clock, &SystemRandom)
            .unwrap()
            .1
    };
    make(&[]).save().unwrap().take_back();
    assert!(!home.path().exists());
    home.ensure(&[]).unwrap();
    let before = files_of(&home);
    let saved = make(&["api.example.com"]).save().unwrap();
    assert_ne!(files_of(&home), before, "the serving certificate has another name");
    saved.take_back();
    assert_eq!(files_of(&home), before);
}

#[test]
fn the_serving_certificate_follows_its_names() {
    let home = Home::new();
    let first = home.ensure(&[]).unwrap();
    let second = home.ensure(&["api.example.org", "192.0.2.7"]).unwrap();
    assert_ne!(first.serving, second.serving);
    assert_eq!(first.ca_pem, second.ca_pem);
    assert_eq!(second.serving, home.ensure(&["api.example.org", "192.0.2.7"]).unwrap().serving);
}

#[test]
fn certificates_are_renewed_before_their_end_and_the_authority_stays() {
    let home = Home::new();
    let first = home.ensure(&[]).unwrap();
    home.clock.advance(DAY * 300);
    assert_eq!(first.serving, home.ensure(&[]).unwrap().serving);
    home.clock.advance(DAY * 40);
    let renewed = home.ensure(&[]).unwrap();
    assert_ne!(first.serving, renewed.serving);
    assert_ne!(first.admin, renewed.admin);
    assert_eq!(first.ca_pem, renewed.ca_pem);
}

#[test]
fn lost_leaf_keys_are_recreated_and_authority_keys_are_not() {
    let home = Home::new();
    let first = home.ensure(&[]).unwrap();
    fs::remove_file(home.path().join("pki/admin.key")).unwrap();
    assert_ne!(first.admin, home.ensure(&[]).unwrap().admin);
    fs::remove_file(home.path().join("pki/ca.key")).unwrap();
    assert!(matches!(home.ensure(&[]), Err(PkiError::KeyMissing { .. })));
}

#[test]
fn an_authority_is_changed_by_trusting_the_next_one_first() {
    let (home, next) = (Home::new(), Home::new());
    let (old, new) = (home.ensure(&[]).unwrap(), next.ensure(&[]).unwrap());
    let file = |name: &str| home.path().join("pki").join(name);
    fs::write(file("ca.crt"), format!("{}{}", old.ca_pem, new.ca_pem)).unwrap();
    let both = home.ensure(&[]).unwrap();
    assert_eq!((&both.serving, &both.admin), (&old.serving, &old.admin), "nothing is signed again");
    assert_eq!(both.client_ca_pem.matches("BEGIN CERTIFICATE").count(), 2);
    assert!(both.kubeconfig("https://k").len() > old.kubeconfig("https://k").len(), "clients trust both");
    fs::write(file("ca.crt"), format!("{}{}", new.ca_pem, old.ca_pem)).unwrap();
    assert!(matches!(home.ensure(&[]), Err(PkiError::KeyMismatch { .. })));
    fs::copy(next.path().join("pki/ca.key"), file("ca.key")).unwrap();
    let changed = home.ensure(&[]).unwrap();
    assert_ne!(changed.admin, old.admin);
    PublishedAuthorities::default().server_config(&changed.serving).unwrap();
}

#[test]
fn the_administrator_is_a_master_while_the_certificate_holds() {
    let home = Home::new();
    let pki = home.ensure(&[]).unwrap();
    let der = CertificateDer::from_pem_slice(pki.admin.certificate_pem.as_bytes()).unwrap();
    let identity = ClientIdentity::from_certificate(&der).unwrap();
    let user = identity.user_at(home.clock.now()).unwrap();
    assert_eq!(user.name, ADMIN_NAME);
    assert_eq!(user.groups, ["system:masters", "system:authenticated"]);
    assert!(identity.user_at(home.clock.now() + DAY * 366).is_none());
}

#[test]
fn the_front_proxy_authority_differs_from_the_client_authority() {
    let home = Home::new();
    let first = home.ensure(&[]).unwrap();
    assert_eq!(first.front_proxy.headers.allowed_names, [FRONT_PROXY_NAME]);
    assert_ne!(first.front_proxy.ca_pem, first.ca_pem);
    assert!(!first.client_ca_pem.contains(&first.front_proxy.ca_pem), "its certificates identify no user");
    let second = home.ensure(&[]).unwrap();
    assert_eq!((&second.front_proxy.ca_pem, &second.front_proxy.client), {
        (&first.front_proxy.ca_pem, &first.front_proxy.client)
    });
    home.clock.advance(DAY * 340);
    let renewed = home.ensure(&[]).unwrap();
    assert_eq!(renewed.front_proxy.ca_pem, first.front_proxy.ca_pem);
    assert_ne!(renewed.front_proxy.client, first.front_proxy.client);
}

#[test]
fn the_front_proxy_certificate_and_authority_can_be_supplied() {
    let (home, other) = (Home::new(), Home::new());
    other.ensure(&[]).unwrap();
    let file = |name: &str| other.path().join("pki").join(name);
    let given = |client: bool, names: &[&str]| {
        let front_proxy = FrontProxyOptions {
            client: client.then(|| (file("front-proxy-client.crt"), file("front-proxy-client.key"))),
            client_ca: Some(file("front-proxy-ca.crt")),
            headers: RequestHeaders {
                allowed_names: names.iter().map(ToString::to_string).collect(),
                ..RequestHeaders::default()
            },
        };
        let options = PkiOptions { front_proxy, ..PkiOptions::default() };
        ensure(&home.path(), &options, &home.clock, &SystemRandom).unwrap().front_proxy
    };
    let of_others = given(true, &[]);
    assert_eq!(of_others.client.certificate_pem, fs::read_to_string(file("front-proxy-client.crt")).unwrap());
    assert_eq!(of_others.ca_pem, fs::read_to_string(file("front-proxy-ca.crt")).unwrap());
    assert!(of_others.headers.allowed_names.is_empty());
    assert!(!home.path().join("pki/front-proxy-ca.crt").exists());
    let own = given(false, &["a"]);
    assert_eq!(own.ca_pem.matches("BEGIN CERTIFICATE").count(), 2);
    assert_eq!(own.headers.allowed_names, ["a", FRONT_PROXY_NAME]);
    assert!(given(false, &[]).headers.allowed_names.is_empty());
}

#[test]
fn a_given_serving_certificate_is_used_as_it_is() {
    let home = Home::new();
    let other = Home::new();
    other.ensure(&[]).unwrap();
    let file = |name: &str| other.path().join("pki").join(name);
    let options = PkiOptions {
        serving: Some((file("apiserver.crt"), file("apiserver.key"))),
        client_ca: Some(file("ca.crt")),
        ..PkiOptions::default()
    };
    let pki = ensure(&home.path(), &options, &home.clock, &SystemRandom).unwrap();
    assert_eq!(pki.serving.certificate_pem, fs::read_to_string(file("apiserver.crt")).unwrap());
    assert_eq!(pki.client_ca_pem.matches("BEGIN CERTIFICATE").count(), 2);
    PublishedAuthorities::default().server_config(&pki.serving).unwrap();
}

#[test]
fn changed_files_are_reloaded_and_mismatched_ones_are_ignored() {
    let (home, other) = (Home::new(), Home::new());
    let next = other.ensure(&[]).unwrap();
    let given = |name: &str| home.directory.path().join(name);
    fs::create_dir_all(home.path()).unwrap();
    fs::write(given("tls.crt"), &next.serving.certificate_pem).unwrap();
    fs::write(given("tls.key"), &next.serving.key_pem).unwrap();
    fs::write(given("clients.crt"), &next.ca_pem).unwrap();
    let options = PkiOptions {
        serving: Some((given("tls.crt"), given("tls.key"))),
        client_ca: Some(given("clients.crt")),
        ..PkiOptions::default()
    };
    let first = ensure(&home.path(), &options, &home.clock, &SystemRandom).unwrap();
    let read = || first.read_again(Some(&home.path()), &options);
    assert_eq!(read().unwrap().client_ca_pem, first.client_ca_pem, "nothing has changed");

    let own = home.path().join("pki/ca.crt");
    fs::write(&own, format!("{}{}", first.ca_pem, next.front_proxy.ca_pem)).unwrap();
    assert_eq!(read().unwrap().client_ca_pem.matches("BEGIN CERTIFICATE").count(), 3);
    fs::write(&own, &next.ca_pem).unwrap();
    assert!(matches!(read(), Err(PkiError::KeyMismatch { .. })), "the key is still to come");
    fs::copy(other.path().join("pki/ca.key"), home.path().join("pki/ca.key")).unwrap();
    let signing = read().unwrap();
    assert!(signing.has_other_signer(&first) && signing.ca_pem == next.ca_pem);
    let tokens = |name: &str| home.path().join("pki").join(name);
    fs::write(tokens("sa.pub"), format!("{}{}", next.service_account.public_pem, first.service_account.public_pem))
        .unwrap();
    assert_eq!(read().unwrap().service_account.private_pem, first.service_account.private_pem);
    fs::write(tokens("sa.key"), &next.service_account.private_pem).unwrap();
    assert_eq!(read().unwrap().service_account.public_pem, next.service_account.public_pem);
    fs::write(tokens("sa.key"), "none").unwrap();
    assert!(matches!(read(), Err(PkiError::Key(_))));
    fs::write(tokens("sa.key"), &first.service_account.private_pem).unwrap();

    fs::write(given("tls.crt"), &first.admin.certificate_pem).unwrap();
    assert!(matches!(read(), Err(PkiError::NoPair { .. })), "the key is still to come");
    fs::write(given("tls.key"), &first.admin.key_pem).unwrap();
    let changed = read().unwrap();
    assert_eq!((&changed.serving, &changed.server_ca_pem), (&first.admin, &first.admin.certificate_pem));
    fs::write(given("clients.crt"), "none").unwrap();
    assert!(matches!(read(), Err(PkiError::Authorities { .. })));
    fs::remove_file(given("clients.crt")).unwrap();
    assert!(matches!(read(), Err(PkiError::File { .. })));
}

#[test]
fn authorities_with_keys_of_all_kinds_sign_once() {
    let rsa = include_str!("testdata/rsa-2048.pkcs1.key").to_owned();
    let kinds = [&rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ECDSA_P521_SHA512, &rcgen::PKCS_ED25519];
    let keys = kinds.map(|kind| rcgen::KeyPair::generate_for(kind).unwrap().serialize_pem());
    for key_pem in keys.into_iter().chain([rsa, include_str!("testdata/p256.sec1.key").to_owned()]) {
        let home = Home::new();
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.not_after = (home.clock.now() + DAY * 1000).into();
        let certificate = params.self_signed(&key_text::key_pair(&key_pem).unwrap()).unwrap().pem();
        fs::create_dir_all(home.path().join("pki")).unwrap();
        fs::write(home.path().join("pki/ca.crt"), certificate).unwrap();
        fs::write(home.path().join("pki/ca.key"), key_pem).unwrap();
        let first = home.ensure(&[]).unwrap();
        assert_eq!(first.serving, home.ensure(&[]).unwrap().serving, "it is current at the next start");
        first.client_signer().unwrap();
        PublishedAuthorities::default().server_config(&first.serving).unwrap();
    }
}
