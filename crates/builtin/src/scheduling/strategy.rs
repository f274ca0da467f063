//! Strategy of priority classes. A new pod or group of pods gets the priority of the class that it names, or of the
//! default class. There is only one default class.
//!
//! Classes are read from the cache. Before a pod is refused, the cache catches up with the store, so that a class that
//! another server has just created is found. A new default class of another server may be missing for a moment.

use keelson_meta::json::{Value, json};
use keelson_meta::{ApiError, Object};
use keelson_registry::strategy::{
    ClosedFields, CreateStrategy, DeleteStrategy, EACH, FieldPath, Strategies, UpdateStrategy, metadata_of_status,
};
use keelson_registry::{BuiltinStagePlugin, Registry, Target};

/// The strategies of a resource of the group.
pub(crate) fn strategies(plural: &str) -> &'static Strategies {
    match plural {
        "priorityclasses" => {
            &const { Strategies::ORDINARY.create(&PriorityClasses).update(&PriorityClasses).delete(&PriorityClasses) }
        }
        "podgroups" | "compositepodgroups" => &const { Strategies::ORDINARY.create(&PodGroups).update(&PodGroups) },
        _ => &Strategies::ORDINARY,
    }
}

/// Paths of a field in the templates of a workload, at every permitted depth.
macro_rules! in_templates {
    ($($field:literal),+) => {
        &[
            $(
                &["podGroupTemplates", EACH, $field],
                &["compositePodGroupTemplates", EACH, $field],
                &["compositePodGroupTemplates", EACH, "podGroupTemplates", EACH, $field],
                &["compositePodGroupTemplates", EACH, "compositePodGroupTemplates", EACH, $field],
                &[
                    "compositePodGroupTemplates", EACH, "compositePodGroupTemplates", EACH, "podGroupTemplates", EACH,
                    $field,
                ],
                &[
                    "compositePodGroupTemplates", EACH, "compositePodGroupTemplates", EACH,
                    "compositePodGroupTemplates", EACH, $field,
                ],
                &[
                    "compositePodGroupTemplates", EACH, "compositePodGroupTemplates", EACH,
                    "compositePodGroupTemplates", EACH, "podGroupTemplates", EACH, $field,
                ],
            )+
        ]
    };
}

/// The fields of a resource that feature gates guard.
pub(crate) fn closed_fields(plural: &str) -> Vec<ClosedFields> {
    const SPEC: FieldPath = &["spec"];
    const CONSTRAINTS: &str = "TopologyAwareWorkloadScheduling";
    const CLAIMS: &str = "DRAWorkloadResourceClaims";
    const PREEMPTION: &str = "PodGroupPreemptionPolicy";
    match plural {
        "workloads" => vec![
            ClosedFields::new("CompositePodGroup", SPEC, &[&["compositePodGroupTemplates"]]),
            ClosedFields::new(CONSTRAINTS, SPEC, in_templates!("schedulingConstraints")),
            ClosedFields::new(CLAIMS, SPEC, in_templates!("resourceClaims")),
            ClosedFields::new(PREEMPTION, SPEC, in_templates!("preemptionPolicy")),
        ],
        "podgroups" => vec![
            ClosedFields::new("CompositePodGroup", SPEC, &[&["parentCompositePodGroupName"]]),
            ClosedFields::new(CONSTRAINTS, SPEC, &[&["schedulingConstraints"]]),
            ClosedFields::new(CLAIMS, SPEC, &[&["resourceClaims"]]),
            ClosedFields::new(CLAIMS, &["status"], &[&["resourceClaimStatuses"]]),
            ClosedFields::new(PREEMPTION, SPEC, &[&["preemptionPolicy"]]),
        ],
        "compositepodgroups" => vec![ClosedFields::new(PREEMPTION, SPEC, &[&["preemptionPolicy"]])],
        _ => Vec::new(),
    }
}

/// The classes that every cluster has, even before the server has created the objects.
const SYSTEM: [(&str, i64); 2] = [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// The field that makes a priority class the default.
const GLOBAL_DEFAULT: &str = "globalDefault";

const PREEMPT: &str = "PreemptLowerPriority";

/// Sets the priority of a pod to that of its class, of the default class, or 0. Returns true if the pod did not have
/// it.
///
/// # Errors
/// 403 if the class does not exist, or if the pod has another priority than its class.
pub(crate) fn pod_priority(registry: &Registry, target: &Target, pod: &mut Object) -> Result<bool, ApiError> {
    let text = |field: &str| pod.get(&["spec", field]).and_then(Value::as_str).unwrap_or_default();
    let refuse = |message: String| refused(target, pod, message);
    let (name, priority, policy) = match text("priorityClassName") {
        "" => match default_priority(registry)? {
            Some(class) => (Some(class.name().to_owned()), value(&class), policy(&class)),
            None => (None, 0, PREEMPT.to_owned()),
        },
        named => match find(registry, "scheduling.k8s.io", "priorityclasses", named)? {
            Some(class) => (None, value(&class), policy(&class)),
            None => match SYSTEM.into_iter().find(|(known, _)| *known == named) {
                Some((_, priority)) => (None, priority, PREEMPT.to_owned()),
                None => return Err(refuse(format!("no PriorityClass with name {named} was found"))),
            },
        },
    };
    if let Some(stated) = pod.get(&["spec", "priority"]).and_then(Value::as_i64).filter(|stated| *stated != priority) {
        return Err(refuse(format!(
            "the integer value of priority ({stated}) must not be provided in pod spec; priority admission controller \
             computed {priority} from the given PriorityClass name"
        )));
    }
    let stated = text("preemptionPolicy");
    if !stated.is_empty() && stated != policy {
        return Err(refuse(format!(
            "the string value of PreemptionPolicy ({stated}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        )));
    }
    let Some(Value::Object(spec)) = pod.0.get_mut("spec") else { return Ok(false) };
    let stated = spec.len();
    if let Some(name) = name {
        spec.insert("priorityClassName", json!(name));
    }
    spec.insert("priority", json!(priority));
    spec.insert("preemptionPolicy", json!(policy));
    Ok(spec.len() > stated)
}

/// Sets the priority of a group of pods to that of its class, of the default class, or 0. Returns true if the group did
/// not have it.
///
/// # Errors
/// 403 if the class does not exist, or if the group has another priority than its class.
fn group_priority(registry: &Registry, target: &Target, group: &mut Object) -> Result<bool, ApiError> {
    let named = group.get(&["spec", "priorityClassName"]).and_then(Value::as_str).unwrap_or_default();
    let (name, priority) = match named {
        "" => match default_priority(registry)? {
            Some(class) => (Some(class.name().to_owned()), value(&class)),
            None => (None, 0),
        },
        named => match find(registry, "scheduling.k8s.io", "priorityclasses", named)? {
            Some(class) => (None, value(&class)),
            None => match SYSTEM.into_iter().find(|(known, _)| *known == named) {
                Some((_, priority)) => (None, priority),
                None => return Err(refused(target, group, format!("no PriorityClass with name {named} was found"))),
            },
        },
    };
    let stated = group.get(&["spec", "priority"]).and_then(Value::as_i64);
    if let Some(stated) = stated.filter(|stated| *stated != priority) {
        let kind = group.kind().unwrap_or_default();
        let message = format!(
            "the integer value of priority ({stated}) must not be provided in {kind} spec; priority admission controller \
             computed {priority} from the given PriorityClass name"
        );
        return Err(refused(target, group, message));
    }
    let Some(Value::Object(spec)) = group.0.get_mut("spec") else { return Ok(false) };
    if let Some(name) = name {
        spec.insert("priorityClassName", json!(name));
    }
    spec.insert("priority", json!(priority));
    Ok(stated.is_none())
}

/// Copies the priority fields that an update omits. Returns true if there were any.
pub(crate) fn keep_priority(current: &Object, next: &mut Object) -> bool {
    let mut is_kept = false;
    for field in ["priority", "preemptionPolicy"] {
        if let (None, Some(kept)) = (next.get(&["spec", field]), current.get(&["spec", field]))
            && let Some(Value::Object(spec)) = next.0.get_mut("spec")
        {
            spec.insert(field, kept.clone());
            is_kept = true;
        }
    }
    is_kept
}

/// Refuses a second default class.
///
/// # Errors
/// 403 with the name of the existing default class.
fn only_default(registry: &Registry, target: &Target, class: &Object) -> Result<(), ApiError> {
    if !is_global_default(class) || !registry.does(BuiltinStagePlugin::Priority) {
        return Ok(());
    }
    match default_priority(registry)? {
        Some(first) if first.name() != class.name() => {
            let name = first.name();
            let message = format!("PriorityClass {name} is already marked as default. Only one default can exist");
            Err(refused(target, class, message))
        }
        Some(_) | None => Ok(()),
    }
}

/// The default priority class. There can be several only after concurrent writes; then the one with the lowest priority
/// applies.
fn default_priority(registry: &Registry) -> Result<Option<Object>, ApiError> {
    let target = registry.target("scheduling.k8s.io", "priorityclasses")?;
    let classes = target.collection()?.snapshot();
    let noted = classes.layout().place(GLOBAL_DEFAULT);
    let noted = noted.ok_or_else(|| ApiError::Internal(format!("{GLOBAL_DEFAULT} is not noted")))?;
    // The search for the default class runs for every pod. The indexed field avoids decoding the classes.
    let defaults = classes.range("", None).filter(|class| class.field(noted) == "true");
    Ok(defaults.map(|class| class.object().decode(class.revision)).min_by_key(value))
}

fn is_global_default(class: &Object) -> bool {
    class.get(&[GLOBAL_DEFAULT]).and_then(Value::as_bool) == Some(true)
}

fn value(class: &Object) -> i64 {
    class.get(&["value"]).and_then(Value::as_i64).unwrap_or(0)
}

fn policy(class: &Object) -> String {
    class.get(&["preemptionPolicy"]).and_then(Value::as_str).unwrap_or(PREEMPT).to_owned()
}

fn refused(target: &Target, object: &Object, message: String) -> ApiError {
    // A new object may have a `generateName` and no name yet.
    let name = if object.name().is_empty() { object.generate_name() } else { object.name() };
    ApiError::Refused { resource: target.group_resource(), name: name.to_owned(), message, causes: Vec::new() }
}

fn find(registry: &Registry, group: &str, plural: &str, name: &str) -> Result<Option<Object>, ApiError> {
    let found = registry.target(group, plural)?.collection()?.get(name);
    Ok(found.map(|entry| entry.object().decode(entry.revision)))
}

/// The strategy of groups of pods and of groups of groups.
struct PodGroups;

impl CreateStrategy for PodGroups {
    fn admit(&self, registry: &Registry, target: &Target, object: &mut Object) -> Result<bool, ApiError> {
        if !registry.does(BuiltinStagePlugin::Priority) {
            return Ok(false);
        }
        group_priority(registry, target, object)
    }
}

impl UpdateStrategy for PodGroups {
    fn kept(&self, subresource: &str) -> &'static [FieldPath] {
        metadata_of_status(subresource)
    }

    fn admit_update(
        &self,
        registry: &Registry,
        _: &Target,
        current: &Object,
        next: &mut Object,
    ) -> Result<bool, ApiError> {
        Ok(registry.does(BuiltinStagePlugin::Priority) && keep_priority(current, next))
    }
}

/// The strategy of priority classes.
pub(crate) struct PriorityClasses;

impl CreateStrategy for PriorityClasses {
    fn admit(&self, registry: &Registry, target: &Target, object: &mut Object) -> Result<bool, ApiError> {
        only_default(registry, target, object).map(|()| false)
    }
}

impl UpdateStrategy for PriorityClasses {
    fn raises_generation(&self, _: &Object, _: &Object) -> bool {
        false
    }

    fn admit_update(
        &self,
        registry: &Registry,
        target: &Target,
        _: &Object,
        next: &mut Object,
    ) -> Result<bool, ApiError> {
        only_default(registry, target, next).map(|()| false)
    }
}

impl DeleteStrategy for PriorityClasses {
    fn check_delete(&self, _: &Registry, target: &Target, name: &str) -> Result<(), ApiError> {
        if SYSTEM.iter().all(|(known, _)| *known != name) {
            return Ok(());
        }
        let message = "this is a system priority class and cannot be deleted".to_owned();
        Err(ApiError::Refused { resource: target.group_resource(), name: name.to_owned(), message, causes: Vec::new() })
    }
}
