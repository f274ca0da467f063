//! Ingresses of `networking.k8s.io/v1beta1` and `extensions/v1beta1`, whose backends were flat.
//!
//! The kind of a path had a default there, and has none in `v1`.

use keelson_meta::json::{Map, Value, json};

use crate::conversion::ConversionError;
use crate::tree::{append_rest, each_in, fill, is_unset, object, take};

/// From v1beta1 to v1.
pub(crate) fn ingress_from_v1beta1(ingress: &mut Map) -> Result<(), ConversionError> {
    let Some(spec) = object(ingress, "spec")? else { return Ok(()) };
    if let Some(backend) = object(spec, "backend")? {
        nest_backend(backend);
    }
    let mut rest = std::mem::take(spec);
    if let Some(backend) = take(&mut rest, "backend") {
        spec.insert("defaultBackend", backend);
    }
    append_rest(spec, rest);
    each_in(spec, "rules", |rule| {
        let Some(http) = object(rule, "http")? else { return Ok(()) };
        each_in(http, "paths", |path| {
            fill(path, "pathType", json!("ImplementationSpecific"));
            if let Some(backend) = object(path, "backend")? {
                nest_backend(backend);
            }
            Ok(())
        })
    })
}

/// A service appears when its name or its port says something.
fn nest_backend(backend: &mut Map) {
    let mut said = |field| take(backend, field).filter(|value| !is_unset(value));
    let (name, port) = (said("serviceName"), said("servicePort"));
    if name.is_none() && port.is_none() {
        return;
    }
    let port = port.map(|port| if port.is_string() { json!({ "name": port }) } else { json!({ "number": port }) });
    let mut service = Map::new();
    service.insert("name", name.unwrap_or_else(|| json!("")));
    if let Some(port) = port {
        service.insert("port", port);
    }
    backend.insert("service", Value::Object(service));
}
