//! Single objects: preconditions, names, dry runs and finalizers.
//!
//! Each check makes its own config map, so that none depends on another.

use http::{Method, StatusCode};
use serde_json::json;

use super::{CONCEPTS, CONVENTIONS, Need, Rule};
use crate::lab::{Checked, Fault, Lab, hold, version_of};
use crate::server::{Ask, Exchange};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "objects.exists",
        text: "a second create of a name is answered with 409 and the reason AlreadyExists",
        source: CONVENTIONS,
        needs: Need::Writes,
        check: |lab| Box::pin(a_name_is_taken_once(lab)),
    },
    Rule {
        id: "objects.missing",
        text: "an object that is deleted is answered with 404 and the reason NotFound",
        source: CONVENTIONS,
        needs: Need::Writes,
        check: |lab| Box::pin(a_deleted_object_is_not_found(lab)),
    },
    Rule {
        id: "objects.conflict",
        text: "an update with an older resource version is answered with 409, and changes nothing",
        source: CONVENTIONS,
        needs: Need::Writes,
        check: |lab| Box::pin(an_older_version_conflicts(lab)),
    },
    Rule {
        id: "objects.preconditions",
        text: "a delete with the uid or version of another object is answered with 409",
        source: CONCEPTS,
        needs: Need::Writes,
        check: |lab| Box::pin(deletes_have_preconditions(lab)),
    },
    Rule {
        id: "objects.unchanged",
        text: "a write that changes nothing leaves the resource version",
        source: CONCEPTS,
        needs: Need::Writes,
        check: |lab| Box::pin(a_write_without_a_change_is_none(lab)),
    },
    Rule {
        id: "objects.dry-run",
        text: "a dry run is answered as the write would be, and stores nothing",
        source: CONCEPTS,
        needs: Need::Writes,
        check: |lab| Box::pin(dry_runs_store_nothing(lab)),
    },
    Rule {
        id: "objects.generated-names",
        text: "generateName makes a new name with this beginning for each create",
        source: CONVENTIONS,
        needs: Need::Writes,
        check: |lab| Box::pin(names_are_generated(lab)),
    },
    Rule {
        id: "objects.finalizers",
        text: "a delete of an object with finalizers marks it, and removing the last finalizer removes it",
        source: CONVENTIONS,
        needs: Need::Writes,
        check: |lab| Box::pin(finalizers_hold_an_object(lab)),
    },
    Rule {
        id: "objects.uid",
        text: "an object that is made again has another uid",
        source: CONVENTIONS,
        needs: Need::Writes,
        check: |lab| Box::pin(a_new_object_has_a_new_uid(lab)),
    },
];

fn post(lab: &Lab, metadata: &serde_json::Value) -> Ask {
    Ask::new(Method::POST, lab.maps()).with(json!({"metadata": metadata}))
}

fn delete(lab: &Lab, name: &str) -> Ask {
    Ask::new(Method::DELETE, format!("{}/{name}", lab.maps()))
}

fn patch(lab: &Lab, name: &str, change: serde_json::Value) -> Ask {
    Ask::merge(format!("{}/{name}", lab.maps()), change)
}

fn has_reason(exchange: &Exchange, reason: &str) -> Checked {
    hold(exchange.reason() == reason, || format!("the reason is {:?}, and not {reason}", exchange.reason()))
}

async fn a_name_is_taken_once(lab: &Lab) -> Checked {
    lab.create("twice", &json!({})).await?;
    let second = lab.expect(StatusCode::CONFLICT, post(lab, &json!({"name": "twice"}))).await?;
    has_reason(&second, "AlreadyExists")
}

async fn a_deleted_object_is_not_found(lab: &Lab) -> Checked {
    lab.create("gone", &json!({})).await?;
    lab.expect(StatusCode::OK, delete(lab, "gone")).await?;
    for ask in [Ask::get(format!("{}/gone", lab.maps())), delete(lab, "gone"), patch(lab, "gone", json!({}))] {
        has_reason(&lab.expect(StatusCode::NOT_FOUND, ask).await?, "NotFound")?;
    }
    Ok(())
}

async fn an_older_version_conflicts(lab: &Lab) -> Checked {
    let first = lab.create("stale", &json!({})).await?;
    lab.expect(StatusCode::OK, patch(lab, "stale", json!({"data": {"key": "newer"}}))).await?;
    let mut older = first;
    older["data"]["key"] = json!("older");
    let path = format!("{}/stale", lab.maps());
    let refused = lab.expect(StatusCode::CONFLICT, Ask::new(Method::PUT, &path).with(older)).await?;
    has_reason(&refused, "Conflict")?;
    let now = lab.get(path).await?;
    hold(now["data"]["key"] == "newer", || format!("the refused update left {}", now["data"]))
}

async fn deletes_have_preconditions(lab: &Lab) -> Checked {
    let made = lab.create("guarded", &json!({})).await?;
    let (uid, version) = (made["metadata"]["uid"].clone(), version_of(&made)?);
    lab.expect(StatusCode::OK, patch(lab, "guarded", json!({"data": {"key": "newer"}}))).await?;
    for other in [json!({"uid": "00000000-0000-4000-8000-000000000000"}), json!({"resourceVersion": version})] {
        lab.expect(StatusCode::CONFLICT, delete(lab, "guarded").with(json!({"preconditions": other}))).await?;
    }
    lab.get(format!("{}/guarded", lab.maps())).await?;
    let right = json!({"preconditions": {"uid": uid}});
    lab.expect(StatusCode::OK, delete(lab, "guarded").with(right)).await.map(drop)
}

async fn a_write_without_a_change_is_none(lab: &Lab) -> Checked {
    let made = lab.create("same", &json!({})).await?;
    let again = lab.expect(StatusCode::OK, patch(lab, "same", json!({"data": {"key": "value"}}))).await?.body;
    let (before, after) = (version_of(&made)?, version_of(&again)?);
    hold(before == after, || format!("a patch without a change made {after} of the version {before}"))
}

async fn dry_runs_store_nothing(lab: &Lab) -> Checked {
    let path = lab.maps();
    let body = json!({"metadata": {"name": "rehearsed"}});
    lab.expect(StatusCode::CREATED, Ask::new(Method::POST, format!("{path}?dryRun=All")).with(body)).await?;
    lab.expect(StatusCode::NOT_FOUND, Ask::get(format!("{path}/rehearsed"))).await?;
    lab.create("kept", &json!({})).await?;
    lab.expect(StatusCode::OK, Ask::new(Method::DELETE, format!("{path}/kept?dryRun=All"))).await?;
    let change = json!({"data": {"key": "other"}});
    let ask = Ask::merge(format!("{path}/kept?dryRun=All"), change);
    let shown = lab.expect(StatusCode::OK, ask).await?.body;
    hold(shown["data"]["key"] == "other", || "the answer of a dry run does not show the change".to_owned())?;
    let kept = lab.get(format!("{path}/kept")).await?;
    hold(kept["data"]["key"] == "value", || "a dry run changed an object".to_owned())
}

async fn names_are_generated(lab: &Lab) -> Checked {
    let mut names = std::collections::BTreeSet::new();
    for _ in 0..5 {
        let made = lab.expect(StatusCode::CREATED, post(lab, &json!({"generateName": "made-"}))).await?.body;
        let name = made["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        hold(name.starts_with("made-") && name.len() > 5, || format!("{name} is no name of made-"))?;
        hold(names.insert(name.clone()), || format!("{name} was made twice"))?;
    }
    Ok(())
}

async fn finalizers_hold_an_object(lab: &Lab) -> Checked {
    let metadata = json!({"name": "held", "finalizers": ["verify.keelson.io/hold"]});
    lab.expect(StatusCode::CREATED, post(lab, &metadata)).await?;
    lab.expect(StatusCode::OK, delete(lab, "held")).await?;
    let path = format!("{}/held", lab.maps());
    let held = lab.get(&path).await?;
    let is_marked = held["metadata"]["deletionTimestamp"].is_string();
    // The object is deleted after any response.
    let freed = patch(lab, "held", json!({"metadata": {"finalizers": null}}));
    lab.expect(StatusCode::OK, freed).await?;
    hold(is_marked, || "a deleted object with a finalizer has no deletionTimestamp".to_owned())?;
    lab.expect(StatusCode::NOT_FOUND, Ask::get(path)).await.map(drop)
}

async fn a_new_object_has_a_new_uid(lab: &Lab) -> Checked {
    let first = lab.create("again", &json!({})).await?;
    lab.expect(StatusCode::OK, delete(lab, "again")).await?;
    let second = lab.create("again", &json!({})).await?;
    let uids = [&first, &second].map(|object| object["metadata"]["uid"].as_str().map(str::to_owned));
    let [Some(first), Some(second)] = uids else { return Err(Fault::Broken("an object has no uid".to_owned())) };
    hold(first != second, || format!("both objects have the uid {first}"))
}
