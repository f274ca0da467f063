//! Reviews: who somebody is, and what he may do. Nothing of them is stored; the answer is written into `status`.
//!
//! They are answered from the caller and the authorizer that it comes with, which are the same that the filters of a request
//! ask.

use keelson_access::{Attributes, Authorizer, Decision, ResourceAttributes, User, Verdict};
use keelson_meta::clock::rfc3339;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::{ApiError, Object};
use keelson_resources::CreateHandler;

use crate::caller::Caller;
use crate::registry::Registry;
use crate::subresources::user_info;
use crate::target::Target;

impl Registry {
    /// Answers a review that the caller sent.
    ///
    /// # Errors
    /// 405 for a resource that is no review which this server answers.
    pub async fn review(&self, target: &Target, mut review: Object, caller: &Caller) -> Result<Object, ApiError> {
        self.admit_posted(target, caller, &mut review).await?;
        let (user, authorizer) = (caller.user(), &**caller.authorizer());
        let review_kind = target.resource.create_handler.ok_or(ApiError::MethodNotAllowed)?;
        let status = match review_kind {
            CreateHandler::SelfSubjectReview => json!({ "userInfo": user_info(user) }),
            CreateHandler::SelfSubjectAccessReview => access_status(&review, user, authorizer).await,
            CreateHandler::SubjectAccessReview => access_status(&review, &subject(&review), authorizer).await,
            CreateHandler::SelfSubjectRulesReview => rules_status(user, authorizer).await,
            // Others answer these.
            CreateHandler::Binding | CreateHandler::TokenReview => return Err(ApiError::MethodNotAllowed),
        };
        if review_kind == CreateHandler::SelfSubjectReview {
            // It is answered by a new object, whatever was sent.
            review.0.insert("metadata", json!({ "creationTimestamp": rfc3339(self.now()) }));
        }
        review.0.insert("status", status);
        Ok(review)
    }
}

/// The user that a review asks about.
fn subject(review: &Object) -> User {
    let text = |field: &str| review.get(&["spec", field]).and_then(Value::as_str).unwrap_or_default().to_owned();
    let groups = review.get(&["spec", "groups"]).and_then(Value::as_array).into_iter().flatten();
    User {
        name: text("user"),
        groups: groups.filter_map(Value::as_str).map(str::to_owned).collect(),
        ..User::default()
    }
}

async fn access_status(review: &Object, user: &User, authorizer: &dyn Authorizer) -> Value {
    let resource = |field: &str| review.get(&["spec", "resourceAttributes", field]).and_then(Value::as_str);
    let path = |field: &str| review.get(&["spec", "nonResourceAttributes", field]).and_then(Value::as_str);
    let raw = |field: &str| review.get(&["spec", "resourceAttributes", field, "rawSelector"]).and_then(Value::as_str);
    let attributes = match path("path") {
        Some(asked) => Attributes::Path { verb: path("verb").unwrap_or_default(), path: asked },
        None => Attributes::Resource(ResourceAttributes {
            verb: resource("verb").unwrap_or_default(),
            group: resource("group").unwrap_or_default(),
            version: resource("version").unwrap_or_default(),
            resource: resource("resource").unwrap_or_default(),
            subresource: resource("subresource"),
            namespace: resource("namespace"),
            name: resource("name"),
            label_selector: raw("labelSelector"),
            field_selector: raw("fieldSelector"),
        }),
    };
    let Verdict { decision, reason } = authorizer.authorize(user, &attributes).await;
    let mut status = Map::from_iter([("allowed".to_owned(), json!(decision == Decision::Allow))]);
    if decision == Decision::Deny {
        status.insert("denied", json!(true));
    }
    if !reason.is_empty() {
        status.insert("reason", json!(reason));
    }
    Value::Object(status)
}

async fn rules_status(user: &User, authorizer: &dyn Authorizer) -> Value {
    let all =
        ResourceAttributes { verb: "*", group: "*", version: "*", resource: "*", ..ResourceAttributes::default() };
    if authorizer.authorize(user, &Attributes::Resource(all)).await.is_allowed() {
        return json!({
            "resourceRules": [{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }],
            "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
            "incomplete": false,
        });
    }
    json!({ "resourceRules": [], "nonResourceRules": [], "incomplete": false })
}
