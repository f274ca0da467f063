//! Splits work on many objects between two threads.
//!
//! The load uses it after it has read all objects, when other cores would be idle.

use std::cmp::Ordering;

/// The number of objects from which a second thread saves time.
const MANY: usize = 10_000;
/// The length of the kept beginning of a text, in words of eight bytes. It covers the keys and labels of most objects.
const BEGINNING: usize = 5;

/// The beginning of a text. Sorting by it avoids repeated access to scattered texts.
type KeyPrefix = [u64; BEGINNING];

/// Runs two pieces of work, in parallel if there are many objects, and returns both results.
pub(crate) fn both<A: Send, B>(objects: usize, one: impl FnOnce() -> A + Send, other: impl FnOnce() -> B) -> (A, B) {
    if objects < MANY {
        return (one(), other());
    }
    std::thread::scope(|scope| {
        // If the system refuses a thread, this panics, as the runtime does.
        let one = scope.spawn(one);
        let other = other();
        (one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), other)
    })
}

/// Returns the indexes of the items, sorted by their texts. A text may have two parts.
pub(crate) fn order<T: Sync>(items: &[T], text: impl for<'a> Fn(&'a T) -> [&'a str; 2] + Sync) -> Vec<u32> {
    let mut places: Vec<(KeyPrefix, u32)> =
        (0..).zip(items).map(|(place, item)| (beginning(text(item)), place)).collect();
    let compare = |(a, one): &(KeyPrefix, u32), (b, other): &(KeyPrefix, u32)| {
        a.cmp(b).then_with(|| whole(text(&items[*one as usize]), text(&items[*other as usize])))
    };
    sort(&mut places, compare);
    places.into_iter().map(|(_, place)| place).collect()
}

/// The first bytes of a text. Unless they are equal, they have the order of the texts.
fn beginning(text: [&str; 2]) -> KeyPrefix {
    let mut bytes = [[0; size_of::<u64>()]; BEGINNING];
    let mut room = bytes.as_flattened_mut();
    for part in text {
        let (taken, rest) = room.split_at_mut(part.len().min(room.len()));
        taken.copy_from_slice(&part.as_bytes()[..taken.len()]);
        room = rest;
    }
    bytes.map(u64::from_be_bytes)
}

fn whole(one: [&str; 2], other: [&str; 2]) -> Ordering {
    if one[0] == other[0] {
        return one[1].cmp(other[1]);
    }
    let bytes = |[a, b]: [&str; 2]| a.to_owned() + b;
    bytes(one).cmp(&bytes(other))
}

/// Sorts the items, on two threads for a large input.
fn sort<T: Send>(items: &mut [T], order: impl Fn(&T, &T) -> Ordering + Sync) {
    if items.len() < MANY {
        return items.sort_unstable_by(order);
    }
    let (left, right) = items.split_at_mut(items.len() / 2);
    both(MANY, || left.sort_unstable_by(&order), || right.sort_unstable_by(&order));
    // This sort algorithm detects the two sorted halves and merges them.
    items.sort_by(order);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_texts_are_put_in_the_order_of_their_bytes() {
        for len in [0, 1, 2, 100, MANY, 3 * MANY + 1] {
            let texts: Vec<(String, String)> = (0..len as u64)
                .map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
                .map(|n| {
                    (
                        "\0a".repeat((n % 40) as usize),
                        format!("{}/{:x}", ["", "\u{1}", "z"][(n % 3) as usize], n % 1000),
                    )
                })
                .collect();
            let found = order(&texts, |(one, other)| [one, other]);
            let mut expected: Vec<String> = texts.iter().map(|(one, other)| format!("{one}{other}")).collect();
            let found: Vec<String> =
                found.into_iter().map(|place| texts[place as usize].0.clone() + &texts[place as usize].1).collect();
            expected.sort_unstable();
            assert_eq!(found, expected);
        }
    }
}
