//! Signs client certificates: approved requests for the signer `kubernetes.io/kube-apiserver-client`.
//!
//! Admission and authorization decide at write time which users may request, approve and sign. A request for more than
//! a client certificate needs fails with the reason and text of the reference controller.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::future::BoxFuture;
use keelson_access::user::MASTERS;
use keelson_access::{CertificateRequest, ClientSigner, KeyUsages};
use keelson_meta::field_selector::FieldSelector;
use keelson_meta::json::{Value, json};
use keelson_meta::{ApiError, Object, Random};
use keelson_registry::{Registry, Target};
use keelson_supervision::warn_repeated;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, collection};
use crate::follow::follow;
use crate::queue::{Backoff, Outcome, Queue};

/// The controller's service account.
const ACCOUNT: &str = "certificate-controller";
/// The controller's field manager.
const MANAGER: &str = "certificatesigningrequest-signing-controller";
/// The signer that the controller implements.
const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(60) };
/// The number of requests processed concurrently.
const WORKERS: usize = 2;

/// The controller.
pub struct CertificateSigning {
    registry: Arc<Registry>,
    client: Client,
    requests: Target,
    /// The current authority.
    signer: watch::Receiver<Arc<ClientSigner>>,
    random: Arc<dyn Random>,
    /// Names of requests.
    queue: Queue<String>,
}

impl CertificateSigning {
    /// Creates a controller that signs with the current authority of `signer`.
    ///
    /// # Errors
    /// 500 when the registry does not serve CertificateSigningRequests.
    pub fn new(
        registry: Arc<Registry>,
        signer: watch::Receiver<Arc<ClientSigner>>,
        random: Arc<dyn Random>,
    ) -> Result<Self, ApiError> {
        let requests = collection(&registry, "certificates.k8s.io", "v1", "certificatesigningrequests", None)?;
        let client = Client::of_controller(registry.clone(), ACCOUNT, MANAGER);
        Ok(Self { registry, client, requests, signer, random, queue: Queue::new("certificate", BACKOFF) })
    }

    /// Runs until the server stops.
    pub fn run(self, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(stopping))
    }

    async fn run_until(self, stopping: CancellationToken) {
        let seen = |entry: &keelson_cache::Entry| self.queue.add(entry.name().to_owned());
        let following = follow(&self.registry, self.client.caller(), &self.requests, FieldSelector::default(), seen);
        let work = self.queue.run(WORKERS, |name| self.turn(name));
        tokio::select! {
            () = stopping.cancelled() => {}
            never = following => match never {},
            never = work => match never {},
        }
    }

    async fn turn(&self, name: String) -> Outcome {
        match self.look_at(&name).await {
            Ok(()) => Outcome::Done,
            Err(ApiError::Conflict { .. } | ApiError::NotFound { .. }) => Outcome::Again,
            Err(error) => {
                warn_repeated!(&name; name, %error, "signing a certificate failed; retrying");
                Outcome::Again
            }
        }
    }

    async fn look_at(&self, name: &str) -> Result<(), ApiError> {
        let Some(stored) = self.client.get(&self.requests, name).await? else { return Ok(()) };
        let mut object = stored.object;
        if !waits_for_certificate(&object) {
            return Ok(());
        }
        let signed = self.sign(&object)?;
        let status = object.0.entry("status").or_insert_with(|| json!({}));
        match signed {
            Ok(pem) => status["certificate"] = json!(BASE64.encode(pem)),
            Err(fault) => {
                let failed =
                    json!({"type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": fault});
                if let Some(conditions) = status["conditions"].as_array_mut() {
                    conditions.push(failed);
                }
            }
        }
        self.client.update(&self.requests.clone().below("status"), object).await.map(|_| ())
    }

    /// Returns the certificate for a request, or the reason of the refusal.
    fn sign(&self, object: &Object) -> Result<Result<String, String>, ApiError> {
        let spec = |field: &str| object.get(&["spec", field]);
        let usages = spec("usages").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let usages = match usages_of(usages) {
            Ok(usages) => usages,
            Err(fault) => return Ok(Err(fault)),
        };
        let text = spec("request").and_then(Value::as_str).unwrap_or_default();
        let request = match CertificateRequest::of_base64(text) {
            Ok(request) if request.is_signed_by_its_key() => request,
            Ok(_) => return Ok(Err("the request is not signed by the key that it is for".to_owned())),
            Err(error) => return Ok(Err(error.to_string())),
        };
        // Admission now refuses ambiguous requests. One that was stored by an earlier release, or without admission, is
        // not signed either.
        if let Some(ambiguity) = request.ambiguity() {
            return Ok(Err(ambiguity.to_owned()));
        }
        if request.organizations().iter().any(|group| group == MASTERS) {
            return Ok(Err(format!("the request is for the group {MASTERS}")));
        }
        let seconds = spec("expirationSeconds").and_then(Value::as_i64);
        let lifetime = seconds.map(|seconds| Duration::from_secs(seconds.max(0).unsigned_abs()));
        let signer = self.signer.borrow().clone();
        let signed = signer.sign(&request, usages, lifetime, self.client.now(), &*self.random);
        signed.map(Ok).map_err(|error| ApiError::Internal(error.to_string()))
    }
}

/// Returns true for an approved request to this signer that is neither signed nor failed.
fn waits_for_certificate(request: &Object) -> bool {
    let is_for_this = request.get(&["spec", "signerName"]).is_some_and(|signer| signer == SIGNER);
    let conditions = request.get(&["status", "conditions"]).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let has = |kind: &str| conditions.iter().any(|condition| condition["type"] == kind);
    let certificate = request.get(&["status", "certificate"]).and_then(Value::as_str).unwrap_or_default();
    is_for_this && certificate.is_empty() && has("Approved") && !has("Denied") && !has("Failed")
}

/// The key usages that a request names. The texts are the reference controller's.
fn usages_of(asked: &[Value]) -> Result<KeyUsages, String> {
    let mut usages = KeyUsages::default();
    let mut is_client = false;
    for usage in asked.iter().filter_map(Value::as_str) {
        match usage {
            "digital signature" => usages.digital_signature = true,
            "key encipherment" => usages.key_encipherment = true,
            "client auth" => is_client = true,
            other => return Err(format!("invalid usage for client certificate: {other}")),
        }
    }
    if is_client { Ok(usages) } else { Err("missing required usage for client certificate: client auth".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_approved_requests_for_clients_are_signed_once() {
        let request = |signer: &str, conditions: &[&str], certificate: &str| {
            let conditions: Vec<Value> =
                conditions.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
            let status = json!({"conditions": conditions, "certificate": certificate});
            Object::from_value(json!({"spec": {"signerName": signer}, "status": status})).unwrap()
        };
        assert!(waits_for_certificate(&request(SIGNER, &["Approved"], "")));
        for (signer, conditions, certificate) in [
            ("kubernetes.io/kubelet-serving", &["Approved"][..], ""),
            (SIGNER, &[], ""),
            (SIGNER, &["Approved", "Denied"], ""),
            (SIGNER, &["Approved", "Failed"], ""),
            (SIGNER, &["Approved"], "eA=="),
        ] {
            assert!(!waits_for_certificate(&request(signer, conditions, certificate)), "{signer} {conditions:?}");
        }
    }

    #[test]
    fn a_client_is_a_client_and_nothing_else() {
        let check = |usages: &[&str], expected: Result<(bool, bool), &str>| {
            let usages: Vec<Value> = usages.iter().map(|usage| json!(usage)).collect();
            let read = usages_of(&usages).map(|read| (read.digital_signature, read.key_encipherment));
            assert_eq!(read, expected.map_err(str::to_owned));
        };
        check(&["client auth"], Ok((false, false)));
        check(&["digital signature", "key encipherment", "client auth"], Ok((true, true)));
        check(&["client auth", "server auth"], Err("invalid usage for client certificate: server auth"));
        check(&["digital signature"], Err("missing required usage for client certificate: client auth"));
    }
}
