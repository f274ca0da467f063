//! Common parts of the cache's tests: a store of pods, and a model that remembers the state at every revision.
//!
//! The model is a plain map, which is easier to verify than the trees that are compared with it.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keelson_cache::{
    Cache, CacheConfig, Collection, CollectionSpec, Entry, Event, IndexTerm, Scope, ScopeTerm, SelectedScope, Snapshot,
};
use keelson_codec::{FieldPath, StoredObject};
use keelson_meta::json::json;
use keelson_meta::{Object, Revision, SystemClock};
use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store, StoreKey, Transaction, Write};

pub const PODS: &str = "/registry/pods/";
pub const NODES: &str = "/registry/minions/";
/// The dispatch field of pods.
pub const NODE: &str = "spec.nodeName";
/// A timeout that only a bug reaches.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The parts of an object that tests vary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    pub app: Option<u8>,
    pub node: Option<u8>,
    pub number: u32,
}

/// One change in the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelChange {
    pub revision: u64,
    pub key: String,
    pub before: Option<Body>,
    pub after: Option<Body>,
}

pub type State = BTreeMap<String, (u64, Body)>;

/// Everything that was written, at every revision.
#[derive(Default)]
pub struct Model {
    pub newest: State,
    pub states: BTreeMap<u64, State>,
    pub events: Vec<ModelChange>,
}

impl Model {
    pub fn at(&self, revision: Revision) -> State {
        self.states.range(..=revision.get()).next_back().map(|(_, state)| state.clone()).unwrap_or_default()
    }

    pub fn apply(&mut self, revision: Revision, key: &str, after: Option<Body>) {
        let revision = revision.get();
        let before = match &after {
            Some(body) => self.newest.insert(key.to_owned(), (revision, body.clone())),
            None => self.newest.remove(key),
        };
        let before = before.map(|(_, body)| body);
        if before.is_some() || after.is_some() {
            self.events.push(ModelChange { revision, key: key.to_owned(), before, after });
            self.states.insert(revision, self.newest.clone());
        }
    }

    pub fn events_after(&self, revision: Revision, scope: &Scope) -> Vec<ModelChange> {
        let from = self.events.partition_point(|event| event.revision <= revision.get());
        self.events[from..].iter().filter(|event| in_scope(event, scope)).cloned().collect()
    }
}

/// The events of pods on a node.
pub fn on_node(node: &str) -> Scope {
    Scope::Field { path: NODE.to_owned(), value: node.to_owned() }
}

/// The events of pods with this term and, if given, this namespace and app.
pub fn selected(term: ScopeTerm, namespace: Option<&str>, app: Option<u8>) -> Scope {
    let (within, label) = (namespace.map(str::to_owned), app.map(|app| format!("a{app}")));
    let demanded = term.clone();
    let test = move |entry: &Entry| {
        let has_term = match &demanded {
            ScopeTerm::Label { key, value } => entry.labels.get(key) == Some(value),
            ScopeTerm::LabelKey(key) => entry.labels.get(key).is_some(),
            ScopeTerm::Field { path, value } => entry.field_named(path) == value,
            ScopeTerm::Name(name) => entry.name() == name,
        };
        has_term
            && within.as_deref().is_none_or(|within| entry.namespace() == Some(within))
            && label.as_deref().is_none_or(|label| entry.labels.get("app") == Some(label))
    };
    let (namespace, name) = (namespace.map(str::to_owned), format!("{app:?}").into());
    Scope::Selected(SelectedScope { term, namespace, name, test: Arc::new(test) })
}

/// Returns true if the model selects a body by a scope.
fn is_selected(key: &str, body: &Body, scope: &SelectedScope) -> bool {
    let app = body.app.map(|app| format!("a{app}"));
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    let has_term = match &scope.term {
        ScopeTerm::Label { key, value } => key == "app" && app.as_ref() == Some(value),
        ScopeTerm::LabelKey(key) => key == "all" || (key == "app" && app.is_some()),
        ScopeTerm::Field { path, value } if path == NODE => {
            body.node.map(|node| format!("n{node}")).unwrap_or_default() == *value
        }
        ScopeTerm::Field { value, .. } => body.number.to_string() == *value,
        ScopeTerm::Name(wanted) => name == wanted,
    };
    has_term
        && scope.namespace.as_deref().is_none_or(|within| namespace == within)
        && (*scope.name == *"None" || *scope.name == *format!("{:?}", body.app))
}

pub fn in_scope(event: &ModelChange, scope: &Scope) -> bool {
    let on = |body: &Option<Body>, value: &str| {
        body.as_ref().is_some_and(|body| body.node.map(|node| format!("n{node}")).unwrap_or_default() == value)
    };
    match scope {
        Scope::All => true,
        Scope::Namespace(namespace) => event.key.split('/').next() == Some(namespace),
        Scope::Object { key } => event.key == *key,
        Scope::Field { value, .. } => on(&event.before, value) || on(&event.after, value),
        Scope::Selected(scope) => {
            [&event.before, &event.after].into_iter().flatten().any(|body| is_selected(&event.key, body, scope))
        }
    }
}

pub fn specs() -> Vec<CollectionSpec> {
    let spec = |prefix: &str, fields: &[&str], dispatch| CollectionSpec {
        prefix: prefix.to_owned(),
        fields: fields.iter().map(|path| FieldPath::parse(path)).collect(),
        dispatch,
        complete: None,
        typed_items: false,
    };
    vec![spec(PODS, &["data.number", "spec.nodeName"], Some(1)), spec(NODES, &[], None)]
}

pub fn config() -> CacheConfig {
    CacheConfig::new(Arc::new(SystemClock))
}

pub async fn start(store: &MemoryStore) -> Arc<Cache> {
    start_with(store, config()).await
}

pub async fn start_with(store: &MemoryStore, config: CacheConfig) -> Arc<Cache> {
    Cache::start(Arc::new(store.clone()), specs(), config).await.unwrap()
}

pub fn value(key: &str, body: &Body) -> bytes::Bytes {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    let mut object = json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": namespace, "uid": "u", "labels": {"all": "x"}},
        "spec": {}, "data": {"number": body.number},
    });
    if let Some(app) = body.app {
        object["metadata"]["labels"]["app"] = json!(format!("a{app}"));
    }
    if let Some(node) = body.node {
        object["spec"]["nodeName"] = json!(format!("n{node}"));
    }
    StoredObject::encode(&Object::from_value(object).unwrap()).bytes().clone()
}

pub fn write(key: &str, body: Option<&Body>) -> Write {
    let path = StoreKey::new(format!("/registry/pods/{key}"));
    match body {
        Some(body) => Write::Put { key: path, value: value(key, body), expires: None },
        None => Write::Delete { key: path },
    }
}

/// Writes one pod, or deletes it. Returns the revision.
pub async fn commit(store: &dyn Store, key: &str, body: Option<&Body>) -> Revision {
    let transaction = Transaction { writes: vec![write(key, body)], ..Transaction::default() };
    store.commit(transaction).await.unwrap().revisions[0]
}

/// Starts a cache and waits for its backfill.
pub async fn start_filled(store: &MemoryStore, config: CacheConfig) -> Arc<Cache> {
    let cache = start_with(store, config).await;
    filled(&cache).await;
    cache
}

/// Waits until the backfill of a cache is complete.
pub async fn filled(cache: &Cache) {
    cache.wait_for_history(Revision::ZERO, PATIENCE).await;
}

pub async fn catch_up(store: &dyn Store, cache: &Cache) {
    cache.wait_for(store.current_revision().await.unwrap(), PATIENCE).await.unwrap();
}

pub fn body_of(entry: &Entry) -> Body {
    let number_in = |text: &str| text.get(1..).and_then(|text| text.parse().ok());
    Body {
        app: entry.labels.get("app").and_then(number_in),
        node: number_in(entry.field_named(NODE)),
        number: entry.field_named("data.number").parse().unwrap(),
    }
}

pub fn happened(event: &Event) -> ModelChange {
    ModelChange {
        revision: event.revision.get(),
        key: event.key().to_owned(),
        before: event.previous.as_deref().map(body_of),
        after: event.current.as_deref().map(body_of),
    }
}

pub fn state_of<'a>(entries: impl Iterator<Item = &'a Arc<Entry>>) -> State {
    entries.map(|entry| (entry.key.to_string(), (entry.revision.get(), body_of(entry)))).collect()
}

/// Checks all queries of a snapshot against the model's state.
pub fn check_snapshot(snapshot: &Snapshot, model: &State) {
    assert_eq!(state_of(snapshot.range("", None)), *model, "at {}", snapshot.revision);
    assert_eq!(snapshot.len(), model.len());
    for (rank, key) in model.keys().enumerate() {
        assert_eq!(snapshot.rank(key), rank);
        assert_eq!(snapshot.nth(rank).map(|entry| &*entry.key), Some(key.as_str()));
    }
    let bounds = ["", "a/", "a0", "a/p5", "b/", "b/p3\0", "zz"];
    for (from, to) in bounds.iter().flat_map(|from| bounds.iter().map(move |to| (*from, *to))) {
        let (to, end) = if to.is_empty() { (None, "\u{10ffff}") } else { (Some(to), to) };
        let within = |key: &str| key >= from && key < end;
        let expected: State =
            model.iter().filter(|(key, _)| within(key)).map(|(k, v)| (k.clone(), v.clone())).collect();
        assert_eq!(snapshot.count(from, to), expected.len());
        assert_eq!(state_of(snapshot.range(from, to)), expected);
        let mut items = Vec::new();
        snapshot.range(from, to).for_each(|entry| entry.object().write_item(entry.revision, &mut items));
        assert_eq!(snapshot.bytes(from, to), items.len() as u64);
        let mut walked = State::new();
        for leaf in snapshot.cursor(from, to) {
            walked.extend(state_of(leaf.entries().iter()));
        }
        assert_eq!(walked, expected);
        check_selections(snapshot, &expected, from, to);
    }
}

fn check_selections(snapshot: &Snapshot, expected: &State, from: &str, to: Option<&str>) {
    let select = |terms: &[IndexTerm<'_>]| state_of(snapshot.select(terms, from, to));
    let matching = |wanted: &dyn Fn(&Body) -> bool| -> State {
        expected.iter().filter(|(_, (_, body))| wanted(body)).map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    let all = state_of(snapshot.range("", None));
    let selects = |term: IndexTerm<'_>, wanted: &dyn Fn(&Body) -> bool| {
        let (selected, matching) = (select(&[term]), matching(wanted));
        // A term that at least one in four objects has may be counted instead of indexed. Then the whole range is
        // selected.
        let may_be_common = all.len() <= 4 * all.values().filter(|(_, body)| wanted(body)).count();
        assert!(selected == matching || may_be_common && selected == *expected, "{selected:?} instead of {matching:?}");
    };
    selects(IndexTerm::Label { key: "app", value: "a1" }, &|body| body.app == Some(1));
    selects(IndexTerm::Field { path: NODE, value: "n1" }, &|body| body.node == Some(1));
    assert_eq!(select(&[IndexTerm::Label { key: "all", value: "x" }]), *expected);
    assert!(select(&[IndexTerm::Label { key: "al", value: "x" }]).is_empty());
    let both = [IndexTerm::Label { key: "app", value: "a1" }, IndexTerm::Field { path: NODE, value: "n1" }];
    let rarest = select(&both);
    assert!(
        matching(&|body| body.app == Some(1) && body.node == Some(1)).iter().all(|found| rarest.contains_key(found.0))
    );
}

pub fn pods(cache: &Cache) -> Arc<Collection> {
    cache.collection(PODS).expect("it is among the specs")
}
