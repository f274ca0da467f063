//! The OpenAPI documents of aggregated servers: fetched after their discovery, and published unchanged.
//!
//! For each registered version, the version 3 document is fetched when the server's index names another URL than
//! before. The server's version 2 document is fetched too, and its parts about these versions are merged into the
//! common document. If the server has only version 2, these parts are also converted to version 3. Invalid documents
//! are left out and logged. Published documents stay while the server does not answer.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::join_all;
use http::header::{ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use keelson_meta::json::Value;
use keelson_openapi::{ForeignDocument, ForeignPaths};
use keelson_outbound::{ByteBudget, ByteReservation, Outbound, RemoteService, RestClient, cut};
use keelson_supervision::warn_repeated;

use crate::api_service::ApiService;
use crate::discovery::read;
use crate::requester::Requester;

/// The requester of the documents.
const REQUESTER: Requester = Requester { user: "system:aggregator", groups: &[] };
/// The path of the index and prefix of the documents.
pub(crate) const INDEX: &str = "/openapi/v3";
/// The path of the version 2 document.
pub(crate) const V2: &str = "/openapi/v2";
/// The most bytes of a document.
pub(crate) const DOCUMENT_BYTES: usize = 16 << 20;
/// The most bytes of a document's URL.
const URL_BYTES: usize = 4 << 10;

/// The OpenAPI documents of one server.
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
    /// The parts of the document for each version of a group.
    versions: HashMap<(String, String), Arc<ForeignPaths>>,
    /// The parts of the document converted to OpenAPI 3, for a server that publishes only OpenAPI 2.
    converted: HashMap<(String, String), Arc<ForeignDocument>>,
    _reservation: Option<Arc<ByteReservation>>,
}

/// A document and its URL on the server.
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

    /// The part of the version 2 document for a version of a group.
    pub(crate) fn paths(&self, version: &(String, String)) -> Option<&Arc<ForeignPaths>> {
        self.paths.versions.get(version)
    }
}

/// Fetches the documents of these versions. Reuses the documents that were fetched before and have not changed. Tries
/// the server's endpoints in turn until one answers.
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

/// Fetches the version 3 documents; `None` where the server has no index.
///
/// # Errors
/// Errors of the index.
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

/// Fetches the version 2 parts of these versions, and converts them if the server has no version 3. Without a response,
/// returns the documents fetched before.
///
/// # Errors
/// The fault of the document.
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
    // Equal content keeps the old value, so that no document is built again.
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

/// The document at a version's path such as `apis/apps/v1`. Returns the document fetched before if it is current, and
/// `None` if the index lacks the path.
pub(crate) async fn of_version(
    (client, requester): (&RestClient, Requester),
    path: &str,
    index: &Value,
    before: Option<&PublishedDocument>,
    kept: &ByteBudget,
) -> Result<Option<PublishedDocument>, String> {
    let Some(url) = index["paths"][path]["serverRelativeURL"].as_str() else { return Ok(None) };
    if !url.starts_with("/openapi/v3/") || url.len() > URL_BYTES {
        return Err(format!("its index names the document {:?}", cut(url, 200)));
    }
    // The hash in the URL identifies the content, so an equal URL means an equal document.
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
