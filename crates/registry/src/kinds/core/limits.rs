//! Limits of namespaces: limit ranges, and quotas.
//!
//! A limit range that is made without a name gets its uid as its name, as upstream has it and for no other kind. When the limits that
//! hold by a quota change, its namespace is written again, so that no write that was judged without them takes effect behind them.

use futures::future::BoxFuture;
use keelson_meta::{ApiError, Object};
use keelson_storage::KeyValue;

use crate::companions::Companions;
use crate::kinds::strategy::Strategy;
use crate::quota::same_limits;
use crate::registry::Registry;
use crate::target::Target;
use crate::warnings::Warnings;

/// The strategy of limit ranges.
pub(super) struct LimitRanges;

impl Strategy for LimitRanges {
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

impl Strategy for ResourceQuotas {
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
    ) -> BoxFuture<'a, Result<Companions, ApiError>> {
        Box::pin(async move {
            let mut companions = Companions::default();
            let (Some(before), Some(after)) = (before, after) else { return Ok(companions) };
            if same_limits(before, after) {
                return Ok(companions);
            }
            if let Some((namespaces, key, value, revision)) = registry.namespace_to_touch(after.namespace())? {
                companions.keep(registry.enter(&namespaces).await?);
                companions.touch(KeyValue { key, value, revision });
            }
            Ok(companions)
        })
    }

    fn returns_deleted(&self) -> bool {
        true
    }
}
