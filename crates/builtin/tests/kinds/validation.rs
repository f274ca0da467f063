//! Tests that every stored kind is in the lists of validation rules.
//!
//! A kind that is missing there would be stored without validation.

use keelson_builtin::Rules;
use keelson_meta::GroupKind;

#[test]
fn every_stored_kind_has_validation_rules() {
    let stored = keelson_builtin::catalogue().resources().filter(|resource| resource.is_persisted());
    let missing: Vec<GroupKind> = stored
        .map(|resource| resource.group_kind())
        .filter(|it| Rules::for_kind(&it.group, &it.kind).is_none())
        .collect();
    assert!(missing.is_empty(), "kinds without a place in the lists of `validation`: {missing:?}");
}
