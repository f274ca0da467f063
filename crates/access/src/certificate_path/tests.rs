//! Tests of certificate paths that Go accepts or refuses.
//!
//! Certificates of version 1 and with unusual algorithms are encoded here, since no library creates them.

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, NameConstraints, PublicKeyData as _, SanType,
};

use super::*;
use crate::der::{INTEGER, element, name, signed, time};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

/// A certificate authority, root or intermediate.
struct Signing {
    params: CertificateParams,
    key: KeyPair,
    certificate: CertificateDer<'static>,
}

fn params(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    (params.not_before, params.not_after) = ((now() - DAY).into(), (now() + DAY).into());
    params
}

fn authority_params(common_name: &str) -> CertificateParams {
    let mut params = params(common_name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

impl Signing {
    fn root(params: CertificateParams, key: KeyPair) -> Self {
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self { params, key, certificate }
    }

    fn new() -> Self {
        Self::root(authority_params("root"), KeyPair::generate().unwrap())
    }

    fn sign(&self, params: &CertificateParams, key: &KeyPair) -> CertificateDer<'static> {
        let issuer = Issuer::from_params(&self.params, &self.key);
        params.signed_by(key, &issuer).unwrap().der().clone()
    }

    fn between(&self, params: CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = self.sign(&params, &key);
        Self { params, key, certificate }
    }

    fn leaf(&self, change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
        let mut params = params("ann");
        change(&mut params);
        self.sign(&params, &KeyPair::generate().unwrap())
    }

    /// A certificate of version 1 signed by this authority.
    fn version_1(&self, common_name: &str, key: &KeyPair) -> CertificateDer<'static> {
        let content = version_1(&self.subject(), common_name, &crate::der::algorithm(&self.key).unwrap(), key);
        signed(&content, &self.key).unwrap().into()
    }

    fn subject(&self) -> Vec<u8> {
        let (_, read) = X509Certificate::from_der(&self.certificate).unwrap();
        read.subject().as_raw().to_vec()
    }

    fn verify(&self, chain: &[&CertificateDer<'static>]) -> Result<(), PathError> {
        let chain: Vec<_> = chain.iter().map(|certificate| (*certificate).clone()).collect();
        Authorities::new(std::slice::from_ref(&self.certificate)).verify(&chain, now())
    }
}

fn version_1(issuer: &[u8], common_name: &str, algorithm: &[u8], key: &KeyPair) -> Vec<u8> {
    let validity = element(SEQUENCE, &[&time((now() - DAY).into()), &time((now() + DAY).into())]);
    let (serial, subject) = (element(INTEGER, &[&[7]]), name(common_name, &[]));
    element(SEQUENCE, &[&serial, algorithm, issuer, &validity, &subject, &key.subject_public_key_info()])
}

/// A self-signed certificate of version 1.
pub(crate) fn version_1_of(key: &KeyPair) -> Vec<u8> {
    let algorithm = crate::der::algorithm(key).unwrap();
    signed(&version_1(&name("ann", &[]), "ann", &algorithm, key), key).unwrap()
}

#[test]
fn keys_of_all_kinds_sign_and_are_signed() {
    let rsa = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/pki/testdata/rsa-2048.pkcs8.key"));
    let mut keys: Vec<KeyPair> = [
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
        &rcgen::PKCS_ECDSA_P521_SHA512,
        &rcgen::PKCS_ED25519,
    ]
    .map(|kind| KeyPair::generate_for(kind).unwrap())
    .into();
    keys.push(KeyPair::from_pem(&rsa.unwrap()).unwrap());
    for key in keys {
        let kind = format!("{:?}", key.algorithm());
        let leaf_key = KeyPair::try_from(key.serialize_der()).unwrap();
        let root = Signing::root(authority_params("root"), key);
        assert_eq!(root.verify(&[&root.leaf(|_| {})]), Ok(()), "{kind}");
        assert_eq!(root.verify(&[&root.version_1("ann", &leaf_key)]), Ok(()), "{kind}");
    }
}

#[test]
fn version_1_certificates_are_accepted_as_clients_and_roots_only() {
    let root = Signing::new();
    let key = KeyPair::generate().unwrap();
    assert_eq!(root.verify(&[&root.version_1("ann", &key)]), Ok(()));
    let content = version_1(&name("old", &[]), "old", &crate::der::algorithm(&key).unwrap(), &key);
    let old = CertificateDer::from(signed(&content, &key).unwrap());
    let below = |issuer: &CertificateDer<'static>| {
        let issuer_key = KeyPair::try_from(key.serialize_der()).unwrap();
        let signing = Signing { params: params("old"), key: issuer_key, certificate: issuer.clone() };
        signing.version_1("ann", &KeyPair::generate().unwrap())
    };
    assert_eq!(Authorities::new(std::slice::from_ref(&old)).verify(&[below(&old)], now()), Ok(()));
    let between = root.version_1("old", &key);
    assert_eq!(root.verify(&[&below(&between), &between]), Err(PathError::NotAnAuthority));
}

#[test]
fn times_count_of_every_certificate_of_a_path() {
    let root = Signing::new();
    let ended = |params: &mut CertificateParams| params.not_after = (now() - Duration::from_secs(1)).into();
    assert_eq!(root.verify(&[&root.leaf(ended)]), Err(PathError::Expired));
    let coming = |params: &mut CertificateParams| params.not_before = (now() + Duration::from_secs(1)).into();
    assert_eq!(root.verify(&[&root.leaf(coming)]), Err(PathError::NotYetValid));
    let mut old = authority_params("root");
    ended(&mut old);
    let old = Signing::root(old, KeyPair::generate().unwrap());
    assert_eq!(old.verify(&[&old.leaf(|_| {})]), Err(PathError::Expired));
}

#[test]
fn an_issuer_must_have_signed() {
    let (root, other) = (Signing::new(), Signing::new());
    assert_eq!(root.verify(&[&other.leaf(|_| {})]), Err(PathError::Signature), "of the same name");
    let stranger = Signing::root(authority_params("stranger"), KeyPair::generate().unwrap());
    assert_eq!(root.verify(&[&stranger.leaf(|_| {})]), Err(PathError::UnknownAuthority));
    assert_eq!(root.verify(&[&CertificateDer::from(vec![0; 9])]), Err(PathError::Unreadable));
    assert_eq!(root.verify(&[]), Err(PathError::Unreadable));
    assert_eq!(root.verify(&[&root.certificate]), Ok(()), "an authority is its own client, as for Go");
    let mut cut = root.leaf(|_| {}).to_vec();
    let last = cut.len() - 1;
    cut[last] ^= 1;
    assert_eq!(root.verify(&[&CertificateDer::from(cut)]), Err(PathError::Signature));
}

#[test]
fn paths_include_intermediate_authorities() {
    let root = Signing::new();
    let between = root.between(authority_params("between"));
    let lower = between.between(authority_params("lower"));
    let leaf = lower.leaf(|_| {});
    assert_eq!(root.verify(&[&leaf, &lower.certificate, &between.certificate]), Ok(()));
    assert_eq!(root.verify(&[&leaf, &between.certificate, &lower.certificate]), Ok(()), "in any order");
    assert_eq!(root.verify(&[&leaf, &between.certificate]), Err(PathError::UnknownAuthority));
    let plain = root.between(params("plain"));
    assert_eq!(root.verify(&[&plain.leaf(|_| {}), &plain.certificate]), Err(PathError::NotAnAuthority));
    let mut may_not = authority_params("may-not");
    may_not.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let may_not = root.between(may_not);
    assert_eq!(root.verify(&[&may_not.leaf(|_| {}), &may_not.certificate]), Err(PathError::NotAnAuthority));
    let mut short = authority_params("short");
    short.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let short = root.between(short);
    assert_eq!(root.verify(&[&short.leaf(|_| {}), &short.certificate]), Ok(()));
    let below = short.between(authority_params("below"));
    let chain = [&below.leaf(|_| {}), &below.certificate, &short.certificate];
    assert_eq!(root.verify(&chain), Err(PathError::PathTooLong));
}

#[test]
fn usages_are_for_clients_or_not_stated() {
    let root = Signing::new();
    let check = |usages: &[ExtendedKeyUsagePurpose], expect: Result<(), PathError>| {
        let leaf = root.leaf(|params| params.extended_key_usages = usages.to_vec());
        assert_eq!(root.verify(&[&leaf]), expect, "{usages:?}");
    };
    check(&[], Ok(()));
    check(&[ExtendedKeyUsagePurpose::ClientAuth], Ok(()));
    check(&[ExtendedKeyUsagePurpose::Any], Ok(()));
    check(&[ExtendedKeyUsagePurpose::ServerAuth], Err(PathError::KeyUsage));
    let mut servers = authority_params("servers");
    servers.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let servers = root.between(servers);
    assert_eq!(root.verify(&[&servers.leaf(|_| {}), &servers.certificate]), Err(PathError::KeyUsage));
}

#[test]
fn critical_extensions_that_are_not_understood_are_refused() {
    let root = Signing::new();
    let with = |is_critical: bool| {
        root.leaf(|params| {
            let mut extension = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
            extension.set_criticality(is_critical);
            params.custom_extensions = vec![extension];
        })
    };
    assert_eq!(root.verify(&[&with(false)]), Ok(()));
    assert_eq!(root.verify(&[&with(true)]), Err(PathError::CriticalExtension("1.2.3.4".to_owned())));
}

#[test]
fn an_authority_signs_the_names_that_it_may() {
    let root = Signing::new();
    let mut limited = authority_params("limited");
    limited.name_constraints = Some(NameConstraints {
        permitted_subtrees: vec![GeneralSubtree::DnsName("example.com".to_owned())],
        excluded_subtrees: vec![GeneralSubtree::DnsName("no.example.com".to_owned())],
    });
    let limited = root.between(limited);
    let check = |dns: Option<&str>, expect: Result<(), PathError>| {
        let leaf = limited.leaf(|params| {
            params.subject_alt_names = dns.iter().map(|name| SanType::DnsName((*name).try_into().unwrap())).collect();
        });
        assert_eq!(root.verify(&[&leaf, &limited.certificate]), expect, "{dns:?}");
    };
    check(None, Ok(()));
    check(Some("a.example.com"), Ok(()));
    check(Some("a.no.example.com"), Err(PathError::Name("\"a.no.example.com\"".to_owned())));
    check(Some("example.org"), Err(PathError::Name("\"example.org\"".to_owned())));
}

#[test]
fn weak_signatures_and_short_keys_are_refused() {
    let root = Signing::new();
    let key = KeyPair::generate().unwrap();
    // ecdsa-with-SHA1, RFC 3279 section 2.2.3.
    let sha_1 = element(SEQUENCE, &[&element(crate::der::OBJECT_ID, &[&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01]])]);
    let content = version_1(&root.subject(), "ann", &sha_1, &key);
    let weak = element(SEQUENCE, &[&content, &sha_1, &element(BIT_STRING, &[&[0; 65]])]);
    assert_eq!(root.verify(&[&CertificateDer::from(weak)]), Err(PathError::Algorithm));
    let pem = include_bytes!("../pki/testdata/rsa-1024.crt");
    let (_, short) = x509_parser::pem::parse_x509_pem(pem).unwrap();
    let algorithms = provider().signature_verification_algorithms;
    assert!(!PublicKey::from_certificate(&short.contents).unwrap().is_supported(&algorithms));
    assert!(PublicKey::from_certificate(&root.certificate).unwrap().is_supported(&algorithms));
}

#[test]
fn a_client_can_not_have_many_signatures_verified() {
    let root = Signing::new();
    // Authorities with the same name and key: each could have signed each other.
    let key = || KeyPair::try_from(root.key.serialize_der()).unwrap();
    let ring: Vec<_> = (0..MOST_SENT)
        .map(|_| Signing::root(authority_params("ring"), key()).sign(&authority_params("ring"), &key()))
        .collect();
    let signing = Signing { params: authority_params("ring"), key: key(), certificate: ring[0].clone() };
    let leaf = signing.leaf(|_| {});
    let chain: Vec<_> = std::iter::once(&leaf).chain(&ring).collect();
    assert_eq!(root.verify(&chain), Err(PathError::TooManySignatures));
}
