//! The plain model: every pod at every revision, and selectors evaluated on it alone.
//!
//! The model has no caches, indexes or tokens. Keys are compared bytewise, as in `BTreeMap<String, _>`.

use std::collections::BTreeMap;

use keelson_cache::Entry;
use keelson_meta::Object;
use keelson_meta::json::{Value, json};
use proptest::prelude::*;

/// Namespaces whose keys interleave: `q-b/` before `q/` before `q1/`.
pub(crate) const NAMESPACES: [&str; 3] = ["q", "q-b", "q1"];

/// The fields of a pod that the tests vary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pod {
    pub(crate) app: Option<u8>,
    pub(crate) node: Option<u8>,
    pub(crate) number: u32,
}

/// A pod and the revision that wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) revision: u64,
    pub(crate) pod: Pod,
}

/// All pods at one revision, by `<namespace>/<name>`.
pub(crate) type State = BTreeMap<String, Stored>;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) key: String,
    pub(crate) before: Option<Pod>,
    pub(crate) after: Option<Pod>,
}

/// The event of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) kind: &'static str,
    pub(crate) key: String,
    pub(crate) stored: Stored,
}

/// Everything that happened.
#[derive(Default)]
pub(crate) struct Model {
    states: BTreeMap<u64, State>,
    changes: Vec<Change>,
    newest: State,
}

impl Model {
    pub(crate) fn record(&mut self, revision: u64, key: &str, after: Option<Pod>) {
        assert!(self.changes.last().is_none_or(|last| last.revision < revision), "revisions ascend");
        let stored = after.clone().map(|pod| Stored { revision, pod });
        let before = match stored {
            Some(stored) => self.newest.insert(key.to_owned(), stored),
            None => self.newest.remove(key),
        };
        let before = before.map(|stored| stored.pod);
        self.changes.push(Change { revision, key: key.to_owned(), before, after });
        self.states.insert(revision, self.newest.clone());
    }

    pub(crate) fn newest(&self) -> &State {
        &self.newest
    }

    pub(crate) fn at(&self, revision: u64) -> State {
        self.states.range(..=revision).next_back().map(|(_, state)| state.clone()).unwrap_or_default()
    }

    /// The objects of a list at a revision.
    pub(crate) fn listed(&self, revision: u64, place: RequestPath, selector: &Selector) -> Vec<(String, Stored)> {
        let state = self.at(revision);
        state.into_iter().filter(|(key, stored)| place.holds(key) && selector.matches(key, &stored.pod)).collect()
    }

    /// The events of a watch after a revision.
    pub(crate) fn told(&self, after: u64, place: RequestPath, selector: &Selector) -> Vec<Told> {
        let from = self.changes.partition_point(|change| change.revision <= after);
        self.changes[from..].iter().filter_map(|change| change.told(place, selector)).collect()
    }
}

impl Change {
    fn told(&self, place: RequestPath, selector: &Selector) -> Option<Told> {
        let selected = |pod: &&Pod| place.holds(&self.key) && selector.matches(&self.key, pod);
        let before = self.before.as_ref().filter(selected);
        let after = self.after.as_ref().filter(selected);
        let (kind, pod) = match (before, after) {
            (None, None) => return None,
            (None, Some(pod)) => ("ADDED", pod),
            (Some(_), Some(pod)) => ("MODIFIED", pod),
            (Some(pod), None) => ("DELETED", pod),
        };
        let stored = Stored { revision: self.revision, pod: pod.clone() };
        Some(Told { kind, key: self.key.clone(), stored })
    }
}

impl Pod {
    /// The pod as a client sends it. The varied fields are last, so that a patch leaves the same bytes as a
    /// replacement.
    pub(crate) fn object(&self, key: &str) -> Object {
        let (namespace, name) = key.split_once('/').unwrap();
        let mut object = json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {
                "name": name, "namespace": namespace,
                "labels": {"all": "x"}, "annotations": {"number": self.number.to_string()},
            },
            // As from a client that has read it: with the fields that admission adds.
            "spec": {"containers": [{"name": "main", "image": "main"}], "priority": 0, "preemptionPolicy": "PreemptLowerPriority", "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ]},
        });
        if let Some(app) = self.app {
            object["metadata"]["labels"]["app"] = json!(format!("a{app}"));
        }
        if let Some(node) = self.node {
            object["spec"]["nodeName"] = json!(format!("n{node}"));
        }
        Object::from_value(object).unwrap()
    }

    /// The merge patch that makes any pod this one.
    pub(crate) fn merge_patch(&self) -> Value {
        json!({
            "metadata": {
                "labels": {"app": self.app.map(|app| format!("a{app}"))},
                "annotations": {"number": self.number.to_string()},
            },
            "spec": {"nodeName": self.node.map(|node| format!("n{node}"))},
        })
    }

    pub(crate) fn read(object: &Object) -> Self {
        let number = |text: Option<&str>| text.and_then(|text| text[1..].parse().ok());
        let app = object.labels().find(|(key, _)| *key == "app").map(|(_, value)| value);
        let written = object.annotations().find(|(key, _)| *key == "number").unwrap().1;
        Self {
            app: number(app),
            node: number(object.get(&["spec", "nodeName"]).and_then(Value::as_str)),
            number: written.parse().unwrap(),
        }
    }
}

/// The key and content of an object as a client reads it.
pub(crate) fn read(object: &Object) -> (String, Stored) {
    assert_eq!(object.kind(), Some("Pod"));
    let stored = Stored { revision: object.resource_version().parse().unwrap(), pod: Pod::read(object) };
    (format!("{}/{}", object.namespace(), object.name()), stored)
}

/// The key and content of an entry, read from its bytes rather than from what the cache keeps beside them.
pub(crate) fn read_entry(entry: &Entry) -> (String, Stored) {
    let read = read(&entry.object().decode(entry.revision));
    assert_eq!(read.0, *entry.key);
    read
}

/// The URL of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestPath {
    Everywhere,
    Namespace(&'static str),
}

impl RequestPath {
    pub(crate) fn namespace(self) -> Option<&'static str> {
        match self {
            Self::Everywhere => None,
            Self::Namespace(namespace) => Some(namespace),
        }
    }

    /// The prefix of every key of the URL.
    pub(crate) fn prefix(self) -> String {
        self.namespace().map(|namespace| format!("{namespace}/")).unwrap_or_default()
    }

    fn holds(self, key: &str) -> bool {
        key.starts_with(&self.prefix())
    }
}

/// Label and field selectors.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Labels,
    fields: Vec<Field>,
    /// The filter of a query: pods with a larger number.
    pub(crate) above: Option<u32>,
}

#[derive(Clone, Debug, Default)]
enum Labels {
    #[default]
    Any,
    App(u8),
    AppIn(u8, u8),
    AppNot(u8),
    HasApp,
    NoApp,
    Everyone,
}

#[derive(Clone, Debug)]
enum Field {
    Namespace(&'static str),
    NotNamespace(&'static str),
    Name(String),
    NotName(String),
    Node(u8),
    NotNode(u8),
    NoNode,
}

impl Selector {
    pub(crate) fn is_everything(&self) -> bool {
        matches!(self.labels, Labels::Any) && self.fields.is_empty()
    }

    /// The parameter of a query with a `&` before it, if there is one.
    pub(crate) fn filter(&self) -> String {
        let filter = |above| format!("&keelson.io/filter=metadata.annotations.number > '{above}'");
        self.above.map(filter).unwrap_or_default()
    }

    /// As query parameters, each with a `&` before it.
    pub(crate) fn query(&self) -> String {
        let labels = match self.labels {
            Labels::Any => String::new(),
            Labels::App(app) => format!("app=a{app}"),
            Labels::AppIn(one, other) => format!("app+in+(a{one},a{other})"),
            Labels::AppNot(app) => format!("app!=a{app}"),
            Labels::HasApp => "app".to_owned(),
            Labels::NoApp => "!app".to_owned(),
            Labels::Everyone => "all=x".to_owned(),
        };
        let fields = self.fields.iter().map(|field| match field {
            Field::Namespace(namespace) => format!("metadata.namespace={namespace}"),
            Field::NotNamespace(namespace) => format!("metadata.namespace!={namespace}"),
            Field::Name(name) => format!("metadata.name={name}"),
            Field::NotName(name) => format!("metadata.name!={name}"),
            Field::Node(node) => format!("spec.nodeName=n{node}"),
            Field::NotNode(node) => format!("spec.nodeName!=n{node}"),
            Field::NoNode => "spec.nodeName=".to_owned(),
        });
        format!("&labelSelector={labels}&fieldSelector={}", fields.collect::<Vec<_>>().join(","))
    }

    pub(crate) fn matches(&self, key: &str, pod: &Pod) -> bool {
        let labels = match self.labels {
            Labels::Any | Labels::Everyone => true,
            Labels::App(app) => pod.app == Some(app),
            Labels::AppIn(one, other) => pod.app == Some(one) || pod.app == Some(other),
            Labels::AppNot(app) => pod.app != Some(app),
            Labels::HasApp => pod.app.is_some(),
            Labels::NoApp => pod.app.is_none(),
        };
        let (in_namespace, named) = key.split_once('/').unwrap();
        labels
            && self.above.is_none_or(|above| pod.number.to_string() > above.to_string())
            && self.fields.iter().all(|field| match field {
                Field::Namespace(namespace) => in_namespace == *namespace,
                Field::NotNamespace(namespace) => in_namespace != *namespace,
                Field::Name(name) => named == name,
                Field::NotName(name) => named != name,
                Field::Node(node) => pod.node == Some(*node),
                Field::NotNode(node) => pod.node != Some(*node),
                Field::NoNode => pod.node.is_none(),
            })
    }
}

pub(crate) fn any_pod() -> impl Strategy<Value = Pod> {
    let some = || prop::option::weighted(0.8, 0..3u8);
    (some(), some(), 0..4u32).prop_map(|(app, node, number)| Pod { app, node, number })
}

pub(crate) fn any_key() -> impl Strategy<Value = String> {
    (prop::sample::select(&NAMESPACES[..]), any_name()).prop_map(|(namespace, name)| format!("{namespace}/{name}"))
}

/// Names around which order can go wrong: one is the start of another, and `-` and `.` sort before digits.
fn any_name() -> impl Strategy<Value = String> {
    prop::sample::select(&["a", "a-b", "a.b", "a0", "aa", "b", "x", "x-1", "x1", "z"][..]).prop_map(str::to_owned)
}

pub(crate) fn any_place() -> impl Strategy<Value = RequestPath> {
    prop_oneof![Just(RequestPath::Everywhere), prop::sample::select(&NAMESPACES[..]).prop_map(RequestPath::Namespace)]
}

pub(crate) fn any_selector() -> impl Strategy<Value = Selector> {
    let labels = prop_oneof![
        6 => Just(Labels::Any),
        2 => (0..3u8).prop_map(Labels::App),
        1 => (0..3u8, 0..3u8).prop_map(|(one, other)| Labels::AppIn(one, other)),
        1 => (0..3u8).prop_map(Labels::AppNot),
        1 => Just(Labels::HasApp),
        1 => Just(Labels::NoApp),
        1 => Just(Labels::Everyone),
    ];
    let namespace = || prop::sample::select(&NAMESPACES[..]);
    let field = prop_oneof![
        3 => namespace().prop_map(Field::Namespace),
        1 => namespace().prop_map(Field::NotNamespace),
        1 => any_name().prop_map(Field::Name),
        1 => any_name().prop_map(Field::NotName),
        2 => (0..3u8).prop_map(Field::Node),
        1 => (0..3u8).prop_map(Field::NotNode),
        1 => Just(Field::NoNode),
    ];
    let fields = prop_oneof![4 => Just(0..1usize), 4 => Just(1..2), 1 => Just(2..3)]
        .prop_flat_map(move |count| prop::collection::vec(field.clone(), count));
    (labels, fields).prop_map(|(labels, fields)| Selector { labels, fields, above: None })
}
