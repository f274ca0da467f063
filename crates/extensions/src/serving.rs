//! The definitions that are served, and how these become what they are now: one change of the surface for whatever has changed.
//!
//! Of definitions that have one kind, which servers may have accepted at the same time, the oldest is served.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use keelson_cache::Collection;
use keelson_meta::GroupResource;
use keelson_outbound::Outbound;
use keelson_registry::{Contribution, Registry, Surface, SurfaceError};
use keelson_supervision::outcome;
use tokio::sync::Mutex;

use crate::contribution;
use crate::definition::Definition;
use crate::extensions::KnownDefinition;
use crate::names::oldest_of_each_kind;

/// The definitions that are served, by name.
#[derive(Default)]
pub(crate) struct Serving(Mutex<HashMap<String, Arc<Definition>>>);

impl Serving {
    /// Whether what a definition defines is served.
    pub(crate) async fn serves(&self, definition: &Definition) -> bool {
        self.0.lock().await.get(&definition.name).is_some_and(|served| served.uid == definition.uid)
    }

    /// Serves what is defined by `all` definitions, of which these have changed.
    ///
    /// Cost: a few comparisons for each definition, the compilation of those that changed, and one copy of the surface's tables.
    ///
    /// # Errors
    /// When objects can't be loaded; some of the changes may be made then.
    pub(crate) async fn adjust(
        &self,
        registry: &Registry,
        definitions: &Arc<Collection>,
        outbound: &Arc<Outbound>,
        changed: &BTreeSet<String>,
        all: impl FnOnce() -> Vec<KnownDefinition>,
    ) -> Result<(), SurfaceError> {
        let mut served = self.0.lock().await;
        let all = all();
        let (gone, wanted) = differences(&served, &registry.surface(), changed, &all);
        if !gone.is_empty() {
            let resources: Vec<GroupResource> =
                gone.iter().filter_map(|name| served.get(name)).map(|definition| resource_of(definition)).collect();
            registry.surfaces().remove(&resources).await;
            gone.iter().for_each(|name| drop(served.remove(name)));
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let contributions = compiled(&wanted, definitions, outbound).await;
        match registry.surfaces().put(contributions.clone()).await {
            Ok(_) => served.extend(wanted.into_iter().map(|known| (known.read.name.clone(), known.read))),
            Err(SurfaceError::Taken(_)) => {
                // One that can't be served must not keep the others from being served.
                for (known, contribution) in wanted.into_iter().zip(contributions) {
                    match registry.surfaces().put(vec![contribution]).await {
                        Ok(_) => drop(served.insert(known.read.name.clone(), known.read)),
                        Err(error @ SurfaceError::Taken(_)) => {
                            tracing::warn!(definition = known.read.name, %error, "a definition is not served");
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// The definitions that are served no longer, and those that are served anew or differently.
fn differences(
    served: &HashMap<String, Arc<Definition>>,
    surface: &Surface,
    changed: &BTreeSet<String>,
    all: &[KnownDefinition],
) -> (Vec<String>, Vec<KnownDefinition>) {
    let changed_now = all.iter().map(|known| &*known.read).filter(|definition| changed.contains(&definition.name));
    let changed_then = changed.iter().filter_map(|name| served.get(name)).map(|definition| &**definition);
    // Who stands back for another of the same kind is served when that one goes.
    let groups: HashSet<&str> = changed_now.chain(changed_then).map(|definition| definition.group.as_str()).collect();
    let candidates: Vec<&KnownDefinition> = all
        .iter()
        .filter(|known| groups.contains(known.read.group.as_str()))
        .filter(|known| known.read.is_served() && !is_builtin(surface, &known.read))
        .collect();
    let chosen = oldest_of_each_kind(candidates.iter().map(|known| &*known.read));
    let chosen: HashSet<&str> = chosen.values().map(|definition| definition.name.as_str()).collect();
    let by_name: HashMap<&str, &KnownDefinition> = candidates
        .iter()
        .filter(|known| chosen.contains(known.read.name.as_str()))
        .map(|known| (known.read.name.as_str(), *known))
        .collect();
    let stays = |definition: &Definition| {
        by_name.get(definition.name.as_str()).is_some_and(|known| known.read.uid == definition.uid)
    };
    let in_groups = served.values().filter(|definition| groups.contains(definition.group.as_str()));
    let gone = in_groups.filter(|definition| !stays(definition)).map(|definition| definition.name.clone()).collect();
    let is_new =
        |known: &&&KnownDefinition| served.get(&known.read.name).is_none_or(|it| !it.is_served_alike(&known.read));
    let wanted = by_name.values().filter(is_new).map(|known| (*known).clone()).collect();
    (gone, wanted)
}

/// Whether a built-in resource has the name or the kind that a definition asks for.
fn is_builtin(surface: &Surface, definition: &Definition) -> bool {
    let GroupResource { group, resource } = resource_of(definition);
    let same = [surface.resource(&group, &resource), surface.by_kind(&group, &definition.accepted.kind)];
    same.into_iter().flatten().any(|served| served.is_builtin())
}

/// The resource that a definition defines. Its plural name never changes.
pub(crate) fn resource_of(definition: &Definition) -> GroupResource {
    GroupResource { group: definition.group.clone(), resource: definition.requested.plural.clone() }
}

/// What definitions contribute. Schemas and expressions are compiled, which may take long.
async fn compiled(
    wanted: &[KnownDefinition],
    definitions: &Arc<Collection>,
    outbound: &Arc<Outbound>,
) -> Vec<Contribution> {
    let (wanted, definitions, outbound) = (wanted.to_vec(), definitions.clone(), outbound.clone());
    let compile = move || wanted.iter().map(|known| contribution::of(known, &definitions, &outbound)).collect();
    outcome(tokio::task::spawn_blocking(compile)).await
}
