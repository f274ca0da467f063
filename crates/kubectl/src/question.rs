//! The URL of a query's chunk.
//!
//! All chunks of a walk have the same parameters, since continue tokens are bound to them.

use form_urlencoded::Serializer;

use crate::args::Get;
use crate::resources::Resource;

/// A query of a user.
#[derive(Clone)]
pub(crate) struct Question {
    path: String,
    pairs: Vec<(&'static str, String)>,
}

impl Question {
    pub(crate) fn new(get: &Get, resource: &Resource, namespace: Option<&str>) -> Self {
        let mut pairs = Vec::new();
        let mut add = |name, value: &Option<String>| pairs.extend(value.clone().map(|value| (name, value)));
        add("keelson.io/sortBy", &get.sort_by);
        add("keelson.io/search", &get.search);
        add("keelson.io/filter", &get.filter);
        add("keelson.io/where", &get.condition);
        add("keelson.io/groupBy", &get.group_by);
        add("keelson.io/at", &get.at);
        add("labelSelector", &get.selector);
        add("fieldSelector", &get.field_selector);
        add("keelson.io/page", &get.page.map(|page| page.to_string()));
        if !get.output.is_table() && get.group_by.is_none() {
            add("keelson.io/fields", &get.fields);
            add("keelson.io/omitManagedFields", &(!get.show_managed_fields).then(|| "true".to_owned()));
        }
        if get.group_by.is_none() {
            // This parameter makes the request a query, whose response has the total count.
            add("keelson.io/count", &Some("true".to_owned()));
        }
        Self { path: resource.path(namespace), pairs }
    }

    /// The URL of a chunk of `limit` objects, at a continue token.
    pub(crate) fn url(&self, limit: u64, token: Option<&str>) -> String {
        let mut query = Serializer::new(String::new());
        // The first chunk of a page is requested by the page number, and later ones by the continue token.
        let pairs = self.pairs.iter().filter(|(name, _)| token.is_none() || *name != "keelson.io/page");
        query.extend_pairs(pairs);
        query.append_pair("limit", &limit.to_string());
        if let Some(token) = token {
            query.append_pair("continue", token);
        }
        format!("{}?{}", self.path, query.finish())
    }
}
