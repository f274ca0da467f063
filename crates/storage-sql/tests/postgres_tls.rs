//! TLS to PostgreSQL with libpq's modes of sslmode, and client certificates instead of passwords.
//!
//! Each case starts a new server.

#![allow(clippy::unwrap_used)] // A test fails by a panic.

mod postgres;

use std::path::Path;

use keelson_storage::Store;
use keelson_storage_sql::{PostgresConfig, PostgresStore};
use keelson_teststores::PostgresServer;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use postgres::{commit, put};

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// Creates a certificate and its key.
    fn sign(&self, common_name: &str, addresses: &[&str]) -> (String, String) {
        let addresses: Vec<String> = addresses.iter().map(|address| (*address).to_owned()).collect();
        let mut params = CertificateParams::new(addresses).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// A server that accepts only TLS connections with a client certificate for the role.
fn server(ca: &Authority, host: &str) -> Option<PostgresServer> {
    let (certificate, key) = ca.sign("server", &[host]);
    // The test kit itself connects without TLS, and only to the database in which it creates others.
    let hba = "host postgres,keelson keelson 127.0.0.1/32 trust\nhostssl tls keelson 127.0.0.1/32 cert\n";
    PostgresServer::builder()
        .setting("ssl", "on")
        .setting("ssl_ca_file", "ca.pem")
        .setting("ssl_cert_file", "server.pem")
        .setting("ssl_key_file", "server.key")
        .file("ca.pem", ca.pem.clone())
        .file("server.pem", certificate)
        .file("server.key", key)
        .file("pg_hba.conf", hba)
        .start()
}

fn write(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

async fn refusal(url: &str) -> String {
    let opened = PostgresStore::open(PostgresConfig::from_url(url).unwrap()).await;
    opened.map(|_| ()).expect_err("this must not connect").to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_and_server_certificates_are_verified() {
    let ca = Authority::new("the database's");
    let Some(server) = server(&ca, "127.0.0.1") else { return };
    let url = server.create_database("tls");
    let directory = TempDir::new().unwrap();
    let roots = write(directory.path(), "ca.pem", &ca.pem);
    let (certificate, key) = ca.sign("keelson", &[]);
    let (certificate, key) =
        (write(directory.path(), "own.pem", &certificate), write(directory.path(), "own.key", &key));
    let identity = format!("sslcert={certificate}&sslkey={key}");
    let verified = format!("{url}?sslmode=verify-full&sslrootcert={roots}&{identity}");
    let store = PostgresStore::open(PostgresConfig::from_url(&verified).unwrap()).await.unwrap();
    commit(&store, put("a", "1")).await;
    store.check().await.unwrap();
    let in_use = "SELECT bool_and(s.ssl) FROM pg_stat_ssl s JOIN pg_stat_activity USING (pid) WHERE datname = 'tls'";
    assert_eq!(server.sql("postgres", in_use), "t");
    // Without a client certificate, or without TLS, the server refuses the connection.
    assert!(refusal(&format!("{url}?sslmode=verify-full&sslrootcert={roots}")).await.contains("certificate"));
    assert!(refusal(&format!("{url}?sslmode=disable")).await.contains("no encryption"));
    // The client refuses a server of another authority before it sends data.
    let others = write(directory.path(), "others.pem", &Authority::new("another").pem);
    for mode in ["verify-full", "verify-ca", "require"] {
        let text = refusal(&format!("{url}?sslmode={mode}&sslrootcert={others}&{identity}&connect_timeout=1")).await;
        assert!(text.contains("UnknownIssuer") || text.contains("invalid peer certificate"), "{mode}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_full_asks_for_the_name_and_verify_ca_does_not() {
    let ca = Authority::new("the database's");
    let Some(server) = server(&ca, "db.example") else { return };
    let url = server.create_database("tls");
    let directory = TempDir::new().unwrap();
    let roots = write(directory.path(), "ca.pem", &ca.pem);
    let (certificate, key) = ca.sign("keelson", &[]);
    let (certificate, key) =
        (write(directory.path(), "own.pem", &certificate), write(directory.path(), "own.key", &key));
    let identity = format!("sslcert={certificate}&sslkey={key}&sslrootcert={roots}");
    let text = refusal(&format!("{url}?sslmode=verify-full&{identity}")).await;
    assert!(text.contains("not valid for name"), "{text}");
    for mode in ["verify-ca", "require"] {
        let config = PostgresConfig::from_url(&format!("{url}?sslmode={mode}&{identity}")).unwrap();
        PostgresStore::open(config).await.unwrap().check().await.unwrap();
    }
}
