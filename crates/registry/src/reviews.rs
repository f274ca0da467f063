//! Reviews: the identity and the rights of a user. They are not stored. The answer is in `status`.
//!
//! The caller and its authorizer answer, as for the filters of a request. An authorizer gets a selector as the text of
//! a request. As upstream, an invalid selector is left out, which requests more, and the answer reports it.

mod validation;

use keelson_access::{Attributes, Authorizer, Decision, PolicyRule, ResourceAttributes, User, Verdict};
use keelson_meta::clock::rfc3339;
use keelson_meta::field_selector::{FieldOperator, FieldSelector};
use keelson_meta::json::{Map, Value, json};
use keelson_meta::label_selector::LabelSelector;
use keelson_meta::{ApiError, Object};
use keelson_resources::CreateHandler;

use crate::caller::Caller;
use crate::registry::Registry;
use crate::subresources::user_info;
use crate::target::Target;
use validation::ReviewSubject;

impl Registry {
    /// Answers a review that the caller sent.
    ///
    /// # Errors
    /// 405 for a resource that is not a review of this server. 422 for a review without a question, or with too many.
    pub async fn review(&self, target: &Target, mut review: Object, caller: &Caller) -> Result<Object, ApiError> {
        self.admit_posted(target, caller, &mut review).await?;
        let (user, authorizer) = (caller.user(), &**caller.authorizer());
        let review_kind = target.resource.create_handler.ok_or(ApiError::MethodNotAllowed)?;
        let status = match review_kind {
            CreateHandler::SelfSubjectReview => json!({ "userInfo": user_info(user) }),
            CreateHandler::SelfSubjectAccessReview => {
                validation::check(&review, &ReviewSubject::Oneself)?;
                access_status(&review, user, authorizer).await
            }
            CreateHandler::SubjectAccessReview => {
                let about = target.namespace.as_deref().map_or(ReviewSubject::Anybody, ReviewSubject::AnybodyWithin);
                validation::check(&review, &about)?;
                access_status(&review, &subject(&review), authorizer).await
            }
            CreateHandler::SelfSubjectRulesReview => rules_status(&review, user, authorizer).await?,
            // Other handlers answer these.
            CreateHandler::Binding | CreateHandler::TokenReview => return Err(ApiError::MethodNotAllowed),
        };
        // As upstream, the response to these two is a new object, whatever was sent.
        match review_kind {
            CreateHandler::SelfSubjectReview => {
                review.0.insert("metadata", json!({ "creationTimestamp": rfc3339(self.now()) }));
            }
            CreateHandler::SelfSubjectRulesReview => {
                review.0.insert("metadata", json!({}));
                review.0.insert("spec", json!({}));
            }
            _ => {}
        }
        review.0.insert("status", status);
        Ok(review)
    }
}

/// The user that a review asks about.
fn subject(review: &Object) -> User {
    let text = |field: &str| review.get(&["spec", field]).and_then(Value::as_str).map(str::to_owned);
    let extra = review.get(&["spec", "extra"]).and_then(Value::as_object).into_iter().flatten();
    User {
        name: text("user").unwrap_or_default(),
        uid: text("uid").filter(|uid| !uid.is_empty()),
        groups: texts(review.get(&["spec", "groups"])),
        extra: extra.map(|(key, values)| (key.to_string(), texts(Some(values)))).collect(),
    }
}

/// The texts of an array.
fn texts(array: Option<&Value>) -> Vec<String> {
    let values = array.and_then(Value::as_array).into_iter().flatten();
    values.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// A selector of a review, as the text of a request.
#[derive(Default)]
struct Selector {
    text: Option<String>,
    /// True if an invalid part was left out.
    is_cut: bool,
}

impl Selector {
    /// The selector in a field of the resource attributes: requirements, each `written` as a text if it can be, or else
    /// a raw text that must be valid.
    fn read(
        review: &Object,
        field: &str,
        written: impl Fn(&Value) -> Option<String>,
        is_selector: impl Fn(&str) -> bool,
    ) -> Self {
        let within = |name: &str| review.get(&["spec", "resourceAttributes", field, name]);
        let requirements = within("requirements").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if requirements.is_empty() {
            let raw = within("rawSelector").and_then(Value::as_str).filter(|raw| !raw.is_empty());
            let text = raw.filter(|raw| is_selector(raw)).map(str::to_owned);
            return Self { is_cut: raw.is_some() && text.is_none(), text };
        }
        let known: Vec<String> = requirements.iter().filter_map(written).collect();
        Self { is_cut: known.len() < requirements.len(), text: (!known.is_empty()).then(|| known.join(",")) }
    }

    fn of_labels(review: &Object) -> Self {
        Self::read(review, "labelSelector", label_requirement, |text| LabelSelector::parse(text).is_ok())
    }

    fn of_fields(review: &Object) -> Self {
        Self::read(review, "fieldSelector", field_requirement, |text| FieldSelector::parse(text).is_ok())
    }

    /// The error about the parts that were left out.
    fn fault(&self, field: &str) -> Option<String> {
        let how = if self.text.is_some() { "partially ignored" } else { "ignored" };
        self.is_cut.then(|| format!("spec.resourceAttributes.{field} {how} due to parse error"))
    }
}

/// The key, the operator and the values of a requirement.
fn requirement(value: &Value) -> (&str, &str, Vec<String>) {
    let text = |name: &str| value[name].as_str().unwrap_or_default();
    (text("key"), text("operator"), texts(value.get("values")))
}

fn label_requirement(value: &Value) -> Option<String> {
    let (key, operator, mut values) = requirement(value);
    let text = match operator {
        "In" if !values.is_empty() => format!("{key} in ({})", values.join(",")),
        "NotIn" if !values.is_empty() => format!("{key} notin ({})", values.join(",")),
        "Exists" if values.is_empty() => key.to_owned(),
        "DoesNotExist" if values.is_empty() => format!("!{key}"),
        _ => return None,
    };
    // The text must mean the same: no part of it may be parsed as another requirement.
    let selector = LabelSelector::parse(&text).ok()?;
    let [read] = selector.requirements() else { return None };
    let mut read_values: Vec<&str> = read.values().collect();
    values.sort_unstable();
    values.dedup();
    read_values.sort_unstable();
    (read.key() == key && read_values == values).then_some(text)
}

/// As upstream, a field is compared with one value.
fn field_requirement(value: &Value) -> Option<String> {
    let (key, operator, values) = requirement(value);
    let [value] = values.as_slice() else { return None };
    let operator = match operator {
        "In" => FieldOperator::Equal,
        "NotIn" => FieldOperator::NotEqual,
        _ => return None,
    };
    let selector = FieldSelector::everything().and(key, operator, value.as_str());
    let text = selector.to_string();
    (FieldSelector::parse(&text).as_ref() == Ok(&selector)).then_some(text)
}

async fn access_status(review: &Object, user: &User, authorizer: &dyn Authorizer) -> Value {
    let resource = |field: &str| review.get(&["spec", "resourceAttributes", field]).and_then(Value::as_str);
    let path = |field: &str| review.get(&["spec", "nonResourceAttributes", field]).and_then(Value::as_str);
    let (labels, fields) = (Selector::of_labels(review), Selector::of_fields(review));
    let attributes = match path("path") {
        Some(asked) => Attributes::Path { verb: path("verb").unwrap_or_default(), path: asked },
        None => Attributes::Resource(ResourceAttributes {
            verb: resource("verb").unwrap_or_default(),
            group: resource("group").unwrap_or_default(),
            // As upstream, a review without a version is about all versions.
            version: resource("version").filter(|version| !version.is_empty()).unwrap_or("*"),
            resource: resource("resource").unwrap_or_default(),
            subresource: resource("subresource"),
            namespace: resource("namespace"),
            name: resource("name"),
            label_selector: labels.text.as_deref(),
            field_selector: fields.text.as_deref(),
        }),
    };
    let Verdict { decision, reason, error } = authorizer.authorize(user, &attributes).await;
    let mut status = Map::from_iter([("allowed".to_owned(), json!(decision == Decision::Allow))]);
    if decision == Decision::Deny {
        status.insert("denied", json!(true));
    }
    if !reason.is_empty() {
        status.insert("reason", json!(&*reason));
    }
    let selectors = fields.fault("fieldSelector").into_iter().chain(labels.fault("labelSelector"));
    let faults: Vec<String> = error.map(|error| error.to_string()).into_iter().chain(selectors).collect();
    if !faults.is_empty() {
        status.insert("evaluationError", json!(faults.join("; ")));
    }
    Value::Object(status)
}

async fn rules_status(review: &Object, user: &User, authorizer: &dyn Authorizer) -> Result<Value, ApiError> {
    let namespace = review.get(&["spec", "namespace"]).and_then(Value::as_str).unwrap_or_default();
    if namespace.is_empty() {
        return Err(ApiError::BadRequest("no namespace on request".to_owned()));
    }
    let held = authorizer.rules(user, Some(namespace)).await;
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    for rule in held.rules.iter().chain(&held.shown) {
        // A rule with resources and URLs allows its verbs on each.
        if !rule.resources.is_empty() {
            resources.push(PolicyRule { non_resource_urls: Vec::new(), ..PolicyRule::clone(rule) }.to_value());
        }
        if !rule.non_resource_urls.is_empty() {
            let (verbs, non_resource_urls) = (rule.verbs.clone(), rule.non_resource_urls.clone());
            paths.push(PolicyRule { verbs, non_resource_urls, ..PolicyRule::default() }.to_value());
        }
    }
    let incomplete = !held.unresolved.is_empty();
    let mut status = json!({ "resourceRules": resources, "nonResourceRules": paths, "incomplete": incomplete });
    if let Some(faults) = held.faults() {
        status["evaluationError"] = json!(faults);
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use futures::future::{Either, ready};
    use keelson_access::PendingVerdict;
    use parking_lot::Mutex;

    use super::*;

    /// An authorization request about a resource.
    #[derive(Debug)]
    struct Question {
        user: User,
        version: String,
        labels: Option<String>,
        fields: Option<String>,
    }

    /// Allows nothing, and records the requests.
    #[derive(Debug, Default)]
    struct PlannedQuery(Mutex<Option<Question>>);

    impl Authorizer for PlannedQuery {
        fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> PendingVerdict<'a> {
            let Attributes::Resource(asked) = attributes else { panic!("a path") };
            let owned = |text: Option<&str>| text.map(str::to_owned);
            *self.0.lock() = Some(Question {
                user: user.clone(),
                version: asked.version.to_owned(),
                labels: owned(asked.label_selector),
                fields: owned(asked.field_selector),
            });
            Either::Left(ready(Verdict::new(Decision::NoOpinion, "")))
        }
    }

    async fn ask(spec: Value) -> (Question, Value) {
        let review = Object::from_value(json!({ "spec": spec })).unwrap();
        let query = PlannedQuery::default();
        let status = access_status(&review, &subject(&review), &query).await;
        (query.0.into_inner().unwrap(), status)
    }

    #[tokio::test]
    async fn an_authorizer_gets_all_user_fields_of_a_review() {
        let extra = json!({"scopes": ["a", "b"], "none": []});
        let spec =
            json!({"user": "u", "uid": "7", "groups": ["g"], "extra": extra, "resourceAttributes": {"verb": "get"}});
        let (Question { user, version, labels, fields }, status) = ask(spec).await;
        let scopes = ("scopes".to_owned(), vec!["a".to_owned(), "b".to_owned()]);
        let expected = User {
            name: "u".to_owned(),
            uid: Some("7".to_owned()),
            groups: vec!["g".to_owned()],
            extra: [scopes, ("none".to_owned(), Vec::new())].into(),
        };
        assert_eq!((user, labels, fields), (expected, None, None));
        assert_eq!(version, "*", "who names no version asks about all");
        assert_eq!(status, json!({"allowed": false}));
    }

    /// Checks the text for the authorizer, and the error about the rest.
    async fn check(field: &str, selector: Value, expected: Option<&str>, fault: Option<&str>) {
        let (Question { labels, fields, .. }, status) =
            ask(json!({"resourceAttributes": {field: selector.clone()}})).await;
        let told = if field == "labelSelector" { labels } else { fields };
        assert_eq!(told.as_deref(), expected, "{selector}");
        let fault = fault.map(|how| format!("spec.resourceAttributes.{field} {how} due to parse error"));
        assert_eq!(status["evaluationError"].as_str(), fault.as_deref(), "{selector}");
    }

    #[tokio::test]
    async fn an_authorizer_gets_selectors_in_every_form() {
        let requirements = |list: Value| json!({ "requirements": list });
        let one =
            |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
        let labels = "labelSelector";
        check(labels, json!({"rawSelector": "a in (b,c)"}), Some("a in (b,c)"), None).await;
        check(labels, json!({"rawSelector": "a in (b"}), None, Some("ignored")).await;
        let all = json!([
            one("a", "In", &["c", "b"]),
            one("d", "NotIn", &["e"]),
            one("f", "Exists", &[]),
            one("g", "DoesNotExist", &[])
        ]);
        check(labels, requirements(all), Some("a in (c,b),d notin (e),f,!g"), None).await;
        check(labels, requirements(json!([{"key": "a"}])), None, Some("ignored")).await;
        let some = json!([one("a", "Exists", &[]), one("b,c", "Exists", &[]), one("d", "In", &["e),f in (g"])]);
        check(labels, requirements(some), Some("a"), Some("partially ignored")).await;

        let fields = "fieldSelector";
        check(fields, json!({"rawSelector": "metadata.name=one"}), Some("metadata.name=one"), None).await;
        check(fields, json!({"rawSelector": "a=b=c=,"}), None, Some("ignored")).await;
        let all = json!([one("a", "In", &["b,c"]), one("d", "NotIn", &["e"])]);
        check(fields, requirements(all), Some("a=b\\,c,d!=e"), None).await;
        check(fields, requirements(json!([one("a", "In", &["b", "c"])])), None, Some("ignored")).await;
        check(fields, requirements(json!([one("a", "Exists", &[])])), None, Some("ignored")).await;
        let some = json!([one("a", "GreaterThan", &["1"]), one("b", "In", &["c"])]);
        check(fields, requirements(some), Some("b=c"), Some("partially ignored")).await;
    }
}
