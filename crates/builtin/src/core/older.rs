//! Fields that the server sets when it creates an object, but that objects of older servers lack.
//!
//! These are not defaults: in a request, an absent field lets the server choose. For a stored object the choice was
//! already made, and it follows from other fields. If the fields stayed absent, every update would seem to change an
//! immutable field.

use std::net::IpAddr;

use keelson_codec::ParsedObject;
use keelson_codec::cursor::Cursor;
use keelson_meta::Object;
use keelson_meta::json::{Map, Value, json};
use keelson_registry::Family;

use crate::core::allocation::{Spec as _, needs_addresses, spec_mut};

const NONE: &str = "None";

/// The kinds whose stored objects may lack such fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Older {
    /// Older services have one address, without a list of addresses and families.
    Services,
    /// Older claims have one field for their data source instead of two.
    Claims,
}

impl Older {
    /// The kind of a core resource, if its objects may lack such fields.
    pub(crate) fn for_resource(plural: &str) -> Option<Self> {
        match plural {
            "persistentvolumeclaims" => Some(Self::Claims),
            "services" => Some(Self::Services),
            _ => None,
        }
    }
}

/// The missing fields of a kind, with the input to fill them in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredFields {
    pub(crate) of: Older,
    /// The family of headless services that do not state theirs.
    pub(crate) primary: Family,
}

impl StoredFields {
    /// Returns false if nothing is missing. Cost: one pass over the members of `spec`, without decoding.
    pub(crate) fn lacks(self, checked: &ParsedObject) -> bool {
        let Some(mut spec) = spec_of(checked.cursor()) else { return false };
        let [mut first, mut second, mut third] = [false; 3];
        while let Some(key) = spec.key() {
            let (name, raw) = (key, spec.raw());
            let is_there = !matches!(raw, b"null" | b"\"\"" | b"[]");
            match self.of {
                Older::Services => {
                    first |= name.is("clusterIP") && is_there;
                    second |= name.is("clusterIPs") && is_there;
                    third |= name.is("ipFamilies") && is_there || name.is("type") && raw == b"\"ExternalName\"";
                }
                Older::Claims => {
                    first |= name.is("dataSource") && is_there;
                    second |= name.is("dataSourceRef") && is_there;
                }
            }
        }
        match self.of {
            Older::Services => first && !(second && third),
            Older::Claims => first != second,
        }
    }

    /// Fills in the missing fields.
    pub(crate) fn fill(self, object: &mut Object) {
        let Some(spec) = spec_mut(object) else { return };
        match self.of {
            Older::Services => service(spec, self.primary),
            Older::Claims => sources(spec),
        }
    }
}

fn spec_of(mut cursor: Cursor<'_>) -> Option<Cursor<'_>> {
    cursor.take(b"{").then_some(())?;
    while let Some(key) = cursor.key() {
        if key.is("spec") {
            return cursor.take(b"{").then_some(cursor);
        }
        cursor.skip();
    }
    None
}

/// The families of a service are those of its addresses. A headless service has the primary family of the cluster.
/// Without a selector it has both.
fn service(spec: &mut Map, primary: Family) {
    let address = spec.text("clusterIP").to_owned();
    if address.is_empty() {
        return;
    }
    if spec.texts("clusterIPs").is_empty() {
        spec.put("clusterIPs", Some(json!([address])));
    }
    if !needs_addresses(spec) || !spec.texts("ipFamilies").is_empty() {
        return;
    }
    let families: Vec<Family> = if address == NONE {
        let is_selectorless = spec.get("selector").and_then(Value::as_object).is_none_or(Map::is_empty);
        if is_selectorless { vec![primary, primary.other()] } else { vec![primary] }
    } else {
        let addresses = spec.texts("clusterIPs").into_iter().filter_map(|address| address.parse::<IpAddr>().ok());
        addresses.map(Family::from_address).collect()
    };
    let policy = match families.len() {
        0 => return,
        1 => "SingleStack",
        _ => "RequireDualStack",
    };
    spec.put("ipFamilyPolicy", Some(json!(policy)));
    spec.put("ipFamilies", Some(families.into_iter().map(Family::name).collect()));
}

/// A source in another namespace is only in the newer field.
fn sources(spec: &mut Map) {
    for (from, to) in [("dataSource", "dataSourceRef"), ("dataSourceRef", "dataSource")] {
        let is_there = |field: &str| spec.get(field).is_some_and(|source| !source.is_null());
        let source = spec.get(from).filter(|source| source.is_object()).cloned();
        if let Some(source) = source
            && !is_there(to)
            && source.get("namespace").and_then(Value::as_str).is_none_or(str::is_empty)
        {
            spec.put(to, Some(source));
        }
    }
}

#[cfg(test)]
mod tests {
    use keelson_codec::StoredObject;

    use super::*;

    fn check(of: Older, before: &Value, after: &Value) {
        let fields = StoredFields { of, primary: Family::V4 };
        let mut object =
            Object::from_value(json!({ "kind": "K", "apiVersion": "v1", "metadata": {}, "spec": before })).unwrap();
        let stored = ParsedObject::from(StoredObject::encode(&object));
        fields.fill(&mut object);
        assert_eq!(object.0["spec"], *after);
        assert_eq!(fields.lacks(&stored), before != after, "{before}");
        let stored = ParsedObject::from(StoredObject::encode(&object));
        assert!(!fields.lacks(&stored), "{after} after it was filled in");
    }

    #[test]
    fn services_have_a_list_of_addresses_and_families() {
        let check = |before: Value, after: Value| check(Older::Services, &before, &after);
        check(
            json!({"type": "ClusterIP", "clusterIP": "10.0.0.1"}),
            json!({"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilyPolicy": "SingleStack",
                "ipFamilies": ["IPv4"]}),
        );
        check(
            json!({"clusterIP": "fd00::1", "clusterIPs": ["fd00::1", "10.0.0.1"]}),
            json!({"clusterIP": "fd00::1", "clusterIPs": ["fd00::1", "10.0.0.1"], "ipFamilyPolicy": "RequireDualStack",
                "ipFamilies": ["IPv6", "IPv4"]}),
        );
        check(
            json!({"clusterIP": "None", "selector": {"a": "b"}}),
            json!({"clusterIP": "None", "selector": {"a": "b"}, "clusterIPs": ["None"], "ipFamilyPolicy": "SingleStack",
                "ipFamilies": ["IPv4"]}),
        );
        check(
            json!({"clusterIP": "None"}),
            json!({"clusterIP": "None", "clusterIPs": ["None"], "ipFamilyPolicy": "RequireDualStack",
                "ipFamilies": ["IPv4", "IPv6"]}),
        );
        for same in [
            json!({"type": "ExternalName", "externalName": "a.example"}),
            json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}),
            json!({}),
        ] {
            check(same.clone(), same);
        }
    }

    #[test]
    fn data_source_and_data_source_ref_of_old_claims_agree() {
        let check = |before: Value, after: Value| check(Older::Claims, &before, &after);
        let source = json!({"kind": "PersistentVolumeClaim", "name": "a"});
        let both = json!({"dataSource": source, "dataSourceRef": source});
        let same = |spec: &Value, field: &str| {
            let mut map = Map::new();
            map.insert(field, spec[field].clone());
            Value::Object(map)
        };
        check(same(&both, "dataSource"), both.clone());
        let mut turned = same(&both, "dataSourceRef");
        turned["dataSource"] = source;
        check(same(&both, "dataSourceRef"), turned);
        check(both.clone(), both);
        check(json!({}), json!({}));
    }
}
