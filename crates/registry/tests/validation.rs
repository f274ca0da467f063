//! That the rules of no kind were forgotten: every kind that is stored has its place among them.

use keelson_meta::GroupVersionKind;
use keelson_resources::Catalogue;

#[test]
fn every_kind_that_is_stored_has_its_place_among_the_rules() {
    let stored = Catalogue::builtin().resources().filter(|resource| resource.is_persisted());
    let missing: Vec<GroupVersionKind> =
        stored.map(|resource| resource.gvk("")).filter(|kind| !keelson_validation::knows(kind)).collect();
    assert!(missing.is_empty(), "kinds without a place in keelson-validation: {missing:?}");
}
