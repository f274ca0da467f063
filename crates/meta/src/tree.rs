//! The fields of JSON objects, found by their names.
//!
//! Most objects have few fields, and the map's hash, which withstands keys that are made to collide, takes longer than to
//! compare a name with each of them. Nothing here knows what a field means.

use serde_json::{Map, Value};

/// The fields of a JSON object.
pub type Tree = Map<String, Value>;

/// Up to this many fields an object is searched in order.
const SEARCHED_IN_ORDER: usize = 16;

/// The value of a field.
pub fn find<'t>(tree: &'t Tree, name: &str) -> Option<&'t Value> {
    if tree.len() > SEARCHED_IN_ORDER {
        return tree.get(name);
    }
    tree.iter().find(|(field, _)| *field == name).map(|(_, value)| value)
}

/// The value of a field of what may be an object.
pub fn member<'t>(value: &'t Value, name: &str) -> Option<&'t Value> {
    find(value.as_object()?, name)
}

/// The value of a field, to be changed.
pub fn find_mut<'t>(tree: &'t mut Tree, name: &str) -> Option<&'t mut Value> {
    if tree.len() > SEARCHED_IN_ORDER {
        return tree.get_mut(name);
    }
    tree.iter_mut().find(|(field, _)| *field == name).map(|(_, value)| value)
}

/// Sets a field. One that is there keeps its place, a new one comes last.
pub fn set(tree: &mut Tree, name: &str, value: impl Into<Value>) {
    match find_mut(tree, name) {
        Some(known) => *known = value.into(),
        None => {
            tree.insert(name.to_owned(), value.into());
        }
    }
}

/// Removes a field, keeping the order of the others.
pub fn remove(tree: &mut Tree, name: &str) {
    if find(tree, name).is_some() {
        tree.shift_remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_set_and_removed_among_few_and_among_many() {
        for count in [1, SEARCHED_IN_ORDER, SEARCHED_IN_ORDER + 1, 100] {
            let mut tree: Tree = (0..count).map(|number| (format!("field{number}"), number.into())).collect();
            let last = format!("field{}", count - 1);
            assert_eq!(find(&tree, &last), Some(&(count - 1).into()));
            assert_eq!(find(&tree, "none"), None);
            assert_eq!(find_mut(&mut tree, "none"), None);
            set(&mut tree, "field0", "changed");
            set(&mut tree, "new", "last");
            assert_eq!(find_mut(&mut tree, "field0"), Some(&mut "changed".into()));
            remove(&mut tree, &last);
            remove(&mut tree, "none");
            assert_eq!((find(&tree, &last), tree.len()), (None, count));
            assert_eq!(tree.keys().next_back().map(String::as_str), Some("new"));
        }
    }
}
