//! Strategy of service accounts: references to secrets keep only the name.
//!
//! A secret is always in the namespace of the account, so other fields of a reference have no effect.

use keelson_meta::Object;
use keelson_meta::json::Value;
use keelson_registry::strategy::{CreateStrategy, DeleteStrategy, UpdateStrategy};
use keelson_registry::{Target, Warnings};

/// The strategy of service accounts.
pub(super) struct ServiceAccounts;

impl CreateStrategy for ServiceAccounts {
    fn prepare_create(&self, object: &mut Object, _: &Warnings) -> bool {
        keep_names_of_secrets(object);
        false
    }
}

impl UpdateStrategy for ServiceAccounts {
    fn prepare_update(&self, _: &Target, _: &Object, next: &mut Object) -> bool {
        keep_names_of_secrets(next);
        false
    }
}

impl DeleteStrategy for ServiceAccounts {
    fn returns_deleted(&self) -> bool {
        true
    }
}

fn keep_names_of_secrets(account: &mut Object) {
    let secrets = account.0.get_mut("secrets").and_then(Value::as_array_mut);
    for secret in secrets.into_iter().flatten().filter_map(Value::as_object_mut) {
        secret.retain(|field, _| field == "name");
    }
}
