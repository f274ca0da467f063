//! Creates of pods with admission: policies, a mutating webhook on this machine, and a quota shared by all creates.
//! Also creates with admission plugins enabled but nothing configured.
//!
//! Policies are measured relative to a server without any, and all plugins relative to a server without those for
//! policies and webhooks. Servers alternate, since machines are shared and noisy. The effect of admission is checked
//! first, so that no row measures inactive admission.

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::turns::{self, Turn};
use crate::aggregated::{AggregatedServer, SEEN, WEBHOOK};
use crate::bench::{Bench, Meter, populate};
use crate::figure::{Observed, Quantity, median_of};
use crate::load::{Done, Until, load};
use crate::pods::Pods;
use crate::server::Server;
use crate::wire::Request;

/// The number of the first directory of these rows.
const DIRECTORY: usize = 8_000;
const CREATING: usize = 48;
/// The number of pods of a run, and of one turn of two servers.
const ROUND: usize = 5_000;
const TURN: usize = 2_000;
/// The maximum time until the quota shows the usage, and the interval of checks.
const PATIENCE: Duration = Duration::from_secs(20);
const ASK_EVERY: Duration = Duration::from_millis(200);
const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";
/// Disables policies and webhooks on a server.
const NOBODY: &str = "--disable-admission-plugins=MutatingAdmissionPolicy,MutatingAdmissionWebhook,ValidatingAdmissionPolicy,ValidatingAdmissionWebhook";
/// The expressions of the five policies.
const EXPRESSIONS: [&str; 5] = [
    "'app.kubernetes.io/name' in object.metadata.labels",
    "object.spec.containers.all(c, c.image.startsWith('example.com/'))",
    "object.spec.containers.all(c, has(c.resources.limits) && 'memory' in c.resources.limits)",
    "object.spec.securityContext.runAsNonRoot == true",
    "!has(object.spec.hostNetwork) || !object.spec.hostNetwork",
];

/// The kind of figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// Five policies relative to none.
    Policies,
    /// One mutating webhook.
    Webhook,
    /// One namespace with a quota.
    Quota,
    /// No policy and no webhook, relative to a server without their plugins.
    Unasked,
}

impl Admitted {
    /// Returns true if two kinds of servers are compared.
    fn is_compared(self) -> bool {
        matches!(self, Self::Policies | Self::Unasked)
    }
}

pub(super) async fn figure(bench: &Bench, which: Admitted) -> Result<(Quantity, Observed)> {
    let number = DIRECTORY + Turn::SERVERS.len() * which as usize;
    if which.is_compared() {
        return compared(bench, number, which).await;
    }
    let server = bench.fresh(number).await?;
    let pods = Rc::new(populate(&server.client, bench.runs * ROUND).await?);
    if which == Admitted::Webhook {
        add_webhook(&server, &AggregatedServer::start()?).await?;
    } else {
        add_quota(&server, &pods).await?;
    }
    let mut runs = Vec::new();
    for round in 0..bench.runs {
        let (done, seen) = create(&server, &pods, (round * ROUND, ROUND), which).await?;
        runs.push((Quantity::Rate(done.rate()), seen));
    }
    let is_admitted = match which {
        Admitted::Policies | Admitted::Unasked => true,
        Admitted::Webhook => get(&server, &pods.path(0)).await?["metadata"]["annotations"][SEEN] == "yes",
        Admitted::Quota => is_charged(&server, &pods, bench.runs * ROUND).await?,
    };
    ensure!(is_admitted, "admission was not active");
    server.stop().await?;
    Ok(median_of(runs))
}

/// The rate of servers with policies, or with plugins without configuration, relative to others.
async fn compared(bench: &Bench, number: usize, which: Admitted) -> Result<(Quantity, Observed)> {
    let mut servers = Vec::new();
    for (place, turn) in Turn::SERVERS.into_iter().enumerate() {
        let asks_nobody = which == Admitted::Unasked && turn == Turn::Plain;
        let args = if asks_nobody { &[NOBODY][..] } else { &[] };
        let server = bench.fresh_with(number + place, args).await?;
        if asks_nobody {
            ensure!(passes_over_policies(&server).await?, "the plugins were not switched off");
        }
        if which == Admitted::Policies && turn == Turn::With {
            add_policies(&server).await?;
        }
        let pods = Rc::new(populate(&server.client, turns::rounds(bench.runs) * TURN).await?);
        servers.push((server, pods));
    }
    let figure = turns::ratio(bench.runs, async |turn, round| {
        let (server, pods) = &servers[turn.server(round)];
        create(server, pods, (round * TURN, TURN), which).await
    });
    let figure = figure.await?;
    for (server, _) in servers {
        server.stop().await?;
    }
    Ok(figure)
}

async fn create(
    server: &Server,
    pods: &Rc<Pods>,
    (first, count): (usize, usize),
    which: Admitted,
) -> Result<(Done, Observed)> {
    let created = Rc::clone(pods);
    let request = move |number: usize| {
        let number = first + number;
        let number = if which == Admitted::Quota { Pods::in_one_namespace(number) } else { number };
        Request::post(created.collection(number), created.body(number))
    };
    let meter = Meter::start(&server.process)?;
    let done = load(&server.client, CREATING, Until::Count(count), request).await?;
    let seen = meter.stop(done.seen())?;
    Ok((done, seen))
}

async fn post(server: &Server, path: String, object: Value) -> Result<()> {
    server.client.connect().await?.send(Request::post(path, object.to_string())).await?;
    Ok(())
}

async fn get(server: &Server, path: &str) -> Result<Value> {
    let body = server.client.connect().await?.open(Request::get(path.to_owned())).await?;
    serde_json::from_slice(&body.collect().await?.to_bytes()).with_context(|| format!("the response of {path}"))
}

/// Five policies that pods satisfy, and an object that they refuse.
async fn add_policies(server: &Server) -> Result<()> {
    let rule = json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] });
    for (number, expression) in EXPRESSIONS.into_iter().enumerate() {
        let name = format!("policy-{number}");
        let spec =
            json!({ "matchConstraints": { "resourceRules": [&rule] }, "validations": [{ "expression": expression }] });
        let policy = json!({ "metadata": { "name": &name }, "spec": spec });
        post(server, format!("{CONFIGURATIONS}/validatingadmissionpolicies"), policy).await?;
        let binding =
            json!({ "metadata": { "name": &name }, "spec": { "policyName": &name, "validationActions": ["Deny"] } });
        post(server, format!("{CONFIGURATIONS}/validatingadmissionpolicybindings"), binding).await?;
    }
    let wrong = json!({ "metadata": { "name": "wrong" }, "spec": { "containers": [{ "name": "c", "image": "other.example.org/i" }] } });
    let path = format!("/api/v1/namespaces/{}/pods", Pods::namespaces().next().unwrap_or_default());
    ensure!(post(server, path, wrong).await.is_err(), "no policy refuses the invalid pod");
    Ok(())
}

/// Returns true if a server ignores a policy that refuses everything. The policy is deleted afterwards.
async fn passes_over_policies(server: &Server) -> Result<bool> {
    let rule =
        json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"] });
    let spec = json!({ "matchConstraints": { "resourceRules": [rule] }, "validations": [{ "expression": "false" }] });
    let binding = json!({ "policyName": "refuses", "validationActions": ["Deny"] });
    let kinds = [("validatingadmissionpolicies", spec), ("validatingadmissionpolicybindings", binding)];
    for (plural, spec) in &kinds {
        let object = json!({ "metadata": { "name": "refuses" }, "spec": spec });
        post(server, format!("{CONFIGURATIONS}/{plural}"), object).await?;
    }
    let map = json!({ "metadata": { "name": "unasked" } });
    let passes = post(server, "/api/v1/namespaces/default/configmaps".to_owned(), map).await.is_ok();
    for (plural, _) in &kinds {
        let gone = Request::delete(format!("{CONFIGURATIONS}/{plural}/refuses"));
        server.client.connect().await?.send(gone).await?;
    }
    Ok(passes)
}

async fn add_webhook(server: &Server, webhook: &AggregatedServer) -> Result<()> {
    let rule = json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] });
    let url = format!("https://127.0.0.1:{}{WEBHOOK}", webhook.port());
    let hook = json!({
        "name": "seen.bench.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "rules": [rule],
        "clientConfig": { "url": url, "caBundle": webhook.ca_bundle() },
    });
    let configuration = json!({ "metadata": { "name": "seen" }, "webhooks": [hook] });
    post(server, format!("{CONFIGURATIONS}/mutatingwebhookconfigurations"), configuration).await
}

async fn add_quota(server: &Server, pods: &Pods) -> Result<()> {
    let hard = json!({ "pods": "1000000", "requests.cpu": "1000000" });
    let object = json!({ "metadata": { "name": "all" }, "spec": { "hard": hard } });
    let path = format!("/api/v1/namespaces/{}/resourcequotas", pods.namespace(0));
    post(server, path, object).await
}

/// Returns true once the quota's status shows this number of pods, which it does after the creates.
async fn is_charged(server: &Server, pods: &Pods, count: usize) -> Result<bool> {
    let path = format!("/api/v1/namespaces/{}/resourcequotas/all", pods.namespace(0));
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let used = &get(server, &path).await?["status"]["used"]["pods"];
        // Whole thousands, in the form of a quantity.
        if *used == format!("{}k", count / 1_000) {
            return Ok(true);
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
    Ok(false)
}
