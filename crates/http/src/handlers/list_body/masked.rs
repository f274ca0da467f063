//! Removes the fields that a mask does not select from the items of a list, before they are encoded.
//!
//! Items are masked while they are sent, batch by batch, so a list with a mask needs no more memory than one without.

use std::future::poll_fn;
use std::sync::Arc;

use futures::stream::{self, StreamExt as _};
use keelson_cache::Entry;
use keelson_codec::StoredObject;
use keelson_meta::ApiError;
use keelson_query::Mask;

use super::{Batch, Source};

/// The items with only the fields that the mask selects.
pub(in crate::handlers) fn masked(source: Source, mask: Arc<Mask>) -> Source {
    let bytes = source.size_hint();
    let batches = stream::try_unfold((source, mask), async |(mut source, mask)| {
        let Some(batch) = poll_fn(|context| source.poll_next(context)).await? else { return Ok(None) };
        let cut = batch.entries().iter().map(|entry| cut(entry, &mask)).collect::<Result<Vec<_>, ApiError>>()?;
        Ok(Some((Batch::Page(cut), (source, mask))))
    });
    Source::Converted { batches: batches.boxed(), bytes, again: None }
}

/// An entry with only the fields that the mask selects.
pub(in crate::handlers) fn cut(entry: &Entry, mask: &Mask) -> Result<Arc<Entry>, ApiError> {
    Ok(Arc::new(entry.with_object(masked_object(&entry.key, &entry.object(), mask)?)))
}

/// The fields of an object that the mask selects.
pub(in crate::handlers) fn masked_object(
    key: &str,
    object: &StoredObject,
    mask: &Mask,
) -> Result<StoredObject, ApiError> {
    let mut json = Vec::new();
    mask.write(&object.bytes(), &mut json);
    StoredObject::parse(json.into())
        .map_err(|error| ApiError::Internal(format!("a part of {key:?} can't be shown: {error}")))
}
