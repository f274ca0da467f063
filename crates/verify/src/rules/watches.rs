//! Watches: every event once and in order, resumption, initial events, selectors, and their end.
//!
//! Each check watches a label of its own, so that it sees its own writes alone.

use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{CONCEPTS, Need, Rule};
use crate::lab::{Checked, Fault, Lab, hold, version_of};
use crate::server::{Ask, Watch};

/// The time that an event may take to arrive.
const PATIENCE: Duration = Duration::from_secs(20);
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "watches.events",
        text: "a watch from a list's version gets each later write once, in the order of the writes",
        source: CONCEPTS,
        needs: Need::Writes,
        check: |lab| Box::pin(events_come_once_and_in_order(lab)),
    },
    Rule {
        id: "watches.resume",
        text: "a watch from the version of an event gets exactly the events after it",
        source: CONCEPTS,
        needs: Need::Writes,
        check: |lab| Box::pin(a_watch_resumes(lab)),
    },
    Rule {
        id: "watches.initial-events",
        text: "a watch with sendInitialEvents sends the present objects and then a bookmark that says so",
        source: "KEP-3157",
        needs: Need::Writes,
        check: |lab| Box::pin(initial_events_end_with_a_bookmark(lab)),
    },
    Rule {
        id: "watches.selected",
        text: "an object that begins to match a selector is added to a watch, and one that ends to match is deleted from it",
        source: CONCEPTS,
        needs: Need::Writes,
        check: |lab| Box::pin(selected_objects_come_and_go(lab)),
    },
    Rule {
        id: "watches.deleted-version",
        text: "the object of a DELETED event has the version of the deletion, later than that of its last write",
        source: CONCEPTS,
        needs: Need::Writes,
        check: |lab| Box::pin(a_deletion_has_its_version(lab)),
    },
    Rule {
        id: "watches.timeout",
        text: "a watch ends after timeoutSeconds",
        source: CONCEPTS,
        needs: Need::Reads,
        check: |lab| Box::pin(a_watch_ends_in_time(lab)),
    },
];

/// Reads events until there are this many, without bookmarks.
async fn read(watch: &mut Watch, count: usize) -> Result<Vec<Value>, Fault> {
    let mut events = Vec::new();
    while events.len() < count {
        let Some(event) = watch.next_within(PATIENCE).await? else { break };
        match event["type"].as_str() {
            Some("BOOKMARK") => {}
            Some("ERROR") => return Err(Fault::Broken(format!("the watch ended with {}", event["object"]))),
            _ => events.push(event),
        }
    }
    Ok(events)
}

/// Events in the form `ADDED name`.
fn shown(events: &[Value]) -> Vec<String> {
    let name = |event: &Value| event["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    events.iter().map(|event| format!("{} {}", event["type"].as_str().unwrap_or_default(), name(event))).collect()
}

/// Fails unless the watch sends these events and no more within a moment.
async fn expect(watch: &mut Watch, expected: &[&str]) -> Result<Vec<Value>, Fault> {
    let events = read(watch, expected.len()).await?;
    hold(shown(&events) == expected, || format!("the watch sent {:?}, and not {expected:?}", shown(&events)))?;
    if let Some(more) = watch.next_within(Duration::from_millis(300)).await? {
        hold(more["type"] == "BOOKMARK", || format!("the watch sent {:?} more", shown(&[more])))?;
    }
    Ok(events)
}

/// The watch of the config maps with this label from the version of a list.
async fn watch_from(lab: &Lab, app: &str, version: &str) -> Result<Watch, Fault> {
    let query = format!("watch=1&labelSelector=app%3D{app}&resourceVersion={version}&timeoutSeconds=120");
    lab.watch(format!("{}?{query}", lab.maps())).await
}

async fn list_version(lab: &Lab) -> Result<String, Fault> {
    version_of(&lab.get(format!("{}?limit=1", lab.maps())).await?)
}

/// Creates an object, changes it twice and deletes it. Returns the resource versions in the responses.
async fn written(lab: &Lab, name: &str, app: &str) -> Result<Vec<String>, Fault> {
    let mut versions = vec![version_of(&lab.create(name, &json!({"app": app})).await?)?];
    let path = format!("{}/{name}", lab.maps());
    for number in 0..2 {
        let change = json!({"data": {"number": number.to_string()}});
        let ask = Ask::merge(&path, change);
        versions.push(version_of(&lab.expect(StatusCode::OK, ask).await?.body)?);
    }
    lab.expect(StatusCode::OK, Ask::new(Method::DELETE, &path)).await?;
    Ok(versions)
}

async fn events_come_once_and_in_order(lab: &Lab) -> Checked {
    let before = list_version(lab).await?;
    let mut early = watch_from(lab, "events", &before).await?;
    let versions = written(lab, "event", "events").await?;
    let expected = ["ADDED event", "MODIFIED event", "MODIFIED event", "DELETED event"];
    let events = expect(&mut early, &expected).await?;
    // A watch that begins after the writes gets the same events.
    let mut late = watch_from(lab, "events", &before).await?;
    let again = expect(&mut late, &expected).await?;
    for events in [&events, &again] {
        let seen: Vec<String> = events.iter().map(|event| version_of(&event["object"])).collect::<Result<_, _>>()?;
        hold(seen[..3] == versions[..], || format!("the writes have the versions {versions:?}, the events {seen:?}"))?;
    }
    Ok(())
}

async fn a_watch_resumes(lab: &Lab) -> Checked {
    let versions = written(lab, "resumed", "resumes").await?;
    let mut rest = watch_from(lab, "resumes", &versions[1]).await?;
    expect(&mut rest, &["MODIFIED resumed", "DELETED resumed"]).await.map(drop)
}

async fn initial_events_end_with_a_bookmark(lab: &Lab) -> Checked {
    lab.create("initial-a", &json!({"app": "initial"})).await?;
    let newest = version_of(&lab.create("initial-b", &json!({"app": "initial"})).await?)?;
    let query = "watch=1&labelSelector=app%3Dinitial&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                 &allowWatchBookmarks=true&timeoutSeconds=60";
    let mut watch = match lab.watch(format!("{}?{query}", lab.maps())).await {
        Err(Fault::Broken(why)) => return Err(Fault::Skipped(format!("the server has no streaming lists: {why}"))),
        watch => watch?,
    };
    let mut events = Vec::new();
    loop {
        let event = watch.next_within(PATIENCE).await?;
        let event = event.ok_or_else(|| Fault::Broken("no bookmark ended the initial events".to_owned()))?;
        if event["type"] == "BOOKMARK" && event["object"]["metadata"]["annotations"][INITIAL_EVENTS_END] == "true" {
            let version = version_of(&event["object"])?;
            let is_older =
                matches!((version.parse::<u64>(), newest.parse::<u64>()), (Ok(at), Ok(newest)) if at < newest);
            hold(!is_older, || format!("the bookmark is at {version}, before the last object at {newest}"))?;
            break;
        }
        events.push(event);
    }
    let mut events = shown(&events);
    events.sort();
    hold(events == ["ADDED initial-a", "ADDED initial-b"], || format!("the initial events are {events:?}"))
}

async fn selected_objects_come_and_go(lab: &Lab) -> Checked {
    let before = list_version(lab).await?;
    let mut watch = watch_from(lab, "selected", &before).await?;
    lab.create("goes", &json!({"app": "none"})).await?;
    let path = format!("{}/goes", lab.maps());
    for app in ["selected", "none"] {
        let change = json!({"metadata": {"labels": {"app": app}}});
        lab.expect(StatusCode::OK, Ask::merge(&path, change)).await?;
    }
    lab.expect(StatusCode::OK, Ask::new(Method::DELETE, &path)).await?;
    expect(&mut watch, &["ADDED goes", "DELETED goes"]).await.map(drop)
}

async fn a_deletion_has_its_version(lab: &Lab) -> Checked {
    let before = list_version(lab).await?;
    let versions = written(lab, "deleted", "deletes").await?;
    let mut watch = watch_from(lab, "deletes", &before).await?;
    let events = read(&mut watch, 4).await?;
    let Some(last) = events.get(3) else {
        return Err(Fault::Broken(format!("the watch sent {:?}, and no deletion", shown(&events))));
    };
    let (deleted, written) = (version_of(&last["object"])?, versions.last().cloned().unwrap_or_default());
    hold(deleted != written, || format!("the deletion has the version {deleted} of the write before"))
}

async fn a_watch_ends_in_time(lab: &Lab) -> Checked {
    let begun = Instant::now();
    let mut watch = lab.watch("/api/v1/namespaces?watch=1&timeoutSeconds=2".to_owned()).await?;
    while watch.next_within(PATIENCE).await?.is_some() {}
    let took = begun.elapsed();
    hold(took < Duration::from_secs(15), || format!("a watch with timeoutSeconds=2 ended after {} s", took.as_secs()))
}
