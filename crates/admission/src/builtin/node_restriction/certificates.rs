//! Certificates: a node requests them for itself and for its own pods.
//!
//! A kubelet can't get a certificate with the identity of a pod on another node. The pod must have a volume with
//! certificates of the signer, or the node needs a right.

use keelson_access::{Attributes, CertificateRequest, ResourceAttributes};
use keelson_meta::go_format::quote;
use keelson_meta::json::Value;
use keelson_meta::{ApiError, Object};
use keelson_registry::Operation;

use super::{Fault, MIRROR, NodeRestriction, NodeWrite, demand, is_bound_to, list, said};

/// Signers whose certificates are only for nodes.
const SIGNERS_FOR_NODES: [&str; 2] = ["kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"];
/// The verb that permits a node to request certificates of a signer that no volume of the pod has. The resource is the
/// signer, with colons for slashes, and the name is that of the pod's service account.
const ANY_SIGNER: &str = "request-serviceaccounts-podcertificate-signer";

/// Checks a certificate signing request: one for a certificate of a node must have the node's name.
pub(super) fn signing_request(write: &NodeWrite<'_>) -> Result<(), Fault> {
    let text = |field: &str| write.object.get(&["spec", field]).and_then(Value::as_str).unwrap_or_default();
    if !SIGNERS_FOR_NODES.contains(&text("signerName")) {
        return Ok(());
    }
    let request = CertificateRequest::of_base64(text("request"));
    let request = request.map_err(|error| said(format!("unable to parse csr: {error}")))?;
    let expected = format!("system:node:{}", write.node);
    demand(request.common_name() == expected, || format!("can only create a node CSR with CN={expected}"))
}

impl NodeRestriction {
    /// Checks a pod certificate request: the pod must run on the node, with all stated UIDs.
    pub(super) async fn pod_certificate(&self, write: &NodeWrite<'_>, subresource: &str) -> Result<(), Fault> {
        let operation = write.attributes.operation;
        demand(operation == Operation::Create, || format!("unexpected operation {}", operation.as_str()))?;
        demand(subresource.is_empty(), || format!("unexpected subresource {subresource}"))?;
        let text = |field: &str| write.object.get(&["spec", field]).and_then(Value::as_str).unwrap_or_default();
        let (node, stated_node) = (quote(write.node), text("nodeName"));
        demand(stated_node == write.node, || {
            let stated = quote(stated_node);
            format!("PodCertificateRequest.Spec.NodeName={stated}, which is not the requesting node {node}")
        })?;
        let known = self.nodes.get("", write.node)?;
        consistent(known.uid() == text("nodeUID"), || {
            let stated = quote(text("nodeUID"));
            format!("PodCertificateRequest names node UID {stated}, inconsistent with the running node")
        })?;
        let pod = self.pods.get(write.namespace(), text("podName"))?;
        let pod_name = quote(&format!("{}/{}", write.namespace(), text("podName")));
        let of_pod = |rest: String| format!("PodCertificateRequest for pod {pod_name} {rest}");
        consistent(pod.uid() == text("podUID"), || {
            of_pod(format!("contains pod UID {} which differs from the running pod", quote(text("podUID"))))
        })?;
        demand(is_bound_to(&pod, write.node), || {
            format!("pod {pod_name} is not running on node {node} named in the PodCertificateRequest")
        })?;
        let is_mirror = pod.annotations().any(|(key, _)| key == MIRROR);
        demand(!is_mirror, || format!("pod {pod_name} is a mirror pod"))?;
        let account = text("serviceAccountName");
        let of_account = pod.get(&["spec", "serviceAccountName"]).and_then(Value::as_str).unwrap_or_default();
        demand(of_account == account, || {
            of_pod(format!("contains serviceAccountName {} that differs from the running pod", quote(account)))
        })?;
        let known = self.accounts.get(write.namespace(), account)?;
        consistent(known.uid() == text("serviceAccountUID"), || {
            let stated = quote(text("serviceAccountUID"));
            of_pod(format!("names service account UID {stated}, which differs from the running service account"))
        })?;
        let signer = text("signerName");
        if mounts_certificates_of(&pod, signer) || may_have(write, signer, account).await {
            return Ok(());
        }
        let signer = quote(signer);
        Err(said(format!("pod {pod_name} does not mount a podCertificate projected volume for signer {signer}")))
    }
}

/// Refuses a request whose UIDs differ from those in the cache. The cache may be late, so a client may retry.
fn consistent(holds: bool, message: impl FnOnce() -> String) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault::Other(ApiError::Internal(message()))) }
}

fn mounts_certificates_of(pod: &Object, signer: &str) -> bool {
    let sources = list(pod, &["spec", "volumes"]).iter().filter_map(|volume| volume["projected"]["sources"].as_array());
    sources.flatten().any(|source| source["podCertificate"]["signerName"] == signer)
}

async fn may_have(write: &NodeWrite<'_>, signer: &str, account: &str) -> bool {
    let (caller, resource) = (write.attributes.caller, signer.replace('/', ":"));
    let asked = ResourceAttributes {
        verb: ANY_SIGNER,
        group: "certificates.k8s.io",
        version: "*",
        resource: &resource,
        namespace: Some(write.namespace()),
        name: Some(account),
        ..ResourceAttributes::default()
    };
    caller.authorizer().authorize(caller.user(), &Attributes::Resource(asked)).await.is_allowed()
}
