//! Objects of the source as stored values: the bytes, key and revision that a cache reads from a store.
//!
//! The source is not trusted to send what the API promises. An object of another kind, without a name, or with a name
//! that would change its key, is a fault.

use keelson_codec::StoredObject;
use keelson_meta::json::Value;
use keelson_meta::{GroupVersionKind, Object, Revision};
use keelson_storage::{KeyValue, StoreKey};

/// A resource as it is listed and watched at the source.
#[derive(Clone, Debug)]
pub(crate) struct MirroredKind {
    pub(crate) kind: GroupVersionKind,
    pub(crate) namespaced: bool,
    /// The path of the whole collection: `/api/v1/pods`.
    pub(crate) path: String,
    /// The prefix of its keys: `/registry/pods/`.
    pub(crate) prefix: String,
}

/// A page of a list.
pub(crate) struct Page {
    pub(crate) revision: Revision,
    pub(crate) objects: Vec<KeyValue>,
    pub(crate) next: Option<String>,
}

impl MirroredKind {
    /// The stored value of an object.
    ///
    /// # Errors
    /// The object is not of this kind, or has no valid name or revision.
    pub(crate) fn stored(&self, value: Value) -> Result<KeyValue, String> {
        let mut object = Object::from_value(value).ok_or("an object is not a JSON object")?;
        let api_version = self.kind.group_version().to_string();
        let is_of_kind = |own: Option<&str>, wanted: &str| own.is_none_or(|own| own.is_empty() || own == wanted);
        if !is_of_kind(object.kind(), &self.kind.kind) || !is_of_kind(object.api_version(), &api_version) {
            let (kind, version) = (object.kind().unwrap_or_default(), object.api_version().unwrap_or_default());
            return Err(format!("an object is a {kind:?} of {version:?}, not a {} of {api_version}", self.kind.kind));
        }
        let (key, revision) = (self.key(&object)?, revision_of(object.resource_version())?);
        object.set_type(&self.kind);
        Ok(KeyValue::new(key, StoredObject::encode(&object).bytes(), revision))
    }

    /// The key of an object.
    pub(crate) fn key(&self, object: &Object) -> Result<StoreKey, String> {
        let (namespace, name) = (object.namespace(), object.name());
        let is_segment = |text: &str| !text.is_empty() && !text.contains(['/', '\0']);
        if !is_segment(name) || (self.namespaced != is_segment(namespace)) {
            return Err(format!("an object has the namespace {namespace:?} and the name {name:?}"));
        }
        let key = match self.namespaced {
            true => format!("{}{namespace}/{name}", self.prefix),
            false => format!("{}{name}", self.prefix),
        };
        Ok(StoreKey::new(key))
    }

    /// Reads a page of a list.
    pub(crate) fn page(&self, list: Value) -> Result<Page, String> {
        let Value::Object(mut list) = list else { return Err("a list is not a JSON object".to_owned()) };
        let metadata = list.get("metadata").cloned().unwrap_or(Value::Null);
        let revision = revision_of(metadata["resourceVersion"].as_str().unwrap_or_default())?;
        let next = metadata["continue"].as_str().filter(|token| !token.is_empty()).map(str::to_owned);
        let objects = match list.remove("items") {
            Some(Value::Array(items)) => items.into_iter().map(|item| self.stored(item)).collect::<Result<_, _>>()?,
            None | Some(Value::Null) => Vec::new(),
            Some(_) => return Err("the items of a list are no array".to_owned()),
        };
        Ok(Page { revision, objects, next })
    }
}

/// A revision of the source.
pub(crate) fn revision_of(text: &str) -> Result<Revision, String> {
    match text.parse::<Revision>() {
        Ok(revision) if revision > Revision::ZERO => Ok(revision),
        _ => Err(format!("the resourceVersion {text:?} is no positive number")),
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    fn pods() -> MirroredKind {
        MirroredKind {
            kind: GroupVersionKind { group: String::new(), version: "v1".to_owned(), kind: "Pod".to_owned() },
            namespaced: true,
            path: "/api/v1/pods".to_owned(),
            prefix: "/registry/pods/".to_owned(),
        }
    }

    #[test]
    fn an_item_of_a_list_gets_its_kind_and_loses_its_revision() {
        let item = json!({"metadata": {"name": "p", "namespace": "n", "resourceVersion": "7"}, "spec": {}});
        let stored = pods().stored(item).unwrap();
        assert_eq!((stored.key.as_str(), stored.revision), ("/registry/pods/n/p", Revision::new(7)));
        let text = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"n"},"spec":{}}"#;
        assert_eq!(stored.value, text.as_bytes());
    }

    #[test]
    fn objects_of_other_kinds_or_without_identity_are_refused() {
        let check = |value: Value| assert!(pods().stored(value.clone()).is_err(), "{value:?}");
        let named = |namespace: &str, name: &str, revision: &str| json!({"metadata": {"name": name, "namespace": namespace, "resourceVersion": revision}});
        check(named("n", "", "7"));
        check(named("", "p", "7"));
        check(named("n", "../p", "7"));
        check(named("n", "p", ""));
        check(named("n", "p", "0"));
        check(named("n", "p", "x"));
        check(json!({"kind": "Secret", "metadata": {"name": "p", "namespace": "n", "resourceVersion": "7"}}));
        check(json!({"apiVersion": "v2", "metadata": {"name": "p", "namespace": "n", "resourceVersion": "7"}}));
        check(json!([]));
    }

    #[test]
    fn a_page_has_a_revision_and_perhaps_a_next_one() {
        let metadata = json!({"resourceVersion": "9", "continue": "t"});
        let page = pods().page(json!({"metadata": metadata, "items": null})).unwrap();
        assert_eq!((page.revision, page.next.as_deref(), page.objects.len()), (Revision::new(9), Some("t"), 0));
        assert!(pods().page(json!({"metadata": {}, "items": []})).is_err());
        assert!(pods().page(json!({"metadata": {"resourceVersion": "9"}, "items": {}})).is_err());
    }
}
