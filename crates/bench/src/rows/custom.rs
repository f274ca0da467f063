//! Custom resources of the size of pods, on a separate server.
//!
//! Their definition has a schema with defaults and five rules. Creates are compared with config maps of the same size,
//! which have neither. The lists are comparable with those of pods.

use std::rc::Rc;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::definitions::define;
use crate::bench::{Bench, Meter, create_namespace, populate};
use crate::figure::{Observed, Quantity, median_of};
use crate::load::{Until, load};
use crate::pods::{Pods, STORED_SIZE};
use crate::rows::{lists, watch};
use crate::server::Server;
use crate::wire::Request;

/// The number of the first directory of these rows.
const DIRECTORY: usize = 4_000;
const CREATING: usize = 48;
/// The number of objects that each side creates in a round.
const ROUND: usize = 5_000;
/// The size of a stored object without its text, in bytes.
const FRAME: usize = 2_300;
const VARIABLES: usize = 12;
/// The number of watches of one collection, and its namespace.
const WATCHERS: usize = 500;
const WATCHED: &str = "bench-watched";
const COLLECTION: &str = "/apis/bench.example.com/v1/workloads";

/// The kind of figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Custom {
    /// The rate of creates relative to config maps.
    Create,
    /// The whole list.
    List,
    /// The median time of one chunk.
    Chunk,
    /// The CPU time of an event with many watches.
    Watch,
}

/// Measures one of the figures on a separate filled server.
pub(super) async fn figure(bench: &Bench, which: Custom) -> Result<(Quantity, Observed)> {
    let server = bench.fresh(DIRECTORY + which as usize).await?;
    let pods = Rc::new(populate(&server.client, bench.pods.count).await?);
    define(&server.client, definition().to_string(), COLLECTION).await?;
    let figure = match which {
        Custom::Create => create(bench.runs, &server, &pods).await?,
        Custom::List => {
            fill(&server, &pods).await?;
            lists::whole_of(&server, &Request::get(COLLECTION), bench.runs, pods.count).await?
        }
        Custom::Chunk => {
            fill(&server, &pods).await?;
            lists::chunk_of(&server, COLLECTION, bench.runs, pods.count).await?
        }
        Custom::Watch => {
            fill(&server, &pods).await?;
            create_namespace(&server.client, WATCHED).await?;
            let place = format!("/apis/bench.example.com/v1/namespaces/{WATCHED}/workloads");
            watch::custom(&server, &place, WATCHERS, bench.runs).await?
        }
    };
    server.stop().await?;
    Ok(figure)
}

async fn fill(server: &Server, pods: &Rc<Pods>) -> Result<()> {
    let (created, workloads) = (pods.clone(), Workloads::new()?);
    let create = move |number| Request::post(collection(&created, number), workloads.body(&created, number));
    load(&server.client, CREATING, Until::Count(pods.count), create).await?;
    Ok(())
}

/// Rounds alternate, since machines are shared and noisy, and each pair of adjacent rounds gives a ratio.
async fn create(rounds: usize, server: &Server, pods: &Rc<Pods>) -> Result<(Quantity, Observed)> {
    let mut runs = Vec::new();
    let workloads = Rc::new(Workloads::new()?);
    for round in 0..rounds {
        let first = round * ROUND;
        let created = pods.clone();
        let map = move |number| Request::post(created.config_maps(first + number), created.config_map(first + number));
        let maps = load(&server.client, CREATING, Until::Count(ROUND), map).await?.rate();
        let (created, workloads) = (pods.clone(), workloads.clone());
        let custom =
            move |number| Request::post(collection(&created, first + number), workloads.body(&created, first + number));
        let meter = Meter::start(&server.process)?;
        let done = load(&server.client, CREATING, Until::Count(ROUND), custom).await?;
        let note = format!("{:.0} /s, config maps {maps:.0} /s", done.rate());
        runs.push((Quantity::Ratio(done.rate() / maps), meter.stop(Observed { note: Some(note), ..done.seen() })?));
    }
    Ok(median_of(runs))
}

/// The path for creating object `number`.
fn collection(pods: &Pods, number: usize) -> String {
    format!("/apis/bench.example.com/v1/namespaces/{}/workloads", pods.namespace(number))
}

/// The bodies of the objects. The template is prepared once and only the differing places are filled in, at the cost of
/// a config map.
struct Workloads {
    /// The template, split at the name, the number and the text.
    pieces: [String; 4],
}

impl Workloads {
    fn new() -> Result<Self> {
        let template = template().to_string();
        let (head, rest) = template.split_once("@name@").context("the template has a name")?;
        let (labels, rest) = rest.split_once("@number@").context("the template has a number")?;
        let (spec, tail) = rest.split_once("@text@").context("the template has a text")?;
        Ok(Self { pieces: [head, labels, spec, tail].map(str::to_owned) })
    }

    /// The body of object `number`.
    fn body(&self, pods: &Pods, number: usize) -> Vec<u8> {
        let [head, labels, spec, tail] = &self.pieces;
        let text = pods.text(number, STORED_SIZE - FRAME);
        format!("{head}{}{labels}{number}{spec}{text}{tail}", pods.name(number)).into_bytes()
    }
}

/// The template omits the fields that have defaults.
fn template() -> Value {
    let variable = |n: usize| json!({"name": format!("VARIABLE_{n}"), "value": format!("value-{n}")});
    // The parts are in the order of serialization: metadata before the spec, and the description first in the spec.
    json!({
        "apiVersion": "bench.example.com/v1",
        "kind": "Workload",
        "metadata": {"name": "@name@", "labels": {"number": "@number@"}},
        "spec": {
            "description": "@text@",
            "image": "example.com/bench/workload:v1.8.2",
            "minReplicas": 1,
            "maxReplicas": 5,
            "schedule": "*/5 * * * *",
            "ports": [{"name": "http", "port": 8080}, {"name": "metrics", "port": 9090}],
            "env": (0..VARIABLES).map(variable).collect::<Vec<Value>>(),
            "resources": {"limits": {"cpu": "500m", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
        },
    })
}

fn definition() -> Value {
    let text = |most: usize| json!({"type": "string", "maxLength": most});
    let quantities = json!({
        "type": "object",
        "additionalProperties": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true},
    });
    let port = json!({
        "type": "object",
        "required": ["name", "port"],
        "properties": {
            "name": text(63),
            "port": {"type": "integer", "minimum": 1, "maximum": 65535},
            "protocol": {"type": "string", "enum": ["TCP", "UDP"], "default": "TCP"},
        },
        "x-kubernetes-validations": [{"rule": "self.port >= 1024 || self.protocol == 'TCP'"}],
    });
    let variable = json!({
        "type": "object",
        "required": ["name"],
        "properties": {"name": text(128), "value": text(1024)},
    });
    let spec = json!({
        "type": "object",
        "required": ["image"],
        "properties": {
            "image": {"type": "string", "maxLength": 256, "pattern": "^[a-z0-9./:_-]+$"},
            "minReplicas": {"type": "integer", "minimum": 0, "default": 1},
            "maxReplicas": {"type": "integer", "minimum": 0, "default": 10},
            "schedule": text(64),
            "description": text(16_384),
            "policy": {"type": "string", "enum": ["Always", "Never"], "default": "Always"},
            "ports": {
                "type": "array", "maxItems": 16, "items": port,
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            },
            "env": {
                "type": "array", "maxItems": 64, "items": variable,
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            },
            "resources": {"type": "object", "properties": {"limits": quantities.clone(), "requests": quantities}},
        },
        "x-kubernetes-validations": [
            {"rule": "self.minReplicas <= self.maxReplicas", "message": "minReplicas is above maxReplicas"},
            {"rule": "!has(self.schedule) || self.schedule.split(' ').size() == 5"},
            {"rule": "self.policy == 'Always' || self.maxReplicas > 0"},
            {"rule": "!has(self.env) || self.env.all(variable, variable.name.startsWith('VARIABLE_'))"},
        ],
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "workloads.bench.example.com"},
        "spec": {
            "group": "bench.example.com",
            "scope": "Namespaced",
            "names": {"plural": "workloads", "singular": "workload", "kind": "Workload"},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
            }],
        },
    })
}
