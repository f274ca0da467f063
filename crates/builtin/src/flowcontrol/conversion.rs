//! Priority levels of the beta versions of `flowcontrol.apiserver.k8s.io`, in which the shares have another name or
//! cannot be zero.
//!
//! `v1beta1` and `v1beta2` call the shares `assuredConcurrencyShares`. In `v1beta3` an annotation marks an intended
//! zero.

use keelson_meta::json::{Map, json};

use crate::converting::conversion::ConversionError;
use crate::converting::retired::{RetiredVersions, row};
use crate::converting::tree::{fill_unset, is_unset, object, take, take_annotation};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

pub(crate) const RETIRED: &[RetiredVersions] = &[
    row("FlowSchema", GROUP, &["v1beta1", "v1beta2", "v1beta3"]),
    row("PriorityLevelConfiguration", GROUP, &["v1beta1", "v1beta2"]).by(level_from_v1beta2),
    row("PriorityLevelConfiguration", GROUP, &["v1beta3"]).by(level_from_v1beta3),
];

const SHARES: &str = "nominalConcurrencyShares";
const DEFAULT_SHARES: i64 = 30;
/// The annotation of `v1beta3` that marks an intended zero.
const PRESERVE_ZERO: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";

/// Converts from v1beta1 and v1beta2 to v1.
pub(crate) fn level_from_v1beta2(level: &mut Map) -> Result<(), ConversionError> {
    let Some(limited) = limited(level)? else { return Ok(()) };
    let shares = take(limited, "assuredConcurrencyShares").filter(|shares| !is_unset(shares));
    limited.insert(SHARES, shares.unwrap_or_else(|| json!(DEFAULT_SHARES)));
    Ok(())
}

/// Converts from v1beta3 to v1.
pub(crate) fn level_from_v1beta3(level: &mut Map) -> Result<(), ConversionError> {
    let is_meant = take_annotation(level, PRESERVE_ZERO)?.is_some();
    let Some(limited) = limited(level)? else { return Ok(()) };
    fill_unset(limited, SHARES, if is_meant { 0 } else { DEFAULT_SHARES });
    Ok(())
}

fn limited(level: &mut Map) -> Result<Option<&mut Map>, ConversionError> {
    object(level, "spec")?.map_or(Ok(None), |spec| object(spec, "limited"))
}
