//! Shuffle sharding: each flow has a few of a level's queues, its hand, so that it shares all of them with few other
//! flows.
//!
//! The hand depends only on the hash of the flow. With 128 queues and hands of 6, one heavy flow fills all queues of
//! another with a probability of about one in five billion.

use smallvec::SmallVec;

/// The usual maximum size of a hand.
const USUAL_HAND: usize = 16;

/// The queues of a flow: `hand` different ones of `deck`. Their order depends on the hash too.
pub fn deal(mut hash: u64, deck: u32, hand: u32) -> SmallVec<[u32; USUAL_HAND]> {
    let hand = hand.min(deck);
    let mut dealt = SmallVec::<[u32; USUAL_HAND]>::new();
    let mut sorted = SmallVec::<[u32; USUAL_HAND]>::new();
    for number in 0..hand {
        let left = u64::from(deck - number);
        // The remaining queues are renumbered after each deal, so that each has the same probability.
        let mut card = u32::try_from(hash % left).unwrap_or_default();
        hash /= left;
        let mut place = 0;
        while place < sorted.len() && sorted[place] <= card {
            card += 1;
            place += 1;
        }
        sorted.insert(place, card);
        dealt.push(card);
    }
    dealt
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_hand_has_different_queues_of_the_deck(hash: u64, deck in 1_u32..300, hand in 1_u32..20) {
            let mut dealt = deal(hash, deck, hand).to_vec();
            prop_assert_eq!(&dealt, &deal(hash, deck, hand).to_vec());
            prop_assert!(dealt.iter().all(|queue| *queue < deck));
            dealt.sort_unstable();
            dealt.dedup();
            prop_assert_eq!(dealt.len(), hand.min(deck) as usize);
        }
    }

    #[test]
    fn hands_are_spread_over_all_queues() {
        let mut counts = [0_u32; 64];
        for number in 0..64_000_u64 {
            for queue in deal(number.wrapping_mul(0x9e37_79b9_7f4a_7c15), 64, 4) {
                counts[queue as usize] += 1;
            }
        }
        // The average is 4,000.
        assert!(counts.iter().all(|count| (3_400..4_600).contains(count)), "{counts:?}");
    }
}
