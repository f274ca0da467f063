//! Computes the sizes of the replica sets in a rolling update.
//!
//! At any time at most `desired + surge` pods are wanted, and at least `desired - unavailable` stay available.

/// The wanted number of pods of a replica set, and the available ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) wanted: u64,
    pub(super) available: u64,
}

/// The limits during an update.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) desired: u64,
    pub(super) surge: u64,
    pub(super) unavailable: u64,
}

/// The next size of the new set, and of each old one.
pub(super) fn roll(limits: Limits, new: Size, old: &[Size]) -> (u64, Vec<u64>) {
    let Limits { desired, surge, unavailable } = limits;
    let usable = |size: &Size| size.available.min(size.wanted);
    let total = new.wanted + old.iter().map(|size| size.wanted).sum::<u64>();
    let room = (desired + surge).saturating_sub(total);
    let grown = desired.min(new.wanted + room);

    let needed = desired.saturating_sub(unavailable);
    // Pods that the new set does not have yet count as unavailable.
    let mut spare = total.saturating_sub(needed + new.wanted - usable(&new));
    let mut rest: Vec<u64> = old.iter().map(|size| size.wanted).collect();
    for (rest, size) in rest.iter_mut().zip(old) {
        let broken = spare.min(size.wanted - usable(size));
        *rest -= broken;
        spare -= broken;
    }
    let available = usable(&new) + old.iter().map(usable).sum::<u64>();
    let mut spare = spare.min(available.saturating_sub(needed));
    for rest in &mut rest {
        let healthy = spare.min(*rest);
        *rest -= healthy;
        spare -= healthy;
    }
    (grown, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs an update from old pods to new ones. `works` is true if the new pods become available.
    fn check(limits: Limits, old: u64, works: bool) -> (Size, Size) {
        let full = |wanted| Size { wanted, available: wanted };
        let (mut new, mut old) = (full(0), full(old));
        let most = (limits.desired + limits.surge).max(old.wanted);
        let least = limits.desired.saturating_sub(limits.unavailable).min(old.wanted);
        for _ in 0..50 {
            let (grown, rest) = roll(limits, new, &[old]);
            new = Size { wanted: grown, available: if works { grown } else { 0 } };
            old = full(rest[0]);
            assert!(new.wanted + old.wanted <= most, "{limits:?}: {new:?} and {old:?}");
            assert!(new.available + old.available >= least, "{limits:?}: {new:?} and {old:?}");
        }
        (new, old)
    }

    #[test]
    fn an_update_ends_and_keeps_its_limits() {
        let numbers = || 0..6_u64;
        for (desired, surge) in numbers().flat_map(|desired| numbers().map(move |surge| (desired, surge))) {
            for (unavailable, old) in numbers().flat_map(|unavailable| numbers().map(move |old| (unavailable, old))) {
                let limits = Limits { desired, surge, unavailable };
                if surge + unavailable == 0 {
                    continue;
                }
                let (new, rest) = check(limits, old, true);
                assert_eq!((new.wanted, rest.wanted), (desired, 0), "{limits:?} from {old}");
                check(limits, old, false);
            }
        }
    }

    #[test]
    fn pods_that_do_not_work_stop_an_update() {
        let (new, old) = check(Limits { desired: 4, surge: 1, unavailable: 1 }, 4, false);
        assert_eq!((new.wanted, old.wanted), (2, 3));
    }
}
