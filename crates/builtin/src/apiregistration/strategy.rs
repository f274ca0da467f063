//! Strategy of APIServices. An APIService without a service is served by this server, so it is always available.
//!
//! For others, the component that checks the service writes the condition.

use std::time::SystemTime;

use keelson_meta::Object;
use keelson_meta::clock::rfc3339;
use keelson_meta::json::{Map, json};
use keelson_registry::strategy::{CreateStrategy, FieldPath, Strategies, UpdateStrategy, metadata_of_status};

/// The strategies of a resource of the group.
pub(crate) fn strategies(plural: &str) -> &'static Strategies {
    match plural {
        "apiservices" => &const { Strategies::ORDINARY.create(&ApiServices).update(&ApiServices) },
        _ => &Strategies::ORDINARY,
    }
}

/// The strategy of APIServices.
pub(super) struct ApiServices;

impl CreateStrategy for ApiServices {
    fn initial_status(&self, object: &Object, now: SystemTime) -> Map {
        if object.get(&["spec", "service"]).is_some() {
            return Map::new();
        }
        let available = json!({
            "type": "Available",
            "status": "True",
            "lastTransitionTime": rfc3339(now),
            "reason": "Local",
            "message": "Local APIServices are always available",
        });
        Map::from_iter([("conditions".to_owned(), json!([available]))])
    }
}

impl UpdateStrategy for ApiServices {
    fn kept(&self, subresource: &str) -> &'static [FieldPath] {
        metadata_of_status(subresource)
    }
}
