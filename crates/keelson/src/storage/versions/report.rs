//! Computes the state of storage versions from the responses of a server, without calls or output.
//!
//! The state is the encoding of each server, their agreement, the number of objects in older encodings, and the progress
//! of migrations.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// The label of the leases of servers, and its value for servers that are not aggregated ones.
const IDENTITY: &str = "apiserver.kubernetes.io/identity";
const MAIN_SERVER: &str = "kube-apiserver";
const METRIC: &str = "keelson_stored_encodings{";

/// The responses of a server, parsed.
#[derive(Default)]
pub(super) struct Answers {
    pub(super) versions: Vec<Value>,
    pub(super) leases: Vec<Value>,
    pub(super) migrations: Vec<Value>,
    pub(super) services: Vec<Value>,
    pub(super) counts: Counts,
}

/// For each resource, the number of objects in each encoding.
#[derive(Default)]
pub(super) struct Counts(BTreeMap<String, BTreeMap<String, usize>>);

/// The state of storage versions.
pub(super) struct Report {
    /// The servers that have a lease.
    pub(super) servers: Vec<String>,
    /// Servers with a lease that publish no storage version.
    pub(super) silent: Vec<String>,
    pub(super) resources: Vec<Resource>,
    pub(super) migrations: Vec<Migration>,
    /// APIs of aggregated servers that publish no storage version.
    pub(super) unmanaged: Vec<Unmanaged>,
}

/// A stored resource.
pub(super) struct Resource {
    pub(super) name: String,
    /// The encoding of each server.
    pub(super) entries: Vec<Entry>,
    /// The version on which all servers agree, or the reason why they do not.
    pub(super) agreed: Result<String, String>,
    /// The number of objects in each encoding; `None` if this server does not store them.
    pub(super) stored: Option<BTreeMap<String, usize>>,
}

pub(super) struct Entry {
    pub(super) server: String,
    pub(super) encoding: String,
}

/// A migration that has not ended.
pub(super) struct Migration {
    pub(super) name: String,
    pub(super) resource: String,
    pub(super) is_running: bool,
    /// The message of the condition `Running`.
    pub(super) message: String,
    pub(super) done: usize,
    pub(super) total: usize,
}

/// A group version of an aggregated server that publishes no storage version.
pub(super) struct Unmanaged {
    pub(super) version: String,
    pub(super) service: String,
}

impl Counts {
    /// Parses the metrics of a server.
    pub(super) fn read(metrics: &str) -> Self {
        let mut counts = Self::default();
        for line in metrics.lines().filter_map(|line| line.strip_prefix(METRIC)) {
            let label = |name: &str| {
                let value = line.split_once(&format!("{name}=\""))?.1;
                value.split_once('"').map(|(value, _)| value.to_owned())
            };
            // Values of metrics are floating point numbers, such as `25.0`.
            let count = line.rsplit_once(' ').map(|(_, count)| count.split_once('.').map_or(count, |(whole, _)| whole));
            let count = count.and_then(|count| count.parse().ok());
            if let (Some(resource), Some(encoding), Some(count)) = (label("resource"), label("encoding"), count) {
                counts.0.entry(resource).or_default().insert(encoding, count);
            }
        }
        counts
    }
}

impl Report {
    pub(super) fn new(answers: &Answers) -> Self {
        let main: BTreeSet<&str> = servers(&answers.leases, true).collect();
        let behind: BTreeSet<&str> = servers(&answers.leases, false).collect();
        let publishing: BTreeSet<&str> = answers.versions.iter().flat_map(entries).map(|(server, _)| server).collect();
        let owned = |names: &BTreeSet<&str>| names.iter().map(|name| (*name).to_owned()).collect();
        let resource = |version: &Value| Resource::new(version, &main, &behind, &answers.counts);
        let mut resources: Vec<Resource> = answers.versions.iter().map(resource).collect();
        resources.sort_by(|a, b| a.name.cmp(&b.name));
        Self {
            servers: owned(&main),
            silent: main.iter().filter(|server| !publishing.contains(*server)).map(|it| (*it).to_owned()).collect(),
            migrations: answers.migrations.iter().filter_map(Migration::from_value).collect(),
            unmanaged: unmanaged(&answers.services, &answers.versions),
            resources,
        }
    }

    /// Returns true if all servers agree and nothing is left to migrate.
    pub(super) fn is_done(&self) -> bool {
        let is_settled = |resource: &Resource| resource.agreed.is_ok() && resource.older() == Some(0);
        self.migrations.is_empty()
            && self.resources.iter().all(|resource| resource.stored.is_none() || is_settled(resource))
    }

    /// The number of objects in an encoding other than the agreed one.
    pub(super) fn older(&self) -> usize {
        self.resources.iter().filter_map(Resource::older).sum()
    }

    /// The number of objects that the unfinished migrations cover.
    pub(super) fn total(&self) -> usize {
        self.migrations.iter().fold(0_usize, |sum, migration| sum.saturating_add(migration.total))
    }

    /// The resources without agreement, each with the reason.
    pub(super) fn disagreements(&self) -> impl Iterator<Item = (&str, &str)> {
        self.resources.iter().filter_map(|it| Some((it.name.as_str(), it.agreed.as_ref().err()?.as_str())))
    }
}

impl Resource {
    fn new(version: &Value, main: &BTreeSet<&str>, behind: &BTreeSet<&str>, counts: &Counts) -> Self {
        let name = resource_of(text(&version["metadata"]["name"]));
        let found: Vec<(&str, &str)> = entries(version).collect();
        let is_behind = !found.is_empty() && found.iter().all(|(server, _)| behind.contains(server));
        let expected = if is_behind { &BTreeSet::new() } else { main };
        let agreed = agreed(version, &found, expected, &main.union(behind).copied().collect());
        let entry =
            |(server, encoding): &(&str, &str)| Entry { server: (*server).into(), encoding: (*encoding).into() };
        let stored = (!is_behind).then(|| counts.0.get(&name).cloned().unwrap_or_default());
        Self { entries: found.iter().map(entry).collect(), agreed, stored, name }
    }

    /// The number of objects in an encoding other than the agreed one; `None` if it is unknown.
    pub(super) fn older(&self) -> Option<usize> {
        let (agreed, stored) = (self.agreed.as_ref().ok()?, self.stored.as_ref()?);
        Some(stored.iter().filter(|(encoding, _)| *encoding != agreed).map(|(_, count)| count).sum())
    }
}

impl Migration {
    /// Reads a migration; `None` if it has ended.
    fn from_value(migration: &Value) -> Option<Self> {
        let conditions = migration["status"]["conditions"].as_array();
        let condition = |kind: &str| conditions?.iter().find(|it| it["type"] == kind && it["status"] == "True");
        if condition("Succeeded").or(condition("Failed")).is_some() {
            return None;
        }
        let running = condition("Running");
        let annotation = |name: &str| text(&migration["metadata"]["annotations"][name]).parse().unwrap_or_default();
        let resource = &migration["spec"]["resource"];
        Some(Self {
            name: text(&migration["metadata"]["name"]).to_owned(),
            resource: joined(text(&resource["group"]), text(&resource["resource"])),
            is_running: running.is_some(),
            message: running.map_or("", |running| text(&running["message"])).to_owned(),
            done: annotation("keelson.io/objects-done"),
            total: annotation("keelson.io/objects-total"),
        })
    }
}

/// The version on which all expected servers agree, or the reason why there is none.
fn agreed(
    version: &Value,
    found: &[(&str, &str)],
    expected: &BTreeSet<&str>,
    living: &BTreeSet<&str>,
) -> Result<String, String> {
    let encodings: BTreeSet<&str> = found.iter().map(|(_, encoding)| *encoding).collect();
    if found.is_empty() {
        return Err("no server has published in which version it stores it".to_owned());
    }
    if encodings.len() > 1 {
        let said = |(server, encoding): &(&str, &str)| {
            let gone =
                if living.contains(server) { "" } else { " (it has no lease: what it published is taken away soon)" };
            format!("{server} stores {encoding}{gone}")
        };
        return Err(found.iter().map(said).collect::<Vec<_>>().join(", "));
    }
    let silent: Vec<&str> =
        expected.iter().filter(|server| found.iter().all(|(known, _)| known != *server)).copied().collect();
    if !silent.is_empty() {
        let (have, their) = if silent.len() == 1 { ("has", "its") } else { ("have", "their") };
        return Err(format!("{} {have} a lease and no entry here: {their} version is not known", silent.join(", ")));
    }
    let common = text(&version["status"]["commonEncodingVersion"]);
    match encodings.first() {
        Some(encoding) if *encoding == common => Ok(common.to_owned()),
        _ => Err("all encode alike, but the status does not say so yet".to_owned()),
    }
}

/// The group versions of aggregated servers whose group has no published storage version.
fn unmanaged(services: &[Value], versions: &[Value]) -> Vec<Unmanaged> {
    let group_of = |version: &'_ Value| {
        let name = text(&version["metadata"]["name"]).to_owned();
        name.rsplit_once('.').map(|(group, _)| group.to_owned())
    };
    let published: BTreeSet<String> = versions.iter().filter_map(group_of).collect();
    let elsewhere = services.iter().filter(|service| service["spec"]["service"].is_object());
    let unpublished = elsewhere.filter(|service| !published.contains(text(&service["spec"]["group"])));
    unpublished
        .map(|service| {
            let (spec, at) = (&service["spec"], &service["spec"]["service"]);
            Unmanaged {
                version: format!("{}/{}", text(&spec["group"]), text(&spec["version"])),
                service: format!("{}/{}", text(&at["namespace"]), text(&at["name"])),
            }
        })
        .collect()
}

/// The servers that have a lease: the main servers, or the aggregated ones.
fn servers(leases: &[Value], are_main: bool) -> impl Iterator<Item = &str> {
    let of_kind = leases.iter().filter(move |lease| (lease["metadata"]["labels"][IDENTITY] == MAIN_SERVER) == are_main);
    of_kind.map(|lease| text(&lease["metadata"]["name"]))
}

fn entries(version: &Value) -> impl Iterator<Item = (&str, &str)> {
    let entries = version["status"]["storageVersions"].as_array().into_iter().flatten();
    entries.map(|entry| (text(&entry["apiServerID"]), text(&entry["encodingVersion"])))
}

/// `autoscaling.horizontalpodautoscalers` becomes `horizontalpodautoscalers.autoscaling`.
fn resource_of(name: &str) -> String {
    let (group, resource) = name.rsplit_once('.').unwrap_or(("core", name));
    joined(if group == "core" { "" } else { group }, resource)
}

fn joined(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn version(name: &str, entries: &[(&str, &str)], common: Option<&str>) -> Value {
        let entry = |(server, encoding): &(&str, &str)| json!({ "apiServerID": server, "encodingVersion": encoding });
        let entries: Vec<Value> = entries.iter().map(entry).collect();
        json!({ "metadata": { "name": name }, "status": { "storageVersions": entries, "commonEncodingVersion": common } })
    }

    fn lease(name: &str, identity: &str) -> Value {
        json!({ "metadata": { "name": name, "labels": { IDENTITY: identity } } })
    }

    fn answers(entries: &[(&str, &str)], common: Option<&str>, leases: &[&str]) -> Answers {
        Answers {
            versions: vec![version("autoscaling.horizontalpodautoscalers", entries, common)],
            leases: leases.iter().map(|name| lease(name, MAIN_SERVER)).collect(),
            counts: Counts::read(
                "# TYPE keelson_stored_encodings gauge\n\
                 keelson_stored_encodings{resource=\"horizontalpodautoscalers.autoscaling\",encoding=\"autoscaling/v1\"} 3.0\n\
                 keelson_stored_encodings{resource=\"horizontalpodautoscalers.autoscaling\",encoding=\"autoscaling/v2\"} 4\n\
                 keelson_stored_encodings{resource=\"secrets\",encoding=\"v1 in protobuf\"} 1\n",
            ),
            ..Answers::default()
        }
    }

    fn why_not(answers: &Answers) -> String {
        Report::new(answers).resources[0].agreed.clone().unwrap_err()
    }

    #[test]
    fn agreed_versions_are_compared_with_stored_ones() {
        let report = Report::new(&answers(
            &[("a", "autoscaling/v2"), ("b", "autoscaling/v2")],
            Some("autoscaling/v2"),
            &["a", "b"],
        ));
        assert_eq!(report.resources[0].agreed.as_deref(), Ok("autoscaling/v2"));
        assert_eq!((report.older(), report.is_done(), report.silent.len()), (3, false, 0));
    }

    #[test]
    fn the_report_has_the_reason_of_a_disagreement() {
        let differing = answers(&[("a", "autoscaling/v1"), ("b", "autoscaling/v2")], None, &["a"]);
        let expected =
            "a stores autoscaling/v1, b stores autoscaling/v2 (it has no lease: what it published is taken away soon)";
        assert_eq!(why_not(&differing), expected);
        let mixed = answers(&[("a", "autoscaling/v2")], Some("autoscaling/v2"), &["a", "other"]);
        assert_eq!(why_not(&mixed), "other has a lease and no entry here: its version is not known");
        assert_eq!(Report::new(&mixed).silent, ["other"]);
        assert_eq!(why_not(&answers(&[], None, &["a"])), "no server has published in which version it stores it");
        let late = answers(&[("a", "autoscaling/v2")], None, &["a"]);
        assert_eq!(why_not(&late), "all encode alike, but the status does not say so yet");
    }

    #[test]
    fn aggregated_servers_need_not_agree_on_other_groups() {
        let mut of_both = answers(&[("a", "autoscaling/v2")], Some("autoscaling/v2"), &["a"]);
        of_both.leases.push(lease("behind", "keelson-apiserver"));
        of_both.versions.push(version(
            "flowers.example.com.flowers",
            &[("behind", "flowers.example.com/v1")],
            Some("flowers.example.com/v1"),
        ));
        let service = |group: &str, at: Value| json!({ "spec": { "group": group, "version": "v1", "service": at } });
        let at = json!({ "namespace": "x", "name": "y" });
        of_both.services = vec![
            service("flowers.example.com", at.clone()),
            service("other.example.com", at),
            service("apps", Value::Null),
        ];
        let report = Report::new(&of_both);
        assert!(report.resources.iter().all(|resource| resource.agreed.is_ok()));
        assert!(report.resources.iter().any(|resource| resource.stored.is_none()), "its own server counts its objects");
        let [Unmanaged { version, service }] = &report.unmanaged[..] else { panic!("one of them publishes nothing") };
        assert_eq!((version.as_str(), service.as_str()), ("other.example.com/v1", "x/y"));
    }

    #[test]
    fn a_migration_is_shown_until_it_has_ended() {
        let migration = |conditions: Value| {
            json!({
                "metadata": { "name": "m", "annotations": { "keelson.io/objects-done": "5", "keelson.io/objects-total": "20" } },
                "spec": { "resource": { "group": "autoscaling", "resource": "horizontalpodautoscalers" } },
                "status": { "conditions": conditions },
            })
        };
        let running = json!([{ "type": "Running", "status": "True", "message": "The migration is running" }]);
        let found = Migration::from_value(&migration(running)).unwrap();
        assert_eq!((found.done, found.total, found.is_running), (5, 20, true));
        assert_eq!(
            (found.resource.as_str(), found.message.as_str()),
            ("horizontalpodautoscalers.autoscaling", "The migration is running")
        );
        assert!(!Migration::from_value(&migration(Value::Null)).unwrap().is_running);
        for over in ["Succeeded", "Failed"] {
            assert!(Migration::from_value(&migration(json!([{ "type": over, "status": "True" }]))).is_none(), "{over}");
        }
    }
}
