//! The generated workload: clients read and write a few objects at once, and a watch sees all of it.
//!
//! The operations come from the seed alone. `history.rs` checks the history.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use http::{Method, StatusCode};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

use super::{CONCEPTS, Need, Rule};
use crate::history::{Effect, Event, History, Operation, State};
use crate::lab::{Checked, Fault, Lab, MARK, hold, version_of};
use crate::server::{Ask, Exchange, Watch};

/// The clients, and the objects that they share.
const CLIENTS: u32 = 6;
const OBJECTS: u32 = 5;
/// The object whose creation ends the watch.
const LAST: &str = "workload-last";
/// The time that the watch may be silent before the end.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "workload.watched",
        text: "a watch has each acknowledged write of concurrent clients once, and nothing else, at increasing versions",
        source: CONCEPTS,
        needs: Need::Writes,
        check: |lab| Box::pin(judged(lab, History::check_events)),
    },
    Rule {
        id: "workload.linearizable",
        text: "concurrent reads and writes of an object are linearizable, and conditional writes replace what they name",
        source: CONCEPTS,
        needs: Need::Writes,
        check: |lab| Box::pin(judged(lab, History::check_order)),
    },
];

/// The histories of all objects, by name.
pub(crate) type Histories = HashMap<String, History>;

async fn judged(lab: &Lab, check: fn(&History) -> Result<(), String>) -> Checked {
    let histories = lab.histories.get_or_try_init(|| run(lab)).await?;
    for (name, history) in histories {
        check(history).map_err(|why| Fault::Broken(format!("{name}, with seed {}: {why}", lab.seed)))?;
    }
    Ok(())
}

/// Runs the workload.
async fn run(lab: &Lab) -> Result<Histories, Fault> {
    let before = version_of(&lab.get(format!("{}?limit=1", lab.maps())).await?)?;
    let query = format!("watch=1&labelSelector=app%3Dworkload&resourceVersion={before}&timeoutSeconds=3000");
    let watch = lab.watch(format!("{}?{query}", lab.maps())).await?;
    let clients = (0..CLIENTS).map(|number| Client::new(lab, number).run(lab.operations / CLIENTS));
    let work = async {
        let done = try_join_all(clients).await?;
        lab.create(LAST, &json!({"app": "workload"})).await?;
        Ok(done)
    };
    let (operations, events) = futures::try_join!(work, read(watch))?;
    let mut histories = events;
    for (name, operation) in operations.into_iter().flatten() {
        histories.entry(name).or_default().operations.push(operation);
    }
    Ok(histories)
}

/// Reads a watch up to the last object.
async fn read(mut watch: Watch) -> Result<Histories, Fault> {
    let mut histories = Histories::new();
    loop {
        let event = watch.next_within(PATIENCE).await?;
        let event =
            event.ok_or_else(|| Fault::Broken("the watch ended or fell silent before the last write".to_owned()))?;
        let (kind, object) = (event["type"].as_str().unwrap_or_default(), &event["object"]);
        hold(kind != "ERROR", || format!("the watch ended with {object}"))?;
        let name = text(&object["metadata"]["name"]);
        if name == LAST {
            return Ok(histories);
        }
        let state = if kind == "DELETED" { State::Deleted(text(&object["metadata"]["uid"])) } else { written(object) };
        let version = version_of(object)?;
        histories.entry(name).or_default().events.push(Event { state, version });
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn written(object: &Value) -> State {
    State::Written(text(&object["metadata"]["annotations"][MARK]))
}

/// One client of the workload.
struct Client<'l> {
    lab: &'l Lab,
    number: u32,
    random: StdRng,
    /// The last read object of each name, for conditional updates.
    read: HashMap<String, Value>,
}

impl<'l> Client<'l> {
    fn new(lab: &'l Lab, number: u32) -> Self {
        let random = StdRng::seed_from_u64(lab.seed.wrapping_add(u64::from(number) << 32));
        Self { lab, number, random, read: HashMap::new() }
    }

    /// Sends this many requests. Returns them with the names of their objects.
    async fn run(mut self, count: u32) -> Result<Vec<(String, Operation)>, Fault> {
        let mut operations = Vec::new();
        for step in 0..count {
            let name = format!("workload-{}", self.random.random_range(0..OBJECTS));
            let mark = format!("{}-{step}", self.number);
            let operation = match self.random.random_range(0..10) {
                0..3 => self.get(&name).await?,
                3..5 => self.create(&name, mark).await?,
                5..7 => self.patch(&name, mark).await?,
                7..9 => self.update(&name, mark).await?,
                _ => self.delete(&name).await?,
            };
            operations.push((name, operation));
        }
        Ok(operations)
    }

    async fn get(&mut self, name: &str) -> Result<Operation, Fault> {
        let sent = Sent::begin(self.lab, Ask::get(self.path(name))).await;
        Ok(sent.operation(
            |exchange| {
                if exchange.status == StatusCode::OK {
                    self.read.insert(name.to_owned(), exchange.body.clone());
                    return Some(Effect::Saw(written(&exchange.body)));
                }
                None
            },
            Effect::Nothing,
        ))
    }

    async fn create(&mut self, name: &str, mark: String) -> Result<Operation, Fault> {
        let metadata = json!({"name": name, "labels": {"app": "workload"}, "annotations": {MARK: &mark}});
        let ask = Ask::new(Method::POST, self.lab.maps()).with(json!({"metadata": metadata}));
        let sent = Sent::begin(self.lab, ask).await;
        let state = State::Written(mark);
        Ok(sent.operation(
            |exchange| match exchange.status {
                StatusCode::CREATED => Some(Effect::Made { state: state.clone(), from: None }),
                StatusCode::CONFLICT => Some(Effect::SawPresence(true)),
                _ => None,
            },
            Effect::MayHaveMade(state.clone()),
        ))
    }

    async fn patch(&mut self, name: &str, mark: String) -> Result<Operation, Fault> {
        let change = json!({"metadata": {"annotations": {MARK: &mark}}});
        let sent = Sent::begin(self.lab, Ask::merge(self.path(name), change)).await;
        let state = State::Written(mark);
        Ok(sent.operation(
            |exchange| (exchange.status == StatusCode::OK).then(|| Effect::Made { state: state.clone(), from: None }),
            Effect::MayHaveMade(state.clone()),
        ))
    }

    /// Updates the object as it was last read.
    async fn update(&mut self, name: &str, mark: String) -> Result<Operation, Fault> {
        let Some(mut object) = self.read.remove(name) else { return self.get(name).await };
        let from = version_of(&object)?;
        object["metadata"]["annotations"][MARK] = json!(&mark);
        let sent = Sent::begin(self.lab, Ask::new(Method::PUT, self.path(name)).with(object)).await;
        let state = State::Written(mark);
        Ok(sent.operation(
            |exchange| match exchange.status {
                StatusCode::OK => Some(Effect::Made { state: state.clone(), from: Some(from.clone()) }),
                StatusCode::CONFLICT => Some(Effect::Nothing),
                _ => None,
            },
            Effect::MayHaveMade(state.clone()),
        ))
    }

    async fn delete(&mut self, name: &str) -> Result<Operation, Fault> {
        let sent = Sent::begin(self.lab, Ask::new(Method::DELETE, self.path(name))).await;
        Ok(sent.operation(
            |exchange| {
                // A server answers with a status or with the object.
                let uid = [&exchange.body["details"]["uid"], &exchange.body["metadata"]["uid"]];
                let uid = uid.into_iter().find_map(Value::as_str).map(str::to_owned);
                let state = State::Deleted(uid?);
                (exchange.status == StatusCode::OK).then_some(Effect::Made { state, from: None })
            },
            Effect::MayHaveDeleted,
        ))
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.lab.maps())
    }
}

/// A request that was sent, with its answer if there was one.
struct Sent {
    text: String,
    begun: Instant,
    ended: Instant,
    answer: Result<Exchange, Fault>,
}

impl Sent {
    async fn begin(lab: &Lab, ask: Ask) -> Self {
        let (text, begun) = (format!("{} {}", ask.method, ask.path), Instant::now());
        let answer = lab.send(ask).await;
        let (begun, ended) = answer.as_ref().map_or((begun, Instant::now()), |answer| (answer.begun, answer.ended));
        Self { text, begun, ended, answer }
    }

    /// The operation. `known` reads an answer. `unknown` is the effect without an answer, or with a server error.
    fn operation(self, known: impl FnOnce(&Exchange) -> Option<Effect>, unknown: Effect) -> Operation {
        let (status, effect) = match &self.answer {
            Ok(exchange) if exchange.status == StatusCode::NOT_FOUND => (404, Effect::SawPresence(false)),
            Ok(exchange) if exchange.status.is_server_error() => (exchange.status.as_u16(), unknown),
            Ok(exchange) => (exchange.status.as_u16(), known(exchange).unwrap_or(Effect::Nothing)),
            Err(_) => (0, unknown),
        };
        let text = format!("{} ({status}, {effect:?})", self.text);
        Operation { text, begun: self.begun, ended: self.ended, effect }
    }
}
