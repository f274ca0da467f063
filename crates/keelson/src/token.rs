//! `keelson token`: prints a bearer token of a service account, for clients without certificates such as the console in
//! a browser.
//!
//! The command creates the account if it is absent, and binds a role to it if one is named. It sends all requests to a
//! running server.

use anyhow::{Context as _, bail};
use http::Method;
use serde_json::{Value, json};

use crate::args::PrintToken;
use crate::output::{answer, note};
use crate::user::{Server, escaped};

/// The default service account (namespace and name), and its cluster role.
const ADMIN: (&str, &str, &str) = ("kube-system", "keelson-admin", "cluster-admin");
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const APPLY: &str = "application/apply-patch+yaml";
const MANAGER: &str = "keelson-token";

/// Prints a token.
///
/// # Errors
/// When the server can't be reached or rejects a request.
pub(crate) fn run(settings: &PrintToken) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting a runtime")?;
    runtime.block_on(async {
        let server = Server::new(&settings.administrator).await?;
        let (namespace, account, role) = match &settings.account {
            Some(account) => (settings.namespace.as_str(), account.as_str(), settings.role.as_deref()),
            None => (ADMIN.0, ADMIN.1, Some(settings.role.as_deref().unwrap_or(ADMIN.2))),
        };
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/{}", escaped(namespace), escaped(account));
        let object = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": namespace},
        });
        apply(&server, &path, &object).await.with_context(|| format!("making the account {namespace}/{account}"))?;
        if let Some(role) = role {
            bind(&server, namespace, account, role).await.with_context(|| format!("binding the role {role}"))?;
        }
        let mut spec = json!({"expirationSeconds": settings.valid_for.as_secs()});
        if !settings.audiences.is_empty() {
            spec["audiences"] = json!(settings.audiences);
        }
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        let made = server.ask(Method::POST, &format!("{path}/token"), "application/json", Some(&request)).await;
        let made = made.context("requesting a token")?;
        let Some(token) = made["status"]["token"].as_str() else { bail!("the answer has no token") };
        let may = role.map(|role| format!(" with the role {role}")).unwrap_or_default();
        let end = made["status"]["expirationTimestamp"].as_str().unwrap_or_default();
        note(format_args!("token for {namespace}/{account}{may}, good until {end}"));
        answer(token)
    })
}

async fn apply(server: &Server, path: &str, object: &Value) -> anyhow::Result<Value> {
    server.ask(Method::PATCH, &format!("{path}?fieldManager={MANAGER}"), APPLY, Some(object)).await
}

async fn bind(server: &Server, namespace: &str, account: &str, role: &str) -> anyhow::Result<()> {
    let name = format!("keelson-token:{namespace}:{account}:{role}");
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    });
    let path = format!("{RBAC}/{}", escaped(&name));
    apply(server, &path, &binding).await.map(|_| ())
}
