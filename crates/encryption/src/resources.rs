//! The resource of a key of the store.
//!
//! The caller supplies the prefixes of built-in resources. Custom ones have their group and their plural name as the
//! first parts of their keys. All other keys hold no objects, and are never encrypted.

use std::collections::BTreeMap;
use std::ops::Bound;

use keelson_meta::GroupResource;

/// The beginning of all keys of objects.
const ROOT: &str = "/registry/";

/// The prefixes of built-in resources.
#[derive(Clone, Debug, Default)]
pub struct Resources(BTreeMap<String, GroupResource>);

impl Resources {
    /// Resources by key prefix. No prefix starts with another.
    pub fn new(prefixes: impl IntoIterator<Item = (String, GroupResource)>) -> Self {
        Self(prefixes.into_iter().collect())
    }

    /// The group and the plural name of the resource of a key.
    pub(crate) fn resource<'a>(&'a self, key: &'a str) -> Option<(&'a str, &'a str)> {
        let before = self.0.range::<str, _>((Bound::Unbounded, Bound::Included(key))).next_back();
        if let Some((_, found)) = before.filter(|(prefix, _)| key.starts_with(&***prefix)) {
            return Some((&found.group, &found.resource));
        }
        // The group of a definition has a dot.
        let (group, rest) = key.strip_prefix(ROOT)?.split_once('/')?;
        let (plural, _) = rest.split_once('/')?;
        (group.contains('.') && !group.starts_with('.')).then_some((group, plural))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_resources() {
        let resource = |group: &str, resource: &str| GroupResource { group: group.into(), resource: resource.into() };
        let resources = Resources::new([
            ("/registry/secrets/".to_owned(), resource("", "secrets")),
            ("/registry/services/specs/".to_owned(), resource("", "services")),
            (
                "/registry/apiregistration.k8s.io/apiservices/".to_owned(),
                resource("apiregistration.k8s.io", "apiservices"),
            ),
        ]);
        for (key, expected) in [
            ("/registry/secrets/default/a", Some(("", "secrets"))),
            ("/registry/secrets/", Some(("", "secrets"))),
            ("/registry/services/specs/default/a", Some(("", "services"))),
            ("/registry/services/other/a", None),
            ("/registry/example.org/things/default/a", Some(("example.org", "things"))),
            ("/registry/example.org/things", None),
            ("/registry/.keelson/x/y", None),
            ("/registry/keelson/unfinished-copy", None),
            ("/registry/secrets", None),
            ("/identities/one", None),
        ] {
            assert_eq!(resources.resource(key), expected, "{key}");
        }
    }
}
