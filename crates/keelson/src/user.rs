//! `keelson user create`: creates a user with a certificate, and its kubeconfig. `keelson user list`: lists the users
//! created so.
//!
//! The command sends the requests of any administrator to a running server: a certificate signing request, its
//! approval, and a role binding. The private key leaves this process only in the kubeconfig, which only its owner can
//! read.

mod record;
mod serving_names;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use http::{Method, Request};
use k8s_openapi::ByteString;
use keelson_server::{Kubeconfig, client_request};
use kube::config::{Cluster, KubeConfigOptions};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::args::{Administrator, UserCreate, UserList};
use crate::output::{answer, note};
use crate::private_file;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const MANAGER: &str = "keelson-user";
/// The timeout of a request.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest wait for the signer, and the interval of checks.
const SIGNING: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

/// Creates the user.
///
/// # Errors
/// The file exists, the server cannot be reached or rejects a request, or no controller signs.
pub(super) fn create(settings: &UserCreate) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting a runtime")?;
    runtime.block_on(async {
        let out = settings.out.clone().unwrap_or_else(|| file_of(&settings.name));
        if out.exists() {
            bail!("{} exists; name another file with --out", out.display());
        }
        let server = Server::new(&settings.administrator).await?;
        if let Some(url) = &settings.server {
            warn_of_other_names(&server, url)?;
        }
        if let (Some(role), None, false) = (&settings.role, &settings.namespace, settings.all_namespaces) {
            note(format_args!(
                "warning: {role} is bound in all namespaces, as there is no --namespace; --all-namespaces silences this warning"
            ));
        }
        if let Some(role) = &settings.role {
            let path = format!("{RBAC}/clusterroles/{role}");
            server.ask(Method::GET, &path, "", None).await.with_context(|| format!("looking for the role {role}"))?;
        }
        let (request_pem, key_pem) = client_request(&settings.name, &settings.groups).context("making a key")?;
        let (number, certificate_pem) = server.certificate(settings, request_pem).await?;
        if let Err(error) = record::add(&server, &number, settings, &certificate_pem).await {
            note(format_args!("warning: the user will be missing from keelson user list: {error:#}"));
        }
        let bound = match &settings.role {
            Some(role) => Some(server.bind(settings, role).await?),
            None => None,
        };
        let kubeconfig = Kubeconfig {
            cluster: "keelson",
            user: &settings.name,
            server: settings.server.as_deref().unwrap_or(&server.url),
            ca_pem: &server.ca_pem,
            certificate_pem: &certificate_pem,
            key_pem: &key_pem,
            namespace: settings.namespace.as_deref(),
        };
        private_file::write(&out, &kubeconfig.to_yaml()).with_context(|| format!("writing {}", out.display()))?;
        answer(summary(settings, bound.as_deref(), &out))
    })
}

/// Lists the users.
///
/// # Errors
/// When the server can't be reached or rejects the request.
pub(super) fn list(settings: &UserList) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting a runtime")?;
    runtime.block_on(async { record::list(&Server::new(&settings.administrator).await?).await })
}

/// A client of a server, with the credentials of an administrator.
pub(crate) struct Server {
    client: Client,
    url: String,
    ca_pem: String,
}

impl Server {
    pub(crate) async fn new(administrator: &Administrator) -> anyhow::Result<Self> {
        let file = kubeconfig_of(administrator);
        let reading =
            || format!("reading {} (--kubeconfig says which; a server writes one into its --data-dir)", file.display());
        if !file.exists() {
            bail!(
                "{} does not exist: name the data directory of the server with --data-dir, or a kubeconfig with --kubeconfig",
                file.display()
            );
        }
        let read = kube::config::Kubeconfig::read_from(&file).with_context(reading)?;
        let cluster = cluster_of(&read).with_context(reading)?.clone();
        let mut config =
            Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.with_context(reading)?;
        (config.connect_timeout, config.read_timeout) = (Some(PATIENCE), Some(PATIENCE));
        let url = cluster.server.clone().unwrap_or_else(|| config.cluster_url.to_string());
        let ca_pem = ca_of(&cluster).with_context(reading)?;
        let client = Client::try_from(config).with_context(reading)?;
        Ok(Self { client, url, ca_pem })
    }

    pub(crate) fn into_client(self) -> Client {
        self.client
    }

    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let bytes = body.map(Value::to_string).unwrap_or_default().into_bytes();
        let request = Request::builder().method(method).uri(path).header("content-type", kind).body(bytes);
        let text = self.client.request_text(request.context("writing a request")?).await.map_err(told_of)?;
        serde_json::from_str(&text).with_context(|| format!("{path}: the answer is not JSON"))
    }

    /// Requests and approves a certificate. Returns the name of the request and the certificate.
    async fn certificate(&self, settings: &UserCreate, request_pem: String) -> anyhow::Result<(String, String)> {
        let mut spec = json!({
            "request": ByteString(request_pem.into_bytes()), "signerName": SIGNER, "usages": ["digital signature", "client auth"],
        });
        if let Some(time) = settings.valid_for {
            spec["expirationSeconds"] = json!(i32::try_from(time.as_secs()).unwrap_or(i32::MAX));
        }
        let request = json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": { "generateName": "keelson-user-" }, "spec": spec,
        });
        let made = self.ask(Method::POST, REQUESTS, "application/json", Some(&request)).await;
        let made = made.context("asking for a certificate")?;
        let name = made["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("{REQUESTS}/{name}");
        let certificate = self.approved(&path).await;
        // The signing request is no longer needed, whether it succeeded or failed.
        let _ = self.ask(Method::DELETE, &path, "", None).await;
        Ok((name.to_owned(), certificate?))
    }

    async fn approved(&self, path: &str) -> anyhow::Result<String> {
        let condition =
            json!({"type": "Approved", "status": "True", "reason": "UserCreate", "message": "by keelson user create"});
        let verdict = json!({"status": {"conditions": [condition]}});
        let (approval, merge) = (format!("{path}/approval"), "application/merge-patch+json");
        self.ask(Method::PATCH, &approval, merge, Some(&verdict)).await.context("approving the certificate")?;
        let begun = Instant::now();
        loop {
            let request = self.ask(Method::GET, path, "", None).await.context("waiting for the certificate")?;
            let status = &request["status"];
            if !status["certificate"].is_null() {
                let bytes: ByteString = serde_json::from_value(status["certificate"].clone())?;
                return String::from_utf8(bytes.0).context("the certificate is not a string");
            }
            let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
            if let Some(failed) = conditions.iter().find(|condition| condition["type"] == "Failed") {
                bail!("the certificate was not signed: {}", failed["message"].as_str().unwrap_or_default());
            }
            if begun.elapsed() >= SIGNING {
                bail!(
                    "no signer has signed the certificate for {SIGNING:?}: is certificatesigningrequest-signing-controller on in --controllers, or a \
                     kube-controller-manager running?"
                );
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Binds a cluster role to the user; an existing binding is not an error. Returns a description of the place.
    async fn bind(&self, settings: &UserCreate, role: &str) -> anyhow::Result<String> {
        let name = format!("{}:{role}", settings.name);
        let (kind, place, told) = match settings.namespace.as_ref().filter(|_| !settings.all_namespaces) {
            Some(namespace) => {
                let place = format!("{RBAC}/namespaces/{namespace}/rolebindings");
                ("RoleBinding", place, format!("in the namespace {namespace}"))
            }
            None => ("ClusterRoleBinding", format!("{RBAC}/clusterrolebindings"), "in all namespaces".to_owned()),
        };
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": { "name": name },
            "roleRef": { "apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role },
            "subjects": [{ "apiGroup": RBAC_GROUP, "kind": "User", "name": settings.name }],
        });
        let path = format!("{place}/{}?fieldManager={MANAGER}", escaped(&name));
        let applied = self.ask(Method::PATCH, &path, "application/apply-patch+yaml", Some(&binding)).await;
        applied.with_context(|| format!("binding the role {role}"))?;
        Ok(told)
    }
}

/// Warns if a client that connects to `url` would reject the server's certificate.
fn warn_of_other_names(server: &Server, url: &str) -> anyhow::Result<()> {
    let (host, _) = serving_names::host_of(url).context("reading --server")?;
    match serving_names::other_names(&server.url, &server.ca_pem, &host) {
        Ok(None) => {}
        Ok(Some(names)) => note(format_args!(
            "warning: the certificate of the server does not hold for {host}, so clients will refuse it there; it holds for {}. Start the \
             server with --tls-san {host}",
            names.join(", ")
        )),
        Err(error) => note(format_args!("warning: the names of the server's certificate were not checked: {error:#}")),
    }
    Ok(())
}

/// An error with only the server's message, if the server rejected the request.
fn told_of(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => anyhow!("{}", status.message),
        other => other.into(),
    }
}

/// The cluster of the current context.
fn cluster_of(config: &kube::config::Kubeconfig) -> anyhow::Result<&Cluster> {
    let current = config.current_context.as_deref().unwrap_or_default();
    let context = config.contexts.iter().find(|context| context.name == current);
    let name = context.and_then(|context| context.context.as_ref()).map(|context| &context.cluster);
    let named = name.and_then(|name| config.clusters.iter().find(|cluster| cluster.name == *name));
    named
        .and_then(|cluster| cluster.cluster.as_ref())
        .ok_or_else(|| anyhow!("it has no current context with a cluster"))
}

/// The authorities that clients trust for the server, in PEM; empty if the system's are used.
fn ca_of(cluster: &Cluster) -> anyhow::Result<String> {
    if let Some(data) = &cluster.certificate_authority_data {
        let bytes: ByteString = serde_json::from_value(json!(data))?;
        return String::from_utf8(bytes.0).context("its certificate authority is not a string");
    }
    match &cluster.certificate_authority {
        Some(file) => std::fs::read_to_string(file).with_context(|| format!("reading {file}")),
        None => Ok(String::new()),
    }
}

/// The path of the kubeconfig that the command uses.
pub(crate) fn kubeconfig_of(settings: &Administrator) -> PathBuf {
    let of_server = settings.data_dir.join("kubeconfig");
    let named = || std::env::var_os("KUBECONFIG").filter(|file| !file.is_empty()).map(PathBuf::from);
    match &settings.kubeconfig {
        Some(file) => file.clone(),
        None if of_server.exists() => of_server,
        None => named().unwrap_or(of_server),
    }
}

/// The file name for a user. Characters that are unsafe in a path are replaced.
fn file_of(user: &str) -> PathBuf {
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '@') { c } else { '-' };
    PathBuf::from(format!("{}.kubeconfig", user.chars().map(safe).collect::<String>()))
}

/// A name in the form for a URL path.
pub(crate) fn escaped(name: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    name.bytes().map(escape).collect()
}

fn summary(settings: &UserCreate, bound: Option<&str>, out: &Path) -> String {
    let groups = match &*settings.groups {
        [] => String::new(),
        groups => format!(" of {}", groups.join(", ")),
    };
    let may = match (&settings.role, bound) {
        (Some(role), Some(place)) => format!("  may:        {role} {place}"),
        _ => "  may:        what is bound to the user or a group of it; until something is, nothing".to_owned(),
    };
    format!("the user {}{groups} is made\n{may}\n  kubeconfig: {}", settings.name, out.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_of_users_contain_no_path_separators() {
        assert_eq!(file_of("ann@example.org"), PathBuf::from("ann@example.org.kubeconfig"));
        assert_eq!(file_of("../../x:y"), PathBuf::from("..-..-x-y.kubeconfig"));
        assert_eq!(escaped("a/b:view"), "a%2Fb%3Aview");
    }
}
