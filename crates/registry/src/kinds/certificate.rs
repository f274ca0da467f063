//! Certificate signing requests: who asks is what the server has seen, not what the request says.

use keelson_access::User;
use keelson_meta::Object;
use keelson_meta::json::{Value, json};

pub(super) fn sign_with(request: &mut Object, user: &User) {
    let spec = request.0.entry("spec").or_insert_with(|| json!({}));
    let Value::Object(spec) = spec else { return };
    spec.insert("username", json!(user.name));
    spec.insert("uid", json!(user.uid));
    spec.insert("groups", json!(user.groups));
    spec.insert("extra", json!(user.extra));
}
