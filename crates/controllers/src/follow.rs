//! Follows a collection for a controller: first all objects, then each change.
//!
//! This module uses a watch with initial events, and starts a new watch after one ends. A controller receives each
//! object's newest state at least once, possibly several times.

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

/// The backoff before the watch of a collection starts again.
const FOLLOW_AGAIN: Backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(10) };

/// Calls `seen` for each object of a collection that the field selector matches, and for each later change and
/// deletion. After the watch ends, `seen` is called for all objects again. It may read the object's current state
/// itself.
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
    // Existing objects come first.
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
            warn_repeated!(target.group_resource(); resource = %target.group_resource(), %error, "following objects failed; the watch starts again");
        }
    }
}

/// Calls `seen` after each change of a value. Never returns, even when the sender is dropped.
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
