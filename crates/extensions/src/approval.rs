//! The condition for the community's approval of a definition in a protected group.
//!
//! `validation` checks that a definition states something about it.

use keelson_meta::Object;
use keelson_meta::go_format::quote;

use crate::conditions::{APPROVAL, Condition};
use crate::definition::text;

const ANNOTATION: &str = "api-approved.kubernetes.io";
const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// The condition of a definition. `None` for a group that needs no approval.
pub(crate) fn condition(definition: &Object) -> Option<Condition> {
    let group = text(definition.get(&["spec", "group"]));
    let of = |domain: &&str| group.strip_suffix(*domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    if !["k8s.io", "kubernetes.io"].iter().any(of) {
        return None;
    }
    let stated = definition.annotations().find(|(key, _)| *key == ANNOTATION).map_or("", |(_, value)| value);
    let need = format!("protected groups must have approval annotation {}", quote(ANNOTATION));
    Some(match stated {
        "" => Condition::new(APPROVAL, false, "MissingAnnotation", format!("{need}, {SEE}")),
        text if text.starts_with("unapproved") => {
            Condition::new(APPROVAL, false, "UnapprovedAnnotation", format!("not approved: {}", quote(text)))
        }
        text if text.contains("://") => {
            Condition::new(APPROVAL, true, "ApprovedAnnotation", format!("approved in {text}"))
        }
        _ => {
            let message = format!("{need} with either a URL or a reason starting with \"unapproved\", {SEE}");
            Condition::new(APPROVAL, false, "InvalidAnnotation", message)
        }
    })
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[test]
    fn community_groups_get_an_approval_condition() {
        let check = |group: &str, stated: &str, expected: Option<(bool, &str, &str)>| {
            let object = json!({ "metadata": { "annotations": { ANNOTATION: stated } }, "spec": { "group": group } });
            let condition = condition(&Object::from_value(object).unwrap());
            let told = condition.as_ref().map(|told| (told.holds, told.reason, told.message.as_str()));
            assert_eq!(told, expected, "{group} {stated}");
        };
        check("example.com", "", None);
        check("notk8s.io", "", None);
        let url = "https://example.com/pull/1";
        check("x.k8s.io", url, Some((true, "ApprovedAnnotation", "approved in https://example.com/pull/1")));
        let unapproved = "not approved: \"unapproved, for a test\"";
        check("k8s.io", "unapproved, for a test", Some((false, "UnapprovedAnnotation", unapproved)));
    }
}
