//! Users of a server: a certificate with a name and groups, and the rights that a test grants them.
//!
//! Both are created as an administrator does it: an approved certificate signing request, and roles with their
//! bindings.

use std::future::IntoFuture;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt as _;
use futures::future::{BoxFuture, try_join_all};
use http::Method;
use kube::config::AuthInfo;
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::certificate_request::CertificateRequest;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::wait::until;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// The prefix of the names of roles and bindings.
const PREFIX: &str = "keelson-test-";
/// The timeout for the signing of a certificate.
const SIGNING_LIMIT: Duration = Duration::from_secs(30);

/// A user of a server.
#[derive(Debug)]
pub struct User {
    name: String,
    endpoint: Endpoint,
}

impl User {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A client with the certificate of this user.
    ///
    /// # Panics
    /// Outside of a tokio runtime, to which each client is bound.
    pub fn client(&self) -> Client {
        self.endpoint.client()
    }

    /// The configuration of the client that [`client`](Self::client) returns.
    pub fn config(&self) -> Config {
        self.endpoint.config().clone()
    }

    /// The path of this user's kubeconfig. The first call writes the file, and dropping this value removes it.
    ///
    /// # Errors
    /// [`Error::Io`] when it can't be written.
    pub fn kubeconfig(&self) -> Result<PathBuf, Error> {
        self.endpoint.file().map(Path::to_owned)
    }

    pub(crate) fn at(name: &str, endpoint: Endpoint) -> Self {
        Self { name: name.to_owned(), endpoint }
    }

    pub(crate) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
}

/// A builder for the groups and rights of a user. Await it for the [`User`].
#[derive(Debug)]
#[must_use = "a user is created when the builder is awaited"]
pub struct UserBuilder<'s> {
    server: &'s Endpoint,
    name: String,
    groups: Vec<String>,
    grants: Vec<Grant>,
}

/// A role of the user.
#[derive(Clone, Debug)]
struct Grant {
    role: Role,
    /// The namespaces of the role bindings; empty for a cluster role binding.
    namespaces: Vec<String>,
}

#[derive(Clone, Debug)]
enum Role {
    /// An existing cluster role.
    Named(String),
    /// A role that is created for this user with these rules.
    Rule(Value),
}

impl<'s> UserBuilder<'s> {
    pub(crate) fn new(server: &'s Endpoint, name: &str) -> Self {
        Self { server, name: name.to_owned(), groups: Vec::new(), grants: Vec::new() }
    }

    /// Adds a group. The signer may reject system groups, such as `system:masters`.
    pub fn group(mut self, group: &str) -> Self {
        self.groups.push(group.to_owned());
        self
    }

    /// Grants verbs on resources, each separated by commas. Write `deployments.apps` for a resource of a group, and
    /// `pods/status` for a subresource. The grant applies to all namespaces unless [`in_namespace`](Self::in_namespace)
    /// follows.
    pub fn can(mut self, verbs: &str, resources: &str) -> Self {
        self.grants.push(Grant { role: Role::Rule(rules(verbs, resources)), namespaces: Vec::new() });
        self
    }

    /// Binds an existing cluster role, such as `view`. The binding applies to all namespaces unless
    /// [`in_namespace`](Self::in_namespace) follows.
    pub fn role(mut self, cluster_role: &str) -> Self {
        self.grants.push(Grant { role: Role::Named(cluster_role.to_owned()), namespaces: Vec::new() });
        self
    }

    /// Limits the last grant to a namespace. Several calls add several namespaces. Without an earlier grant, this does
    /// nothing.
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        if let Some(last) = self.grants.last_mut() {
            last.namespaces.push(namespace.to_owned());
        }
        self
    }

    async fn create(self) -> Result<User, Error> {
        let client = self.server.client();
        let grants = self.grants.iter().map(|grant| grant.create(&client, &self.name));
        let (credentials, _) = futures::future::try_join(self.certificate(&client), try_join_all(grants)).await?;
        let endpoint = self.server.with_credentials(&self.name, credentials).await?;
        Ok(User { name: self.name, endpoint })
    }

    async fn certificate(&self, client: &Client) -> Result<AuthInfo, Error> {
        let action = format!("requesting a certificate for {}", self.name);
        let CertificateRequest { request_pem, key_pem } = CertificateRequest::new(&self.name, &self.groups)?;
        let request = json!({
            "metadata": { "generateName": PREFIX },
            "spec": {
                "request": STANDARD.encode(request_pem), "signerName": SIGNER,
                "usages": ["digital signature", "client auth"],
            },
        });
        let made = Endpoint::request(client, &action, Method::POST, REQUESTS, Some(&request)).await?;
        let path = format!("{REQUESTS}/{}", made["metadata"]["name"].as_str().unwrap_or_default());
        let approval = json!({"status": {"conditions": [
            {"type": "Approved", "status": "True", "reason": "Test", "message": "a user of a test"},
        ]}});
        Endpoint::request(client, &action, Method::PATCH, &format!("{path}/approval"), Some(&approval)).await?;
        let certificate = self.signed(client, &action, &path).await;
        // The signing request is no longer needed. If the deletion fails, it ends with the server.
        let _ = Endpoint::request(client, &action, Method::DELETE, &path, None).await;
        Ok(AuthInfo {
            client_certificate_data: Some(certificate?),
            client_key_data: Some(STANDARD.encode(key_pem).into()),
            ..AuthInfo::default()
        })
    }

    /// The signed certificate in base64, in the form for a kubeconfig.
    async fn signed(&self, client: &Client, action: &str, path: &str) -> Result<String, Error> {
        let name = &self.name;
        let look = || async {
            let found = Endpoint::request(client, action, Method::GET, path, None).await?;
            if let Some(certificate) = found["status"]["certificate"].as_str() {
                return Ok(ControlFlow::Break(certificate.to_owned()));
            }
            let conditions = found["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
            if let Some(failed) = conditions.iter().find(|condition| condition["type"] == "Failed") {
                let reason = failed["message"].as_str().unwrap_or_default();
                return Err(Error::Certificate(format!("the signer refuses the certificate of {name}: {reason}")));
            }
            let controller = "certificatesigningrequest-signing-controller";
            Ok(ControlFlow::Continue(format!("no certificate for {name} (it needs the controller {controller})")))
        };
        until(SIGNING_LIMIT, look).await
    }
}

impl<'s> IntoFuture for UserBuilder<'s> {
    type Output = Result<User, Error>;
    type IntoFuture = BoxFuture<'s, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.create().boxed()
    }
}

impl Grant {
    async fn create(&self, client: &Client, user: &str) -> Result<(), Error> {
        let action = format!("giving rights to {user}");
        let role = match &self.role {
            Role::Named(name) => name.clone(),
            Role::Rule(rules) => {
                let body = json!({ "metadata": { "generateName": PREFIX }, "rules": rules });
                let path = format!("{RBAC}/clusterroles");
                let made = Endpoint::request(client, &action, Method::POST, &path, Some(&body)).await?;
                made["metadata"]["name"].as_str().unwrap_or_default().to_owned()
            }
        };
        let binding = json!({
            "metadata": { "generateName": PREFIX },
            "roleRef": { "apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role },
            "subjects": [{ "apiGroup": RBAC_GROUP, "kind": "User", "name": user }],
        });
        let places: Vec<String> = match &self.namespaces[..] {
            [] => vec![format!("{RBAC}/clusterrolebindings")],
            named => named.iter().map(|name| format!("{RBAC}/namespaces/{name}/rolebindings")).collect(),
        };
        for place in places {
            Endpoint::request(client, &action, Method::POST, &place, Some(&binding)).await?;
        }
        Ok(())
    }
}

/// The policy rules of a role, one for each resource.
fn rules(verbs: &str, resources: &str) -> Value {
    let parts =
        |text: &str| text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let (verbs, resources): (Vec<String>, Vec<String>) = (parts(verbs), parts(resources));
    let rule = |resource: &String| {
        // The group follows the resource and precedes the subresource, as in kubectl: `deployments.apps/scale`.
        let (named, subresource) =
            resource.split_once('/').map_or((&**resource, None), |(named, sub)| (named, Some(sub)));
        let (plural, group) = named.split_once('.').unwrap_or((named, ""));
        let group = if named == "*" { "*" } else { group };
        let resource = subresource.map_or_else(|| plural.to_owned(), |sub| format!("{plural}/{sub}"));
        json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs })
    };
    resources.iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_names_groups_and_subresources_as_kubectl_does() {
        let expected = json!([
            { "apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"] },
            { "apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["get", "list"] },
            { "apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"] },
        ]);
        assert_eq!(rules("get, list", "pods,deployments.apps/scale,*"), expected);
    }
}
