//! JSON patch (RFC 6902): a list of operations, applied in order, all or none.
//!
//! Where the RFC leaves room or upstream's library (evanphx/json-patch) is more lenient, this follows the library, since
//! clients have been written against it: negative indexes count from the end, a missing `value` is null, a member that is
//! replaced or copied need not be there, and testing an absent member for null succeeds.
//!
//! What an operation may cost is bounded, since a few bytes can ask for much: see [`Limits`].

use std::io;

use keelson_meta::json::{Map, Value};

use crate::error::PatchError;
use crate::pointer::{Pointer, TargetLocation, existing, insertion};

/// What a patch may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The number of operations.
    pub operations: usize,
    /// The JSON bytes all `copy` operations may add together.
    pub copied_bytes: usize,
    /// How deep the result may nest, as far as the patch decides it: what the server can read back.
    pub depth: usize,
    /// How many values may be passed, beyond those that the patch itself holds: the elements behind those that are put into
    /// arrays or taken out of them, and what is moved to where its depth has to be found.
    pub passed_values: usize,
}

/// The limits of upstream, the depth keelson's JSON reader accepts, and a few milliseconds of work. A patch that inserts 1,000
/// elements at the front of an array of 4,000 passes as many values.
impl Default for Limits {
    fn default() -> Self {
        Self { operations: 10_000, copied_bytes: 3 * 1024 * 1024, depth: 512, passed_values: 4_000_000 }
    }
}

const PATCH: &str = "value of type []handlers.jsonPatchOp";
const OPERATION: &str = "value of type handlers.jsonPatchOp";

/// The operations of a patch, their fields checked for their types only. Read once, they can be applied to many objects.
pub struct Operations<'p> {
    operations: Vec<Operation<'p>>,
    limits: Limits,
}

impl<'p> Operations<'p> {
    /// Reads a patch.
    ///
    /// # Errors
    /// [`PatchError::Malformed`] for what is not an array of objects, and for more operations than the limits allow.
    pub fn read(patch: &'p Value, limits: Limits) -> Result<Self, PatchError> {
        let operations = match patch {
            Value::Array(operations) => &operations[..],
            // Go decodes null into an empty list.
            Value::Null => &[],
            other => return Err(PatchError::malformed(other, PATCH)),
        };
        let operations = operations.iter().map(Operation::read).collect::<Result<Vec<_>, _>>()?;
        if operations.len() > limits.operations {
            return Err(PatchError::TooManyOperations { limit: limits.operations, actual: operations.len() });
        }
        Ok(Self { operations, limits })
    }

    /// Applies the operations. Cost: the work of each, which is proportional to the length of its path, the arrays it shifts,
    /// and the values it adds, compares or copies.
    ///
    /// # Errors
    /// The first operation that cannot be applied, or limits that are exceeded.
    pub fn apply(&self, target: Value) -> Result<Value, PatchError> {
        let limits = self.limits;
        let mut patched = Patched { deepest: depth(&target), root: target, limits, copied: 0, passed: 0 };
        for operation in &self.operations {
            patched.apply(operation)?;
        }
        Ok(patched.root)
    }
}

/// Applies a patch to a copy of `target`.
///
/// # Errors
/// As for [`Operations`].
pub fn apply(target: &Value, patch: &Value, limits: Limits) -> Result<Value, PatchError> {
    Operations::read(patch, limits)?.apply(target.clone())
}

/// The same, with the members of every object that an operation steps through in alphabetical order: so upstream writes what a
/// patch leaves, which it shows and decodes again.
///
/// # Errors
/// As [`apply`].
pub fn apply_in_order(target: &Value, patch: &Value, limits: Limits) -> Result<Value, PatchError> {
    let mut ordered = target.clone();
    sort(&mut ordered);
    for operation in patch.as_array().into_iter().flatten() {
        for path in ["path", "from"].into_iter().filter_map(|field| operation.get(field)?.as_str()) {
            sort_along(&mut ordered, path);
        }
    }
    let mut patched = apply(&ordered, patch, limits)?;
    // What was added came last, and what was moved may have been stepped through where it now is.
    sort(&mut patched);
    for operation in patch.as_array().into_iter().flatten() {
        if let Some(path) = operation.get("path").and_then(Value::as_str) {
            sort_along(&mut patched, path);
        }
    }
    Ok(patched)
}

fn sort(value: &mut Value) {
    if let Value::Object(map) = value {
        map.sort_keys();
    }
}

/// Sorts the objects on the way to what a path leads to.
fn sort_along(root: &mut Value, path: &str) {
    let Some(pointer) = Pointer::parse(path) else { return };
    pointer.each_container(root, sort);
}

/// One operation, its fields checked for their types only.
struct Operation<'a> {
    name: &'a str,
    path: Option<&'a str>,
    from: Option<&'a str>,
    value: Option<&'a Value>,
}

impl<'a> Operation<'a> {
    fn read(operation: &'a Value) -> Result<Self, PatchError> {
        // Go decodes null into an operation without fields.
        if operation.is_null() {
            return Ok(Self { name: "unknown", path: None, from: None, value: None });
        }
        let fields = operation.as_object().ok_or_else(|| PatchError::malformed(operation, OPERATION))?;
        Ok(Self {
            name: text(fields, "op", "struct field jsonPatchOp.op of type string")?.unwrap_or("unknown"),
            path: text(fields, "path", "struct field jsonPatchOp.path of type string")?,
            from: text(fields, "from", "struct field jsonPatchOp.from of type string")?,
            value: fields.get("value"),
        })
    }

    fn path(&self) -> Result<&'a str, PatchError> {
        self.path.ok_or(PatchError::MissingField("path"))
    }

    fn from(&self) -> Result<&'a str, PatchError> {
        self.from.ok_or(PatchError::MissingField("from"))
    }

    fn value(&self) -> Value {
        self.value.cloned().unwrap_or_default()
    }
}

fn text<'a>(fields: &'a Map, name: &str, target: &'static str) -> Result<Option<&'a str>, PatchError> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(PatchError::malformed(other, target)),
    }
}

/// The value between two operations.
struct Patched {
    root: Value,
    limits: Limits,
    copied: usize,
    passed: usize,
    /// No value nests deeper than this. It may be more than is true after something was removed.
    deepest: usize,
}

impl Patched {
    fn apply(&mut self, operation: &Operation<'_>) -> Result<(), PatchError> {
        match operation.name {
            "add" => {
                let (path, value) = (operation.path()?, operation.value());
                self.reach(path, depth(&value))?;
                self.add("add", path, value)
            }
            "remove" => self.remove("remove", operation.path()?).map(drop),
            "replace" => self.replace(operation.path()?, operation.value()),
            "move" => self.move_value(operation.from()?, operation.path()?),
            "copy" => {
                let path = operation.path()?;
                let value = self.copy(operation.from()?)?;
                self.reach(path, depth(&value))?;
                self.add("copy", path, value)
            }
            "test" => self.test(operation.path()?, operation.value.unwrap_or(&Value::Null)),
            unknown => Err(PatchError::UnknownOperation(unknown.to_owned())),
        }
    }

    fn add(&mut self, operation: &'static str, path: &str, value: Value) -> Result<(), PatchError> {
        let pointer = inner(operation, path)?;
        match pointer.place(&mut self.root).ok_or_else(|| missing(operation, path))? {
            TargetLocation::Root => return Err(missing(operation, path)),
            TargetLocation::Member(map, key) => drop(map.insert(key, value)),
            TargetLocation::Element(items, step) => {
                let index = insertion(step, items.len()).ok_or_else(|| missing(operation, path))?;
                pass(&mut self.passed, self.limits, items.len() - index)?;
                items.insert(index, value);
            }
        }
        Ok(())
    }

    fn remove(&mut self, operation: &'static str, path: &str) -> Result<Value, PatchError> {
        let pointer = inner(operation, path)?;
        let removed = match pointer.place(&mut self.root) {
            None | Some(TargetLocation::Root) => None,
            Some(TargetLocation::Member(map, key)) => map.remove(key),
            Some(TargetLocation::Element(items, step)) => match existing(step, items.len()) {
                Some(index) => {
                    pass(&mut self.passed, self.limits, items.len() - index)?;
                    Some(items.remove(index))
                }
                None => None,
            },
        };
        removed.ok_or_else(|| missing(operation, path))
    }

    /// A member that is not there is added, an element has to be there.
    fn replace(&mut self, path: &str, value: Value) -> Result<(), PatchError> {
        self.reach(path, depth(&value))?;
        if path.is_empty() {
            if !(value.is_object() || value.is_array()) {
                return Err(PatchError::NoContainer);
            }
            self.root = value;
            return Ok(());
        }
        match inner("replace", path)?.place(&mut self.root) {
            None | Some(TargetLocation::Root) => Err(missing("replace", path)),
            Some(TargetLocation::Member(map, key)) => {
                map.insert(key, value);
                Ok(())
            }
            Some(TargetLocation::Element(items, step)) => {
                let old = existing(step, items.len()).and_then(|index| items.get_mut(index));
                *old.ok_or_else(|| missing("replace", path))? = value;
                Ok(())
            }
        }
    }

    fn move_value(&mut self, from: &str, path: &str) -> Result<(), PatchError> {
        let value = self.remove("move", from)?;
        // What lies so deep can't nest deeper than the rest of the way; to look at it is seldom needed.
        let below = self.deepest.saturating_sub(steps(from));
        if steps(path) + below > self.limits.depth {
            let passed = &mut self.passed;
            let found = counted_depth(&value, &mut |values| pass(passed, self.limits, values))?;
            self.reach(path, found)?;
        } else {
            self.reach(path, below)?;
        }
        self.add("move", path, value)
    }

    /// A member that is not there is copied as null.
    fn copy(&mut self, from: &str) -> Result<Value, PatchError> {
        let pointer = inner("copy", from)?;
        let value = match pointer.get(&self.root) {
            Some(value) => value,
            None => match pointer.place(&mut self.root) {
                Some(TargetLocation::Member(..)) => &Value::Null,
                Some(TargetLocation::Root | TargetLocation::Element(..)) | None => return Err(missing("copy", from)),
            },
        };
        self.copied += json_len(value);
        if self.copied > self.limits.copied_bytes {
            return Err(PatchError::CopyTooLarge { limit: self.limits.copied_bytes, actual: self.copied });
        }
        Ok(value.clone())
    }

    fn test(&mut self, path: &str, wanted: &Value) -> Result<(), PatchError> {
        let pointer = if path.is_empty() { Pointer::root() } else { inner("test", path)? };
        let same = match pointer.get(&self.root) {
            Some(found) => equal(found, wanted),
            None => match pointer.place(&mut self.root) {
                Some(TargetLocation::Member(..)) => wanted.is_null(),
                Some(TargetLocation::Root | TargetLocation::Element(..)) | None => return Err(missing("test", path)),
            },
        };
        if same { Ok(()) } else { Err(PatchError::TestFailed { path: path.to_owned() }) }
    }

    /// Notes that a value which nests this deep is put at the end of a path.
    fn reach(&mut self, path: &str, depth: usize) -> Result<(), PatchError> {
        let reached = steps(path) + depth;
        if reached > self.limits.depth {
            return Err(PatchError::TooDeep { limit: self.limits.depth });
        }
        self.deepest = self.deepest.max(reached);
        Ok(())
    }
}

/// Counts values that an operation passes.
fn pass(passed: &mut usize, limits: Limits, values: usize) -> Result<(), PatchError> {
    *passed += values;
    if *passed > limits.passed_values {
        return Err(PatchError::TooMuchWork { limit: limits.passed_values });
    }
    Ok(())
}

/// How many steps a path has.
fn steps(path: &str) -> usize {
    path.bytes().filter(|byte| *byte == b'/').count()
}

/// The pointer to something inside of the root.
fn inner<'p>(operation: &'static str, path: &'p str) -> Result<Pointer<'p>, PatchError> {
    Pointer::parse(path).ok_or_else(|| missing(operation, path))
}

fn missing(operation: &'static str, path: &str) -> PatchError {
    PatchError::MissingPath { operation, path: path.to_owned() }
}

/// RFC 6902, section 4.6: numbers are equal by value, so `1` is `1.0`; the order of members does not matter.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() != b.is_f64() => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| equal(a, b)))
        }
        _ => a == b,
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// As [`depth`], telling how many values are about to be looked at, which may end it.
fn counted_depth(value: &Value, count: &mut impl FnMut(usize) -> Result<(), PatchError>) -> Result<usize, PatchError> {
    let mut deepest = 0;
    match value {
        Value::Array(items) => {
            count(items.len())?;
            for item in items {
                deepest = deepest.max(counted_depth(item, count)?);
            }
        }
        Value::Object(map) => {
            count(map.len())?;
            for item in map.values() {
                deepest = deepest.max(counted_depth(item, count)?);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return Ok(0),
    }
    Ok(1 + deepest)
}

/// The length of the value as compact JSON.
fn json_len(value: &Value) -> usize {
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, value).expect("keys are strings and the counter takes every byte");
    counter.0
}

struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
