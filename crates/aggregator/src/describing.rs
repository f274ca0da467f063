//! The OpenAPI documents of aggregated servers: fetched after their discovery, and published as they are.
//!
//! Of each version that is registered the document of version 3 is fetched, when the server's index names another one than before.
//! What is no such document is left out, and the log says so; what was published stays while the server is away.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::join_all;
use http::HeaderMap;
use keelson_meta::json::Value;
use keelson_openapi::ForeignDocument;
use keelson_outbound::{Outbound, Peer};

use crate::api_service::{ApiService, RemoteService};
use crate::asking::Asker;
use crate::discovering::read;

/// In whose name the documents are asked for.
const ASKER: Asker = Asker { user: "system:aggregator", groups: &[] };
/// Where the index is, and below which the documents are.
const INDEX: &str = "/openapi/v3";
/// How many bytes a document may have.
const DOCUMENT_BYTES: usize = 16 << 20;

/// What one server published, by group and version.
#[derive(Debug, Default)]
pub(crate) struct Described(HashMap<(String, String), Published>);

/// A document, and where the server says it is.
#[derive(Clone, Debug)]
struct Published {
    url: String,
    document: Arc<ForeignDocument>,
}

impl Described {
    /// The document of a version.
    pub(crate) fn document(&self, version: &(String, String)) -> Option<&Arc<ForeignDocument>> {
        self.0.get(version).map(|published| &published.document)
    }
}

/// What a server publishes of these versions now, where `known` was published before.
pub(crate) async fn fetch(
    remote: &RemoteService,
    outbound: &Outbound,
    versions: &[Arc<ApiService>],
    known: &Described,
) -> Described {
    let as_before = || Described(known.0.clone());
    let Some(peer) = remote.peers(outbound).ok().and_then(|peers| peers.into_iter().next()) else { return as_before() };
    let answer = match ASKER.get(&peer, INDEX, None, HeaderMap::new(), DOCUMENT_BYTES).await {
        Ok(answer) if answer.status == 200 => answer,
        // It has none.
        Ok(answer) if answer.status == 404 => return Described::default(),
        Ok(_) | Err(_) => return as_before(),
    };
    let index = match read(answer, |index| Ok(index.clone())).await {
        Ok(index) => index,
        Err(why) => {
            left_out(&remote.to_string(), &why);
            return Described::default();
        }
    };
    let fetched = versions.iter().map(|service| of_version(&peer, service, &index, known));
    let fetched = join_all(fetched).await;
    let named = versions.iter().zip(fetched).filter_map(|(service, published)| {
        let published = published.unwrap_or_else(|why| {
            left_out(&service.name, &why);
            None
        });
        Some(((service.group.clone(), service.version.clone()), published?))
    });
    Described(named.collect())
}

/// The document of a version; `None` where the index has none.
async fn of_version(
    peer: &Peer,
    service: &ApiService,
    index: &Value,
    known: &Described,
) -> Result<Option<Published>, String> {
    let path = service.path();
    let path = path.trim_start_matches('/');
    let Some(url) = index["paths"][path]["serverRelativeURL"].as_str() else { return Ok(None) };
    if !url.starts_with("/openapi/v3/") {
        return Err(format!("its document is said to be at {url:?}"));
    }
    let before = known.0.get(&(service.group.clone(), service.version.clone()));
    // The hash in a URL is that of the content.
    if let Some(same) = before.filter(|before| before.url == url && url.contains("hash=")) {
        return Ok(Some(same.clone()));
    }
    let answer = ASKER.get(peer, url, Some("application/json"), HeaderMap::new(), DOCUMENT_BYTES).await;
    let answer = answer.map_err(|error| error.to_string())?;
    if answer.status != 200 {
        return Err(format!("the answer of {url:?} is {}", answer.status));
    }
    let content = answer.body.clone();
    read(answer, |document| {
        let is_one = document["openapi"].as_str().is_some_and(|version| version.starts_with("3."));
        if is_one && document["paths"].is_object() { Ok(()) } else { Err("that is no OpenAPI 3".to_owned()) }
    })
    .await?;
    let document = ForeignDocument::new(path, content.to_vec());
    let same = before.filter(|before| before.document.document().hash == document.document().hash);
    let document = same.map_or(document, |before| before.document.clone());
    Ok(Some(Published { url: url.to_owned(), document }))
}

fn left_out(what: &str, why: &str) {
    tracing::warn!(what, why, "the OpenAPI document of an aggregated server is left out");
}
