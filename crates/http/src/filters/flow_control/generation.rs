//! A configuration in effect: the flow schemas in matching order, each with its level.
//!
//! A configuration is immutable. A change builds the next configuration and keeps the levels, so that requests keep
//! their seats and places. A level whose object was deleted stays until its last request ends.

use std::collections::BTreeMap;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashMap, HashSet};
use http::header::HeaderValue;
use keelson_access::User;
use keelson_fairness::{
    Attributes, CATCH_ALL, Classifier, Distinguisher, EXEMPT, FlowSchema, LevelKind, LevelSeats, PriorityLevel,
    ResourceAttributes, allocate, defaults, nominal_seats,
};
use tokio::time::Instant;

use super::level::Level;
use crate::request_info::RequestInfo;

/// The ids of mandatory flow schemas and levels without objects.
const FLOW_SCHEMA_UID: HeaderValue = HeaderValue::from_static("6b65656c-736f-4e00-8000-00666c6f7700");
const PRIORITY_LEVEL_UID: HeaderValue = HeaderValue::from_static("6b65656c-736f-4e00-8000-006c6576656c");

/// A flow schema in effect.
#[derive(Debug)]
pub(in crate::filters) struct Flow {
    pub(super) uid: HeaderValue,
    pub(super) level_uid: HeaderValue,
    pub(super) level: Arc<Level>,
    /// The slot of the flow schema in the level's list.
    pub(super) slot: usize,
    pub(super) distinguisher: Option<Distinguisher>,
    /// The hash of its name.
    seed: u64,
    hasher: DefaultHashBuilder,
}

impl Flow {
    /// The hash of a request's flow. Its seed is random, so that no user can choose a name that shares the queues of
    /// another.
    pub(super) fn hash(&self, user: &User, info: &RequestInfo) -> u64 {
        match self.distinguisher {
            None => self.seed,
            Some(Distinguisher::ByUser) => self.hasher.hash_one((self.seed, &*user.name)),
            Some(Distinguisher::ByNamespace) => self.hasher.hash_one((self.seed, info.namespace.as_deref())),
        }
    }
}

/// A configuration.
#[derive(Debug)]
pub(super) struct Generation {
    classifier: Arc<Classifier>,
    flows: Arc<[Arc<Flow>]>,
    /// The levels, sorted by name.
    pub(super) levels: Vec<Arc<Level>>,
}

impl Generation {
    pub(super) fn classify(&self, user: &User, info: &RequestInfo) -> Arc<Flow> {
        let resource = info.is_resource_request.then(|| ResourceAttributes {
            group: &info.group,
            resource: &info.resource,
            subresource: info.subresource.as_deref(),
            namespace: info.namespace.as_deref(),
        });
        let request =
            Attributes { user: &user.name, groups: &user.groups, verb: info.verb.as_str(), path: &info.path, resource };
        self.flows[self.classifier.classify(&request)].clone()
    }

    /// The flow schemas, in matching order.
    pub(super) fn flows(&self) -> impl Iterator<Item = &Flow> {
        self.flows.iter().map(|flow| &**flow)
    }
}

/// The state that changes of the configuration need.
#[derive(Debug)]
pub(super) struct Configured {
    /// The number of the server's seats.
    server: usize,
    started: Instant,
    hasher: DefaultHashBuilder,
    levels: BTreeMap<String, Arc<Level>>,
    pub(super) fair_fraction: f64,
}

impl Configured {
    /// The suggested configuration.
    pub(super) fn suggested(server: usize, started: Instant) -> (Self, Generation) {
        let hasher = DefaultHashBuilder::default();
        let mut configured = Self { server, started, hasher, levels: BTreeMap::new(), fair_fraction: 0.0 };
        let generation = configured.change(defaults::flow_schemas(), defaults::priority_levels());
        (configured, generation)
    }

    /// The next configuration.
    pub(super) fn change(&mut self, mut schemas: Vec<FlowSchema>, mut specs: Vec<PriorityLevel>) -> Generation {
        add_mandatory(&mut schemas, &mut specs);
        let uids: HashMap<String, HeaderValue> =
            specs.iter().map(|spec| (spec.name.clone(), uid(&spec.uid, PRIORITY_LEVEL_UID))).collect();
        self.change_levels(specs);
        schemas.retain(|schema| uids.contains_key(&schema.level));
        Classifier::sort(&mut schemas);
        let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
        for (place, schema) in schemas.iter().enumerate() {
            places.entry(schema.level.as_str()).or_default().push(place);
        }
        let mut flows: Vec<Option<Arc<Flow>>> = vec![None; schemas.len()];
        for (name, level) in &self.levels {
            let places = places.remove(name.as_str()).unwrap_or_default();
            let slots = level.slots(places.iter().map(|place| schemas[*place].name.as_str()));
            for (place, slot) in places.into_iter().zip(slots) {
                let schema = &schemas[place];
                flows[place] = Some(Arc::new(Flow {
                    uid: uid(&schema.uid, FLOW_SCHEMA_UID),
                    level_uid: uids[name.as_str()].clone(),
                    level: level.clone(),
                    slot,
                    distinguisher: schema.distinguisher,
                    seed: self.hasher.hash_one(&*schema.name),
                    hasher: self.hasher.clone(),
                }));
            }
        }
        let flows = flows.into_iter().flatten().collect();
        Generation { classifier: Arc::new(Classifier::new(&schemas)), flows, levels: self.by_name() }
    }

    /// Creates, changes and removes levels, and divides the seats of the server among them.
    fn change_levels(&mut self, mut specs: Vec<PriorityLevel>) {
        let named = specs.len();
        let wanted: HashSet<String> = specs.iter().map(|spec| spec.name.clone()).collect();
        for (_, level) in self.levels.iter().filter(|(name, _)| !wanted.contains(*name)) {
            let state = level.lock();
            if !state.queues.is_idle() {
                specs.push(state.spec.clone());
            }
        }
        let seats = nominal_seats(self.server, &specs);
        let mut before = std::mem::take(&mut self.levels);
        for (place, (spec, seats)) in specs.into_iter().zip(seats).enumerate() {
            let name = spec.name.clone();
            let level = match before.remove(&name) {
                Some(level) => {
                    level.configure(spec, seats, place >= named);
                    level
                }
                None => Arc::new(Level::new(spec, seats, self.started)),
            };
            self.levels.insert(name, level);
        }
    }

    /// Moves lendable seats between levels. Returns the next configuration if levels were removed.
    pub(super) fn adjust(&mut self, current: &Generation) -> Option<Generation> {
        let gone = |level: &Arc<Level>| {
            let state = level.lock();
            state.is_quiescing && state.queues.is_idle()
        };
        let before = self.levels.len();
        self.levels.retain(|_, level| !gone(level));
        let levels = self.by_name();
        let demands: Vec<_> = levels.iter().map(|level| demand(level)).collect();
        let (allocated, fraction) = allocate(&demands);
        for (level, seats) in levels.iter().zip(allocated) {
            level.limit(seats);
        }
        self.fair_fraction = fraction;
        let (classifier, flows) = (current.classifier.clone(), current.flows.clone());
        (self.levels.len() < before).then_some(Generation { classifier, flows, levels })
    }

    fn by_name(&self) -> Vec<Arc<Level>> {
        self.levels.values().cloned().collect()
    }
}

fn demand(level: &Level) -> (LevelKind, LevelSeats, keelson_fairness::LevelDemand) {
    let mut state = level.lock();
    let period = state.queues.end_period(level.now());
    state.period = period;
    state.demand.add(period.average, period.deviation, period.high);
    (state.spec.kind, state.seats, state.demand)
}

/// Adds the mandatory flow schemas and levels that are missing. The flow schema `exempt` always leads to the level
/// `exempt`, whatever its object says.
fn add_mandatory(schemas: &mut Vec<FlowSchema>, specs: &mut Vec<PriorityLevel>) {
    let has_level = |specs: &[PriorityLevel], name: &str| specs.iter().any(|spec| spec.name == name);
    let missing = defaults::priority_levels().into_iter().filter(|spec| defaults::is_mandatory(&spec.name));
    let missing: Vec<_> = missing.filter(|spec| !has_level(specs, &spec.name)).collect();
    specs.extend(missing);
    specs.iter_mut().filter(|spec| spec.name == EXEMPT).for_each(|spec| spec.kind = LevelKind::Exempt);
    for mandatory in defaults::flow_schemas() {
        if !defaults::is_mandatory(&mandatory.name) {
            continue;
        }
        match schemas.iter_mut().find(|schema| schema.name == mandatory.name) {
            // The spec of a mandatory object is fixed, but an object of another release may differ.
            Some(schema) => *schema = FlowSchema { uid: std::mem::take(&mut schema.uid), ..mandatory },
            None => schemas.push(mandatory),
        }
    }
    debug_assert!(has_level(specs, EXEMPT) && has_level(specs, CATCH_ALL));
}

fn uid(uid: &str, default: HeaderValue) -> HeaderValue {
    if uid.is_empty() { default } else { HeaderValue::from_str(uid).unwrap_or(default) }
}
