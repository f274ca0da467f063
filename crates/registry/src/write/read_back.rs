//! Objects that readers see with more than is stored: the defaults of the stored version, which are filled in when an object is read.
//!
//! They are not written for an object that was sent in another version, so that it follows a default that changes.

use keelson_cache::{Collection, Entry};
use keelson_codec::StoredObject;
use keelson_codec::stored::Checked;

use crate::rewrite::Current;
use crate::target::Target;

/// The object as it is read once it is stored in these bytes; `None` where that is the same.
///
/// Cost: nothing for kinds with one version; else a look through the bytes.
pub(super) fn completed(target: &Target, collection: &Collection, written: &Checked) -> Option<StoredObject> {
    let has_others = !target.resource.is_builtin() && target.resource.versions().len() > 1;
    if has_others { collection.completed(written) } else { None }
}

/// Returns true if the object that would be read after the write is `live` already, in the encoding that is written.
pub(super) fn is_stored(current: &Current, collection: &Collection, read: &StoredObject, live: &Entry) -> bool {
    *read == live.object && collection.is_current(live, |encoding| current.is_of(encoding))
}
