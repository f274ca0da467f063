//! A list as a stream (WatchList, KEP-3157): a watch that begins with all objects, and marks their end.
//!
//! The source sends each object once, from its memory, and needs no pages. A source that refuses it, or that never sends
//! the mark, is listed in pages.

use std::collections::HashMap;
use std::time::Duration;

use keelson_meta::Revision;
use keelson_storage::{KeyValue, StoreKey};

use crate::lines::{Event, Lines};
use crate::objects::{MirroredKind, Page};
use crate::source::{Fault, Source};

/// The requested duration of the stream. It is ended at the mark.
const SECONDS: u64 = 300;
/// The longest time between two parts. A source without the feature sends its objects and then nothing.
const IDLE_TIME: Duration = Duration::from_secs(10);
/// The most objects of a stream. One with more never ends.
const OBJECTS: usize = 10_000_000;

/// Reads all objects. Changes that come before the mark are applied.
///
/// # Errors
/// The source does not send lists as streams, or fails.
pub(crate) async fn list(source: &Source, kind: &MirroredKind) -> Result<Page, Fault> {
    let query = format!(
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds={SECONDS}"
    );
    let stream = source.stream(&format!("{}?{query}", kind.path), IDLE_TIME).await;
    let mut lines = Lines::new(stream.inspect_err(|fault| note_refusal(source, fault))?);
    let mut objects: HashMap<StoreKey, KeyValue> = HashMap::new();
    loop {
        let Some(next) = lines.next().await.inspect_err(|_| source.refuses_streams())? else {
            source.refuses_streams();
            return Err(Fault::Invalid("the stream of a list has no end mark".to_owned()));
        };
        for line in &next {
            match kind.event(line)? {
                Event::InitialEnd(revision) => return Ok(page(revision, objects)),
                Event::Change(change) => {
                    let known =
                        KeyValue::new(change.key.clone(), change.value.clone().unwrap_or_default(), change.revision);
                    match change.value {
                        Some(_) => drop(objects.insert(change.key, known)),
                        None => drop(objects.remove(&change.key)),
                    }
                }
                Event::Bookmark(_) => {}
                Event::Expired => {
                    return Err(Fault::Refused { code: 410, message: "the stream has expired".to_owned() });
                }
                Event::Failed(why) => return Err(Fault::Invalid(why)),
            }
        }
        if objects.len() > OBJECTS {
            return Err(Fault::Invalid(format!("the list of {} has more than {OBJECTS} objects", kind.path)));
        }
    }
}

/// A refusal of the parameters holds for all resources of the source.
fn note_refusal(source: &Source, fault: &Fault) {
    if matches!(fault, Fault::Refused { code: 400 | 422, .. }) {
        source.refuses_streams();
    }
}

fn page(revision: Revision, objects: HashMap<StoreKey, KeyValue>) -> Page {
    let mut objects: Vec<KeyValue> = objects.into_values().collect();
    objects.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    Page { revision, objects, next: None }
}
