//! The clients of a run: each sends the operations of the plan, and records the answers.
//!
//! An operation without a whole answer, or with a server error, has an unknown outcome. That is never a violation, and
//! the effect may come later.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use keelson_verify::history::{Effect, Operation, State};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::plan::{Kind, Step, Verb};
use crate::record::{Listing, MARK, Process, Record, Request, Trace, mark_of, text, version_of};
use crate::wire::{Answer, Client};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// The parts of a run that clients share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) record: Arc<Mutex<Record>>,
    pub(crate) trace: Trace,
    /// The number of the present process of each server.
    pub(crate) processes: Arc<Vec<AtomicU64>>,
}

impl Shared {
    fn process(&self, server: usize) -> Process {
        (server, self.processes[server].load(Ordering::Relaxed))
    }
}

/// A client with the objects that it has read.
pub(crate) struct Worker {
    number: usize,
    client: Client,
    shared: Shared,
    read: BTreeMap<(Kind, usize), Value>,
}

/// A request and its answer.
struct Sent {
    text: String,
    is_create: bool,
    begun: Instant,
    answer: Result<Answer, String>,
}

impl Worker {
    pub(crate) fn new(number: usize, client: Client, shared: Shared) -> Self {
        Self { number, client, shared, read: BTreeMap::new() }
    }

    /// Sends all operations.
    pub(crate) async fn run(mut self, steps: Vec<Step>) {
        let begun = tokio::time::Instant::now();
        for step in steps {
            tokio::time::sleep_until(begun + Duration::from_millis(step.begin_ms)).await;
            self.step(&step).await;
        }
        self.shared.record.lock().ended += 1;
    }

    /// After the faults: writes and lists through each server until it succeeds. Each server must serve by then.
    pub(crate) async fn probe(mut self, servers: usize) {
        let mut attempt = 0;
        for server in 0..servers {
            for kind in Kind::ALL {
                let name = format!("probe-{server}");
                // A mark names one request.
                while !self.create(server, kind, &name, &format!("p{attempt}")).await {
                    attempt += 1;
                    sleep(Duration::from_millis(300)).await;
                }
                attempt += 1;
                while !self.list(server, kind, false).await {
                    sleep(Duration::from_millis(300)).await;
                }
            }
        }
        self.shared.record.lock().probed += 1;
    }

    async fn step(&mut self, step: &Step) {
        let Step { number, server, kind, object, .. } = *step;
        let (name, mark) = (format!("{}{object}", kind.plural()), format!("o{number}"));
        let path = format!("{}/{name}", kind.path());
        let known = self.read.get(&(kind, object)).cloned();
        let state = State::Written(mark.clone());
        let manager = format!("c{}", self.number);
        match (step.verb, known) {
            (Verb::Get, _) | (Verb::Update | Verb::DeleteRead, None) => self.get(step, &name, &path).await,
            (Verb::Create, _) => {
                self.create(server, kind, &name, &mark).await;
            }
            (Verb::Update, Some(mut object)) => {
                let from = text(&object["metadata"]["resourceVersion"]);
                object["metadata"]["annotations"][MARK] = json!(mark);
                let sent = self.send(server, Method::PUT, &path, Some((JSON, &object))).await;
                self.written(kind, &name, &sent, &state, Some(from));
            }
            (Verb::UpdateAny, _) => {
                let object = self.object(kind, &name, &mark);
                let sent = self.send(server, Method::PUT, &path, Some((JSON, &object))).await;
                self.written(kind, &name, &sent, &state, None);
            }
            (Verb::Patch, _) => {
                let change = json!({"metadata": {"annotations": {MARK: mark}}});
                let sent = self.send(server, Method::PATCH, &path, Some((MERGE, &change))).await;
                self.written(kind, &name, &sent, &state, None);
            }
            (Verb::Apply, _) => {
                let object = self.object(kind, &name, &mark);
                let path = format!("{path}?fieldManager={manager}&force=true");
                let sent = self.send(server, Method::PATCH, &path, Some((APPLY, &object))).await;
                self.written(kind, &name, &sent, &state, None);
            }
            (Verb::Delete, _) => {
                let sent = self.send(server, Method::DELETE, &path, None).await;
                self.deleted(kind, &name, &sent, None);
            }
            (Verb::DeleteRead, Some(object)) => {
                let from = text(&object["metadata"]["resourceVersion"]);
                let options = json!({"preconditions": {"resourceVersion": from}});
                let sent = self.send(server, Method::DELETE, &path, Some((JSON, &options))).await;
                self.deleted(kind, &name, &sent, Some(from));
            }
            (Verb::List, _) => {
                self.list(server, kind, false).await;
            }
            (Verb::ListAny, _) => {
                self.list(server, kind, true).await;
            }
            (Verb::Walk(chunk), _) => self.walk(server, kind, chunk).await,
        }
    }

    fn object(&self, kind: Kind, name: &str, mark: &str) -> Value {
        let metadata = json!({"name": name, "namespace": "sim", "annotations": {MARK: mark}});
        let api_version = kind.api_version();
        match kind {
            Kind::ConfigMap => {
                json!({"apiVersion": api_version, "kind": "ConfigMap", "metadata": metadata, "data": {"v": mark}})
            }
            Kind::Lease => {
                json!({"apiVersion": api_version, "kind": "Lease", "metadata": metadata, "spec": {"holderIdentity": mark}})
            }
            Kind::Widget => {
                json!({"apiVersion": api_version, "kind": "Widget", "metadata": metadata, "spec": {"size": 3}})
            }
        }
    }

    async fn send(&mut self, server: usize, method: Method, path: &str, body: Option<(&str, &Value)>) -> Sent {
        let text = format!("client {} {method} {path} at server {server}", self.number);
        self.shared.trace.line(format_args!("> {text}"));
        let (is_create, begun) = (method == Method::POST, Instant::now());
        let answer = self.client.send(server, method, path, body).await;
        match &answer {
            Ok(answer) => self.shared.trace.line(format_args!("< {text}: {}", answer.status.as_u16())),
            Err(error) => {
                self.shared.record.lock().unanswered += 1;
                self.shared.trace.line(format_args!("< {text}: {error}"));
            }
        }
        Sent { text, is_create, begun, answer }
    }

    /// Records a request with its effect.
    fn note(&self, kind: Kind, name: &str, sent: &Sent, effect: Effect, version: Option<u64>) {
        let status = sent.answer.as_ref().map_or(0, |answer| answer.status.as_u16());
        let text = format!("{} ({status}, {effect:?})", sent.text);
        let operation = Operation { text, begun: sent.begun, ended: Instant::now(), effect };
        let is_create = sent.is_create;
        let request = Request { kind, name: name.to_owned(), operation, version, is_create };
        self.shared.record.lock().requests.push(request);
    }

    async fn get(&mut self, step: &Step, name: &str, path: &str) {
        let sent = self.send(step.server, Method::GET, path, None).await;
        let mut version = None;
        let effect = match &sent.answer {
            Ok(Answer { status: StatusCode::OK, body }) => {
                self.read.insert((step.kind, step.object), body.clone());
                version = version_of(body);
                Effect::Saw(State::Written(mark_of(body)))
            }
            Ok(answer) if is_absent(answer, name) => Effect::SawPresence(false),
            Ok(_) | Err(_) => Effect::Nothing,
        };
        self.note(step.kind, name, &sent, effect, version);
    }

    /// Creates an object. True if it is there afterwards.
    async fn create(&mut self, server: usize, kind: Kind, name: &str, mark: &str) -> bool {
        let object = self.object(kind, name, mark);
        let sent = self.send(server, Method::POST, &kind.path(), Some((JSON, &object))).await;
        let state = State::Written(mark.to_owned());
        let mut version = None;
        let effect = match &sent.answer {
            Ok(Answer { status: StatusCode::CREATED, body }) => {
                version = version_of(body);
                Effect::Made { state, from: None }
            }
            Ok(Answer { status: StatusCode::CONFLICT, .. }) => Effect::SawPresence(true),
            Ok(answer) if is_refusal(answer) => Effect::Nothing,
            Ok(_) | Err(_) => Effect::MayHaveMade(state),
        };
        let is_there = matches!(effect, Effect::Made { .. } | Effect::SawPresence(true));
        self.note(kind, name, &sent, effect, version);
        is_there
    }

    fn written(&self, kind: Kind, name: &str, sent: &Sent, state: &State, from: Option<String>) {
        let mut version = None;
        let effect = match &sent.answer {
            Ok(Answer { status: StatusCode::OK | StatusCode::CREATED, body }) => {
                version = version_of(body);
                Effect::Made { state: state.clone(), from }
            }
            Ok(answer) if is_absent(answer, name) => Effect::SawPresence(false),
            Ok(answer) if is_refusal(answer) => Effect::Nothing,
            Ok(_) | Err(_) => Effect::MayHaveMade(state.clone()),
        };
        self.note(kind, name, sent, effect, version);
    }

    fn deleted(&self, kind: Kind, name: &str, sent: &Sent, from: Option<String>) {
        let effect = match &sent.answer {
            Ok(Answer { status: StatusCode::OK, body }) => {
                let uid = [&body["details"]["uid"], &body["metadata"]["uid"]].into_iter().find_map(Value::as_str);
                Effect::Made { state: State::Deleted(uid.unwrap_or_default().to_owned()), from }
            }
            Ok(answer) if is_absent(answer, name) => Effect::SawPresence(false),
            Ok(answer) if is_refusal(answer) => Effect::Nothing,
            Ok(_) | Err(_) => Effect::MayHaveDeleted,
        };
        self.note(kind, name, sent, effect, None);
    }

    /// Lists a collection. True if it was answered.
    async fn list(&mut self, server: usize, kind: Kind, is_any: bool) -> bool {
        let path = if is_any { format!("{}?resourceVersion=0", kind.path()) } else { kind.path() };
        let before = self.shared.process(server);
        let sent = self.send(server, Method::GET, &path, None).await;
        let Ok(Answer { status: StatusCode::OK, body }) = &sent.answer else { return false };
        let mut listing = Listing {
            text: sent.text.clone(),
            kind,
            begun: sent.begun,
            ended: Instant::now(),
            revision: version_of(body).unwrap_or_default(),
            items: BTreeMap::new(),
            is_any,
            process: (self.shared.process(server) == before).then_some(before),
        };
        add_items(&mut listing.items, body);
        self.shared.record.lock().lists.push(listing);
        true
    }

    /// Lists a collection in chunks, each from the next server.
    async fn walk(&mut self, first: usize, kind: Kind, chunk: u8) {
        let mut listing = Listing {
            text: format!("client {} walks {} in chunks of {chunk}", self.number, kind.plural()),
            kind,
            begun: Instant::now(),
            ended: Instant::now(),
            revision: 0,
            items: BTreeMap::new(),
            is_any: false,
            process: None,
        };
        let mut path = format!("{}?limit={chunk}", kind.path());
        let servers = self.shared.processes.len();
        for place in 0.. {
            let sent = self.send((first + place) % servers, Method::GET, &path, None).await;
            let body = match &sent.answer {
                Ok(Answer { status: StatusCode::OK, body }) => body,
                Ok(Answer { status: StatusCode::GONE, .. }) => {
                    self.shared.record.lock().expired += 1;
                    return;
                }
                Ok(_) | Err(_) => return,
            };
            listing.revision = version_of(body).unwrap_or_default();
            add_items(&mut listing.items, body);
            let token = text(&body["metadata"]["continue"]);
            if token.is_empty() {
                break;
            }
            path = format!("{}?limit={chunk}&continue={token}", kind.path());
            sleep(Duration::from_millis(400)).await;
        }
        listing.ended = Instant::now();
        self.shared.record.lock().lists.push(listing);
    }
}

fn add_items(items: &mut BTreeMap<String, (u64, String)>, list: &Value) {
    for item in list["items"].as_array().into_iter().flatten() {
        items.insert(text(&item["metadata"]["name"]), (version_of(item).unwrap_or_default(), mark_of(item)));
    }
}

/// True if the answer says that there is no such object. A server that does not know the resource says less.
fn is_absent(answer: &Answer, name: &str) -> bool {
    answer.status == StatusCode::NOT_FOUND && answer.body["details"]["name"] == name
}

/// True if the answer says that nothing was written. A 503 of keelson says so, and a 504 does not.
fn is_refusal(answer: &Answer) -> bool {
    answer.status.is_client_error() || answer.status == StatusCode::SERVICE_UNAVAILABLE
}
