//! Resources that are questions: who am I, may I. Nothing of them is stored; the answer is written into `status`.

use keelson_access::{Attributes, Decision, User, authorize};
use keelson_meta::clock::rfc3339;
use keelson_meta::json::{Value, json};
use keelson_meta::{ApiError, Object};

use crate::registry::Registry;
use crate::subresources::user_info;
use crate::target::Target;

impl Registry {
    /// Answers a review that `user` sent.
    ///
    /// # Errors
    /// 405 for a resource that is neither stored nor a question this server answers.
    pub fn review(&self, target: &Target, mut review: Object, user: &User) -> Result<Object, ApiError> {
        let status = match &*target.resource.plural {
            "selfsubjectreviews" => json!({ "userInfo": user_info(user) }),
            "selfsubjectaccessreviews" => access_status(&review, user),
            "subjectaccessreviews" | "localsubjectaccessreviews" => access_status(&review, &subject(&review)),
            "selfsubjectrulesreviews" => rules_status(user),
            _ => return Err(ApiError::MethodNotAllowed),
        };
        if target.resource.plural == "selfsubjectreviews" {
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

fn access_status(review: &Object, user: &User) -> Value {
    let resource = |field: &str| review.get(&["spec", "resourceAttributes", field]).and_then(Value::as_str);
    let path = |field: &str| review.get(&["spec", "nonResourceAttributes", field]).and_then(Value::as_str);
    let attributes = match path("path") {
        Some(asked) => Attributes::Path { verb: path("verb").unwrap_or_default(), path: asked },
        None => Attributes::Resource {
            verb: resource("verb").unwrap_or_default(),
            group: resource("group").unwrap_or_default(),
            version: resource("version").unwrap_or_default(),
            resource: resource("resource").unwrap_or_default(),
            subresource: resource("subresource"),
            namespace: resource("namespace"),
            name: resource("name"),
        },
    };
    match authorize(user, &attributes) {
        Decision::Allow => json!({ "allowed": true }),
        Decision::Deny => json!({ "allowed": false, "reason": "only members of system:masters are allowed anything" }),
    }
}

fn rules_status(user: &User) -> Value {
    let everything = Attributes::Resource {
        verb: "*",
        group: "*",
        version: "*",
        resource: "*",
        subresource: None,
        namespace: None,
        name: None,
    };
    match authorize(user, &everything) {
        Decision::Allow => json!({
            "resourceRules": [{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }],
            "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
            "incomplete": false,
        }),
        Decision::Deny => json!({ "resourceRules": [], "nonResourceRules": [], "incomplete": false }),
    }
}
