//! Conversion of events between the core form, which is stored, and the form of `events.k8s.io`.
//!
//! Both forms have the same data with other field names. They differ in the value that is written for an empty field,
//! on which clients rely. So the tables state it for each field.

use keelson_meta::json::{Map, Value, json};

use crate::converting::conversion::ConversionError;
use crate::converting::families::{Family, family, form, hub};
use crate::converting::retired::{BETA, RetiredVersions, row};
use crate::converting::tree::{append_rest, is_unset, object, take};

const GROUP: &str = "events.k8s.io";

pub(crate) const FAMILIES: &[Family] = &[family("Event", &[hub("", "v1"), form(GROUP, "v1", to_core, from_core)])];

pub(crate) const RETIRED: &[RetiredVersions] = &[row("Event", GROUP, BETA).to("", "v1").by(to_core)];

/// The value that a form writes for an unset field.
#[derive(Clone, Copy)]
enum Empty {
    Nothing,
    Null,
    Text,
    Object,
}

/// The name of a field in the source form, its name in the target form, and the value if it is empty.
type Field = (&'static str, &'static str, Empty);

/// The fields of the core form, in its order.
const TO_CORE: [Field; 14] = [
    ("regarding", "involvedObject", Empty::Object),
    ("reason", "reason", Empty::Nothing),
    ("note", "message", Empty::Nothing),
    ("deprecatedSource", "source", Empty::Object),
    ("deprecatedFirstTimestamp", "firstTimestamp", Empty::Null),
    ("deprecatedLastTimestamp", "lastTimestamp", Empty::Null),
    ("deprecatedCount", "count", Empty::Nothing),
    ("type", "type", Empty::Nothing),
    ("eventTime", "eventTime", Empty::Null),
    ("series", "series", Empty::Nothing),
    ("action", "action", Empty::Nothing),
    ("related", "related", Empty::Nothing),
    ("reportingController", "reportingComponent", Empty::Text),
    ("reportingInstance", "reportingInstance", Empty::Text),
];

/// The fields of the `events.k8s.io` form, in its order.
const FROM_CORE: [Field; 14] = [
    ("eventTime", "eventTime", Empty::Null),
    ("series", "series", Empty::Nothing),
    ("reportingComponent", "reportingController", Empty::Nothing),
    ("reportingInstance", "reportingInstance", Empty::Nothing),
    ("action", "action", Empty::Nothing),
    ("reason", "reason", Empty::Nothing),
    ("involvedObject", "regarding", Empty::Object),
    ("related", "related", Empty::Nothing),
    ("message", "note", Empty::Nothing),
    ("type", "type", Empty::Nothing),
    ("source", "deprecatedSource", Empty::Object),
    ("firstTimestamp", "deprecatedFirstTimestamp", Empty::Null),
    ("lastTimestamp", "deprecatedLastTimestamp", Empty::Null),
    ("count", "deprecatedCount", Empty::Nothing),
];

/// Converts from `events.k8s.io` to core.
pub(crate) fn to_core(event: &mut Map) -> Result<(), ConversionError> {
    rename(event, &TO_CORE);
    let Some(series) = object(event, "series")? else { return Ok(()) };
    if series.get("count").is_some_and(is_unset) {
        series.remove("count");
    }
    Ok(())
}

/// Converts from core to `events.k8s.io`.
pub(crate) fn from_core(event: &mut Map) -> Result<(), ConversionError> {
    rename(event, &FROM_CORE);
    let Some(series) = object(event, "series")? else { return Ok(()) };
    series.entry("count").or_insert_with(|| json!(0));
    series.entry("lastObservedTime").or_insert(Value::Null);
    Ok(())
}

fn rename(event: &mut Map, fields: &[Field]) {
    let mut rest = std::mem::take(event);
    for head in ["kind", "apiVersion", "metadata"] {
        if let Some(value) = rest.remove(head) {
            event.insert(head, value);
        }
    }
    for (from, to, empty) in fields {
        let value = take(&mut rest, from).filter(|value| !is_unset(value)).or(match empty {
            Empty::Nothing => None,
            Empty::Null => Some(Value::Null),
            Empty::Text => Some(json!("")),
            Empty::Object => Some(json!({})),
        });
        if let Some(value) = value {
            event.insert((*to).to_owned(), value);
        }
    }
    append_rest(event, rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(step: fn(&mut Map) -> Result<(), ConversionError>, from: Value, to: &Value) {
        let Value::Object(mut event) = from else { panic!("not an object") };
        step(&mut event).expect("an event");
        assert_eq!(Value::Object(event).to_string(), to.to_string(), "order counts");
    }

    #[test]
    fn a_bare_core_event_reads_as_upstream_writes_it() {
        let core = json!({"kind": "Event", "apiVersion": "v1", "metadata": {"name": "a"},
            "involvedObject": {"namespace": "n"}, "message": "some text", "source": {}, "firstTimestamp": null,
            "lastTimestamp": null, "eventTime": null, "reportingComponent": "", "reportingInstance": ""});
        let new = json!({"kind": "Event", "apiVersion": "v1", "metadata": {"name": "a"}, "eventTime": null,
            "regarding": {"namespace": "n"}, "note": "some text", "deprecatedSource": {},
            "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null});
        check(from_core, core.clone(), &new);
        check(to_core, new, &core);
    }

    #[test]
    fn every_field_has_its_counterpart() {
        let time = "2026-01-02T03:04:05.000000Z";
        let core = json!({"metadata": {}, "involvedObject": {"kind": "Pod"}, "reason": "Pulled", "message": "m",
            "source": {"component": "kubelet", "host": "a"}, "firstTimestamp": time, "lastTimestamp": time, "count": 2,
            "type": "Normal", "eventTime": time, "series": {"count": 2, "lastObservedTime": time}, "action": "Pull",
            "related": {"kind": "Node"}, "reportingComponent": "kubelet", "reportingInstance": "a", "unknown": [1]});
        let new = json!({"metadata": {}, "eventTime": time, "series": {"count": 2, "lastObservedTime": time},
            "reportingController": "kubelet", "reportingInstance": "a", "action": "Pull", "reason": "Pulled",
            "regarding": {"kind": "Pod"}, "related": {"kind": "Node"}, "note": "m", "type": "Normal",
            "deprecatedSource": {"component": "kubelet", "host": "a"}, "deprecatedFirstTimestamp": time,
            "deprecatedLastTimestamp": time, "deprecatedCount": 2, "unknown": [1]});
        check(from_core, core.clone(), &new);
        check(to_core, new, &core);
    }

    #[test]
    fn conversion_overwrites_conflicting_unknown_fields() {
        let core = json!({"involvedObject": {"kind": "Pod"}, "regarding": "not a field of core events"});
        let Value::Object(mut event) = core else { panic!("not an object") };
        from_core(&mut event).expect("an event");
        assert_eq!(event["regarding"], json!({"kind": "Pod"}));
    }

    #[test]
    fn a_series_has_all_its_fields_in_the_new_form() {
        let Value::Object(mut event) = json!({"series": {}}) else { panic!("not an object") };
        from_core(&mut event).expect("an event");
        assert_eq!(event["series"], json!({"count": 0, "lastObservedTime": null}));
        to_core(&mut event).expect("an event");
        assert_eq!(event["series"], json!({"lastObservedTime": null}));
        event.insert("series", json!(1));
        assert!(to_core(&mut event).is_err());
    }
}
