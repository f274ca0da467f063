//! The OpenAPI documents of aggregated servers: fetched after their discovery, and published as they are.
//!
//! Of each version that is registered the document of version 3 is fetched, when the server's index names another one than before, and
//! of the server its document of version 2, of which what concerns these versions is merged into the one for all. A server that has no
//! other one has it published as version 3 too.
//! What is no such document is left out, and the log says so; what was published stays while the server is away.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::join_all;
use http::header::{ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use keelson_meta::json::Value;
use keelson_openapi::{ForeignDocument, ForeignPaths};
use keelson_outbound::{ByteBudget, ByteReservation, Outbound, RemoteService, RestClient};
use keelson_supervision::warn_repeated;

use crate::api_service::ApiService;
use crate::discovery::read;
use crate::requester::Requester;

/// In whose name the documents are asked for.
const REQUESTER: Requester = Requester { user: "system:aggregator", groups: &[] };
/// Where the index is, and below which the documents are.
pub(crate) const INDEX: &str = "/openapi/v3";
/// The document of version 2, of which what concerns its versions is merged into that of all.
pub(crate) const V2: &str = "/openapi/v2";
/// How many bytes a document may have.
pub(crate) const DOCUMENT_BYTES: usize = 16 << 20;

/// What one server published.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerOpenApi {
    /// The documents of version 3, by group and version.
    documents: HashMap<(String, String), PublishedDocument>,
    /// The document of version 2.
    paths: PublishedPaths,
}

/// A document of version 2.
#[derive(Clone, Debug, Default)]
struct PublishedPaths {
    tag: Option<HeaderValue>,
    /// What it says of each version of a group.
    versions: HashMap<(String, String), Arc<ForeignPaths>>,
    /// The same in version 3, of a server that has nothing of that version.
    converted: HashMap<(String, String), Arc<ForeignDocument>>,
    _reservation: Option<Arc<ByteReservation>>,
}

/// A document, and where the server says it is.
#[derive(Clone, Debug)]
pub(crate) struct PublishedDocument {
    url: String,
    document: Arc<ForeignDocument>,
    _reservation: Arc<ByteReservation>,
}

impl PublishedDocument {
    /// The document.
    pub(crate) fn document(&self) -> &Arc<ForeignDocument> {
        &self.document
    }
}

impl ServerOpenApi {
    /// The document of a version.
    pub(crate) fn document(&self, version: &(String, String)) -> Option<&Arc<ForeignDocument>> {
        let published = self.documents.get(version).map(|published| &published.document);
        published.or_else(|| self.paths.converted.get(version))
    }

    /// What the document of version 2 says of a version of a group.
    pub(crate) fn paths(&self, version: &(String, String)) -> Option<&Arc<ForeignPaths>> {
        self.paths.versions.get(version)
    }
}

/// What a server publishes of these versions now, where `known` was published before. Those behind its service are asked one after
/// the other until one answers.
pub(crate) async fn fetch(
    remote: &RemoteService,
    outbound: &Outbound,
    versions: &[Arc<ApiService>],
    known: &ServerOpenApi,
    kept: &ByteBudget,
) -> ServerOpenApi {
    for client in remote.clients(outbound).unwrap_or_default() {
        let documents = documents(&client, remote, versions, known, kept).await;
        let Ok(documents) = documents else { continue };
        let paths = paths(&client, versions, &known.paths, documents.is_none(), kept).await.unwrap_or_else(|why| {
            left_out(&remote.to_string(), &why);
            PublishedPaths::default()
        });
        return ServerOpenApi { documents: documents.unwrap_or_default(), paths };
    }
    known.clone()
}

/// Its documents of version 3; `None` where it knows of no such thing.
///
/// # Errors
/// When it does not say which ones it has.
async fn documents(
    client: &RestClient,
    remote: &RemoteService,
    versions: &[Arc<ApiService>],
    known: &ServerOpenApi,
    kept: &ByteBudget,
) -> Result<Option<HashMap<(String, String), PublishedDocument>>, ()> {
    let answer = match REQUESTER.get(client, INDEX, None, HeaderMap::new(), DOCUMENT_BYTES).await {
        Ok(answer) if answer.status == 200 => answer,
        Ok(answer) if answer.status == 404 => return Ok(None),
        Ok(_) | Err(_) => return Err(()),
    };
    let index = match read(answer, |index, _| Ok(index.clone())).await {
        Ok(index) => index,
        Err(why) => {
            left_out(&remote.to_string(), &why);
            return Ok(Some(HashMap::new()));
        }
    };
    let of_version = async |service: &Arc<ApiService>| {
        let path = service.path();
        let before = known.documents.get(&service.group_version());
        of_version((client, REQUESTER), path.trim_start_matches('/'), &index, before, kept).await
    };
    let fetched = join_all(versions.iter().map(of_version)).await;
    let named = versions.iter().zip(fetched).filter_map(|(service, published)| {
        let published = published.unwrap_or_else(|why| {
            left_out(&service.name, &why);
            None
        });
        Some((service.group_version(), published?))
    });
    Ok(Some(named.collect()))
}

/// What its document of version 2 says of these versions, in version 3 too where that is all it has. One that does not answer has what
/// it had.
///
/// # Errors
/// What is wrong with the document.
async fn paths(
    client: &RestClient,
    versions: &[Arc<ApiService>],
    known: &PublishedPaths,
    is_all: bool,
    kept: &ByteBudget,
) -> Result<PublishedPaths, String> {
    let names: Vec<(String, String)> = versions.iter().map(|service| service.group_version()).collect();
    let mut headers = HeaderMap::new();
    let is_same = known.versions.len() == names.len()
        && names.iter().all(|name| known.versions.contains_key(name))
        && known.converted.is_empty() != is_all;
    if let Some(tag) = known.tag.clone().filter(|_| is_same) {
        headers.insert(IF_NONE_MATCH, tag);
    }
    let answer = match REQUESTER.get(client, V2, Some("application/json"), headers, DOCUMENT_BYTES).await {
        Ok(answer) if answer.status == 200 => answer,
        Ok(answer) if answer.status == 404 => return Ok(PublishedPaths::default()),
        Ok(_) | Err(_) => return Ok(known.clone()),
    };
    let tag = answer.headers.get(ETAG).cloned();
    let mut reservation = kept.hold(answer.body.len())?;
    let parts: Vec<String> = versions.iter().map(|service| service.path().trim_start_matches('/').to_owned()).collect();
    let read = read(answer, move |document, _| {
        let of_parts = ForeignPaths::of_document(document, &parts)?;
        Ok((of_parts, if is_all { ForeignDocument::of_v2(document, &parts) } else { Vec::new() }))
    });
    let (of_parts, converted) = read.await?;
    if let Some(converted) = converted.first() {
        reservation.grow(converted.document().length())?;
    }
    let new: HashMap<_, _> = names.iter().cloned().zip(of_parts).collect();
    let converted: HashMap<_, _> = names.into_iter().zip(converted).collect();
    // What says the same is the same, so that nothing is made anew for it.
    if new == known.versions && is_same_text(&converted, &known.converted) {
        return Ok(PublishedPaths { tag, ..known.clone() });
    }
    Ok(PublishedPaths { tag, versions: new, converted, _reservation: Some(Arc::new(reservation)) })
}

fn is_same_text(
    new: &HashMap<(String, String), Arc<ForeignDocument>>,
    old: &HashMap<(String, String), Arc<ForeignDocument>>,
) -> bool {
    let hash = |of: &HashMap<_, Arc<ForeignDocument>>, name| of.get(name).map(|it| it.document().hash.clone());
    new.len() == old.len() && new.keys().all(|name| hash(new, name) == hash(old, name))
}

/// The document of a version, whose path is one such as `apis/apps/v1`, unless the one known before is still the newest; `None` where
/// the index has none.
pub(crate) async fn of_version(
    (client, requester): (&RestClient, Requester),
    path: &str,
    index: &Value,
    before: Option<&PublishedDocument>,
    kept: &ByteBudget,
) -> Result<Option<PublishedDocument>, String> {
    let Some(url) = index["paths"][path]["serverRelativeURL"].as_str() else { return Ok(None) };
    if !url.starts_with("/openapi/v3/") {
        return Err(format!("its document is said to be at {url:?}"));
    }
    // The hash in a URL is that of the content.
    if let Some(same) = before.filter(|before| before.url == url && url.contains("hash=")) {
        return Ok(Some(same.clone()));
    }
    let answer = requester.get(client, url, Some("application/json"), HeaderMap::new(), DOCUMENT_BYTES).await;
    let answer = answer.map_err(|error| error.to_string())?;
    if answer.status != 200 {
        return Err(format!("the answer of {url:?} is {}", answer.status));
    }
    let reservation = kept.hold(answer.body.len())?;
    let path = path.to_owned();
    let document = read(answer, move |document, content| {
        let is_one = document["openapi"].as_str().is_some_and(|version| version.starts_with("3."));
        if is_one && document["paths"].is_object() {
            Ok(ForeignDocument::new(&path, content.to_vec()))
        } else {
            Err("that is no OpenAPI 3".to_owned())
        }
    })
    .await?;
    if let Some(same) = before.filter(|before| before.document.document().hash == document.document().hash) {
        return Ok(Some(PublishedDocument { url: url.to_owned(), ..same.clone() }));
    }
    Ok(Some(PublishedDocument { url: url.to_owned(), document, _reservation: Arc::new(reservation) }))
}

fn left_out(what: &str, why: &str) {
    warn_repeated!(what; what, why, "the OpenAPI document of an aggregated server is left out");
}
