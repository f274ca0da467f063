//! The IP families of a service: fills in `ipFamilies` and `ipFamilyPolicy` from the request and the families of the
//! cluster (KEP-563).

use std::net::IpAddr;

use keelson_meta::field_error::FieldError;
use keelson_meta::json::{Map, Value, json};
use keelson_registry::{Family, ServiceRanges};

use super::spec::{NONE, Spec as _, is_headless, needs_addresses};

const SINGLE: &str = "SingleStack";
const PREFER: &str = "PreferDualStack";
const REQUIRE: &str = "RequireDualStack";

/// Fills in the families and the policy of a service.
///
/// # Errors
/// Fields contradict each other, or request a family that the cluster does not have.
pub(super) fn fill(ranges: &ServiceRanges, before: Option<&Map>, spec: &mut Map) -> Result<(), Vec<FieldError>> {
    if !needs_addresses(spec) || before.is_some_and(|before| keeps_preference(before, spec)) {
        return Ok(());
    }
    let selectorless = is_headless(spec) && spec.get("selector").and_then(Value::as_object).is_none_or(Map::is_empty);
    if spec.text("ipFamilyPolicy").is_empty() {
        let policy = match before.map(|before| before.text("ipFamilyPolicy")) {
            Some(policy) if !policy.is_empty() => policy,
            Some(_) | None if selectorless => REQUIRE,
            Some(_) | None => SINGLE,
        };
        spec.put("ipFamilyPolicy", Some(json!(policy)));
    }
    refuse(consistency(spec))?;
    let mut errors = before.map(|before| shrink(before, spec)).unwrap_or_default();
    errors.extend(too_many_for_policy(spec));
    errors.extend(infer(ranges, spec));
    refuse(errors)?;
    let dual = spec.text("ipFamilyPolicy") != SINGLE;
    if !selectorless {
        refuse(unavailable(ranges, spec))?;
    }
    let mut families = families(spec);
    if families.is_empty() {
        families.push(ranges.primary().family());
    }
    if dual && families.len() == 1 && (selectorless || ranges.addresses().len() == 2) {
        families.push(families[0].other());
    }
    spec.put("ipFamilies", Some(families.into_iter().map(Family::name).collect()));
    Ok(())
}

pub(super) fn families(spec: &Map) -> Vec<Family> {
    spec.texts("ipFamilies").into_iter().filter_map(Family::of_name).collect()
}

fn refuse(errors: Vec<FieldError>) -> Result<(), Vec<FieldError>> {
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// Returns true if a service that prefers dual stack keeps its families, even if the cluster has changed since. It does
/// so if the request sets no others.
fn keeps_preference(before: &Map, spec: &Map) -> bool {
    let same = |field: &str| before.texts(field) == spec.texts(field);
    let old_policy = before.text("ipFamilyPolicy");
    before.text("type") == spec.text("type")
        && spec.text("ipFamilyPolicy") == PREFER
        && (old_policy == PREFER || old_policy.is_empty())
        && same("clusterIPs")
        && same("ipFamilies")
}

/// The errors that do not depend on the cluster.
fn consistency(spec: &Map) -> Vec<FieldError> {
    let (address, addresses) = (spec.text("clusterIP"), spec.texts("clusterIPs"));
    let mut errors = Vec::new();
    let mut invalid = |detail: &str| errors.push(FieldError::invalid("spec.clusterIPs", json!(addresses), detail));
    match (address, addresses.first()) {
        ("", Some(_)) => invalid("must be empty when `clusterIP` is not specified"),
        ("", None) => {}
        (_, None) => errors.push(FieldError::required("spec.clusterIPs", "")),
        (single, Some(first)) if single != *first => invalid("first value must match `clusterIP`"),
        _ => {}
    }
    errors.extend(family_names(spec));
    let policy = spec.text("ipFamilyPolicy");
    if ![SINGLE, PREFER, REQUIRE].contains(&policy) {
        errors.push(FieldError::not_supported("spec.ipFamilyPolicy", policy, &[PREFER, REQUIRE, SINGLE]));
    }
    errors.extend(addresses_and_families(spec, &addresses, errors.is_empty()));
    errors
}

fn family_names(spec: &Map) -> Vec<FieldError> {
    let names = spec.texts("ipFamilies");
    let mut errors = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let field = format!("spec.ipFamilies[{index}]");
        if Family::of_name(name).is_none() {
            errors.push(FieldError::not_supported(field.as_str(), *name, &["IPv4", "IPv6"]));
        }
        if names[..index].contains(name) {
            errors.push(FieldError::duplicate(field, *name));
        }
    }
    errors
}

fn addresses_and_families(spec: &Map, addresses: &[&str], consistent: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut parsed: Vec<IpAddr> = Vec::new();
    let mut unreadable = false;
    for (index, address) in addresses.iter().enumerate() {
        if index == 0 && *address == NONE {
            if addresses.len() > 1 {
                unreadable = true;
                let detail = "'None' must be the first and only value";
                errors.push(FieldError::invalid("spec.clusterIPs", json!(addresses), detail));
            }
            continue;
        }
        match address.parse() {
            Ok(address) => parsed.push(address),
            Err(_) => {
                unreadable = true;
                let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
                errors.push(FieldError::invalid(format!("spec.clusterIPs[{index}]"), *address, detail));
            }
        }
    }
    if addresses.len() > 2 {
        errors.push(FieldError::invalid("spec.clusterIPs", json!(addresses), "may only hold up to 2 values"));
    }
    if unreadable {
        return errors;
    }
    if parsed.len() > 1
        && parsed[1..].iter().all(|address| Family::from_address(*address) == Family::from_address(parsed[0]))
    {
        let detail = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid("spec.clusterIPs", json!(addresses), detail));
    }
    if consistent && errors.is_empty() && !is_headless(spec) {
        for (index, (address, family)) in parsed.iter().zip(families(spec)).enumerate() {
            if Family::from_address(*address) != family {
                let detail = format!("expected an {} value as indicated by `ipFamilies[{index}]`", family.name());
                errors.push(FieldError::invalid(format!("spec.clusterIPs[{index}]"), address.to_string(), detail));
            }
        }
    }
    errors
}

/// Removes the second family and address from a service that becomes single-stack. Returns errors if the request
/// removes them without changing the policy.
fn shrink(before: &Map, spec: &mut Map) -> Vec<FieldError> {
    let policy = spec.text("ipFamilyPolicy").to_owned();
    let mut errors = Vec::new();
    for (field, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
        let (old, new) = (before.texts(field), spec.texts(field));
        if policy == SINGLE {
            if old == new && new.len() > 1 {
                let first = json!([new[0]]);
                spec.put(field, Some(first));
            }
        } else if !new.is_empty() && new.len() < old.len() {
            let detail = format!("must be 'SingleStack' to release the secondary {what}");
            errors.push(FieldError::invalid("spec.ipFamilyPolicy", policy.as_str(), detail));
        }
    }
    errors
}

fn too_many_for_policy(spec: &Map) -> Vec<FieldError> {
    let policy = spec.text("ipFamilyPolicy");
    let both = [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")];
    let many = both.into_iter().filter(|(field, _)| policy == SINGLE && spec.texts(field).len() == 2);
    many.map(|(_, what)| {
        let detail = format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
        FieldError::invalid("spec.ipFamilyPolicy", policy, detail)
    })
    .collect()
}

/// Adds the families of the requested addresses.
fn infer(ranges: &ServiceRanges, spec: &mut Map) -> Vec<FieldError> {
    let mut families = families(spec);
    let mut errors = Vec::new();
    for (index, address) in spec.texts("clusterIPs").into_iter().enumerate().skip(families.len()) {
        let Ok(address) = address.parse::<IpAddr>() else { break };
        let family = Family::from_address(address);
        if ranges.has(family) {
            families.push(family);
        } else {
            let detail = format!("{} is not configured on this cluster", family.name());
            let given = json!(spec.texts("clusterIPs"));
            errors.push(FieldError::invalid(format!("spec.clusterIPs[{index}]"), given, detail));
        }
    }
    if !families.is_empty() {
        spec.put("ipFamilies", Some(families.into_iter().map(Family::name).collect()));
    }
    errors
}

fn unavailable(ranges: &ServiceRanges, spec: &Map) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let policy = spec.text("ipFamilyPolicy");
    if policy == REQUIRE && ranges.addresses().len() < 2 {
        let detail = "this cluster is not configured for dual-stack services";
        errors.push(FieldError::invalid("spec.ipFamilyPolicy", policy, detail));
    }
    for (index, family) in families(spec).into_iter().enumerate().filter(|(_, family)| !ranges.has(*family)) {
        let field = format!("spec.ipFamilies[{index}]");
        errors.push(FieldError::invalid(field, family.name(), "not configured on this cluster"));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(addresses: &[&str]) -> ServiceRanges {
        let addresses = addresses.iter().map(|range| range.parse().unwrap()).collect();
        ServiceRanges::new(addresses, "30000-32767".parse().unwrap()).unwrap()
    }

    const V4: &[&str] = &["10.0.0.0/24"];
    const BOTH: &[&str] = &["10.0.0.0/24", "fd00::/112"];

    /// Fills in a spec with a type, and checks the result or the first error.
    #[expect(clippy::needless_pass_by_value, reason = "a case reads better as what it is than as references to it")]
    fn check(addresses: &[&str], before: Option<Value>, mut spec: Value, expect: Result<(&str, &[&str]), &str>) {
        spec["type"] = json!("ClusterIP");
        let given = spec.to_string();
        let tree = spec.as_object_mut().unwrap();
        let outcome = fill(&ranges(addresses), before.as_ref().and_then(Value::as_object), tree);
        let shown = match &outcome {
            Ok(()) => Ok((tree.text("ipFamilyPolicy"), tree.texts("ipFamilies"))),
            Err(errors) => Err(errors[0].to_string()),
        };
        let expect = expect.map(|(policy, families)| (policy, families.to_vec())).map_err(str::to_owned);
        assert_eq!(shown, expect, "{given}");
    }

    #[test]
    fn ip_families_are_defaulted_from_policy_and_cluster_ips() {
        check(V4, None, json!({}), Ok((SINGLE, &["IPv4"])));
        check(BOTH, None, json!({}), Ok((SINGLE, &["IPv4"])));
        check(BOTH, None, json!({"ipFamilyPolicy": PREFER}), Ok((PREFER, &["IPv4", "IPv6"])));
        check(V4, None, json!({"ipFamilyPolicy": PREFER}), Ok((PREFER, &["IPv4"])));
        check(BOTH, None, json!({"ipFamilyPolicy": REQUIRE, "ipFamilies": ["IPv6"]}), Ok((REQUIRE, &["IPv6", "IPv4"])));
        check(BOTH, None, json!({"clusterIP": "fd00::7", "clusterIPs": ["fd00::7"]}), Ok((SINGLE, &["IPv6"])));
        let headless = json!({"clusterIP": "None", "clusterIPs": ["None"]});
        check(V4, None, headless, Ok((REQUIRE, &["IPv4", "IPv6"])));
        let selecting = json!({"clusterIP": "None", "clusterIPs": ["None"], "selector": {"a": "b"}});
        check(V4, None, selecting, Ok((SINGLE, &["IPv4"])));
    }

    #[test]
    fn ip_families_missing_from_the_cluster_are_refused() {
        let expect = r#"spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services"#;
        check(V4, None, json!({"ipFamilyPolicy": REQUIRE}), Err(expect));
        let expect = r#"spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster"#;
        check(V4, None, json!({"ipFamilies": ["IPv6"]}), Err(expect));
        let two = json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "10.0.0.2"], "ipFamilyPolicy": PREFER});
        let expect = r#"spec.clusterIPs: Invalid value: ["10.0.0.1","10.0.0.2"]: may specify no more than one IP for each IP family"#;
        check(BOTH, None, two, Err(expect));
    }

    #[test]
    fn releasing_the_secondary_ip_requires_single_stack() {
        let before = json!({"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1"],
            "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": REQUIRE});
        let mut single = before.clone();
        single["ipFamilyPolicy"] = json!(SINGLE);
        check(BOTH, Some(before.clone()), single, Ok((SINGLE, &["IPv4"])));
        let mut fewer = before.clone();
        fewer["clusterIPs"] = json!(["10.0.0.1"]);
        let expect = r#"spec.ipFamilyPolicy: Invalid value: "RequireDualStack": must be 'SingleStack' to release the secondary cluster IP"#;
        check(BOTH, Some(before), fewer, Err(expect));
    }
}
