//! The environment of a check: the server, a namespace that exists only for the run, and the last requests with their
//! responses.
//!
//! A check ends with a [`Fault`] if the rule is broken, if the server gives no answer, or if it can't be checked there.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use anyhow::Context as _;
use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::args::Verify;
use crate::rules::{Histories, Need, Rule};
use crate::server::{Ask, Exchange, Server, Watch};

/// The number of exchanges that a report shows.
const REMEMBERED: usize = 12;
/// The time that the server may take to delete the namespace.
const CLEARED_WITHIN: Duration = Duration::from_secs(60);
/// The annotation that holds the number of a write of the workload.
pub(crate) const MARK: &str = "verify.keelson.io/mark";

/// The reason why a check did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server did what the rule forbids.
    Broken(String),
    /// The server gave no whole answer.
    Unanswered(String),
    /// The rule could not be checked on this server.
    Skipped(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(why) | Self::Unanswered(why) | Self::Skipped(why) => f.write_str(why),
        }
    }
}

/// The result of a check.
pub(crate) type Checked = Result<(), Fault>;

/// Fails with a broken rule unless the condition holds.
pub(crate) fn hold(condition: bool, why: impl FnOnce() -> String) -> Checked {
    if condition { Ok(()) } else { Err(Fault::Broken(why())) }
}

/// The surroundings of all checks.
pub(crate) struct Lab {
    server: Server,
    /// The namespace of the run. Absent in read-only mode.
    namespace: Option<String>,
    last: Mutex<VecDeque<Exchange>>,
    pub(crate) seed: u64,
    pub(crate) operations: u32,
    /// The histories of the workload, which runs once.
    pub(crate) histories: OnceCell<Histories>,
}

impl Lab {
    /// Creates the namespace of the run, unless it is read-only.
    ///
    /// # Errors
    /// The namespace can't be created.
    pub(crate) async fn begin(server: Server, args: &Verify) -> anyhow::Result<Self> {
        let (seed, operations) = (args.seed(), args.operations);
        let mut lab =
            Self { server, namespace: None, last: Mutex::default(), seed, operations, histories: OnceCell::new() };
        if !args.read_only {
            let body = json!({"metadata": {"generateName": "keelson-verify-"}});
            let made = lab.send(Ask::new(Method::POST, "/api/v1/namespaces").with(body)).await;
            let made = made.map_err(|fault| anyhow::anyhow!("{fault}"))?;
            let name = made.body["metadata"]["name"].as_str().filter(|_| made.status == StatusCode::CREATED);
            lab.namespace =
                Some(name.with_context(|| format!("creating the namespace of the run:\n{made}"))?.to_owned());
        }
        Ok(lab)
    }

    /// Deletes the namespace of the run and waits until it is gone. A server without the namespace controller keeps it
    /// with its finalizer, which is then removed after the objects.
    ///
    /// # Errors
    /// Something is left behind.
    pub(crate) async fn end(&self) -> Result<(), String> {
        let Some(name) = &self.namespace else { return Ok(()) };
        let path = format!("/api/v1/namespaces/{name}");
        let maps = format!("{path}/configmaps");
        let fault = |fault: Fault| format!("the namespace {name} is left behind: {fault}");
        self.send(Ask::new(Method::DELETE, &maps)).await.map_err(fault)?;
        self.send(Ask::new(Method::DELETE, &path)).await.map_err(fault)?;
        let begun = std::time::Instant::now();
        loop {
            let now = self.send(Ask::get(&path)).await.map_err(fault)?;
            if now.status == StatusCode::NOT_FOUND {
                return Ok(());
            }
            if begun.elapsed() > CLEARED_WITHIN / 4 {
                // No controller removes the finalizer.
                let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []}});
                self.send(Ask::new(Method::PUT, format!("{path}/finalize")).with(body)).await.map_err(fault)?;
            }
            if begun.elapsed() > CLEARED_WITHIN {
                return Err(format!("the namespace {name} is left behind: it is still there after a minute"));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Checks a rule.
    ///
    /// # Errors
    /// The rule is broken, or can't be checked on this server.
    pub(crate) async fn check(&self, rule: &Rule) -> Checked {
        if rule.needs == Need::Writes && self.namespace.is_none() {
            return Err(Fault::Skipped("it needs to write, and the run is read-only".to_owned()));
        }
        (rule.check)(self).await
    }

    /// Sends a request and remembers the exchange.
    ///
    /// # Errors
    /// As [`Server::send`].
    pub(crate) async fn send(&self, ask: Ask) -> Result<Exchange, Fault> {
        let exchange = self.server.send(ask).await?;
        let mut last = self.last.lock();
        if last.len() == REMEMBERED {
            last.pop_front();
        }
        last.push_back(exchange.clone());
        Ok(exchange)
    }

    /// Sends a request that must be answered with this status.
    ///
    /// # Errors
    /// [`Fault::Broken`] for another status.
    pub(crate) async fn expect(&self, status: StatusCode, ask: Ask) -> Result<Exchange, Fault> {
        let exchange = self.send(ask).await?;
        hold(exchange.status == status, || {
            let Exchange { ask, status: now, .. } = &exchange;
            format!("{} {} was answered with {now}, and not with {status}", ask.method, ask.path)
        })?;
        Ok(exchange)
    }

    /// Gets a path.
    ///
    /// # Errors
    /// [`Fault::Broken`] if the answer is not 200.
    pub(crate) async fn get(&self, path: impl Into<String>) -> Result<Value, Fault> {
        Ok(self.expect(StatusCode::OK, Ask::get(path)).await?.body)
    }

    /// Opens a watch.
    ///
    /// # Errors
    /// As [`Server::watch`].
    pub(crate) async fn watch(&self, path: String) -> Result<Watch, Fault> {
        self.server.watch(path).await
    }

    /// The path of the config maps of the run.
    pub(crate) fn maps(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.namespace.as_deref().unwrap_or("default"))
    }

    /// Creates a config map with these labels.
    ///
    /// # Errors
    /// It is not created.
    pub(crate) async fn create(&self, name: &str, labels: &Value) -> Result<Value, Fault> {
        let body = json!({"metadata": {"name": name, "labels": labels}, "data": {"key": "value"}});
        Ok(self.expect(StatusCode::CREATED, Ask::new(Method::POST, self.maps()).with(body)).await?.body)
    }

    /// The exchanges since the last [`forget`](Self::forget), the newest [`REMEMBERED`] of them.
    pub(crate) fn exchanges(&self) -> Vec<Exchange> {
        self.last.lock().iter().cloned().collect()
    }

    pub(crate) fn forget(&self) {
        self.last.lock().clear();
    }
}

/// The items of an array, none if the value is no array.
pub(crate) fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The names of a list's objects, in its order.
pub(crate) fn names(list: &Value) -> Vec<String> {
    array(&list["items"]).iter().filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect()
}

/// The resource version of an object or list.
///
/// # Errors
/// There is none.
pub(crate) fn version_of(of: &Value) -> Result<String, Fault> {
    let version = of["metadata"]["resourceVersion"].as_str().filter(|version| !version.is_empty());
    version.map(str::to_owned).ok_or_else(|| Fault::Broken("an answer has no metadata.resourceVersion".to_owned()))
}
