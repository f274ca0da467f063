//! Endpoint slices of `discovery.k8s.io/v1beta1`, in which a map of labels has the location of an endpoint.
//!
//! The zone and the node become fields. The rest of the map is kept as `deprecatedTopology`.

use keelson_meta::json::{Map, Value};

use crate::converting::conversion::ConversionError;
use crate::converting::retired::{BETA, RetiredVersions, row};
use crate::converting::tree::{each_in, take, take_object};

pub(crate) const RETIRED: &[RetiredVersions] = &[row("EndpointSlice", "discovery.k8s.io", BETA).by(slice_from_v1beta1)];

const ZONE: &str = "topology.kubernetes.io/zone";
const NODE: &str = "kubernetes.io/hostname";

/// Converts from v1beta1 to v1.
pub(crate) fn slice_from_v1beta1(slice: &mut Map) -> Result<(), ConversionError> {
    each_in(slice, "endpoints", endpoint)
}

/// If the field for the node has another value, the node stays in the map.
fn endpoint(endpoint: &mut Map) -> Result<(), ConversionError> {
    let Some(mut topology) = take_object(endpoint, "topology")? else { return Ok(()) };
    let zone = take(&mut topology, ZONE);
    let stated = endpoint.get("nodeName").filter(|node| !node.is_null()).cloned();
    let node = match stated {
        Some(stated) if topology.get(NODE) == Some(&stated) => {
            topology.remove(NODE);
            None
        }
        Some(_) => None,
        None => take(&mut topology, NODE),
    };
    if !topology.is_empty() {
        endpoint.insert("deprecatedTopology", Value::Object(topology));
    }
    for (field, value) in [("nodeName", node), ("zone", zone)] {
        if let Some(value) = value {
            endpoint.insert(field, value);
        }
    }
    Ok(())
}
