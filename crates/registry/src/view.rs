//! Views of stored objects in the version of a request, whatever version they are stored in.
//!
//! Most kinds have one version, and their bytes are sent unchanged at no cost. A kind whose versions differ only by
//! name gets another header. Otherwise objects are converted before they are rendered, many at a time: by built-in
//! code, or by a [`Converter`](crate::Converter), which may be slow or fail. An object that cannot be converted is an
//! error with its name, and is never shown under the name of another version.

use std::borrow::Cow;
use std::sync::Arc;

use futures::future::BoxFuture;
use keelson_cache::Entry;
use keelson_codec::StoredObject;
use keelson_codec::stored::HeaderText;
use keelson_meta::go_format::quote;
use keelson_meta::{ApiError, GroupVersionKind, Object, Revision};
use keelson_supervision::outcome;
use tokio_util::task::AbortOnDropHandle;

use crate::converter::{BATCH_BYTES, BATCH_OBJECTS, ask};
use crate::kept::{Claim, LookupResult, Reuse};
use crate::kind_rules::{Conversion, ConversionError};
use crate::surface::{KindVersion, ServedResource, VersionChange};
use crate::target::Target;
use crate::versions::{unconvertible, version_of};

/// The conversion yields after decoding or encoding this many bytes of objects.
const REST_FROM_BYTES: usize = 64 << 10;

/// A collection in the version of a request.
#[derive(Clone)]
pub struct VersionedView {
    resource: Arc<ServedResource>,
    version: Arc<KindVersion>,
    /// True if no object can have another version, as with most built-in kinds.
    sole: bool,
}

impl std::fmt::Debug for VersionedView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("VersionedView").field(self.kind()).finish()
    }
}

impl VersionedView {
    /// The view of a target.
    pub fn new(target: &Target) -> Self {
        let sole = !target.resource.is_persisted() || target.version.is_sole();
        Self { resource: target.resource.clone(), version: target.version.clone(), sole }
    }

    /// The kind in this version.
    pub fn kind(&self) -> &GroupVersionKind {
        self.version.kind()
    }

    /// Returns true if no object can have another version, so that nothing is converted.
    pub fn is_sole(&self) -> bool {
        self.sole
    }

    /// Returns true if conversions need a webhook.
    pub fn asks(&self) -> bool {
        self.resource.converter().is_some()
    }

    /// Returns true if the object is stored in this version, so that its bytes are sent unchanged.
    pub fn is_same(&self, object: &StoredObject) -> bool {
        self.sole || self.is_same_header(object.header())
    }

    /// As [`is_same`](Self::is_same), for the object of an entry, which need not be decoded.
    pub fn is_same_entry(&self, entry: &Entry) -> bool {
        self.sole || entry.header(|header| self.is_same_header(header))
    }

    fn is_same_header(&self, header: HeaderText<'_>) -> bool {
        header.is(self.version.stored_header()) || header.api_version() == self.version.api_version()
    }

    /// Returns true if the object has the fields of this version. Its header may name another version.
    pub fn fits(&self, object: &StoredObject) -> bool {
        self.sole || self.fits_header(object.header())
    }

    /// As [`fits`](Self::fits), for the object of an entry, which need not be decoded.
    pub fn fits_entry(&self, entry: &Entry) -> bool {
        self.sole || entry.header(|header| self.fits_header(header))
    }

    fn fits_header(&self, header: HeaderText<'_>) -> bool {
        self.is_same_header(header)
            || matches!(
                self.resource.change(header.api_version(), &self.version),
                Some(VersionChange::None | VersionChange::Name)
            )
    }

    /// The object with the fields of this version.
    ///
    /// Cost: nothing if the object has them already. Otherwise the object is decoded, converted and encoded.
    ///
    /// # Errors
    /// 500 if the object cannot be converted.
    pub async fn show<'o>(&self, object: &'o StoredObject) -> Result<Cow<'o, StoredObject>, ApiError> {
        if self.fits(object) {
            return Ok(Cow::Borrowed(object));
        }
        match self.resource.change(object.api_version(), &self.version) {
            // The converter may have been corrected since it filled the cache, so a read of one object does not use
            // cached results.
            Some(VersionChange::Asked(_)) => {
                let mut shown = self.asked(std::slice::from_ref(object), Reuse::UnderWay).await?;
                let lost = || ApiError::Internal(format!("{} was converted to nothing", name_in(object)));
                shown.pop().map(Cow::Owned).ok_or_else(lost)
            }
            _ => self.converted(object, &name_in(object)).map(Cow::Owned),
        }
    }

    /// As [`show`](Self::show), for the object of an entry.
    ///
    /// # Errors
    /// 500 if the object cannot be converted.
    pub async fn show_entry(&self, entry: &Entry) -> Result<StoredObject, ApiError> {
        if self.fits_entry(entry) {
            return Ok(entry.object().clone());
        }
        // Conversions are cached by the address of the stored bytes.
        let object = entry.pinned_object();
        Ok(self.show(&object).await?.into_owned())
    }

    /// Converts entries to this version. Entries with its fields stay as they are. One call of a webhook has many
    /// entries.
    ///
    /// # Errors
    /// 500 when one of them cannot be converted.
    pub async fn show_all(&self, entries: Vec<Arc<Entry>>) -> Result<Vec<Arc<Entry>>, ApiError> {
        if !self.asks() {
            return self.show_all_now(entries);
        }
        let mut shown = entries;
        let mut place = 0;
        while let Some(batch) = self.batch(&shown, place) {
            // Conversions are cached by the address of the stored bytes.
            let objects: Vec<StoredObject> = batch.iter().map(|place| shown[*place].pinned_object()).collect();
            let converted = self.asked(&objects, Reuse::Kept).await?;
            for (place, object) in batch.iter().zip(converted) {
                shown[*place] = Arc::new(shown[*place].with_object(object));
            }
            place = batch[0] + 1;
        }
        Ok(shown)
    }

    /// As [`show_all`](Self::show_all), for a kind without a webhook.
    ///
    /// # Errors
    /// 500 when one of them cannot be converted.
    pub fn show_all_now(&self, mut entries: Vec<Arc<Entry>>) -> Result<Vec<Arc<Entry>>, ApiError> {
        for entry in &mut entries {
            if !self.fits_entry(entry) {
                let converted = self.show_now(entry)?;
                *entry = Arc::new(entry.with_object(converted));
            }
        }
        Ok(entries)
    }

    /// Converts one object to this version, for a kind without a webhook.
    ///
    /// # Errors
    /// 500 when it cannot be converted.
    pub(crate) fn show_now(&self, entry: &Entry) -> Result<StoredObject, ApiError> {
        self.converted(&entry.object(), &entry.key)
    }

    /// The indices of the next entries, from `start` on, for one call of the converter. They are all in one version.
    fn batch(&self, entries: &[Arc<Entry>], start: usize) -> Option<Vec<usize>> {
        let mut bytes = 0;
        let mut from = None;
        let mut batch = Vec::new();
        for (place, entry) in entries.iter().enumerate().skip(start).filter(|(_, entry)| !self.fits_entry(entry)) {
            let size = entry.size();
            if batch.len() == BATCH_OBJECTS || (bytes > 0 && bytes + size > BATCH_BYTES) {
                break;
            }
            let is_first = from.is_none();
            let known: &String = from.get_or_insert_with(|| entry.header(|header| header.api_version().to_owned()));
            if is_first || entry.header(|header| header.api_version() == known) {
                bytes += size;
                batch.push(place);
            }
        }
        (!batch.is_empty()).then_some(batch)
    }

    /// Converts objects of one version to this one. The converter gets only objects that are neither cached nor part of
    /// a call under way.
    fn asked<'o>(
        &'o self,
        objects: &'o [StoredObject],
        reuse: Reuse,
    ) -> BoxFuture<'o, Result<Vec<StoredObject>, ApiError>> {
        Box::pin(self.kept_or_asked(objects, reuse))
    }

    async fn kept_or_asked(&self, objects: &[StoredObject], reuse: Reuse) -> Result<Vec<StoredObject>, ApiError> {
        let Some((kept, version)) = self.resource.kept(&self.version) else { return self.ask(objects).await };
        let mut found = vec![None; objects.len()];
        loop {
            let missing: Vec<usize> = (0..objects.len()).filter(|place| found[*place].is_none()).collect();
            if missing.is_empty() {
                return Ok(found.into_iter().flatten().collect());
            }
            let wanted: Vec<&StoredObject> = missing.iter().map(|place| &objects[*place]).collect();
            let LookupResult { kept: mut shown, claim, others } = kept.look(version, &wanted, reuse);
            if let Some(claim) = claim {
                for (place, object) in claim.places.clone().into_iter().zip(self.ask_for(claim).await?) {
                    shown[place] = Some(object);
                }
            }
            // ORDER: after the own result, so that no two requests wait for each other.
            for other in others {
                other.land(&mut shown).await?;
            }
            for (place, object) in missing.into_iter().zip(shown) {
                found[place] = object;
            }
        }
    }

    /// Converts the objects of a claim in a task of its own. Other requests may wait for the result, and must not
    /// depend on a list whose client does not read. The task ends with its request. Other requests then convert the
    /// remaining objects.
    async fn ask_for(&self, claim: Claim) -> Result<Vec<StoredObject>, ApiError> {
        let view = self.clone();
        let asking = tokio::spawn(async move {
            let answer = view.ask(claim.stored()).await;
            claim.land(answer.as_deref());
            answer
        });
        outcome(AbortOnDropHandle::new(asking)).await
    }

    /// Converts objects of one version by the converter. It yields in between, because a batch takes longer than a
    /// shared thread should work at once.
    async fn ask(&self, objects: &[StoredObject]) -> Result<Vec<StoredObject>, ApiError> {
        let from = objects.first().map_or("", StoredObject::api_version);
        let mut decoded = Vec::with_capacity(objects.len());
        let mut turn = Turn::default();
        for object in objects {
            decoded.push(unversioned(object));
            turn.rest(object).await;
        }
        let unknown = || unconvertible(&self.resource, decoded.first(), from, self.kind(), "nothing leads there");
        let converter = self.resource.converter().ok_or_else(unknown)?;
        let source = version_of(&self.resource, from).ok_or_else(unknown)?;
        let converted = ask(&**converter, &source, self.kind(), &decoded).await?;
        let mut encoded = Vec::with_capacity(converted.len());
        for mut object in converted {
            self.version.shape(&mut object);
            let object = StoredObject::encode(&object);
            turn.rest(&object).await;
            encoded.push(object);
        }
        Ok(encoded)
    }

    /// The object after a built-in conversion.
    fn converted(&self, object: &StoredObject, name: &str) -> Result<StoredObject, ApiError> {
        let from = object.api_version();
        let failed = |why: &str| self.unshowable(from, name, why);
        match self.resource.change(from, &self.version) {
            Some(VersionChange::Fields(conversion)) => {
                through(conversion, object).map_err(|error| failed(&error.to_string()))
            }
            Some(VersionChange::Schema) => {
                let mut shaped = unversioned(object);
                shaped.set_type(self.kind());
                self.version.shape(&mut shaped);
                Ok(StoredObject::encode(&shaped))
            }
            Some(VersionChange::None | VersionChange::Name) => Ok(object.clone()),
            Some(VersionChange::Asked(_)) => Err(failed("a conversion webhook is needed")),
            None => Err(failed("its stored version is unknown")),
        }
    }

    /// Decodes the object in this version.
    ///
    /// # Errors
    /// 500 if the object does not [fit](Self::fits): the caller must convert it first.
    pub fn decode(&self, object: &StoredObject, revision: Revision) -> Result<Object, ApiError> {
        self.demand_fit(object)?;
        let mut decoded = object.decode(revision);
        decoded.set_type(self.kind());
        Ok(decoded)
    }

    /// Appends the object in this version.
    ///
    /// # Errors
    /// As [`decode`](Self::decode). Nothing is appended then.
    pub fn write_object(&self, object: &StoredObject, revision: Revision, out: &mut Vec<u8>) -> Result<(), ApiError> {
        if self.is_same(object) {
            object.write_object(revision, out);
        } else {
            self.demand_fit(object)?;
            object.write_object_as(self.kind(), revision, out);
        }
        Ok(())
    }

    fn demand_fit(&self, object: &StoredObject) -> Result<(), ApiError> {
        if self.fits(object) {
            return Ok(());
        }
        Err(self.unshowable(object.api_version(), &name_in(object), "it was not converted to the requested version"))
    }

    fn unshowable(&self, from: &str, name: &str, why: &str) -> ApiError {
        let (resource, to) = (self.resource.group_resource(), self.kind().group_version());
        ApiError::Internal(format!("{resource} {} can't be converted from {from} to {to}: {why}", quote(name)))
    }
}

/// Yields to other tasks while many objects are decoded or encoded.
#[derive(Default)]
struct Turn {
    bytes: usize,
}

impl Turn {
    async fn rest(&mut self, object: &StoredObject) {
        self.bytes += object.size();
        if self.bytes > REST_FROM_BYTES {
            self.bytes = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// The object without a resourceVersion, which is not part of the stored bytes.
fn unversioned(object: &StoredObject) -> Object {
    let mut decoded = object.decode(Revision::ZERO);
    decoded.remove_meta("resourceVersion");
    decoded
}

/// The object after a conversion that changes its fields.
fn through(conversion: &dyn Conversion, object: &StoredObject) -> Result<StoredObject, ConversionError> {
    let mut converted = unversioned(object);
    conversion.convert(&mut converted)?;
    Ok(StoredObject::encode(&converted))
}

/// The key of an object, from its own metadata.
fn name_in(object: &StoredObject) -> String {
    let object = object.decode(Revision::ZERO);
    match object.namespace() {
        "" => object.name().to_owned(),
        namespace => format!("{namespace}/{}", object.name()),
    }
}
