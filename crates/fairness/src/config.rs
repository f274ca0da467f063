//! The specs of flow schemas and priority levels, read from objects.
//!
//! Stored objects passed validation, but perhaps by another release. A part that cannot be parsed matches nothing.

use keelson_meta::Object;
use keelson_meta::json::Value;

/// The name of the level and of the flow schema of administrators.
pub const EXEMPT: &str = "exempt";
/// The name of the level and of the flow schema of requests that match no other flow schema.
pub const CATCH_ALL: &str = "catch-all";

/// The default of `matchingPrecedence`.
const DEFAULT_PRECEDENCE: i64 = 1000;
/// The default of `nominalConcurrencyShares`.
const DEFAULT_SHARES: u32 = 30;
/// The defaults of the queues of a level.
const DEFAULT_QUEUING: Queuing = Queuing { queues: 64, hand_size: 8, queue_length: 50 };

/// The spec of a flow schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSchema {
    /// The name.
    pub name: String,
    /// The uid. Empty for a flow schema without an object.
    pub uid: String,
    /// The name of its priority level.
    pub level: String,
    /// The precedence. Flow schemas with a lower value are compared first.
    pub precedence: i64,
    /// The attribute that divides its requests into flows.
    pub distinguisher: Option<Distinguisher>,
    /// The rules. A request that matches one of them matches the flow schema.
    pub rules: Vec<Rule>,
}

/// The attribute that divides the requests of a flow schema into flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distinguisher {
    /// Each user has a flow.
    ByUser,
    /// Each namespace has a flow.
    ByNamespace,
}

/// A rule: subjects, and their requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The subjects.
    pub subjects: Vec<Subject>,
    /// Their requests for resources.
    pub resources: Vec<ResourceRule>,
    /// Their requests for other paths.
    pub pages: Vec<PageRule>,
}

/// A subject. `*` matches all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A user by name.
    User(String),
    /// The members of a group.
    Group(String),
    /// A service account, or all of a namespace.
    ServiceAccount {
        /// The namespace.
        namespace: String,
        /// The name.
        name: String,
    },
}

/// Requests for resources. A list that contains only `*` matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceRule {
    /// Verbs.
    pub verbs: Vec<String>,
    /// API groups.
    pub groups: Vec<String>,
    /// Resources, such as `pods` and `pods/status`.
    pub resources: Vec<String>,
    /// Namespaces.
    pub namespaces: Vec<String>,
    /// True if requests without a namespace match.
    pub cluster_scope: bool,
}

/// Requests for paths that are no resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageRule {
    /// Verbs.
    pub verbs: Vec<String>,
    /// Paths. Each also matches all paths below it.
    pub paths: Vec<String>,
}

/// The spec of a priority level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityLevel {
    /// The name.
    pub name: String,
    /// The uid. Empty for a level without an object.
    pub uid: String,
    /// The shares of the level. The server's seats are divided in proportion to the shares of all levels.
    pub shares: u32,
    /// The percentage of its seats that other levels may borrow.
    pub lendable_percent: u32,
    /// The percentage of its seats that it may borrow in addition. No limit if absent.
    pub borrowing_percent: Option<u32>,
    /// The handling of requests that get no seat at once.
    pub kind: LevelKind,
}

/// The handling of requests that get no seat at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelKind {
    /// Requests never wait for seats.
    Exempt,
    /// Requests are refused.
    Reject,
    /// Requests wait in queues.
    Queue(Queuing),
}

/// The queues of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queuing {
    /// The number of queues.
    pub queues: u32,
    /// The number of queues from which a flow can choose.
    pub hand_size: u32,
    /// The maximum number of waiting requests in each queue.
    pub queue_length: u32,
}

impl FlowSchema {
    /// Parses a FlowSchema object.
    pub fn from_object(object: &Object) -> Self {
        let none = Value::Null;
        let spec = object.get(&["spec"]).unwrap_or(&none);
        Self {
            name: object.name().to_owned(),
            uid: object.uid().to_owned(),
            level: text(&spec["priorityLevelConfiguration"]["name"]),
            precedence: spec["matchingPrecedence"].as_i64().unwrap_or(DEFAULT_PRECEDENCE),
            distinguisher: match spec["distinguisherMethod"]["type"].as_str() {
                Some("ByUser") => Some(Distinguisher::ByUser),
                Some("ByNamespace") => Some(Distinguisher::ByNamespace),
                Some(_) | None => None,
            },
            rules: items(&spec["rules"]).map(Rule::from_value).collect(),
        }
    }
}

impl Rule {
    fn from_value(rule: &Value) -> Self {
        let resources = items(&rule["resourceRules"]).map(|rule| ResourceRule {
            verbs: texts(&rule["verbs"]),
            groups: texts(&rule["apiGroups"]),
            resources: texts(&rule["resources"]),
            namespaces: texts(&rule["namespaces"]),
            cluster_scope: rule["clusterScope"].as_bool().unwrap_or_default(),
        });
        let pages = items(&rule["nonResourceRules"])
            .map(|rule| PageRule { verbs: texts(&rule["verbs"]), paths: texts(&rule["nonResourceURLs"]) });
        Self {
            subjects: items(&rule["subjects"]).filter_map(Subject::from_value).collect(),
            resources: resources.collect(),
            pages: pages.collect(),
        }
    }
}

impl Subject {
    fn from_value(subject: &Value) -> Option<Self> {
        let name = |part: &str| subject[part]["name"].as_str().map(ToOwned::to_owned);
        match subject["kind"].as_str()? {
            "User" => name("user").map(Self::User),
            "Group" => name("group").map(Self::Group),
            "ServiceAccount" => {
                let namespace = text(&subject["serviceAccount"]["namespace"]);
                name("serviceAccount").map(|name| Self::ServiceAccount { namespace, name })
            }
            _ => None,
        }
    }
}

impl PriorityLevel {
    /// Parses a PriorityLevelConfiguration object. Only the level `exempt` is exempt, whatever the object contains.
    pub fn from_object(object: &Object) -> Self {
        let none = Value::Null;
        let spec = object.get(&["spec"]).unwrap_or(&none);
        let is_exempt = object.name() == EXEMPT;
        let part = if is_exempt { &spec["exempt"] } else { &spec["limited"] };
        let response = &part["limitResponse"];
        let queuing = &response["queuing"];
        let kind = match response["type"].as_str() {
            _ if is_exempt => LevelKind::Exempt,
            Some("Queue") => LevelKind::Queue(Queuing {
                queues: number(&queuing["queues"]).unwrap_or(DEFAULT_QUEUING.queues).max(1),
                hand_size: number(&queuing["handSize"]).unwrap_or(DEFAULT_QUEUING.hand_size).max(1),
                queue_length: number(&queuing["queueLengthLimit"]).unwrap_or(DEFAULT_QUEUING.queue_length),
            }),
            Some(_) | None => LevelKind::Reject,
        };
        Self {
            name: object.name().to_owned(),
            uid: object.uid().to_owned(),
            shares: number(&part["nominalConcurrencyShares"]).unwrap_or(if is_exempt { 0 } else { DEFAULT_SHARES }),
            lendable_percent: number(&part["lendablePercent"]).unwrap_or_default().min(100),
            borrowing_percent: number(&part["borrowingLimitPercent"]),
            kind,
        }
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn texts(list: &Value) -> Vec<String> {
    items(list).filter_map(Value::as_str).map(ToOwned::to_owned).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn number(value: &Value) -> Option<u32> {
    value.as_i64().and_then(|number| u32::try_from(number).ok())
}
