//! Creates clients with a certificate that the server has signed after an approved request.
//!
//! The authority is the one that signs at the time of the request.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keelson_testkit::{Endpoint, Raw, TestServer};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::json;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const PATIENCE: Duration = Duration::from_secs(120);

/// A client with this name. Its files are kept in a directory. The current authority signs its certificate.
pub(crate) async fn signed_client(server: &TestServer, directory: &Path, name: &str) -> Raw {
    let admin = server.raw();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let request = STANDARD.encode(params.serialize_request(&key).unwrap().pem().unwrap());
    let spec =
        json!({"request": request, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]});
    let object = name.replace(':', ".");
    let made = admin.post(REQUESTS, &json!({"metadata": {"name": object}, "spec": spec})).await;
    let mut made = made.expect(201).json();
    made["status"]["conditions"] = json!([{"type": "Approved", "status": "True", "reason": "Lab", "message": "yes"}]);
    let path = format!("{REQUESTS}/{object}");
    admin.put(format!("{path}/approval"), &made).await.expect(200);
    let begun = Instant::now();
    let certificate = loop {
        let request = admin.get(&path).await.expect(200).json();
        if let Some(text) = request["status"]["certificate"].as_str() {
            break STANDARD.decode(text).unwrap();
        }
        assert!(begun.elapsed() < PATIENCE, "the certificate never comes: {request}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let mut pki = server.running().pki().clone();
    pki.admin.certificate_pem = String::from_utf8(certificate).unwrap();
    pki.admin.key_pem = key.serialize_pem();
    let kubeconfig = directory.join(format!("{object}.kubeconfig"));
    fs::write(&kubeconfig, pki.kubeconfig(&server.url())).unwrap();
    Endpoint::from_kubeconfig(kubeconfig).await.unwrap().raw()
}
