//! The grace period of a deleted object. Only pods have one: their containers are stopped, and then their kubelet
//! deletes them for good.
//!
//! The deletionTimestamp is the end of the period, so the deletion began deletionGracePeriodSeconds before. A later
//! deletion can shorten the period and never lengthens it.

use std::time::{Duration, SystemTime};

use keelson_meta::Object;
use keelson_meta::clock::{parse_rfc3339, rfc3339};
use keelson_meta::json::Value;
use keelson_meta::options::DeleteOptions;

use crate::target::Target;

/// The meaning of a negative period, in seconds, as in kube-apiserver since 1.21.
const NEGATIVE_MEANS: i64 = 1;

/// The next step of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grace {
    /// The kind has no grace period, or the period of the object is over.
    None,
    /// The grace period in seconds, from the beginning of the deletion. 0 deletes at once.
    Within(i64),
    /// A deletion is under way, and ends no later than the requested one.
    Pending,
}

/// The next step of the deletion that these options request.
pub(crate) fn next_step(target: &Target, object: &Object, options: &DeleteOptions) -> Grace {
    if !is_graceful(target) {
        return Grace::None;
    }
    let asked = options.grace_period_seconds.map(at_least_some);
    if object.deletion_timestamp().is_none() {
        return Grace::Within(first_period(object, asked));
    }
    match (granted(object), asked) {
        (None | Some(0), _) => Grace::None,
        (Some(granted), Some(asked)) if asked < granted => Grace::Within(asked),
        (Some(_), _) => Grace::Pending,
    }
}

/// Sets the grace period of an object in seconds. The period begins with the deletion, which is now unless it has begun
/// earlier.
pub(crate) fn grant(object: &mut Object, seconds: i64, now: SystemTime) {
    let begun = object.deletion_timestamp().and_then(parse_rfc3339);
    let begun = begun.map(|end| end.checked_sub(duration(granted(object).unwrap_or_default())).unwrap_or(end));
    let begins = begun.unwrap_or(now);
    if begun.is_none() {
        count_deletion(object);
    }
    object.set_meta("deletionTimestamp", rfc3339(begins.checked_add(duration(seconds)).unwrap_or(begins)));
    object.set_meta("deletionGracePeriodSeconds", seconds);
}

/// Increments the generation: a deletion changes the desired state of an object.
pub(crate) fn count_deletion(object: &mut Object) {
    if let Some(generation) = object.generation() {
        object.set_meta("generation", generation + 1);
    }
}

/// Returns true if the grace period of an object is over, so that it is deleted with its last finalizer.
pub fn is_over(object: &Object) -> bool {
    granted(object).unwrap_or_default() == 0
}

fn is_graceful(target: &Target) -> bool {
    target.strategy().delete.is_graceful()
}

/// The period of a pod that is not being deleted yet. Zero if no kubelet has to stop it.
fn first_period(pod: &Object, asked: Option<i64>) -> i64 {
    let text = |path: &[&str]| pod.get(path).and_then(Value::as_str).unwrap_or_default();
    let own = || pod.get(&["spec", "terminationGracePeriodSeconds"]).and_then(Value::as_i64).map(at_least_some);
    if text(&["spec", "nodeName"]).is_empty() || matches!(text(&["status", "phase"]), "Succeeded" | "Failed") {
        return 0;
    }
    asked.or_else(own).unwrap_or_default()
}

fn at_least_some(seconds: i64) -> i64 {
    if seconds < 0 { NEGATIVE_MEANS } else { seconds }
}

fn granted(object: &Object) -> Option<i64> {
    object.meta("deletionGracePeriodSeconds")?.as_i64().map(at_least_some)
}

fn duration(seconds: i64) -> Duration {
    Duration::from_secs(seconds.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;
    use crate::strategy::{DeleteStrategy, Strategies};
    use crate::surface::tests::target_of;

    const NOW: &str = "2026-01-02T03:04:05Z";

    struct Pods;

    impl DeleteStrategy for Pods {
        fn is_graceful(&self) -> bool {
            true
        }
    }

    fn target(plural: &'static str) -> Target {
        let strategies =
            if plural == "pods" { &const { Strategies::ORDINARY.delete(&Pods) } } else { &Strategies::ORDINARY };
        target_of(plural, |version| version.with_strategy(strategies)).in_namespace(Some("a"))
    }

    #[expect(clippy::needless_pass_by_value, reason = "a case reads better as what it is than as references to it")]
    fn check(pod: Value, asked: Option<i64>, expected: Grace) {
        let object = Object::from_value(pod.clone()).unwrap();
        let options = DeleteOptions { grace_period_seconds: asked, ..DeleteOptions::default() };
        assert_eq!(next_step(&target("pods"), &object, &options), expected, "{pod} {asked:?}");
        assert_eq!(next_step(&target("configmaps"), &object, &options), Grace::None, "only pods have time");
    }

    #[test]
    fn scheduled_pods_have_their_grace_period_unless_overridden() {
        let bound = json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}});
        check(bound.clone(), None, Grace::Within(30));
        check(bound.clone(), Some(5), Grace::Within(5));
        check(bound.clone(), Some(0), Grace::Within(0));
        check(bound, Some(-7), Grace::Within(1));
        check(json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": -1}}), None, Grace::Within(1));
        check(json!({"spec": {"terminationGracePeriodSeconds": 30}}), Some(9), Grace::Within(0));
        let done = json!({"spec": {"nodeName": "n"}, "status": {"phase": "Failed"}});
        check(done, Some(9), Grace::Within(0));
    }

    #[test]
    fn a_second_deletion_can_only_shorten_the_time() {
        let marked =
            |seconds: Value| json!({"metadata": {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": seconds}});
        check(marked(json!(30)), None, Grace::Pending);
        check(marked(json!(30)), Some(30), Grace::Pending);
        check(marked(json!(30)), Some(40), Grace::Pending);
        check(marked(json!(30)), Some(10), Grace::Within(10));
        check(marked(json!(0)), Some(10), Grace::None);
        check(marked(Value::Null), None, Grace::None);
    }

    #[test]
    fn time_counts_from_the_beginning_of_the_deletion() {
        let now = parse_rfc3339(NOW).unwrap();
        let mut pod = Object::from_value(json!({"metadata": {"generation": 1}})).unwrap();
        grant(&mut pod, 30, now);
        let state = |pod: &Object| (pod.deletion_timestamp().map(str::to_owned), granted(pod), pod.generation());
        assert_eq!(state(&pod), (Some("2026-01-02T03:04:35Z".to_owned()), Some(30), Some(2)));
        grant(&mut pod, 10, now + Duration::from_secs(7));
        assert_eq!(state(&pod), (Some("2026-01-02T03:04:15Z".to_owned()), Some(10), Some(2)));
    }
}
