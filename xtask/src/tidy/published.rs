//! Published crates: a registry has all workspace crates that they use.
//!
//! `keelson-test` is for other projects. cargo publishes it only if each crate below it is published too, and is named
//! with its version.

use std::collections::HashMap;

use super::Finding;
use crate::workspace::Member;

pub(super) fn check(members: &[Member]) -> Vec<Finding> {
    let published: HashMap<&str, bool> =
        members.iter().map(|member| (member.name.as_str(), member.is_published)).collect();
    members.iter().filter(|member| member.is_published).flat_map(|member| check_member(member, &published)).collect()
}

fn check_member(member: &Member, published: &HashMap<&str, bool>) -> Vec<Finding> {
    let mut faults = Vec::new();
    if !member.is_described {
        faults.push(Finding::fault(&member.name, "it is published, and its manifest has no description"));
    }
    for edge in &member.uses {
        let on = &edge.on;
        match (edge.dev, edge.has_version, published.get(on.as_str())) {
            (false, true, Some(true)) => {}
            (false, _, _) => faults.push(Finding::fault(
                &member.name,
                format!("it is published, so {on} needs `publish = true`, and a version in [workspace.dependencies]"),
            )),
            // cargo leaves dev-dependencies without a version out.
            (true, true, Some(false) | None) => {
                faults.push(Finding::fault(&member.name, format!("it is published, and {on} with a version is not")));
            }
            (true, _, _) => {}
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::workspace::{Edge, Member};

    #[test]
    fn a_published_crate_uses_published_crates_with_versions() {
        let member = |name: &str, is_published, is_described, uses| Member {
            name: String::from(name),
            uses,
            is_published,
            is_described,
        };
        let edge = |on: &str, dev, has_version| Edge { on: String::from(on), dev, has_version };
        let faults = |uses, is_published| {
            let below = member("below", is_published, true, Vec::new());
            check(&[member("top", true, true, uses), below]).len()
        };
        assert_eq!(faults(vec![edge("below", false, true)], true), 0);
        assert_eq!(faults(vec![edge("below", false, true)], false), 1);
        assert_eq!(faults(vec![edge("below", false, false)], true), 1);
        assert_eq!(faults(vec![edge("below", true, false)], false), 0);
        assert_eq!(faults(vec![edge("below", true, true)], false), 1);
        assert_eq!(check(&[member("top", true, false, Vec::new())]).len(), 1);
        assert_eq!(check(&[member("top", false, false, vec![edge("below", false, false)])]).len(), 0);
    }
}
