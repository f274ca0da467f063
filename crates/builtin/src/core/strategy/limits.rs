//! Strategies of limit ranges and resource quotas.
//!
//! Like upstream, a limit range without a name gets its uid as its name. When the limits of a quota change, its
//! namespace is written too. So a concurrent write that was admitted without these limits conflicts.

use futures::future::BoxFuture;
use keelson_meta::json::Value;
use keelson_meta::{ApiError, Object};
use keelson_registry::strategy::{CreateStrategy, DeleteStrategy, WriteStrategy};
use keelson_registry::{AssociatedWrites, Registry, Target, Warnings};
use keelson_storage::KeyValue;

/// The strategy of limit ranges.
pub(super) struct LimitRanges;

impl CreateStrategy for LimitRanges {
    fn prepare_create(&self, object: &mut Object, _: &Warnings) -> bool {
        let unnamed = object.name().is_empty();
        if unnamed {
            let name = object.uid().to_owned();
            object.set_meta("name", name);
        }
        unnamed
    }
}

/// The strategy of quotas.
pub(super) struct ResourceQuotas;

impl WriteStrategy for ResourceQuotas {
    fn has_companions(&self) -> bool {
        true
    }

    fn companions<'a>(
        &'a self,
        registry: &'a Registry,
        _target: &'a Target,
        before: Option<&'a Object>,
        after: Option<&'a mut Object>,
        _attempt: usize,
    ) -> BoxFuture<'a, Result<AssociatedWrites, ApiError>> {
        Box::pin(async move {
            let mut companions = AssociatedWrites::default();
            let (Some(before), Some(after)) = (before, after) else { return Ok(companions) };
            if same_limits(before, after) {
                return Ok(companions);
            }
            if let Some((namespaces, key, value, revision)) = registry.namespace_to_touch(after.namespace())? {
                companions.keep(registry.enter(&namespaces).await?);
                companions.touch(KeyValue::new(key, value, revision));
            }
            Ok(companions)
        })
    }
}

impl DeleteStrategy for ResourceQuotas {
    fn returns_deleted(&self) -> bool {
        true
    }
}

/// Returns true if two states of a quota have the same limits.
fn same_limits(before: &Object, after: &Object) -> bool {
    let hard = |quota: &Object| quota.get(&["status", "hard"]).cloned().unwrap_or(Value::Null);
    hard(before) == hard(after)
}
