//! Parameter objects of policies: objects of any kind, also custom resources, read from the cache.
//!
//! Decoded parameters are cached until the object changes, so most requests decode nothing.

use std::collections::HashMap;
use std::sync::Arc;

use keelson_cache::Entry;
use keelson_meta::{ApiError, GroupVersion, GroupVersionKind, Object, Revision};
use keelson_registry::{AdmissionAttributes, Target};
use parking_lot::Mutex;

use super::policy::{Binding, ParamRef, Policy};
use crate::matching::namespace_of;

/// The largest number of cached objects.
const KEPT: usize = 1024;

/// The cache of decoded parameter objects.
#[derive(Debug, Default)]
pub(crate) struct Decoded(Mutex<HashMap<String, (Revision, Arc<Object>)>>);

impl Decoded {
    /// The object of a cache entry, in the version of a target.
    ///
    /// # Errors
    /// 500 if the conversion fails.
    pub(crate) async fn get(&self, target: &Target, entry: &Entry) -> Result<Arc<Object>, ApiError> {
        let (resource, version) = (target.group_resource(), &target.version.name);
        let key = format!("{resource}/{version}/{}", entry.key);
        if let Some((revision, object)) = self.0.lock().get(&key)
            && *revision == entry.revision
        {
            return Ok(object.clone());
        }
        let shown = target.view().show_entry(entry).await?;
        let mut object = shown.decode(entry.revision);
        object.set_type(target.kind());
        let object = Arc::new(object);
        let mut kept = self.0.lock();
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(key, (entry.revision, object.clone()));
        Ok(object)
    }
}

/// The resource of a policy's parameters; `None` if the policy has none.
///
/// # Errors
/// The kind of parameters is not served.
pub(crate) fn place(attributes: &AdmissionAttributes<'_>, policy: &Policy) -> Result<Option<Target>, String> {
    let Some((api_version, kind)) = &policy.params else { return Ok(None) };
    let of = GroupVersion::parse(api_version).unwrap_or_default();
    let surface = &attributes.target.surface;
    let target = surface
        .by_kind(&of.group, kind)
        .and_then(|resource| surface.lookup(&of.group, &of.version, &resource.plural))
        .filter(|target| target.stored().is_some());
    let named = GroupVersionKind { group: of.group.clone(), version: of.version.clone(), kind: kind.clone() };
    target.map(Some).ok_or_else(|| {
        let GroupVersionKind { group, version, kind } = named;
        format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'")
    })
}

/// The parameter objects of a binding. The policy is evaluated once for each; `None` stands for no parameters.
///
/// # Errors
/// The parameters cannot be read, or required ones are missing. The text is upstream's.
pub(crate) async fn collect(
    attributes: &AdmissionAttributes<'_>,
    target: Option<&Target>,
    binding: &Binding,
    decoded: &Decoded,
) -> Result<Vec<Option<Arc<Object>>>, String> {
    let (Some(target), Some(reference)) = (target, &binding.params) else { return Ok(vec![None]) };
    let prefix = prefix_of(attributes, target, reference)?;
    let collection = target.collection().map_err(|error| error.to_string())?;
    let entries: Vec<Arc<Entry>> = match &reference.selector {
        None => collection.get(&format!("{prefix}{}", reference.name)).into_iter().collect(),
        Some(None) => Vec::new(),
        Some(Some(selector)) => {
            let snapshot = collection.snapshot();
            let all = snapshot.range(&prefix, None).take_while(|entry| entry.key.starts_with(&prefix));
            all.filter(|entry| selector.matches(|key| entry.labels.get(key))).cloned().collect()
        }
    };
    if entries.is_empty() && reference.is_needed {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    let mut params = Vec::with_capacity(entries.len());
    for entry in entries {
        params.push(Some(decoded.get(target, &entry).await.map_err(|error| error.to_string())?));
    }
    Ok(params)
}

/// The key prefix of the parameter objects.
fn prefix_of(attributes: &AdmissionAttributes<'_>, target: &Target, reference: &ParamRef) -> Result<String, String> {
    if !target.is_namespaced() {
        return match reference.namespace.as_str() {
            "" => Ok(String::new()),
            _ => Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned()),
        };
    }
    let own = namespace_of(attributes).filter(|_| attributes.target.is_namespaced());
    match (reference.namespace.as_str(), own) {
        ("", None) => {
            Err("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".to_owned())
        }
        ("", Some(namespace)) => Ok(format!("{namespace}/")),
        (namespace, _) => Ok(format!("{namespace}/")),
    }
}
