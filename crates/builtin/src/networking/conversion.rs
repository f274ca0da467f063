//! Ingresses of `networking.k8s.io/v1beta1` and `extensions/v1beta1`, whose backends are not nested.
//!
//! The path type has a default in these versions, and none in `v1`.

use keelson_meta::json::{Map, Value, json};

use crate::converting::conversion::ConversionError;
use crate::converting::families::{Family, Form, family, hub};
use crate::converting::retired::{ALPHA, BETA, EXTENSIONS, RetiredVersions, row};
use crate::converting::tree::{append_rest, each_in, fill, is_unset, object, take};

const GROUP: &str = "networking.k8s.io";

pub(crate) const FAMILIES: &[Family] = &[family("IPAddress", FORMS), family("ServiceCIDR", FORMS)];

const FORMS: &[Form] = &[hub(GROUP, "v1"), hub(GROUP, "v1beta1")];

pub(crate) const RETIRED: &[RetiredVersions] = &[
    row("Ingress", GROUP, BETA).by(ingress_from_v1beta1),
    row("Ingress", EXTENSIONS, BETA).to(GROUP, "v1").by(ingress_from_v1beta1),
    row("IngressClass", GROUP, BETA),
    row("IPAddress", GROUP, ALPHA),
    row("NetworkPolicy", EXTENSIONS, BETA).to(GROUP, "v1"),
    row("ServiceCIDR", GROUP, ALPHA),
];

/// Converts from v1beta1 to v1.
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

/// Adds the field `service` if the backend has the name or port of a service.
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
