//! The status of a storage version: the entry of each server, the common encoding version if there is one, and the
//! condition for it.
//!
//! Names, texts and times are those of KEP-2339's first implementation.

use std::time::SystemTime;

use keelson_meta::Object;
use keelson_meta::clock::rfc3339;
use keelson_meta::json::{Value, json};

/// The type of the condition.
const EQUAL: &str = "AllEncodingVersionsEqual";

/// One server's versions of a resource, as `apiVersion` values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerEntry {
    pub(super) server_id: String,
    /// The version that it writes.
    pub(super) encoding: String,
    /// The versions that it can read, preferred first.
    pub(super) decodable: Vec<String>,
    /// The versions that it serves.
    pub(super) served: Vec<String>,
}

impl ServerEntry {
    fn to_value(&self) -> Value {
        json!({
            "apiServerID": self.server_id,
            "encodingVersion": self.encoding,
            "decodableVersions": self.decodable,
            "servedVersions": self.served,
        })
    }
}

/// Returns true if any server has ever published in the object.
pub(super) fn is_published(object: &Object) -> bool {
    let conditions = object.get(&["status", "conditions"]).and_then(Value::as_array).into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == *EQUAL)
}

/// The version that all servers with an entry encode; `None` where they do not agree.
fn agreed(object: &Object) -> Option<&str> {
    let conditions = object.get(&["status", "conditions"])?.as_array()?;
    let agree = conditions.iter().any(|condition| condition["type"] == *EQUAL && condition["status"] == *"True");
    let stated = object.get(&["status", "commonEncodingVersion"]).and_then(Value::as_str);
    // The version in the status counts only if the entries confirm it, since any client may have written the status.
    common(entries(object)).filter(|common| agree && stated == Some(common))
}

/// The reason why the servers do not agree on this server's storage version; `None` where they do.
pub(super) fn disagreement(object: &Object, own: &str) -> Option<String> {
    match agreed(object) {
        None => Some("the servers do not agree in which version the resource is stored".to_owned()),
        Some(version) if version == own => None,
        Some(version) => Some(format!("the servers agree on {version}, and this one stores {own}")),
    }
}

/// The names of the servers with an entry.
pub(super) fn servers(object: &Object) -> impl Iterator<Item = &str> {
    entries(object).iter().map(server_of)
}

/// Sets a server's entry, in its old position if it had one. Returns true if the object changed.
pub(super) fn publish(object: &mut Object, own: &ServerEntry, now: SystemTime) -> bool {
    let mut next: Vec<Value> = entries(object).to_vec();
    match next.iter_mut().find(|entry| server_of(entry) == own.server_id) {
        Some(entry) => *entry = own.to_value(),
        None => next.push(own.to_value()),
    }
    say(object, next, now)
}

/// Removes the entries of dead servers. Returns true if the object changed.
pub(super) fn withdraw(object: &mut Object, is_gone: impl Fn(&str) -> bool, now: SystemTime) -> bool {
    let mut next: Vec<Value> = entries(object).to_vec();
    next.retain(|entry| !is_gone(server_of(entry)));
    say(object, next, now)
}

fn entries(object: &Object) -> &[Value] {
    object.get(&["status", "storageVersions"]).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn server_of(entry: &Value) -> &str {
    entry.get("apiServerID").and_then(Value::as_str).unwrap_or_default()
}

/// The version that all these entries encode; `None` if they differ.
fn common(entries: &[Value]) -> Option<&str> {
    let mut encodings = entries.iter().map(|entry| entry.get("encodingVersion").and_then(Value::as_str));
    let first = encodings.next().flatten()?;
    encodings.all(|other| other == Some(first)).then_some(first)
}

fn say(object: &mut Object, entries: Vec<Value>, now: SystemTime) -> bool {
    let before = object.get(&["status"]).cloned().unwrap_or_else(|| json!({}));
    let common = common(&entries).map(str::to_owned);
    let known = before.get("commonEncodingVersion").and_then(Value::as_str);
    let mut condition = match &common {
        Some(_) => json!({
            "type": EQUAL, "status": "True", "reason": "CommonEncodingVersionSet", "message": "Common encoding version set"
        }),
        None => json!({
            "type": EQUAL, "status": "False", "reason": "CommonEncodingVersionUnset",
            "message": "Common encoding version unset"
        }),
    };
    let of_before = |kind: &str| before.get("conditions")?.as_array()?.iter().find(|known| known["type"] == *kind);
    let last = of_before(EQUAL);
    // A change of the common version counts as a new agreement, with a new transition time.
    let holds_on = last.is_some_and(|last| last["status"] == condition["status"])
        && (common.is_none() || known.is_none() || common.as_deref() == known);
    let since = last.filter(|_| holds_on).and_then(|last| last.get("lastTransitionTime")).cloned();
    condition["lastTransitionTime"] = since.unwrap_or_else(|| rfc3339(now).into());
    let others = before.get("conditions").and_then(Value::as_array).into_iter().flatten();
    let mut conditions: Vec<Value> = others.filter(|other| other["type"] != *EQUAL).cloned().collect();
    conditions.push(condition);
    let mut next = before.clone();
    next["storageVersions"] = entries.into();
    next["conditions"] = conditions.into();
    match (common, next.as_object_mut()) {
        (Some(common), _) => next["commonEncodingVersion"] = common.into(),
        (None, Some(next)) => drop(next.remove("commonEncodingVersion")),
        (None, None) => {}
    }
    let changed = next != before;
    object.0.insert("status", next);
    changed
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn entry(server: &str, version: &str) -> ServerEntry {
        let version = version.to_owned();
        let (decodable, served) = (vec![version.clone(), "x/v0".to_owned()], vec![version.clone()]);
        ServerEntry { server_id: server.to_owned(), encoding: version, decodable, served }
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// The common version, the status of the condition, and the seconds of its transition time.
    fn said(object: &Object) -> (Option<&str>, &str, &str) {
        let condition = |field: &str| object.get(&["status", "conditions"]).unwrap()[0][field].as_str().unwrap();
        let common = object.get(&["status", "commonEncodingVersion"]).map(|common| common.as_str().unwrap());
        (common, condition("status"), condition("lastTransitionTime"))
    }

    #[test]
    fn servers_with_equal_encodings_agree_since_the_last_change() {
        let mut object = Object::default();
        let time = |seconds: u64| rfc3339(at(seconds));
        assert!(publish(&mut object, &entry("a", "x/v1"), at(1)));
        assert_eq!(said(&object), (Some("x/v1"), "True", &*time(1)));
        assert!(!publish(&mut object, &entry("a", "x/v1"), at(2)), "nothing is new");
        assert!(publish(&mut object, &entry("b", "x/v1"), at(3)));
        assert_eq!(said(&object), (Some("x/v1"), "True", &*time(1)));
        assert!(publish(&mut object, &entry("b", "x/v2"), at(4)));
        assert_eq!(said(&object), (None, "False", &*time(4)));
        assert!(publish(&mut object, &entry("c", "x/v2"), at(5)));
        assert_eq!(said(&object), (None, "False", &*time(4)));
        assert_eq!(servers(&object).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert!(withdraw(&mut object, |server| server == "a", at(6)));
        assert_eq!(said(&object), (Some("x/v2"), "True", &*time(6)));
        assert!(!withdraw(&mut object, |server| server == "a", at(7)), "it is gone already");
        assert!(withdraw(&mut object, |_| true, at(8)));
        assert_eq!(said(&object), (None, "False", &*time(8)));
        assert!(is_published(&object) && servers(&object).next().is_none());
    }

    #[test]
    fn a_new_encoding_version_has_a_new_transition_time() {
        let mut object = Object::default();
        publish(&mut object, &entry("a", "x/v1"), at(1));
        publish(&mut object, &entry("a", "x/v2"), at(2));
        assert_eq!(said(&object), (Some("x/v2"), "True", &*rfc3339(at(2))));
    }

    #[test]
    fn status_entries_of_others_stay() {
        let mut object =
            Object::from_value(json!({ "status": { "conditions": [{ "type": "Other" }], "x": 1 } })).unwrap();
        assert!(!is_published(&object));
        publish(&mut object, &entry("a", "x/v1"), at(1));
        assert_eq!(object.get(&["status", "conditions"]).unwrap()[0], json!({ "type": "Other" }));
        assert_eq!(object.get(&["status", "x"]), Some(&json!(1)));
    }
}
