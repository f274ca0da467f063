//! Parses documents of other servers: the aggregated form in either version, or the legacy form of a version.
//!
//! Omitted parts are treated as by upstream: a kind is empty, a list has no items. A document with another shape is
//! refused as a whole, so that no part of an untrustworthy document is served.

use std::collections::HashMap;

use keelson_meta::json::Value;

use crate::merge::ServedVersion;
use crate::source::{DiscoveredKind, DiscoveredResource, DiscoveredSubresource, Freshness, Text, scope};

/// The resources of each group version, in the server's order.
///
/// # Errors
/// The fault of the document.
pub fn aggregated_versions(list: &Value) -> Result<HashMap<(String, String), Vec<DiscoveredResource>>, String> {
    let versions = served_versions(list)?.into_iter();
    Ok(versions.map(|served| ((served.group, served.version), served.resources)).collect())
}

/// The versions of all groups, in the server's order.
///
/// # Errors
/// The fault of the document.
pub fn served_versions(list: &Value) -> Result<Vec<ServedVersion>, String> {
    if text(list, "kind")? != "APIGroupDiscoveryList" {
        return Err(format!("the kind {:?} is not APIGroupDiscoveryList", text(list, "kind")?));
    }
    let mut found = Vec::new();
    for group in objects(list, "items")? {
        let name = match group.get("metadata") {
            Some(metadata) => text(metadata, "name")?,
            None => String::new(),
        };
        for version in objects(group, "versions")? {
            let resources: Result<_, _> = objects(version, "resources")?.iter().map(resource).collect();
            let is_stale = text(version, "freshness")? == "Stale";
            found.push(ServedVersion {
                group: name.clone(),
                version: text(version, "version")?,
                freshness: if is_stale { Freshness::Stale } else { Freshness::Current },
                resources: resources?,
            });
        }
    }
    Ok(found)
}

/// The resources of a version in the legacy form.
///
/// # Errors
/// The fault of the document.
pub fn legacy_resources(list: &Value) -> Result<Vec<DiscoveredResource>, String> {
    if text(list, "kind")? != "APIResourceList" {
        return Err(format!("the kind {:?} is not APIResourceList", text(list, "kind")?));
    }
    let listed = objects(list, "resources")?;
    let mut found: Vec<DiscoveredResource> = Vec::new();
    for listed in listed {
        let name = text(listed, "name")?;
        if name.contains('/') {
            continue;
        }
        found.push(DiscoveredResource {
            plural: name.into(),
            singular: text(listed, "singularName")?.into(),
            kind: kind(listed)?,
            scope: scope(is(listed, "namespaced")?),
            verbs: texts(listed, "verbs")?,
            short_names: texts(listed, "shortNames")?,
            categories: texts(listed, "categories")?,
            storage_version_hash: None,
            subresources: Vec::new(),
        });
    }
    for listed in listed {
        let name = text(listed, "name")?;
        let Some((parent, part)) = name.split_once('/') else { continue };
        let scope = scope(is(listed, "namespaced")?);
        let place = match found.iter().position(|resource| resource.plural == parent) {
            Some(place) => place,
            None => {
                found.push(without_anything(parent, &scope));
                found.len() - 1
            }
        };
        if found[place].scope != scope {
            return Err(format!("{parent} and {name} have different scopes"));
        }
        let (kind, verbs) = (kind(listed)?, texts(listed, "verbs")?);
        let part = DiscoveredSubresource { name: part.to_owned().into(), kind, accepted: Vec::new(), verbs };
        found[place].subresources.push(part);
    }
    Ok(found)
}

/// The parent of a subresource that is listed without its resource.
fn without_anything(plural: &str, scope: &Text) -> DiscoveredResource {
    DiscoveredResource {
        plural: plural.to_owned().into(),
        singular: Text::default(),
        kind: DiscoveredKind::default(),
        scope: scope.clone(),
        verbs: Vec::new(),
        short_names: Vec::new(),
        categories: Vec::new(),
        storage_version_hash: None,
        subresources: Vec::new(),
    }
}

fn resource(stated: &Value) -> Result<DiscoveredResource, String> {
    let subresources: Result<_, _> = objects(stated, "subresources")?.iter().map(subresource).collect();
    Ok(DiscoveredResource {
        plural: text(stated, "resource")?.into(),
        singular: text(stated, "singularResource")?.into(),
        kind: kind_below(stated, "responseKind")?,
        scope: text(stated, "scope")?.into(),
        verbs: texts(stated, "verbs")?,
        short_names: texts(stated, "shortNames")?,
        categories: texts(stated, "categories")?,
        storage_version_hash: None,
        subresources: subresources?,
    })
}

fn subresource(stated: &Value) -> Result<DiscoveredSubresource, String> {
    let accepted: Result<_, _> = objects(stated, "acceptedTypes")?.iter().map(kind).collect();
    Ok(DiscoveredSubresource {
        name: text(stated, "subresource")?.into(),
        kind: kind_below(stated, "responseKind")?,
        accepted: accepted?,
        verbs: texts(stated, "verbs")?,
    })
}

fn kind_below(stated: &Value, field: &str) -> Result<DiscoveredKind, String> {
    match stated.get(field).filter(|kind| !kind.is_null()) {
        Some(stated) => kind(stated),
        None => Ok(DiscoveredKind::default()),
    }
}

fn kind(stated: &Value) -> Result<DiscoveredKind, String> {
    let field = |field| text(stated, field).map(Text::Owned);
    Ok(DiscoveredKind { group: field("group")?, version: field("version")?, kind: field("kind")? })
}

fn text(of: &Value, field: &str) -> Result<String, String> {
    match of.get(field) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(value) => value.as_str().map(str::to_owned).ok_or_else(|| format!("{field} is not a string")),
    }
}

fn is(of: &Value, field: &str) -> Result<bool, String> {
    match of.get(field) {
        None | Some(Value::Null) => Ok(false),
        Some(value) => value.as_bool().ok_or_else(|| format!("{field} is neither true nor false")),
    }
}

fn texts(of: &Value, field: &str) -> Result<Vec<Text>, String> {
    let one = |value: &Value| value.as_str().map(|text| Text::Owned(text.to_owned()));
    list(of, field)?
        .iter()
        .map(|value| one(value).ok_or_else(|| format!("{field} has an element that is not a string")))
        .collect()
}

fn objects<'v>(of: &'v Value, field: &str) -> Result<&'v [Value], String> {
    let found = list(of, field)?;
    if found.iter().all(Value::is_object) {
        Ok(found)
    } else {
        Err(format!("{field} has an element that is not an object"))
    }
}

fn list<'v>(of: &'v Value, field: &str) -> Result<&'v [Value], String> {
    match of.get(field) {
        None | Some(Value::Null) => Ok(&[]),
        Some(value) => value.as_array().map(Vec::as_slice).ok_or_else(|| format!("{field} is not a list")),
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[test]
    fn incomplete_aggregated_documents_are_read() {
        let resource = json!({"resource": "zs", "scope": "Odd", "singularResource": "z", "verbs": ["get"], "x": 1,
            "subresources": [{"subresource": "status", "verbs": ["get"], "acceptedTypes": [{"kind": "K"}]}]});
        let version = |name: &str, resources: Value| json!({"version": name, "resources": resources});
        let list = json!({"kind": "APIGroupDiscoveryList", "metadata": null, "items": [
            {"metadata": {"name": "g"}, "versions": [version("v1", json!([])), version("v1", json!([resource]))]},
            {"metadata": {"name": "h"}, "versions": [{"version": "v2"}]}]});
        let found = aggregated_versions(&list).unwrap();
        let of = |group: &str, version: &str| &found[&(group.to_owned(), version.to_owned())];
        assert_eq!((found.len(), of("h", "v2").len()), (2, 0));
        let read = &of("g", "v1")[0];
        assert_eq!((&*read.plural, &*read.scope, &read.kind), ("zs", "Odd", &DiscoveredKind::default()));
        assert_eq!(read.subresources[0].accepted[0].kind, "K");
    }

    #[test]
    fn subresources_of_the_older_form_come_below_their_resources() {
        let entry = |name: &str, namespaced: bool, kind: &str| json!({"name": name, "namespaced": namespaced, "kind": kind, "verbs": ["get"]});
        let list = |entries: Value| json!({"kind": "APIResourceList", "resources": entries});
        let found = legacy_resources(&list(json!([
            entry("things/status", true, "Thing"),
            entry("things", true, "Thing"),
            entry("lonely/status", true, "Lonely")
        ])));
        let found = found.unwrap();
        let shown: Vec<_> = found
            .iter()
            .map(|resource| (&*resource.plural, resource.verbs.len(), resource.subresources.len()))
            .collect();
        assert_eq!(shown, [("things", 1, 1), ("lonely", 0, 1)]);
        let differs = list(json!([entry("things", true, "Thing"), entry("things/status", false, "Thing")]));
        assert!(legacy_resources(&differs).is_err());
    }

    #[test]
    fn other_documents_are_refused() {
        for wrong in [json!({"kind": "PodList"}), json!([]), json!("x"), json!({"kind": 1}), Value::Null] {
            assert!(aggregated_versions(&wrong).is_err() && legacy_resources(&wrong).is_err(), "{wrong:?}");
        }
        let kind = "APIGroupDiscoveryList";
        for wrong in [json!({"kind": kind, "items": {}}), json!({"kind": kind, "items": [1]})] {
            assert!(aggregated_versions(&wrong).is_err(), "{wrong:?}");
        }
    }
}
