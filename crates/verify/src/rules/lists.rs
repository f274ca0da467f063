//! Lists: chunks of one snapshot, resource versions and their match, and other forms.
//!
//! The checks share some config maps with the label `app=chunks`, more than fit into one chunk.

use std::collections::BTreeSet;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{CONCEPTS, Need, Rule};
use crate::lab::{Checked, Fault, Lab, array, hold, names, version_of};
use crate::server::{Ask, Exchange};

/// The number of objects of the checks of chunks, and the size of a chunk.
const OBJECTS: usize = 23;
const CHUNK: usize = 5;
/// The maximum number of chunks of a list, which detects a list that never ends.
const MOST_CHUNKS: usize = 10_000;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "lists.chunks.whole",
        text: "the chunks of a walk are the whole list: each object once, in the same order, none larger than the limit",
        source: "KEP-365",
        needs: Need::Writes,
        check: |lab| Box::pin(chunks_are_the_whole(lab)),
    },
    Rule {
        id: "lists.chunks.snapshot",
        text: "all chunks of a walk show one snapshot: writes between two chunks are not seen",
        source: "KEP-365",
        needs: Need::Writes,
        check: |lab| Box::pin(chunks_are_one_snapshot(lab)),
    },
    Rule {
        id: "lists.chunks.remaining",
        text: "remainingItemCount, where it is said, is the number of objects in later chunks",
        source: "KEP-365",
        needs: Need::Writes,
        check: |lab| Box::pin(remaining_counts_are_right(lab)),
    },
    Rule {
        id: "lists.chunks.selected",
        text: "the chunks of a selected walk hold the selected objects alone, each once",
        source: "KEP-365",
        needs: Need::Writes,
        check: |lab| Box::pin(selected_chunks_are_the_selected(lab)),
    },
    Rule {
        id: "lists.chunks.version",
        text: "a continue token together with a resource version is refused with 400",
        source: CONCEPTS,
        needs: Need::Writes,
        check: |lab| Box::pin(a_token_with_a_version_is_refused(lab)),
    },
    Rule {
        id: "lists.chunks.token",
        text: "a continue token that no server made is refused with 400 or 410, and never answered with objects",
        source: "KEP-365",
        needs: Need::Reads,
        check: |lab| Box::pin(invented_tokens_are_refused(lab)),
    },
    Rule {
        id: "lists.newest",
        text: "a list without a resource version shows every write that was answered before",
        source: CONCEPTS,
        needs: Need::Writes,
        check: |lab| Box::pin(a_list_shows_the_newest(lab)),
    },
    Rule {
        id: "lists.exact",
        text: "a list with resourceVersionMatch=Exact shows the collection as it was at that version",
        source: CONCEPTS,
        needs: Need::Writes,
        check: |lab| Box::pin(an_exact_list_shows_the_past(lab)),
    },
    Rule {
        id: "lists.not-older-than",
        text: "a list with resourceVersionMatch=NotOlderThan is at that version or a later one",
        source: CONCEPTS,
        needs: Need::Writes,
        check: |lab| Box::pin(a_list_is_not_older(lab)),
    },
    Rule {
        id: "lists.match-alone",
        text: "resourceVersionMatch without a resource version is refused with 400 or 422",
        source: CONCEPTS,
        needs: Need::Reads,
        check: |lab| Box::pin(a_match_without_a_version_is_refused(lab)),
    },
    Rule {
        id: "lists.forms",
        text: "tables and metadata lists hold the same objects in the same order as the list",
        source: CONCEPTS,
        needs: Need::Writes,
        check: |lab| Box::pin(forms_hold_the_same(lab)),
    },
];

/// Makes the objects of the checks of chunks, unless they are there.
async fn filled(lab: &Lab) -> Result<String, Fault> {
    let path = lab.maps();
    for number in 0..OBJECTS {
        let group = if number % 3 == 0 { "third" } else { "other" };
        let labels = json!({"app": "chunks", "group": group});
        let body = json!({"metadata": {"name": format!("chunk-{number:02}"), "labels": labels}});
        let made = lab.send(Ask::new(Method::POST, &path).with(body)).await?;
        hold(matches!(made.status, StatusCode::CREATED | StatusCode::CONFLICT), || {
            format!("creating chunk-{number:02} was answered with {}", made.status)
        })?;
    }
    Ok(format!("{path}?labelSelector=app%3Dchunks"))
}

/// Walks a list. `between` runs after the first chunk.
async fn walk(lab: &Lab, path: &str, between: impl Future<Output = Checked>) -> Result<Vec<Exchange>, Fault> {
    let mut chunks: Vec<Exchange> = Vec::new();
    let mut between = Some(between);
    let mut token = String::new();
    loop {
        let with = if token.is_empty() { String::new() } else { format!("&continue={token}") };
        let chunk = lab.expect(StatusCode::OK, Ask::get(format!("{path}&limit={CHUNK}{with}"))).await?;
        token = escaped(chunk.body["metadata"]["continue"].as_str().unwrap_or_default());
        chunks.push(chunk);
        if let Some(between) = between.take() {
            between.await?;
        }
        if token.is_empty() {
            return Ok(chunks);
        }
        hold(chunks.len() < MOST_CHUNKS, || format!("the walk of {path} does not end"))?;
    }
}

/// A continue token, encoded for a query.
fn escaped(token: &str) -> String {
    token.replace('%', "%25").replace('+', "%2B").replace('=', "%3D").replace('&', "%26")
}

fn all_names(chunks: &[Exchange]) -> Vec<String> {
    chunks.iter().flat_map(|chunk| names(&chunk.body)).collect()
}

async fn chunks_are_the_whole(lab: &Lab) -> Checked {
    let path = filled(lab).await?;
    let whole = lab.get(&path).await?;
    let chunks = walk(lab, &path, async { Ok(()) }).await?;
    for chunk in &chunks {
        let count = names(&chunk.body).len();
        hold(count <= CHUNK, || format!("a chunk with limit={CHUNK} has {count} objects"))?;
    }
    let (walked, whole) = (all_names(&chunks), names(&whole));
    let once: BTreeSet<&String> = walked.iter().collect();
    hold(once.len() == walked.len(), || "an object is in two chunks of one walk".to_owned())?;
    hold(walked == whole, || format!("the chunks hold {walked:?}, and the whole list {whole:?}"))
}

async fn chunks_are_one_snapshot(lab: &Lab) -> Checked {
    let path = filled(lab).await?;
    let before = names(&lab.get(&path).await?);
    let maps = lab.maps();
    // The last object is deleted and another one created behind all others. Both are in chunks that have not been read
    // yet.
    let between = async {
        lab.expect(StatusCode::OK, Ask::new(Method::DELETE, format!("{maps}/chunk-{:02}", OBJECTS - 1))).await?;
        lab.create("chunk-99", &json!({"app": "chunks"})).await.map(drop)
    };
    let chunks = walk(lab, &path, between).await?;
    let walked = all_names(&chunks);
    let versions: BTreeSet<String> = chunks.iter().map(|chunk| version_of(&chunk.body)).collect::<Result<_, _>>()?;
    lab.expect(StatusCode::OK, Ask::new(Method::DELETE, format!("{maps}/chunk-99"))).await?;
    hold(walked == before, || format!("the walk began with {before:?} and showed {walked:?}"))?;
    hold(versions.len() == 1, || format!("the chunks of one walk are at the versions {versions:?}"))
}

async fn remaining_counts_are_right(lab: &Lab) -> Checked {
    let maps = lab.maps();
    filled(lab).await?;
    // Lists with selectors have no remaining item count.
    let chunks = walk(lab, &format!("{maps}?"), async { Ok(()) }).await?;
    let sizes: Vec<usize> = chunks.iter().map(|chunk| names(&chunk.body).len()).collect();
    for (number, chunk) in chunks.iter().enumerate() {
        let Some(said) = chunk.body["metadata"]["remainingItemCount"].as_u64() else { continue };
        let after: usize = sizes[number + 1..].iter().sum();
        hold(said == after as u64, || format!("chunk {number} says that {said} objects remain, and {after} came"))?;
    }
    Ok(())
}

async fn selected_chunks_are_the_selected(lab: &Lab) -> Checked {
    filled(lab).await?;
    let path = format!("{}?labelSelector=app%3Dchunks,group%3Dthird", lab.maps());
    let whole = lab.get(&path).await?;
    let items = array(&whole["items"]);
    let others = items.iter().filter(|item| item["metadata"]["labels"]["group"] != "third").count();
    hold(others == 0, || format!("{others} objects of the list are not selected"))?;
    let walked = all_names(&walk(lab, &path, async { Ok(()) }).await?);
    hold(walked == names(&whole), || format!("the chunks hold {walked:?}, and the list {:?}", names(&whole)))
}

async fn a_token_with_a_version_is_refused(lab: &Lab) -> Checked {
    let path = filled(lab).await?;
    let first = lab.get(format!("{path}&limit={CHUNK}")).await?;
    let token = escaped(first["metadata"]["continue"].as_str().unwrap_or_default());
    let version = version_of(&first)?;
    let ask = Ask::get(format!("{path}&limit={CHUNK}&continue={token}&resourceVersion={version}"));
    lab.expect(StatusCode::BAD_REQUEST, ask).await.map(drop)
}

async fn invented_tokens_are_refused(lab: &Lab) -> Checked {
    for token in ["x", "AAAA", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi8ifQ"] {
        let answer = lab.send(Ask::get(format!("/api/v1/namespaces?limit=1&continue={token}"))).await?;
        hold(matches!(answer.status, StatusCode::BAD_REQUEST | StatusCode::GONE), || {
            format!("the token {token} was answered with {}", answer.status)
        })?;
    }
    Ok(())
}

async fn a_list_shows_the_newest(lab: &Lab) -> Checked {
    for number in 0..10 {
        let name = format!("newest-{number}");
        lab.create(&name, &json!({"app": "newest"})).await?;
        let list = lab.get(format!("{}?labelSelector=app%3Dnewest", lab.maps())).await?;
        hold(names(&list).contains(&name), || format!("a list after the create of {name} has it not"))?;
    }
    Ok(())
}

async fn an_exact_list_shows_the_past(lab: &Lab) -> Checked {
    lab.create("exact-before", &json!({"app": "exact"})).await?;
    let path = format!("{}?labelSelector=app%3Dexact", lab.maps());
    let list = lab.get(&path).await?;
    let version = version_of(&list)?;
    lab.create("exact-after", &json!({"app": "exact"})).await?;
    let ask = Ask::get(format!("{path}&resourceVersion={version}&resourceVersionMatch=Exact"));
    let past = lab.send(ask).await?;
    if past.status == StatusCode::GONE {
        return Err(Fault::Skipped("the version was compacted meanwhile".to_owned()));
    }
    hold(past.status == StatusCode::OK, || format!("an exact list was answered with {}", past.status))?;
    hold(names(&past.body) == ["exact-before"], || format!("the past list holds {:?}", names(&past.body)))?;
    let shown = version_of(&past.body)?;
    hold(shown == version, || format!("the exact list at {version} says that it is at {shown}"))
}

async fn a_list_is_not_older(lab: &Lab) -> Checked {
    let made = lab.create("not-older", &json!({"app": "not-older"})).await?;
    let version = version_of(&made)?;
    let query = format!("labelSelector=app%3Dnot-older&resourceVersion={version}&resourceVersionMatch=NotOlderThan");
    let list = lab.get(format!("{}?{query}", lab.maps())).await?;
    hold(names(&list) == ["not-older"], || "a list not older than an object's version has the object not".to_owned())
}

async fn a_match_without_a_version_is_refused(lab: &Lab) -> Checked {
    for kind in ["Exact", "NotOlderThan"] {
        let answer = lab.send(Ask::get(format!("/api/v1/namespaces?limit=1&resourceVersionMatch={kind}"))).await?;
        hold(matches!(answer.status.as_u16(), 400 | 422), || {
            format!("resourceVersionMatch={kind} alone was answered with {}", answer.status)
        })?;
    }
    Ok(())
}

async fn forms_hold_the_same(lab: &Lab) -> Checked {
    let path = filled(lab).await?;
    let list = names(&lab.get(&path).await?);
    let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let shown = names(&lab.expect(StatusCode::OK, Ask::get(&path).accepting(metadata)).await?.body);
    hold(shown == list, || format!("the list holds {list:?}, and its metadata {shown:?}"))?;
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let table = lab.expect(StatusCode::OK, Ask::get(&path).accepting(table)).await?.body;
    let rows = array(&table["rows"]);
    let name_of = |row: &Value| row["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let rows: Vec<String> = rows.iter().map(name_of).collect();
    hold(rows == list, || format!("the list holds {list:?}, and its table {rows:?}"))
}
