//! Objects that readers get with more fields than are stored: the defaults of the stored version, which are set when an
//! object is read.
//!
//! Defaults are not stored for an object that was sent in another version, so that the object follows changes of the
//! defaults.

use keelson_cache::Collection;
use keelson_codec::StoredObject;
use keelson_codec::stored::ParsedObject;

use crate::target::Target;

/// The object as readers get it when these bytes are stored; `None` if it has no more fields.
///
/// Cost: nothing for kinds with one version, otherwise a walk through the bytes.
pub(super) fn completed(target: &Target, collection: &Collection, written: &ParsedObject) -> Option<StoredObject> {
    let has_others = !target.resource.is_builtin() && target.resource.versions().len() > 1;
    if has_others { collection.completed(written) } else { None }
}
