//! Certificate signing requests: who asks is what the server has seen, not what the request says.

use keelson_access::User;
use keelson_meta::Object;
use serde_json::{Value, json};

pub(super) fn sign_with(request: &mut Object, user: &User) {
    let spec = request.0.entry("spec").or_insert_with(|| json!({}));
    let Value::Object(spec) = spec else { return };
    spec.insert("username".to_owned(), json!(user.name));
    spec.insert("uid".to_owned(), json!(user.uid));
    spec.insert("groups".to_owned(), json!(user.groups));
    spec.insert("extra".to_owned(), json!(user.extra));
}
