//! Server-side apply: owners, conflicts, and removed fields.
//!
//! Two managers, `one` and `two`, apply config maps of one key or two.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Need, Rule};
use crate::lab::{Checked, Fault, Lab, array, hold, version_of};
use crate::server::{Ask, Exchange};

const APPLY: &str = "application/apply-patch+yaml";
const SOURCE: &str = "KEP-555";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "apply.creates",
        text: "an apply of an object that is not there creates it, with the manager as owner of its fields",
        source: SOURCE,
        needs: Need::Writes,
        check: |lab| Box::pin(an_apply_creates(lab)),
    },
    Rule {
        id: "apply.conflict",
        text: "an apply of another manager's field is answered with 409 and names the field, and takes it with force",
        source: SOURCE,
        needs: Need::Writes,
        check: |lab| Box::pin(owned_fields_conflict(lab)),
    },
    Rule {
        id: "apply.removes",
        text: "a field that its only owner applies no more is removed",
        source: SOURCE,
        needs: Need::Writes,
        check: |lab| Box::pin(given_up_fields_are_removed(lab)),
    },
    Rule {
        id: "apply.unchanged",
        text: "an apply of what is there leaves the resource version",
        source: SOURCE,
        needs: Need::Writes,
        check: |lab| Box::pin(the_same_apply_changes_nothing(lab)),
    },
    Rule {
        id: "apply.manager",
        text: "an apply without a field manager is refused with 400 or 422",
        source: SOURCE,
        needs: Need::Writes,
        check: |lab| Box::pin(an_apply_needs_a_manager(lab)),
    },
];

async fn apply(lab: &Lab, name: &str, query: &str, data: Value) -> Result<Exchange, Fault> {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
    lab.send(Ask::new(Method::PATCH, format!("{}/{name}?{query}", lab.maps())).with(body).of_type(APPLY)).await
}

fn is(exchange: Exchange, status: StatusCode) -> Result<Value, Fault> {
    hold(exchange.status == status, || {
        format!("an apply was answered with {}, and not with {status}", exchange.status)
    })?;
    Ok(exchange.body)
}

async fn an_apply_creates(lab: &Lab) -> Checked {
    let made = is(apply(lab, "applied", "fieldManager=one", json!({"a": "1"})).await?, StatusCode::CREATED)?;
    let managers = array(&made["metadata"]["managedFields"]);
    let is_owner = managers.iter().any(|entry| {
        entry["manager"] == "one" && entry["operation"] == "Apply" && entry["fieldsV1"]["f:data"]["f:a"].is_object()
    });
    hold(is_owner, || format!("the managed fields are {managers:?}"))
}

async fn owned_fields_conflict(lab: &Lab) -> Checked {
    apply(lab, "fought", "fieldManager=one", json!({"a": "1"})).await?;
    let refused = apply(lab, "fought", "fieldManager=two", json!({"a": "2"})).await?;
    let refused = is(refused, StatusCode::CONFLICT)?;
    let causes = array(&refused["details"]["causes"]);
    let is_named = causes.iter().any(|cause| cause["reason"] == "FieldManagerConflict" && cause["field"] == ".data.a");
    hold(is_named, || format!("the causes of the conflict are {causes:?}"))?;
    let taken = apply(lab, "fought", "fieldManager=two&force=true", json!({"a": "2"})).await?;
    let taken = is(taken, StatusCode::OK)?;
    hold(taken["data"]["a"] == "2", || "an apply with force did not take the field".to_owned())?;
    // Managers that apply equal values share the field without a conflict.
    is(apply(lab, "fought", "fieldManager=one", json!({"a": "2"})).await?, StatusCode::OK).map(drop)
}

async fn given_up_fields_are_removed(lab: &Lab) -> Checked {
    apply(lab, "given-up", "fieldManager=one", json!({"a": "1", "b": "1"})).await?;
    let left = is(apply(lab, "given-up", "fieldManager=one", json!({"a": "1"})).await?, StatusCode::OK)?;
    hold(left["data"] == json!({"a": "1"}), || format!("{} is left of the data", left["data"]))
}

async fn the_same_apply_changes_nothing(lab: &Lab) -> Checked {
    let first = is(apply(lab, "repeated", "fieldManager=one", json!({"a": "1"})).await?, StatusCode::CREATED)?;
    // The time of an owner's entry has seconds.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let second = is(apply(lab, "repeated", "fieldManager=one", json!({"a": "1"})).await?, StatusCode::OK)?;
    let (first, second) = (version_of(&first)?, version_of(&second)?);
    hold(first == second, || format!("a repeated apply made {second} of the version {first}"))
}

async fn an_apply_needs_a_manager(lab: &Lab) -> Checked {
    let answer = apply(lab, "unowned", "", json!({})).await?;
    hold(matches!(answer.status.as_u16(), 400 | 422), || {
        format!("an apply without a field manager was answered with {}", answer.status)
    })
}
