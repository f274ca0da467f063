//! Access control: the rate of a user with a role, relative to that of the same user under AlwaysAllow. A second pair
//! of rows adds an audit event at the level Metadata to each request.
//!
//! Both sides are whole servers, measured in turn. They have the roles and bindings of a large cluster, mostly of other
//! users. The store dominates the cost of creates, so gets show the cost of a decision and of a request's two audit
//! events.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

use super::turns::{self, Turn};
use crate::bench::{Bench, Meter, populate};
use crate::figure::{Observed, Quantity};
use crate::load::{Done, Until, load};
use crate::pods::Pods;
use crate::server::Server;
use crate::wire::{Client, Credentials, Request};

/// The number of the first directory of these rows.
const DIRECTORY: usize = 7_000;
const CREATING: usize = 48;
const READING: usize = 32;
/// The number of pods that each side creates in a round.
const ROUND: usize = 2_000;
/// The duration of reads of each side in a round.
const READ_TIME: Duration = Duration::from_millis(500);
/// The step is odd and no multiple of five, so all pods are read before one repeats.
const STRIDE: usize = 7_919;

const ROLES: usize = 2_000;
const BINDINGS: usize = 5_000;
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// The user and its group.
const USER: &str = "bench-user";
const GROUP: &str = "bench-crew";
/// The modes of the two sides.
const BY_ROLES: &str = "Node,RBAC";
const ANYBODY: &str = "AlwaysAllow";

const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n";

/// The figure: the compared setting of the servers, and the kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    RolesCreate,
    RolesGet,
    AuditedCreate,
    AuditedGet,
}

impl Access {
    fn is_audited(self) -> bool {
        matches!(self, Self::AuditedCreate | Self::AuditedGet)
    }

    fn creates(self) -> bool {
        matches!(self, Self::RolesCreate | Self::AuditedCreate)
    }
}

/// A server, the user's client, and its pods.
struct Side {
    server: Server,
    client: Client,
    pods: Rc<Pods>,
}

/// The rate of the server with access control relative to the other.
pub(super) async fn figure(bench: &Bench, which: Access) -> Result<(Quantity, Observed)> {
    let files = TempDir::new().context("making a directory for the policy")?;
    let mut sides = Vec::new();
    for (place, turn) in Turn::SERVERS.into_iter().enumerate() {
        let number = DIRECTORY + Turn::SERVERS.len() * which as usize + place;
        let mut args = vec!["--authorization-mode", if turn == Turn::With { BY_ROLES } else { ANYBODY }];
        let (policy, log) = (files.path().join("policy.yaml"), files.path().join(format!("audit-{number}.log")));
        std::fs::write(&policy, POLICY)?;
        let [policy, log] = [&policy, &log].map(|path| path.display().to_string());
        if turn == Turn::With && which.is_audited() {
            args.extend(["--audit-policy-file", &policy, "--audit-log-path", &log]);
        }
        let server = bench.fresh_with(number, &args).await?;
        let pods = Rc::new(populate(&server.client, turns::rounds(bench.runs) * ROUND).await?);
        let client = user(bench, &server, files.path(), number).await?;
        let side = Side { server, client, pods };
        if !which.creates() {
            side.create(0).await?;
        }
        sides.push(side);
    }
    let figure = turns::ratio(bench.runs, async |turn, round| {
        let side = &sides[turn.server(round)];
        if which.creates() { side.create(round).await } else { side.get().await }
    });
    let figure = figure.await?;
    for side in sides {
        side.server.stop().await?;
    }
    Ok(figure)
}

impl Side {
    async fn create(&self, round: usize) -> Result<(Done, Observed)> {
        let (created, first) = (Rc::clone(&self.pods), round * ROUND);
        let request = move |number| Request::post(created.collection(first + number), created.body(first + number));
        let meter = Meter::start(&self.server.process)?;
        let done = load(&self.client, CREATING, Until::Count(ROUND), request).await?;
        let seen = meter.stop(done.seen())?;
        Ok((done, seen))
    }

    async fn get(&self) -> Result<(Done, Observed)> {
        let read = Rc::clone(&self.pods);
        let request = move |number: usize| Request::get(read.path(number * STRIDE % ROUND));
        let meter = Meter::start(&self.server.process)?;
        let done = load(&self.client, READING, Until::Elapsed(READ_TIME), request).await?;
        let seen = meter.stop(done.seen())?;
        Ok((done, seen))
    }
}

/// Creates the roles and bindings, and the user with a certificate, as an administrator does.
async fn user(bench: &Bench, server: &Server, files: &Path, number: usize) -> Result<Client> {
    let namespaces: Rc<Vec<String>> = Rc::new(Pods::namespaces().collect());
    for (count, request) in [(ROLES, role as fn(usize, &str) -> Request), (BINDINGS, binding)] {
        let namespaces = Rc::clone(&namespaces);
        let made = move |number: usize| request(number, &namespaces[number % namespaces.len()]);
        load(&server.client, CREATING, Until::Count(count), made).await?;
    }
    let mut connection = server.client.connect().await?;
    for namespace in &*namespaces {
        connection.send(users_role(namespace)).await?;
        connection.send(users_binding(namespace)).await?;
    }
    let kubeconfig = files.join(format!("{USER}-{number}"));
    let mut command = Command::new(bench.binary());
    command.args(["user", "create", USER, "--group", GROUP, "--kubeconfig"]).arg(server.kubeconfig());
    let made = command.arg("--out").arg(&kubeconfig).output().await.context("running keelson user create")?;
    ensure!(made.status.success(), "keelson user create: {}", String::from_utf8_lossy(&made.stderr));
    Client::new(Credentials::read(&kubeconfig)?)
}

/// A role of another user.
fn role(number: usize, namespace: &str) -> Request {
    let rules = json!([
        {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["get", "list"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["*"]},
    ]);
    let body = json!({"metadata": {"name": format!("role-{number}")}, "rules": rules});
    Request::post(format!("{RBAC}/namespaces/{namespace}/roles"), body.to_string())
}

/// A binding of another user, to a role in its namespace.
fn binding(number: usize, namespace: &str) -> Request {
    let role = format!("role-{}", number % ROLES);
    bind(namespace, &format!("binding-{number}"), &role, &format!("user-{number}"))
}

fn users_role(namespace: &str) -> Request {
    let rules = json!([
        {"apiGroups": [""], "resources": ["services", "configmaps"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "create"]},
    ]);
    let body = json!({"metadata": {"name": GROUP}, "rules": rules});
    Request::post(format!("{RBAC}/namespaces/{namespace}/roles"), body.to_string())
}

fn users_binding(namespace: &str) -> Request {
    bind(namespace, GROUP, GROUP, GROUP)
}

fn bind(namespace: &str, name: &str, role: &str, to: &str) -> Request {
    let body = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": to}],
    });
    Request::post(format!("{RBAC}/namespaces/{namespace}/rolebindings"), body.to_string())
}
