//! Runs `kubectl keelson get`: checks that the server supports queries, finds the resource, and sends the query.
//!
//! The result is objects in chunks, groups in one response, or a count without objects.

use anyhow::{Context as _, bail};
use http::StatusCode;
use keelson_meta::json::Value;

use crate::args::{Get, Output};
use crate::client::Server;
use crate::output::{Documents, Table, answer, line, note};
use crate::question::Question;
use crate::resources::{self, Resource};
use crate::walk::Walk;

/// The path by which a server announces queries.
const ANNOUNCEMENT: &str = "/apis/keelson.io/v1alpha1";
const JSON: &str = "application/json";
const ROWS: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
/// The most groups in one response.
const MOST_GROUPS: u64 = 1000;

/// Sends the query and prints the result.
///
/// # Errors
/// When the server does not respond, refuses the request, or does not support queries.
pub(crate) async fn get(get: &Get) -> anyhow::Result<()> {
    let server = Server::new(get).await?;
    let announced = server.ask(ANNOUNCEMENT, JSON).await?;
    if announced.status == StatusCode::NOT_FOUND {
        // A server without this extension would ignore the parameters and return all objects.
        bail!("the server has no queries (keelson.io parameters): it is not a keelson server, or an old one");
    }
    announced.success()?;
    let resource = resources::find(&server, &get.resource).await?;
    let namespace = match &get.namespace {
        _ if !resource.is_namespaced || get.all_namespaces => None,
        Some(namespace) => Some(namespace.as_str()),
        None => Some(server.namespace.as_str()),
    };
    let question = Question::new(get, &resource, namespace);
    if get.group_by.is_some() {
        return groups(&server, get, &question).await;
    }
    if get.count {
        return count(&server, &question).await;
    }
    let accept = if get.output.is_table() { ROWS } else { JSON };
    let walk = Walk::new(&server, question, accept, get.chunk_size, get.limit);
    if get.output.is_table() {
        table(walk, get, &resource, namespace).await
    } else {
        documents(walk, get, &resource).await
    }
}

async fn count(server: &Server, question: &Question) -> anyhow::Result<()> {
    let mut walk = Walk::new(server, question.clone(), JSON, 1, Some(1));
    let (_, total) = walk.next().await?.context("there is no answer")?;
    answer(total.context("the server reports no total count")?)
}

async fn groups(server: &Server, get: &Get, question: &Question) -> anyhow::Result<()> {
    let limit = get.limit.unwrap_or(MOST_GROUPS);
    let counted = server.ask(&question.url(limit, None), JSON).await?.success()?.body;
    if matches!(get.output, Output::Json | Output::Yaml) {
        return Documents::print(get.output, &counted);
    }
    let values = counted["values"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut table = Table::new(&["VALUE", "COUNT"]);
    for group in values {
        if get.output == Output::Ndjson {
            line(group)?;
            continue;
        }
        let value = match group.get("value") {
            Some(value) => value.as_str().map_or_else(|| value.to_string(), str::to_owned),
            None => "<none>".to_owned(),
        };
        table.add(vec![value, group["count"].to_string()]);
    }
    let total = counted["totalValues"].as_u64().unwrap_or_default();
    if total > values.len() as u64 {
        note(format_args!("the {} largest of {total} values", values.len()));
    }
    if get.output == Output::Ndjson { Ok(()) } else { table.print(!get.no_headers) }
}

async fn table(mut walk: Walk<'_>, get: &Get, resource: &Resource, namespace: Option<&str>) -> anyhow::Result<()> {
    let with_namespace = resource.is_namespaced && namespace.is_none();
    let mut table: Option<(Table, Vec<usize>)> = None;
    let mut is_empty = true;
    while let Some((chunk, _)) = walk.next().await? {
        let shown =
            table.get_or_insert_with(|| Table::of_columns(&chunk["columnDefinitions"], get.output, with_namespace));
        for row in chunk["rows"].as_array().map(Vec::as_slice).unwrap_or_default() {
            is_empty = false;
            let of =
                with_namespace.then(|| row["object"]["metadata"]["namespace"].as_str().unwrap_or_default().to_owned());
            let cells = shown.1.iter().map(|place| cell(&row["cells"][*place]));
            shown.0.add(of.into_iter().chain(cells).collect());
        }
    }
    if is_empty {
        match namespace {
            Some(namespace) => note(format_args!("No resources found in {namespace} namespace.")),
            None => note("No resources found"),
        }
        return Ok(());
    }
    table.map_or(Ok(()), |(table, _)| table.print(!get.no_headers))
}

/// A cell in kubectl's form.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "<none>".to_owned(),
        value => {
            value.as_str().map_or_else(|| value.to_string(), |text| text.lines().next().unwrap_or_default().to_owned())
        }
    }
}

async fn documents(mut walk: Walk<'_>, get: &Get, resource: &Resource) -> anyhow::Result<()> {
    let mut documents = Documents::new(get.output, resource);
    while let Some((chunk, _)) = walk.next().await? {
        for item in chunk["items"].as_array().map(Vec::as_slice).unwrap_or_default() {
            documents.add(item)?;
        }
    }
    documents.end()
}
