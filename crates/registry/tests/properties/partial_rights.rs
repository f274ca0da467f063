//! Chunked lists of callers who may list the selected objects and nothing else of the range (KEP-365). Their tokens
//! must not show a name that they may not see.

use std::sync::Arc;

use futures::future::{Either, ready};
use keelson_access::{Attributes, Authorizer, Decision, PendingVerdict, ResourceAttributes, User, Verdict};
use keelson_registry::{Caller, PartialRights};
use keelson_storage::ContinueToken;

use crate::cluster::*;
use crate::model::*;

/// Lets every user list with a label selector, and ann list everything.
#[derive(Debug)]
struct SelectedOnly;

impl Authorizer for SelectedOnly {
    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> PendingVerdict<'a> {
        let selects = matches!(attributes, Attributes::Resource(ResourceAttributes { label_selector: Some(_), .. }));
        let decision = if selects || user.name == "ann" { Decision::Allow } else { Decision::NoOpinion };
        Either::Left(ready(Verdict::new(decision, "")))
    }
}

fn caller(name: &str) -> Caller {
    Caller::new(Arc::new(User { name: name.to_owned(), ..User::default() }), Arc::new(SelectedOnly))
}

/// The number of pods; each third one is of the selected app.
const PODS: usize = 12;

/// A server with pods, and the keys of the selected ones.
async fn cluster(partial_rights: PartialRights, history_bytes: u64) -> (Cluster, Model, Vec<String>) {
    let settings = Settings { partial_rights, scan: 2, history_bytes, ..Settings::default() };
    let cluster = Cluster::start(Engine::Memory, settings).await;
    let mut model = Model::default();
    for number in 0..PODS {
        let pod = Pod { app: Some((number % 3) as u8), node: None, number: 0 };
        let key = format!("q/p{number:02}");
        cluster.write(&mut model, 0, &Write { key, action: Action::Create(pod) }).await;
    }
    (cluster, model, (0..PODS).step_by(3).map(|number| format!("q/p{number:02}")).collect())
}

/// A selector without an index, so that objects are skipped.
const SELECTOR: &str = "&labelSelector=app!%3Da1,app!%3Da2";

/// The keys of each chunk with its token. Another object is written in between, so that a cache without history no
/// longer has the revision of the list.
async fn walk(
    cluster: &Cluster,
    model: &mut Model,
    caller: &Caller,
    limit: usize,
) -> Vec<(Vec<String>, Option<String>)> {
    let mut chunks = Vec::new();
    let mut token = None::<String>;
    loop {
        let rest = token.as_ref().map(|token| format!("&continue={token}")).unwrap_or_default();
        let query = format!("{SELECTOR}&limit={limit}{rest}");
        let page = list_as(cluster.server(0), caller, RequestPath::Namespace("q"), &query).await.unwrap();
        let keys = page.items.into_iter().map(|(key, _)| key).collect();
        token.clone_from(&page.token);
        chunks.push((keys, page.token));
        assert!(chunks.len() <= 2 * PODS, "the walk ends");
        if token.is_none() {
            return chunks;
        }
        let pod = Pod { app: None, node: None, number: 0 };
        let key = format!("q1/n{}", cluster.revision().await);
        cluster.write(model, 0, &Write { key, action: Action::Create(pod) }).await;
    }
}

fn shown(token: &str) -> String {
    format!("q/{}", ContinueToken::decode(token).unwrap().start.trim_end_matches('\0'))
}

#[test]
fn tokens_for_partial_rights_show_the_next_visible_key() {
    for history_bytes in [256 << 20, 0] {
        run(async {
            let (cluster, mut model, selected) = cluster(PartialRights::NextVisible, history_bytes).await;
            for limit in 1..=selected.len() {
                let chunks = walk(&cluster, &mut model, &caller("bob"), limit).await;
                let all: Vec<_> = chunks.iter().flat_map(|(keys, _)| keys.clone()).collect();
                assert_eq!(all, selected, "limit {limit}");
                assert_eq!(chunks.len(), selected.len().div_ceil(limit), "no chunk is empty");
                for (at, (_, token)) in chunks.iter().enumerate() {
                    let next = selected.get((at + 1) * limit);
                    assert_eq!(token.as_deref().map(shown).as_ref(), next, "limit {limit}");
                }
            }
        });
    }
}

#[test]
fn users_with_full_list_rights_get_ordinary_tokens() {
    run(async {
        for (setting, name) in [(PartialRights::NextVisible, "ann"), (PartialRights::AsOthers, "bob")] {
            let (cluster, mut model, selected) = cluster(setting, 256 << 20).await;
            let chunks = walk(&cluster, &mut model, &caller(name), 1).await;
            let all: Vec<_> = chunks.iter().flat_map(|(keys, _)| keys.clone()).collect();
            assert_eq!(all, selected);
            let told: Vec<_> = chunks.iter().filter_map(|(_, token)| token.as_deref().map(shown)).collect();
            assert!(told.iter().any(|key| !selected.contains(key)), "{told:?} shows what is passed over");
        }
    });
}

#[test]
fn lists_for_partial_rights_can_be_unchunked() {
    run(async {
        let (cluster, mut model, selected) = cluster(PartialRights::Whole, 256 << 20).await;
        let bob = walk(&cluster, &mut model, &caller("bob"), 1).await;
        assert_eq!(bob, [(selected.clone(), None)]);
        let of_ann = walk(&cluster, &mut model, &caller("ann"), 1).await;
        let token = of_ann[0].1.as_ref().unwrap();
        let query = format!("{SELECTOR}&limit=1&continue={token}");
        let page = list_as(cluster.server(0), &caller("bob"), RequestPath::Namespace("q"), &query).await.unwrap();
        assert_eq!((page.items.len(), page.token), (selected.len(), None), "a token says nothing to who gets all");
    });
}
