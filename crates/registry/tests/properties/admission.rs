//! The stages of a write as plugins see them: their order, the permitted changes, and the result of a write while a
//! plugin waits.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::future::{BoxFuture, Either, ready};
use keelson_access::{Attributes, Authorizer, Decision, PendingVerdict, User, Verdict};
use keelson_cache::{Cache, CacheConfig};
use keelson_meta::clock::ManualClock;
use keelson_meta::json::{Value, json};
use keelson_meta::options::{CreateOptions, DeleteOptions, GetOptions, PatchOptions, UpdateOptions};
use keelson_meta::random::SeededRandom;
use keelson_meta::{ApiError, GroupResource, Object};
use keelson_registry::{
    Admission, AdmissionAttributes, AdmissionChain, Caller, Mutation, Patch, PatchKind, Registry, RegistryConfig,
    Target, Warnings, WriteResult,
};
use keelson_storage::faulty::{Fault, FaultyStore};
use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store as _, StoreKey, Transaction};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::cluster::{options, run, run_paused, specs, target};

/// The field manager whose writes the plugin delays.
const SLOW: &str = "slow";

/// A plugin with programmed results, which records its calls.
#[derive(Debug)]
struct Plugin {
    asked: Mutex<Vec<String>>,
    change: fn(&mut Object),
    /// The call that it refuses.
    refuses: Mutex<&'static str>,
    /// Writes of [`SLOW`] add a permit to the first during validation, and wait for one of the second.
    reached: Semaphore,
    let_on: Semaphore,
}

impl Plugin {
    fn changing(change: fn(&mut Object)) -> Arc<Self> {
        let (asked, refuses) = (Mutex::default(), Mutex::new("none"));
        Arc::new(Self { asked, change, refuses, reached: Semaphore::new(0), let_on: Semaphore::new(0) })
    }

    fn note(&self, stage: &str, attributes: &AdmissionAttributes<'_>, object: Option<&Object>) -> Result<(), ApiError> {
        let AdmissionAttributes { caller, operation, target, name, old, .. } = attributes;
        let endpoint = target.subresource_name().map(|name| format!("/{name}")).unwrap_or_default();
        let question = format!("{stage} {} {}{endpoint}", operation.as_str(), target.resource.plural);
        let refused = question == *self.refuses.lock();
        let seen = object.map(|object| {
            let known = |value: bool, text: &'static str| if value { text } else { "" };
            let owned = object.meta("managedFields").is_some();
            format!(" {}{}{}", object.name(), known(!object.uid().is_empty(), "+uid"), known(owned, "+managed"))
        });
        let old = old.map(|old| format!(" old:{}", old.get(&["data", "a"]).unwrap_or(&Value::Null)));
        let dry = if caller.is_dry_run() { " dry" } else { "" };
        let detail = format!("{question} {name:?}{}{}{dry}", seen.unwrap_or_default(), old.unwrap_or_default());
        self.asked.lock().push(detail);
        attributes.caller.warnings().add(format!("{stage} was asked"));
        if refused {
            let resource = GroupResource { group: String::new(), resource: "things".to_owned() };
            let (name, message) = ("x".to_owned(), "no".to_owned());
            return Err(ApiError::Refused { resource, name, message, causes: Vec::new() });
        }
        Ok(())
    }

    fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock())
    }

    /// Waits until a slow write is validated.
    async fn holds_one(&self) {
        self.reached.acquire().await.unwrap().forget();
    }
}

/// The plugin ignores the set-up of the tests.
fn concerns(attributes: &AdmissionAttributes<'_>) -> bool {
    attributes.target.resource.plural != "namespaces"
}

impl Admission for Plugin {
    fn mutate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Object>,
    ) -> BoxFuture<'a, Result<Mutation, ApiError>> {
        Box::pin(async move {
            if !concerns(attributes) {
                return Ok(Mutation::Unchanged);
            }
            self.note("mutate", attributes, object.as_deref())?;
            let Some(object) = object else { return Ok(Mutation::Unchanged) };
            let before = object.clone();
            (self.change)(object);
            Ok(if *object == before { Mutation::Unchanged } else { Mutation::Changed })
        })
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            if !concerns(attributes) {
                return Ok(());
            }
            self.note("validate", attributes, object)?;
            if attributes.caller.field_manager() == SLOW {
                self.reached.add_permits(1);
                self.let_on.acquire().await.unwrap().forget();
            }
            Ok(())
        })
    }
}

/// A server with a plugin, and the server's connection to its store.
pub(crate) async fn server_with(plugin: Arc<dyn Admission>) -> (Arc<Registry>, FaultyStore) {
    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    let clock = Arc::new(ManualClock::new(SystemTime::UNIX_EPOCH));
    let cache = Cache::start(Arc::new(store.clone()), specs(), CacheConfig::new(clock.clone())).await.unwrap();
    let random = Arc::new(SeededRandom::new(1));
    let registry = keelson_builtin::registry(Arc::new(store.clone()), cache, clock, random, RegistryConfig::default());
    let registry = registry.with_admission(AdmissionChain::from_iter([plugin]));
    let namespace = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "q"}});
    let namespaces = target("namespaces", None);
    let namespace = Object::from_value(namespace).unwrap();
    registry.create(&namespaces, namespace, &Caller::server(), &CreateOptions::default()).await.unwrap();
    (Arc::new(registry), store)
}

fn unchanged(_: &mut Object) {}

fn config_maps() -> Target {
    target("configmaps", Some("q"))
}

fn config_map(metadata: &Value, a: &str) -> Object {
    let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": {"a": a}});
    let mut object = Object::from_value(object).unwrap();
    keelson_registry::fit(&config_maps(), &mut object).unwrap();
    object
}

async fn create(server: &Registry, name: &str) -> Result<WriteResult, ApiError> {
    let object = config_map(&json!({"name": name}), "1");
    server.create(&config_maps(), object, &caller("maker"), &CreateOptions::default()).await
}

fn caller(manager: &'static str) -> Caller {
    Caller::server().managing(manager)
}

async fn patch(server: &Registry, name: &str, document: Value, caller: Caller) -> Result<WriteResult, ApiError> {
    let patch = Patch { kind: PatchKind::Merge, document, faults: Vec::new() };
    server.patch(&config_maps(), name, &patch, &caller, &PatchOptions::default()).await
}

async fn read(server: &Registry, name: &str) -> Result<Object, ApiError> {
    let entry = server.get(&config_maps(), name, &caller("reader"), &GetOptions::default()).await?;
    Ok(entry.object().decode(entry.revision))
}

fn decoded(written: &WriteResult) -> Object {
    written.object.decode(written.revision.unwrap())
}

#[test]
fn mutation_precedes_preparation_and_validation_precedes_admission() {
    run(async {
        let plugin = Plugin::changing(unchanged);
        let (server, _) = server_with(plugin.clone()).await;
        let object = config_map(&json!({"generateName": "g-"}), "1");
        let made = server.create(&config_maps(), object, &caller("m"), &CreateOptions::default()).await.unwrap();
        let name = decoded(&made).name().to_owned();
        assert!(name.len() > 2, "{name}");
        let expected = [
            r#"mutate CREATE configmaps "" +managed"#.to_owned(),
            format!(r#"validate CREATE configmaps "{name}" {name}+uid+managed"#),
        ];
        // An object without a name has nothing to show in its place.
        assert_eq!(plugin.take_calls().iter().map(|asked| asked.replace("  ", " ")).collect::<Vec<_>>(), expected);

        let invalid = config_map(&json!({"name": "n", "labels": {"a": "b c"}}), "1");
        let refused = server.create(&config_maps(), invalid, &caller("m"), &CreateOptions::default()).await;
        assert_eq!(refused.unwrap_err().code(), 422);
        assert_eq!(plugin.take_calls().len(), 1, "what is not valid is not judged");

        let elsewhere = target("configmaps", Some("none"));
        let object = Object::from_value(json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {
            "name": "n", "namespace": "none", "labels": {"a": "b c"}}}));
        let refused =
            server.create(&elsewhere, object.unwrap(), &caller("m"), &CreateOptions::default()).await.unwrap_err();
        assert_eq!((refused.code(), plugin.take_calls().len()), (404, 0), "its namespace is looked for first");
    });
}

#[test]
fn plugin_warnings_are_kept_for_failed_writes() {
    run(async {
        let plugin = Plugin::changing(unchanged);
        let (server, _) = server_with(plugin.clone()).await;
        let warnings = Warnings::noted();
        let caller = caller("m").warned_in(warnings.clone());
        let object = config_map(&json!({"name": "n"}), "1");
        server.create(&config_maps(), object, &caller, &CreateOptions::default()).await.unwrap();
        assert_eq!(warnings.take(), ["mutate was asked", "validate was asked"]);
        *plugin.refuses.lock() = "validate UPDATE configmaps";
        patch(&server, "n", json!({"data": {"a": "2"}}), caller.clone()).await.unwrap_err();
        assert_eq!(warnings.take(), ["mutate was asked", "validate was asked"]);
        patch(&server, "n", json!({"metadata": {"labels": {"a": "b c"}}}), caller).await.unwrap_err();
        assert_eq!(warnings.take(), ["mutate was asked"], "what is not valid is not judged");
    });
}

#[test]
fn each_kind_of_write_is_admitted_with_its_operation() {
    run(async {
        let plugin = Plugin::changing(unchanged);
        let (server, _) = server_with(plugin.clone()).await;
        create(&server, "one").await.unwrap();
        let made =
            [r#"mutate CREATE configmaps "one" one+managed"#, r#"validate CREATE configmaps "one" one+uid+managed"#];
        assert_eq!(plugin.take_calls(), made);
        let next = config_map(&json!({"name": "one"}), "2");
        server.update(&config_maps(), "one", next, &caller("m"), &UpdateOptions::default()).await.unwrap();
        assert_eq!(
            plugin.take_calls(),
            [
                r#"mutate UPDATE configmaps "one" one+uid+managed old:"1""#.replace("one+uid", "one"),
                r#"validate UPDATE configmaps "one" one+uid+managed old:"1""#.to_owned(),
            ]
        );
        patch(&server, "one", json!({"data": {"a": "3"}}), caller("m").rehearsing_if(true)).await.unwrap();
        let asked = plugin.take_calls();
        assert!(asked.iter().all(|asked| asked.ends_with(r#" old:"2" dry"#)), "{asked:?}");
        let document =
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "two"}, "data": {"a": "9"}});
        let applied = Patch { kind: PatchKind::Apply, document, faults: Vec::new() };
        server.apply(&config_maps(), "two", &applied, &caller("m"), &PatchOptions::default()).await.unwrap();
        assert_eq!(
            plugin.take_calls(),
            [r#"mutate CREATE configmaps "two" two+managed"#, r#"validate CREATE configmaps "two" two+uid+managed"#]
        );
        server.delete(&config_maps(), "one", &caller("m"), &DeleteOptions::default()).await.unwrap();
        let deleted = [r#"mutate DELETE configmaps "one" old:"2""#, r#"validate DELETE configmaps "one" old:"2""#];
        assert_eq!(plugin.take_calls(), deleted);
        let everything = options("");
        server.delete_collection(&config_maps(), &caller("m"), &everything, &DeleteOptions::default()).await.unwrap();
        let deleted = [r#"mutate DELETE configmaps "" old:"9""#, r#"validate DELETE configmaps "" old:"9""#];
        assert_eq!(plugin.take_calls(), deleted);
    });
}

/// Adds a label and a field that the kind does not have, and moves what was said.
fn label(object: &mut Object) {
    object.set_meta("labels", json!({"plugin": "was-here"}));
    object.0.insert("unknown", json!(1));
}

#[test]
fn fields_added_by_plugins_are_normalized_and_get_no_owner() {
    run(async {
        let plugin = Plugin::changing(label);
        let (server, _) = server_with(plugin.clone()).await;
        let owners = |object: &Object| {
            let owners = object.meta("managedFields").and_then(Value::as_array).unwrap().iter();
            owners.map(|owner| (owner["manager"].clone(), owner["fieldsV1"].to_string())).collect::<Vec<_>>()
        };
        let made = decoded(&create(&server, "one").await.unwrap());
        assert_eq!(made.labels().collect::<Vec<_>>(), [("plugin", "was-here")]);
        assert!(!made.0.contains_key("unknown"));
        let data = r#"{"f:data":{".":{},"f:a":{}}}"#;
        assert_eq!(owners(&made), [(json!("maker"), data.to_owned())]);
        let patched = patch(&server, "one", json!({"data": {"b": "2"}}), caller("patcher")).await.unwrap();
        let data_b = r#"{"f:data":{"f:b":{}}}"#;
        let expected = [(json!("maker"), data.to_owned()), (json!("patcher"), data_b.to_owned())];
        assert_eq!(owners(&decoded(&patched)), expected);
        let same = patch(&server, "one", json!({"data": {"b": "2"}}), caller("patcher")).await.unwrap();
        assert_eq!(same.revision, patched.revision, "what changes nothing is not written");
    });
}

#[test]
fn managed_fields_that_a_plugin_breaks_are_as_they_were() {
    run(async {
        let plugin = Plugin::changing(|object| object.set_meta("managedFields", json!([{"fieldsV1": 7}])));
        let (server, _) = server_with(plugin.clone()).await;
        let made = decoded(&create(&server, "one").await.unwrap());
        assert_eq!(made.meta("managedFields").unwrap()[0]["manager"], "maker");
    });
}

#[test]
fn refused_objects_are_not_written() {
    run(async {
        let plugin = Plugin::changing(unchanged);
        let (server, store) = server_with(plugin.clone()).await;
        create(&server, "one").await.unwrap();
        let revision = keelson_storage::Store::current_revision(&store).await.unwrap();
        for (question, write) in [
            ("mutate CREATE configmaps", 0),
            ("validate CREATE configmaps", 0),
            ("mutate UPDATE configmaps", 1),
            ("validate UPDATE configmaps", 1),
            ("mutate DELETE configmaps", 2),
            ("validate DELETE configmaps", 2),
        ] {
            *plugin.refuses.lock() = question;
            let outcome = match write {
                0 => create(&server, "two").await.map(|_| ()),
                1 => patch(&server, "one", json!({"data": {"a": "2"}}), caller("m")).await.map(|_| ()),
                _ => server.delete(&config_maps(), "one", &caller("m"), &DeleteOptions::default()).await.map(|_| ()),
            };
            assert_eq!(outcome.unwrap_err().code(), 403, "{question}");
        }
        assert_eq!(keelson_storage::Store::current_revision(&store).await.unwrap(), revision);
    });
}

#[test]
fn a_subresource_create_is_admitted_once() {
    run(async {
        let plugin = Plugin::changing(unchanged);
        let (server, _) = server_with(plugin.clone()).await;
        let pods = target("pods", Some("q"));
        let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "namespace": "q"},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let mut pod = Object::from_value(pod).unwrap();
        keelson_registry::fit(&pods, &mut pod).unwrap();
        server.create(&pods, pod, &caller("m"), &CreateOptions::default()).await.unwrap();
        plugin.take_calls();
        let below = |name: &str| pods.clone().below(name).named("p");
        let binding = json!({"kind": "Binding", "apiVersion": "v1", "metadata": {"name": "p", "namespace": "q"},
            "target": {"name": "n"}});
        let binding = || Object::from_value(binding.clone()).unwrap();
        *plugin.refuses.lock() = "validate CREATE pods/binding";
        let refused = server.bind(&below("binding"), binding(), &caller("m")).await.unwrap_err();
        assert_eq!(refused.code(), 403);
        *plugin.refuses.lock() = "none";
        server.bind(&below("binding"), binding(), &caller("m")).await.unwrap();
        let eviction = json!({"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "p"}});
        let eviction = Object::from_value(eviction).unwrap();
        plugin.take_calls();
        server.evict(&below("eviction"), "p", eviction, &caller("m")).await.unwrap();
        let asked = [r#"mutate CREATE pods/eviction "p" p"#, r#"validate CREATE pods/eviction "p" p"#];
        assert_eq!(plugin.take_calls(), asked, "the deletion is part of it");
        let refused = server.remote(&below("proxy"), "p", Object::default(), None, &caller("m")).await.unwrap_err();
        assert!(matches!(refused.code(), 400 | 404), "{refused}");
        assert_eq!(plugin.take_calls(), [r#"mutate CONNECT pods/proxy "p" "#, r#"validate CONNECT pods/proxy "p" "#]);
    });
}

/// On one thread: a wait for a plugin yields it to others.
#[test]
fn others_write_while_a_plugin_waits_and_its_write_continues_afterwards() {
    run(async {
        let plugin = Plugin::changing(unchanged);
        let (server, _) = server_with(plugin.clone()).await;
        create(&server, "one").await.unwrap();
        let slow = patch(&server, "one", json!({"data": {"slow": "1"}}), caller(SLOW));
        let others = async {
            plugin.holds_one().await;
            create(&server, "two").await.unwrap();
            assert_eq!(read(&server, "one").await.unwrap().get(&["data", "slow"]), None);
            plugin.let_on.add_permits(1);
        };
        let (written, ()) = tokio::join!(slow, others);
        assert_eq!(decoded(&written.unwrap()).get(&["data", "slow"]), Some(&json!("1")));
    });
}

#[test]
fn a_write_is_repeated_after_a_change_during_admission() {
    run(async {
        let plugin = Plugin::changing(unchanged);
        let (server, _) = server_with(plugin.clone()).await;
        create(&server, "one").await.unwrap();
        plugin.take_calls();
        let slow = patch(&server, "one", json!({"data": {"slow": "1"}}), caller(SLOW));
        let others = async {
            plugin.holds_one().await;
            patch(&server, "one", json!({"data": {"a": "2"}}), caller("quick")).await.unwrap();
            plugin.let_on.add_permits(2);
        };
        let (written, ()) = tokio::join!(slow, others);
        let data = decoded(&written.unwrap()).get(&["data"]).cloned().unwrap();
        assert_eq!(data, json!({"a": "2", "slow": "1"}), "neither write is lost");
        let asked = plugin.take_calls();
        let judged: Vec<&str> =
            asked.iter().filter(|it| it.starts_with("validate")).filter_map(|it| it.split("old:").nth(1)).collect();
        assert_eq!(judged, [r#""1""#, r#""1""#, r#""2""#], "the slow one was asked again, about the newer object");
        assert_eq!(server.counters().write_retries(), 1);

        // A write with a resourceVersion is refused instead.
        let mut seen = read(&server, "one").await.unwrap();
        seen.0.insert("data", json!({"a": "mine"}));
        let (maps, update_options, slow_caller) = (config_maps(), UpdateOptions::default(), caller(SLOW));
        let slow = server.update(&maps, "one", seen, &slow_caller, &update_options);
        let others = async {
            plugin.holds_one().await;
            patch(&server, "one", json!({"data": {"a": "theirs"}}), caller("quick")).await.unwrap();
            plugin.let_on.add_permits(1);
        };
        let (refused, ()) = tokio::join!(slow, others);
        assert_eq!(refused.unwrap_err().code(), 409);
        assert_eq!(read(&server, "one").await.unwrap().get(&["data", "a"]), Some(&json!("theirs")));
    });
}

#[test]
fn a_write_ends_at_its_deadline_with_nothing_written() {
    run_paused(async {
        let plugin = Plugin::changing(unchanged);
        let (server, store) = server_with(plugin.clone()).await;
        create(&server, "one").await.unwrap();
        let revision = keelson_storage::Store::current_revision(&store).await.unwrap();
        let deadline = Instant::now() + Duration::from_secs(3);
        let slow = caller(SLOW).until(Some(deadline));
        let error = patch(&server, "one", json!({"data": {"slow": "1"}}), slow).await.unwrap_err();
        assert_eq!(Instant::now(), deadline);
        let status = error.status();
        assert_eq!(status.message, "Timeout: request did not complete within the allotted timeout");
        assert_eq!((error.code(), error.retry_after()), (504, None));
        assert_eq!(keelson_storage::Store::current_revision(&store).await.unwrap(), revision);
    });
}

/// No error may ask for a retry of a write with an unknown outcome: a second create would find, or make, a second
/// object.
#[test]
fn a_sent_commit_is_never_reported_as_retriable() {
    run_paused(async {
        let plugin = Plugin::changing(unchanged);
        let (server, store) = server_with(plugin.clone()).await;
        let object = config_map(&json!({"generateName": "g-"}), "1");
        // The cache knows the namespace by then, so the commit is all that is asked of the store.
        server.list(&target("namespaces", None), &caller("m"), &options("")).await.unwrap();
        store.set_calls(Fault::Slow(Duration::from_secs(2)));
        let hurried = caller("m").until(Some(Instant::now() + Duration::from_secs(3)));
        let error = server.create(&config_maps(), object, &hurried, &CreateOptions::default()).await.unwrap_err();
        assert_eq!((error.code(), error.retry_after()), (504, None));
        store.set_calls(Fault::None);
        let page = server.list(&config_maps(), &caller("m"), &options("")).await.unwrap();
        let made = page.items.into_entries().await.unwrap();
        assert_eq!(made.len(), 1, "it had taken effect when the time was over");
    });
}

/// Brings a slow write to its third attempt, in which it holds a turn in the queue of the object.
async fn lose_twice(server: &Registry, plugin: &Plugin) {
    for round in 0..2 {
        plugin.holds_one().await;
        let number = server.counters().write_retries();
        let document = json!({"data": {"a": format!("{number}-{round}")}});
        patch(server, "one", document, caller("quick")).await.unwrap();
        plugin.let_on.add_permits(1);
    }
    plugin.holds_one().await;
}

#[test]
fn cancelled_writes_leave_no_partial_state_or_lock() {
    run(async {
        let plugin = Plugin::changing(unchanged);
        let (server, _) = server_with(plugin.clone()).await;
        create(&server, "one").await.unwrap();
        let spawn_slow = || {
            let server = server.clone();
            tokio::spawn(async move { patch(&server, "one", json!({"data": {"slow": "1"}}), caller(SLOW)).await })
        };
        let gone = spawn_slow();
        lose_twice(&server, &plugin).await;
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        assert_eq!(read(&server, "one").await.unwrap().get(&["data", "slow"]), None);

        let stays = spawn_slow();
        lose_twice(&server, &plugin).await;
        plugin.let_on.add_permits(1);
        let written = tokio::time::timeout(Duration::from_secs(10), stays).await.expect("the queue is free again");
        assert_eq!(decoded(&written.unwrap().unwrap()).get(&["data", "slow"]), Some(&json!("1")));
    });
}

/// Allows everything except this.
#[derive(Debug)]
struct AllBut(&'static str);

impl Authorizer for AllBut {
    fn authorize<'a>(&'a self, _: &'a User, attributes: &'a Attributes<'a>) -> PendingVerdict<'a> {
        let verb = match attributes {
            Attributes::Resource(asked) => {
                let named = (asked.resource, asked.namespace, asked.name);
                assert_eq!(named, ("configmaps", Some("q"), Some("broken")));
                asked.verb
            }
            Attributes::Path { verb, .. } => verb,
        };
        let decision = if verb == self.0 { Decision::NoOpinion } else { Decision::Allow };
        Either::Left(ready(Verdict::new(decision, "because")))
    }
}

/// The deletion of unreadable objects needs a right of its own. In all else it is like any deletion.
#[test]
fn deletes_of_unreadable_objects_need_rights_and_admission() {
    run_paused(async {
        let plugin = Plugin::changing(unchanged);
        let (server, store) = server_with(plugin.clone()).await;
        let key = StoreKey::new("/registry/configmaps/q/broken");
        store.commit(Transaction::default().put(key.clone(), "k8s:enc:aescbc:v1:key1:\u{1}")).await.unwrap();
        let options = DeleteOptions { ignore_store_read_error: true, ..DeleteOptions::default() };
        let user = caller("m").user().clone();
        let delete = |caller: Caller| {
            let (server, options) = (&server, &options);
            async move { server.delete_unreadable(&config_maps(), "broken", &caller, options).await }
        };

        let denied = Caller::new(user, Arc::new(AllBut("unsafe-delete-ignore-read-errors")));
        let refused = delete(denied).await.unwrap_err().status();
        assert_eq!((refused.http_code(), plugin.take_calls().len()), (403, 0));
        let text = r#"configmaps "broken" is forbidden: not permitted to do "unsafe-delete-ignore-read-errors", reason: because"#;
        assert_eq!(refused.message, text);

        for refuses in ["mutate DELETE configmaps", "validate DELETE configmaps"] {
            *plugin.refuses.lock() = refuses;
            assert_eq!(delete(caller("m")).await.unwrap_err().code(), 403, "{refuses}");
        }
        *plugin.refuses.lock() = "none";
        plugin.take_calls();
        delete(caller("m").rehearsing_if(true)).await.unwrap();
        let asked = [r#"mutate DELETE configmaps "broken" dry"#, r#"validate DELETE configmaps "broken" dry"#];
        assert_eq!(plugin.take_calls(), asked);

        store.set_calls(Fault::Hang);
        let deadline = Instant::now() + Duration::from_millis(500);
        assert_eq!(delete(caller("m").until(Some(deadline))).await.unwrap_err().code(), 504);
        assert_eq!(Instant::now(), deadline);
        store.set_calls(Fault::None);
        assert!(store.get(&key).await.unwrap().is_some(), "nothing of this has deleted it");

        delete(caller("m")).await.unwrap();
        assert!(store.get(&key).await.unwrap().is_none());
        assert_eq!(delete(caller("m")).await.unwrap_err().code(), 422);
    });
}
