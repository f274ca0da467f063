//! Measures what an object costs between its bytes and its store: reads one in JSON and prints how long each step
//! takes, in nanoseconds, the median of many runs.
//!
//! `walk` is the whole walk of an object that a client sends, `lacks` the look for missing defaults when a stored one
//! is read. `decision` is what an authorizer takes that knows thousands of roles and bindings. `cargo xtask bench
//! --rows walker,lacks,decision` runs this with a pod.

#![allow(clippy::print_stdout, reason = "a command line tool talks on its streams")]

use std::io::Read as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use keelson_access::{Attributes, Authorizer as _, Rbac, ResourceAttributes, User};
use keelson_builtin::Defaults;
use keelson_cache::{Cache, CacheConfig};
use keelson_codec::{ParsedObject, StoredObject, json};
use keelson_meta::json::{Value, json};
use keelson_meta::options::CreateOptions;
use keelson_meta::random::SystemRandom;
use keelson_meta::{GroupVersion, GroupVersionKind, Object, SystemClock};
use keelson_registry::{Caller, Registry, RegistryConfig};
use keelson_schema::{Schemas, WalkOptions, WalkReport};
use keelson_storage::Store;
use keelson_storage::memory::MemoryStore;

/// The number of runs of each step.
const RUNS: usize = 2_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text)?;
    let object = Object::from_value(json::parse(&text)?.value).ok_or("not an object")?;
    let GroupVersion { group, version } =
        object.api_version().and_then(GroupVersion::parse).ok_or("it names no version")?;
    let schema = Schemas::builtin().kind(&group, &version, object.kind().unwrap_or_default()).ok_or("unknown kind")?;

    let walk = median(|| {
        let mut sent = object.clone();
        let mut report = WalkReport::default();
        let began = Instant::now();
        schema.walk(&mut sent, &mut report, WalkOptions::STORE);
        let took = began.elapsed();
        assert!(report.is_clean(), "{report:?}");
        took
    });
    let kind = GroupVersionKind { group, version, kind: object.kind().unwrap_or_default().to_owned() };
    let mut stored = object.clone();
    let defaults = Defaults::for_kind(&kind).ok_or("the kind has no defaults")?;
    defaults.fill(&mut stored);
    schema.walk(&mut stored, &mut WalkReport::default(), WalkOptions::STORE);
    let stored = ParsedObject::from(StoredObject::encode(&stored));
    let lacks = median(|| {
        let began = Instant::now();
        assert!(!defaults.lacks(&stored), "it should lack nothing");
        began.elapsed()
    });
    println!("bytes {}", stored.object().bytes().len());
    println!("walk {}", walk.as_nanos());
    println!("lacks {}", lacks.as_nanos());
    println!("decision {}", decision()?.as_nanos());
    Ok(())
}

/// The number of roles and bindings, and of bindings of one user.
const ROLES: usize = 2_000;
const BINDINGS: usize = 5_000;
const USERS: usize = 500;
/// The number of decisions timed together, since one takes little longer than reading the clock.
const DECISIONS: u32 = 64;

/// The time of an authorizer's decision about a user with ten bindings, two of them in the namespace of the request.
fn decision() -> Result<Duration, Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let clock = Arc::new(SystemClock);
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let config = CacheConfig::new(clock.clone());
        let cache = Cache::start(store.clone(), keelson_builtin::collection_specs(), config).await?;
        let settings = RegistryConfig::default();
        let registry = keelson_builtin::registry(store, cache.clone(), clock, Arc::new(SystemRandom), settings);
        registry.ensure_system_namespaces().await?;
        for number in 0..ROLES {
            let rules = json!([
                { "apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["get", "list", "watch"], "resourceNames": [format!("n{number}")] },
                { "apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list"] },
            ]);
            make(&registry, "roles", &format!("r{number}"), json!({ "rules": rules })).await?;
        }
        for number in 0..BINDINGS {
            let binding = json!({
                "roleRef": { "apiGroup": RBAC, "kind": "Role", "name": format!("r{}", number % ROLES) },
                "subjects": [{ "apiGroup": RBAC, "kind": "User", "name": format!("u{}", number % USERS) }],
            });
            make(&registry, "rolebindings", &format!("b{number}"), binding).await?;
        }
        let prefixes = keelson_builtin::role_prefixes()?;
        let [a, b, c, d] = &prefixes;
        let rbac = Rbac::new(cache, [a, b, c, d])?;
        let user = User { name: "u7".to_owned(), groups: vec!["system:authenticated".to_owned()], ..User::default() };
        let attributes = Attributes::Resource(ResourceAttributes {
            verb: "get",
            group: "apps",
            version: "v1",
            resource: "deployments",
            namespace: Some("default"),
            name: Some("d"),
            ..ResourceAttributes::default()
        });
        let is_allowed = rbac.authorize(&user, &attributes).await.is_allowed();
        let refused = User { name: "nobody".to_owned(), ..user.clone() };
        assert!(is_allowed && !rbac.authorize(&refused, &attributes).await.is_allowed(), "the bindings count");
        Ok(median(|| {
            let began = Instant::now();
            for _ in 0..DECISIONS {
                let decided = std::hint::black_box(rbac.authorize(&user, &attributes)).now_or_never();
                assert!(decided.is_some_and(|verdict| verdict.is_allowed()), "it decides at once");
            }
            began.elapsed() / DECISIONS
        }))
    })
}

const RBAC: &str = "rbac.authorization.k8s.io";

async fn make(
    registry: &Registry,
    plural: &str,
    name: &str,
    mut object: Value,
) -> Result<(), Box<dyn std::error::Error>> {
    let surface = registry.surface();
    let target = surface.target(RBAC, plural)?.in_namespace(Some("default"));
    if let Some(members) = object.as_object_mut() {
        members.insert("metadata", json!({ "name": name }));
    }
    let mut object = Object::from_value(object).ok_or("not an object")?;
    keelson_registry::fit(&target, &mut object)?;
    registry.create(&target, object, &Caller::server(), &CreateOptions::default()).await?;
    Ok(())
}

fn median(mut run: impl FnMut() -> Duration) -> Duration {
    let mut times: Vec<Duration> = (0..RUNS).map(|_| run()).collect();
    times.sort_unstable();
    times[RUNS / 2]
}
