//! Forged and borrowed continue tokens: invariant 6.
//!
//! A token that was made for one URL shows nothing else of another.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keelson_meta::json::json;
use keelson_meta::options::CreateOptions;
use keelson_meta::{Object, Revision};
use keelson_storage::ContinueToken;
use keelson_storage::continue_token::TokenRevision;
use proptest::prelude::*;

use crate::cluster::*;
use crate::model::*;

/// Starts that try to leave the range, or are at its edges.
fn any_start() -> impl Strategy<Value = String> {
    let place = prop_oneof![
        any_key(),
        any_key().prop_map(|key| format!("/{key}\0")),
        any_key().prop_map(|key| key.split_once('/').map(|(_, name)| format!("{name}\0")).unwrap_or_default()),
        Just("../configmaps/q/secret".to_owned()),
        Just("/../../configmaps/".to_owned()),
        Just("q/../q1/a".to_owned()),
        Just("\0".to_owned()),
        Just("/".to_owned()),
        Just("\u{10ffff}".to_owned()),
        Just("q0".to_owned()),
        any::<String>(),
    ];
    (place, any::<bool>()).prop_map(|(start, slash)| if slash { format!("/{start}") } else { start })
}

fn any_token() -> impl Strategy<Value = String> {
    let revision = prop_oneof![Just(-1i64), Just(0), 1..40i64, any::<i64>()];
    let shaped = (revision, any_start()).prop_map(|(revision, start)| {
        URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start}).to_string())
    });
    prop_oneof![
        6 => shaped,
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| URL_SAFE_NO_PAD.encode(bytes)),
        1 => "[A-Za-z0-9_-]{0,40}",
    ]
}

/// Pods in each namespace, and objects of another kind that no list of pods may show.
async fn cluster() -> (Cluster, Model) {
    let cluster = Cluster::start(Engine::Memory, Settings::default()).await;
    let mut model = Model::default();
    for (number, name) in ["a", "b", "x"].into_iter().enumerate() {
        for namespace in NAMESPACES {
            let pod = Pod { app: Some(number as u8), node: None, number: 0 };
            let key = format!("{namespace}/{name}");
            cluster.write(&mut model, 0, &Write { key, action: Action::Create(pod) }).await;
            let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}});
            let object = Object::from_value(object).unwrap();
            let configmaps = target("configmaps", Some(namespace));
            let mut fitted = object;
            keelson_registry::fit(&configmaps, &mut fitted).unwrap();
            cluster
                .server(0)
                .create(&configmaps, fitted, &keelson_registry::Caller::server(), &CreateOptions::default())
                .await
                .unwrap();
        }
    }
    (cluster, model)
}

async fn check(cluster: &Cluster, model: &Model, place: RequestPath, selector: &Selector, limit: usize, token: &str) {
    let query = format!("{}&limit={limit}&continue={token}", selector.query());
    let read = ContinueToken::decode(token);
    match list(cluster.server(0), place, &query).await {
        // The list has the pods of the model from the token's start on. The helper `list` refuses other kinds.
        Ok(page) if token.is_empty() => {
            assert_eq!(page.items[..], model.listed(page.revision, place, selector)[..page.items.len()]);
        }
        Ok(page) => {
            let read = read.expect("a token that can't be read is refused");
            let from = format!("{}{}", place.prefix(), read.start);
            let mut expected = model.listed(page.revision, place, selector);
            expected.retain(|(key, _)| *key >= from);
            assert_eq!(page.items[..], expected[..page.items.len()]);
            assert!(page.items.len() == limit.min(expected.len()));
            if let TokenRevision::At(revision) = read.revision {
                assert_eq!(revision, Revision::new(page.revision));
            }
        }
        Err(error) => {
            let expected: &[u16] = if read.is_err() { &[400] } else { &[410, 504] };
            assert!(expected.contains(&error.code()), "{error}");
        }
    }
}

#[test]
fn no_forged_token_reads_outside_the_range_of_its_url() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (cluster, model) = runtime.block_on(cluster());
    let lists = (any_place(), any_selector(), 1..12usize, any_token());
    proptest!(cases(1500), |((place, selector, limit, token) in lists)| {
        runtime.block_on(check(&cluster, &model, place, &selector, limit, &token));
    });
}

/// A token of one namespace's list continues another namespace's list at the same name.
#[test]
fn continue_tokens_are_not_bound_to_a_namespace() {
    run(async {
        let (cluster, _) = cluster().await;
        let server = cluster.server(0);
        let page = list(server, RequestPath::Namespace("q"), "limit=1").await.unwrap();
        let query = format!("limit=9&continue={}", page.token.unwrap());
        for namespace in NAMESPACES {
            let rest = list(server, RequestPath::Namespace(namespace), &query).await.unwrap();
            let keys: Vec<&str> = rest.items.iter().map(|(key, _)| key.as_str()).collect();
            assert_eq!(keys, [format!("{namespace}/b"), format!("{namespace}/x")]);
        }
    });
}
