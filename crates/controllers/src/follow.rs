//! Follows a collection for as long as a controller runs: the objects there are, and then each that changes.
//!
//! It is a watch with initial events, which begins anew with all objects whenever it ends. So a controller is told of each object's
//! newest state at least once, and must not count events.

use std::convert::Infallible;
use std::time::Duration;

use futures::future::BoxFuture;
use keelson_cache::Entry;
use keelson_meta::ApiError;
use keelson_meta::field_selector::FieldSelector;
use keelson_meta::options::{ListOptions, ResourceVersionMatch};
use keelson_registry::{Caller, Registry, Target, WatchOutput};
use keelson_supervision::{Backoff, Pace, warn_repeated};
use tokio::sync::watch;

/// The backoff before a collection is followed anew whose watch has failed or ended.
const FOLLOW_AGAIN: Backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(10) };

/// Tells of each object of a collection (those of a field selector, if there is one), and again of each that changes or
/// goes; anew of all whenever the watch ends. Whoever is told looks for himself what the object is like now.
pub async fn follow(
    registry: &Registry,
    caller: &Caller,
    target: &Target,
    field_selector: FieldSelector,
    seen: impl Fn(&Entry) + Send + Sync,
) -> Infallible {
    follow_boxed(registry, caller, target, field_selector, &seen).await
}

fn follow_boxed<'f>(
    registry: &'f Registry,
    caller: &'f Caller,
    target: &'f Target,
    field_selector: FieldSelector,
    seen: &'f (dyn Fn(&Entry) + Send + Sync),
) -> BoxFuture<'f, Infallible> {
    Box::pin(follow_each(registry, caller, target, field_selector, seen))
}

async fn follow_each(
    registry: &Registry,
    caller: &Caller,
    target: &Target,
    field_selector: FieldSelector,
    seen: &(dyn Fn(&Entry) + Send + Sync),
) -> Infallible {
    // What exists is told first.
    let options = ListOptions {
        field_selector,
        watch: true,
        send_initial_events: true,
        resource_version_match: Some(ResourceVersionMatch::NotOlderThan),
        ..ListOptions::default()
    };
    let mut pace = Pace::new(FOLLOW_AGAIN);
    loop {
        pace.turn().await;
        if let Err(error) = watch(registry, caller, target, &options, seen).await {
            warn_repeated!(target.group_resource(); resource = %target.group_resource(), %error, "following objects failed and is begun anew");
        }
    }
}

/// Tells whenever a value of this server has changed. One that nobody can change any more never does.
pub(crate) async fn changes<T>(mut value: watch::Receiver<T>, seen: impl Fn()) -> Infallible {
    while value.changed().await.is_ok() {
        seen();
    }
    std::future::pending().await
}

async fn watch(
    registry: &Registry,
    caller: &Caller,
    target: &Target,
    options: &ListOptions,
    seen: &(dyn Fn(&Entry) + Send + Sync),
) -> Result<(), ApiError> {
    let mut watch = registry.watch(target, caller, options).await?;
    while let Some(outputs) = watch.next().await {
        for output in outputs {
            match output {
                WatchOutput::Initial(entry) => seen(&entry),
                WatchOutput::Event(_, event) => {
                    if let Some(entry) = event.current.as_ref().or(event.previous.as_ref()) {
                        seen(entry);
                    }
                }
                WatchOutput::Bookmark { .. } => {}
                WatchOutput::Error(error) => return Err(error),
            }
        }
    }
    Ok(())
}
