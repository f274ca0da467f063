//! Tests of queries over the wire: parameters, headers, refusals, and the visibility of results.
//!
//! The registry tests with generated histories that chunks equal the sorted list.

use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

use crate::names;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

async fn pods(server: &TestServer, count: usize) -> Raw {
    let raw = server.raw();
    for number in 0..count {
        let node = (number % 3 > 0).then(|| format!("node-{}", number % 3));
        let pod = json!({
            "metadata": {"name": format!("pod-{number:02}"), "labels": {"rank": (count - number).to_string()}},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": format!("image:v1.{number}")}]},
        });
        raw.post(PODS, &pod).await.expect(201);
    }
    raw
}

#[tokio::test]
async fn pages_are_sorted_counted_and_reached_by_number() {
    let server = TestServer::start().await;
    let raw = pods(&server, 12).await;
    let sorted = format!("{PODS}?limit=5&keelson.io/sortBy=-.metadata.labels.rank:number");
    let first = raw.get(&*sorted).await.expect(200);
    assert_eq!((first.header("keelson-total-count"), first.header("keelson-objects-scanned")), ("12", "12"));
    let page = first.json();
    assert_eq!(names(&page), ["pod-00", "pod-01", "pod-02", "pod-03", "pod-04"]);
    assert_eq!(page["metadata"]["remainingItemCount"], 7);
    let token = page["metadata"]["continue"].as_str().unwrap();
    raw.delete(format!("{PODS}/pod-05?gracePeriodSeconds=0")).await.expect(200);

    let second = raw.get(format!("{sorted}&continue={token}")).await.expect(200);
    assert_eq!((second.header("keelson-total-count"), second.header("keelson-objects-scanned")), ("12", "0"));
    assert_eq!(names(&second.json()), ["pod-05", "pod-06", "pod-07", "pod-08", "pod-09"]);
    assert_eq!(second.json()["metadata"]["resourceVersion"], page["metadata"]["resourceVersion"]);

    let third = raw.get(format!("{sorted}&keelson.io/page=3")).await.expect(200);
    assert_eq!((third.header("keelson-total-count"), third.header("keelson-objects-scanned")), ("11", "1"));
    assert_eq!(names(&third.json()), ["pod-11"]);
    assert_eq!(third.json()["metadata"].get("remainingItemCount"), None);
    let behind = raw.get(format!("{sorted}&keelson.io/page=900719925474099")).await.expect(200).json();
    assert_eq!(names(&behind), Vec::<&str>::new());

    // Without an order: a page of the ordinary list, with or without a selector.
    let plain = raw.get(format!("{PODS}?limit=2&keelson.io/page=2")).await.expect(200);
    assert_eq!((plain.header("keelson-total-count"), names(&plain.json())), ("11", vec!["pod-02", "pod-03"]));
    let selected = format!("{PODS}?limit=2&keelson.io/count=true&fieldSelector=spec.nodeName%3Dnode-1");
    let selected = raw.get(selected).await.expect(200);
    assert_eq!((selected.header("keelson-total-count"), names(&selected.json())), ("4", vec!["pod-01", "pod-04"]));
    assert_eq!(selected.json()["metadata"]["remainingItemCount"], 2);
}

#[tokio::test]
async fn an_answer_has_the_form_that_is_requested() {
    let server = TestServer::start().await;
    let raw = pods(&server, 4).await;
    let sorted = format!("{PODS}?keelson.io/sortBy=-.spec.containers[0].image:version");
    let expected = ["pod-03", "pod-02", "pod-01", "pod-00"];
    let whole = raw.get(&*sorted).await.expect(200);
    assert_eq!((whole.header("keelson-total-count"), names(&whole.json())), ("4", expected.to_vec()));
    assert_eq!(whole.json()["metadata"].get("continue"), None);

    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = raw.get(&*sorted).header("accept", table).await.expect(200).json();
    let rows: Vec<&str> =
        table["rows"].as_array().unwrap().iter().map(|row| row["cells"][0].as_str().unwrap()).collect();
    assert_eq!(rows, expected);
    let yaml = raw.get(&*sorted).header("accept", "application/yaml").await.expect(200).text();
    let places: Vec<usize> = expected.iter().map(|name| yaml.find(&format!("name: {name}")).unwrap()).collect();
    assert!(places.is_sorted(), "{yaml}");
    let protobuf = raw.get(&*sorted).header("accept", "application/vnd.kubernetes.protobuf").await.expect(200);
    let places: Vec<usize> = expected
        .iter()
        .map(|name| protobuf.body.windows(name.len()).position(|part| part == name.as_bytes()).unwrap())
        .collect();
    assert!(places.is_sorted());
}

#[tokio::test]
async fn values_are_counted() {
    let server = TestServer::start().await;
    let raw = pods(&server, 8).await;
    let counted = raw.get(format!("{PODS}?keelson.io/groupBy=.spec.nodeName")).await.expect(200);
    assert_eq!(counted.header("keelson-objects-scanned"), "8");
    let document = counted.json();
    assert_eq!((&document["kind"], &document["apiVersion"]), (&json!("ValueCounts"), &json!("keelson.io/v1alpha1")));
    let expected = json!([{"value": "node-1", "count": 3}, {"count": 3}, {"value": "node-2", "count": 2}]);
    assert_eq!((&document["values"], &document["totalValues"]), (&expected, &json!(3)));
    assert!(document["metadata"]["resourceVersion"].is_string());

    let selected = "?labelSelector=rank+in+(1,2,3)&limit=1&keelson.io/groupBy=.spec.containers[*].image";
    let document = raw.get(format!("{PODS}{selected}")).await.expect(200).json();
    assert_eq!(document["values"], json!([{"value": "image:v1.5", "count": 1}]));
    assert_eq!(document["totalValues"], 3);
    let booleans = raw.get("/api/v1/namespaces/default/pods?keelson.io/groupBy=.spec.enableServiceLinks").await;
    assert_eq!(booleans.expect(200).json()["values"], json!([{"value": true, "count": 8}]));
}

#[tokio::test]
async fn the_number_of_groups_of_an_object_is_limited() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let of = |letter: &str, count: usize| {
        let args: Vec<String> = (0..count).map(|number| format!("{letter}{number}")).collect();
        json!({
            "metadata": {"name": "many"},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"a": "b"}},
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "c", "image": "i", "args": args}]},
                },
            },
        })
    };
    let grouped = format!("{deployments}?keelson.io/groupBy=spec.template.spec.containers[*].args[*]&limit=1000");
    raw.post(deployments, &of("a", 600)).await.expect(201);
    assert_eq!(raw.get(&*grouped).await.expect(200).json()["totalValues"], 600);
    // The cached view advances to the changed object, half of whose values are new.
    raw.put(format!("{deployments}/many"), &of("b", 900)).await.expect(200);
    let counted = raw.get(&*grouped).await.expect(200).json();
    assert_eq!(counted["totalValues"], 900);
    assert!(
        counted["values"].as_array().unwrap().iter().all(|value| value["value"].as_str().unwrap().starts_with('b'))
    );
    raw.put(format!("{deployments}/many"), &of("c", 1100)).await.expect(200);
    let refused = raw.get(&*grouped).await.expect(400).json();
    let expected = "keelson.io/groupBy: the expression costs more than it may for default/many";
    assert_eq!(refused["message"], expected);
}

/// The memory for an order or groups is limited, and released.
#[tokio::test]
async fn an_order_that_takes_too_much_memory_is_refused() {
    let server = TestServer::builder().configure(|config| config.view_bytes = 128 << 10).start().await;
    let raw = server.raw();
    for number in 0..150 {
        let map = json!({"metadata": {"name": format!("map-{number:03}")}, "data": {"long": format!("{number:0250}")}});
        raw.post(CONFIG_MAPS, &map).await.expect(201);
    }
    let by = |times: usize| format!("{CONFIG_MAPS}?limit=1&keelson.io/sortBy={}", vec!["-data.long"; times].join(","));
    for _ in 0..2 {
        for sorted in [by(8), by(7)] {
            let refused = raw.get(sorted).await.expect(400).json();
            let expected = "keelson.io/sortBy: the answer costs more memory than it may to be put in order";
            assert_eq!(refused["message"], expected);
        }
        for sorted in [by(1), by(2)] {
            assert_eq!(names(&raw.get(sorted).await.expect(200).json()), ["map-149"]);
        }
        let groups = format!("{CONFIG_MAPS}?keelson.io/groupBy=data.long&keelson.io/filter=exists(data.long)&limit=2");
        let groups = raw.get(groups).await.expect(200).json();
        assert_eq!((groups["totalValues"].as_u64(), groups["values"][1]["count"].as_u64()), (Some(150), Some(1)));
    }
    // A cached order may not grow beyond the limit of a new one.
    let known = format!("{CONFIG_MAPS}?limit=1&keelson.io/sortBy={}", ["data.grown"; 8].join(","));
    raw.get(&*known).await.expect(200);
    for number in 0..100 {
        let grown = json!({"data": {"grown": "\0".repeat(256)}});
        let patched = raw.patch(format!("{CONFIG_MAPS}/map-{number:03}"), "application/merge-patch+json", &grown).await;
        patched.expect(200);
    }
    let refused = raw.get(&*known).await.expect(400).json();
    assert!(refused["message"].as_str().unwrap().starts_with("keelson.io/sortBy: the answer costs more memory"));
}

#[tokio::test]
async fn filters_and_conditions_select_objects() {
    let server = TestServer::start().await;
    let raw = pods(&server, 12).await;
    let check = async |query: &str, expect: &[usize]| {
        let found = raw.get(format!("{PODS}?{query}")).await.expect(200);
        let expect: Vec<String> = expect.iter().map(|number| format!("pod-{number:02}")).collect();
        assert_eq!(names(&found.json()), expect, "{query}");
        assert_eq!(found.header("keelson-total-count"), expect.len().to_string());
    };
    check("keelson.io/filter=spec.nodeName+in+('node-1','node-9')", &[1, 4, 7, 10]).await;
    check("keelson.io/filter=not+exists(spec.nodeName)+and+metadata.name+%3E+'pod-05'", &[6, 9]).await;
    check("keelson.io/filter=any(spec.containers,.image+matches+'v1[.]1.$')", &[10, 11]).await;
    check("keelson.io/filter=metadata.labels.rank='3'&labelSelector=rank", &[9]).await;
    check("keelson.io/where=int(object.metadata.labels.rank)+%3E+10", &[0, 1]).await;
    let both = "keelson.io/filter=exists(spec.nodeName)&keelson.io/where=object.spec.nodeName+==+'node-2'";
    check(&format!("{both}&keelson.io/sortBy=-metadata.name"), &[11, 8, 5, 2]).await;
    // A missing path in an expression leaves the object out.
    check("keelson.io/where=object.spec.missing.deeply+==+1", &[]).await;

    let page = format!("{PODS}?limit=2&{both}");
    let first = raw.get(&*page).await.expect(200).json();
    assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["pod-02", "pod-05"], &json!(2)));
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = raw.get(format!("{page}&continue={token}")).await.expect(200).json();
    assert_eq!(names(&rest), ["pod-08", "pod-11"]);
    raw.get(format!("{PODS}?limit=2&keelson.io/filter=exists(spec.nodeName)&continue={token}")).await.expect(400);
    let counted = format!("{PODS}?keelson.io/groupBy=spec.nodeName&keelson.io/filter=metadata.name+%3C+'pod-03'");
    let values = json!([{"value": "node-1", "count": 1}, {"value": "node-2", "count": 1}, {"count": 1}]);
    assert_eq!(raw.get(counted).await.expect(200).json()["values"], values);
}

#[tokio::test]
async fn objects_are_found_by_words_and_the_best_come_first() {
    let server = TestServer::start().await;
    let raw = server.raw();
    for (name, tier) in
        [("web", "front"), ("web-cache", "back"), ("database", "web"), ("queue", "back"), ("databsae", "x")]
    {
        let map = json!({"metadata": {"name": name, "labels": {"tier": tier}}});
        raw.post(CONFIG_MAPS, &map).await.expect(201);
    }
    let check = async |search: &str, expect: &[&str]| {
        let found = raw.get(format!("{CONFIG_MAPS}?keelson.io/search={search}")).await.expect(200).json();
        assert_eq!(names(&found), expect, "{search}");
    };
    check("web", &["web", "web-cache", "database"]).await;
    check("Database", &["database", "databsae"]).await;
    check("back+cach", &["web-cache"]).await;
    check("nothing", &[]).await;
    let sorted = raw.get(format!("{CONFIG_MAPS}?keelson.io/search=web&keelson.io/sortBy=-metadata.name")).await;
    assert_eq!(names(&sorted.expect(200).json()), ["web-cache", "web", "database"]);
}

#[tokio::test]
async fn matches_of_words_are_returned_with_the_page() {
    let server = TestServer::start().await;
    let raw = pods(&server, 12).await;
    let search = format!("{PODS}?limit=5&keelson.io/search=POD-0+node");
    let page = raw.get(&*search).await.expect(200);
    let told = raw.get(format!("{search}&keelson.io/matches=true")).await.expect(200);
    assert_eq!(told.header("keelson-total-count"), page.header("keelson-total-count"));
    let (page, told) = (page.json(), told.json());
    assert_eq!((&told["kind"], &told["apiVersion"]), (&json!("SearchMatches"), &json!("keelson.io/v1alpha1")));
    assert_eq!(told["metadata"], page["metadata"], "they are of one page, and have one token");
    let of = |document: &Value| -> Vec<String> {
        let names = document["items"].as_array().unwrap().iter();
        names.map(|item| item.get("name").unwrap_or(&item["metadata"]["name"]).to_string()).collect()
    };
    assert_eq!(of(&told), of(&page));
    let expected = json!({
        "namespace": "default", "name": "pod-01", "score": 3 * 60 + 60,
        "matches": [
            {"word": "pod-0", "field": ".metadata.name", "text": "pod-01", "manner": "beginsText", "points": 180},
            {"word": "node", "field": ".spec.nodeName", "text": "node-1", "manner": "wholeWord", "points": 80},
        ],
    });
    assert_eq!(told["items"][0]["matches"], expected["matches"]);
    assert_eq!((&told["items"][0]["name"], &told["items"][0]["score"]), (&json!("pod-01"), &json!(260)));
    let next = format!("{search}&keelson.io/matches=true&continue={}", page["metadata"]["continue"].as_str().unwrap());
    let rest = raw.get(next).await.expect(200).json();
    assert_eq!(rest["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn the_parameters_are_announced_and_described() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let announced = raw.get("/apis/keelson.io/v1alpha1").await.expect(200).json();
    let parameters = announced["parameters"].as_array().unwrap();
    let index = raw.get("/openapi/v3").await.expect(200).json();
    let place = index["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap();
    let v3 = raw.get(place).await.expect(200).json();
    let v2 = raw.get("/openapi/v2").await.expect(200).json();
    for (path, request) in [
        ("/api/v1/namespaces/{namespace}/pods", "list"),
        ("/api/v1/pods", "list"),
        ("/api/v1/namespaces/{namespace}/pods/{name}", "get"),
        ("/api/v1/namespaces/{namespace}/pods/{name}/status", "none"),
    ] {
        let expected: Vec<&str> = parameters
            .iter()
            .filter(|one| one["requests"].as_array().unwrap().contains(&json!(request)))
            .map(|one| one["name"].as_str().unwrap())
            .collect();
        let ours = |all: &Value, name: &dyn Fn(&Value) -> String| -> Vec<String> {
            let all = all.as_array().map(Vec::as_slice).unwrap_or_default();
            all.iter().map(name).filter(|name| name.starts_with("keelson.io/")).collect()
        };
        let in_v3 = ours(&v3["paths"][path]["get"]["parameters"], &|one| one["name"].as_str().unwrap().to_owned());
        assert_eq!(in_v3, expected, "{path}");
        let resolved = |one: &Value| {
            let place = one["$ref"].as_str().unwrap().strip_prefix('#').unwrap();
            v2.pointer(place).unwrap_or_else(|| panic!("{place} leads nowhere"))["name"].as_str().unwrap().to_owned()
        };
        assert_eq!(ours(&v2["paths"][path]["get"]["parameters"], &resolved), expected, "{path}");
    }
}

#[tokio::test]
async fn a_page_carries_only_the_requested_fields() {
    let server = TestServer::start().await;
    let raw = pods(&server, 3).await;
    let whole = raw.get(format!("{PODS}/pod-01")).await.expect(200).json();
    let masked = format!("{PODS}?limit=1&keelson.io/page=2&keelson.io/fields=spec.nodeName,spec.containers[*].image");
    let page = raw.get(&*masked).await.expect(200).json();
    let metadata = &whole["metadata"];
    let expected = json!({
        "metadata": {
            "name": "pod-01", "namespace": "default", "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
        },
        "spec": {"nodeName": "node-1", "containers": [{"image": "image:v1.1"}]},
    });
    assert_eq!(page["items"], json!([expected]));

    let bare = raw.get(format!("{PODS}?keelson.io/omitManagedFields=true")).await.expect(200).json();
    let mut expected = raw.get(PODS).await.expect(200).json();
    for item in expected["items"].as_array_mut().unwrap() {
        assert!(item["metadata"].as_object_mut().unwrap().remove("managedFields").is_some());
    }
    assert_eq!(bare, expected);
    // In every format, and compressed.
    let yaml = raw.get(&*masked).header("accept", "application/yaml").await.expect(200).text();
    assert!(yaml.contains("nodeName: node-1") && !yaml.contains("status"), "{yaml}");
    let protobuf = raw.get(&*masked).header("accept", "application/vnd.kubernetes.protobuf").await.expect(200).body;
    let holds = |part: &str| protobuf.windows(part.len()).any(|found| found == part.as_bytes());
    assert!(holds("image:v1.1") && !holds("Pending"));
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let rows =
        raw.get(format!("{PODS}?keelson.io/omitManagedFields=true&includeObject=Object")).header("accept", table);
    let rows = rows.await.expect(200).json();
    assert_eq!(rows["rows"][1]["object"]["metadata"].get("managedFields"), None);
    assert_eq!(rows["rows"][1]["cells"][0], "pod-01");
    raw.get(&*masked).header("accept", table).await.expect(400);
}

#[tokio::test]
async fn invalid_queries_are_refused_without_effect() {
    let server = TestServer::start().await;
    let raw = pods(&server, 3).await;
    let check = async |query: &str, part: &str| {
        let refused = raw.get(format!("{PODS}?{query}")).await.expect(400).json();
        let message = refused["message"].as_str().unwrap();
        assert_eq!(refused["reason"], "BadRequest");
        assert!(message.contains(part), "{query}: {message}");
    };
    check("keelson.io/sort=a", "unknown query parameter \"keelson.io/sort\"").await;
    check("keelson.io/sortBy=.spec.", "the name of a field is expected at character 7 of \".spec.\"").await;
    check("keelson.io/sortBy=.spec:size", "unknown comparison: it must be one of").await;
    check("keelson.io/page=2", "keelson.io/page needs a limit").await;
    check("keelson.io/page=0&limit=5", "pages are numbered from 1").await;
    check("keelson.io/filter=spec.nodeName+==", "a value is expected at character 17").await;
    check("keelson.io/filter=a+matches+'('", "invalid regular expression").await;
    check("keelson.io/where=object.", "keelson.io/where: compilation failed").await;
    let costly = "object.metadata.name.matches('(a*)*b')%7C%7C[1,2,3,4,5,6,7,8].all(a,[1,2,3,4,5,6,7,8].all(b,[1,2,3,4,5,6,7,8]\
                  .all(c,[1,2,3,4,5,6,7,8].all(d,[1,2,3,4,5,6,7,8].all(e,a%2Bb%2Bc%2Bd%2Be%3E0)))))";
    check(
        &format!("keelson.io/where={costly}"),
        "keelson.io/where: the expression costs more than it may for default/pod-0",
    )
    .await;
    check("keelson.io/fields=a[0]", "a mask has [*] for all items").await;
    check("keelson.io/search=", "a word to search for is expected").await;
    check("keelson.io/matches=true", "is about the words of a keelson.io/search").await;
    check("keelson.io/search=a&keelson.io/matches=true&limit=1001", "at most 1000 objects").await;
    check("watch=true&keelson.io/groupBy=.spec.nodeName", "are for lists alone").await;
    check("watch=true&keelson.io/at=7", "a watch begins with its resourceVersion").await;
    check("watch=true&keelson.io/page=1", "keelson.io/page needs a limit").await;
    check("watch=true&keelson.io/sortBy=.spec.nodeName", "a live page needs a limit of at most 500").await;
    check("watch=true&keelson.io/page=1&limit=501", "a live page needs a limit of at most 500").await;
    let one = raw.get(format!("{PODS}/pod-00?keelson.io/count=true")).await.expect(400).json();
    assert!(one["message"].as_str().unwrap().starts_with("of a single object keelson.io/at"), "{one}");
    raw.get(format!("{PODS}/pod-00/status?keelson.io/fields=kind")).await.expect(400);
    raw.delete(format!("{PODS}?keelson.io/page=1&limit=1")).await.expect(400);
    raw.delete(format!("{PODS}/pod-00?keelson.io/count=true")).await.expect(400);

    // A token belongs to its query and URL.
    let token = async |path: String| {
        let page = raw.get(path).await.expect(200).json();
        page["metadata"]["continue"].as_str().unwrap().to_owned()
    };
    let by_node = "limit=1&keelson.io/sortBy=.spec.nodeName";
    let sorted = token(format!("{PODS}?{by_node}")).await;
    let ordinary = token(format!("{PODS}?limit=1")).await;
    check(&format!("{by_node}&continue={ordinary}"), "invalid continue token: it does not belong to a query").await;
    check(&format!("limit=1&continue={sorted}"), "does not recognize this encoded version keelson.io/v1alpha1").await;
    check(&format!("limit=1&keelson.io/sortBy=-.spec.nodeName&continue={sorted}"), "it belongs to another query").await;
    check(&format!("{by_node}&labelSelector=rank&continue={sorted}"), "it belongs to another query").await;
    check(&format!("{by_node}&keelson.io/page=2&continue={sorted}"), "not allowed when using continue").await;
    let elsewhere = raw.get(format!("/api/v1/pods?{by_node}&continue={sorted}")).await.expect(400).json();
    assert!(elsewhere["message"].as_str().unwrap().contains("it belongs to another query"), "{elsewhere}");
    // Another limit is the same query.
    let rest = raw.get(format!("{PODS}?limit=9&keelson.io/sortBy=spec.nodeName&continue={sorted}")).await.expect(200);
    assert_eq!(names(&rest.json()), ["pod-02", "pod-00"]);
    assert_eq!(names(&raw.get(PODS).await.expect(200).json()).len(), 3, "nothing was deleted");
}

/// A misspelt selection must not select everything, for any verb.
#[tokio::test]
async fn a_prefix_in_other_letters_is_refused_on_each_verb() {
    let server = TestServer::start().await;
    let raw = pods(&server, 2).await;
    let one = format!("{PODS}/pod-00");
    let pod = raw.get(&*one).await.expect(200).json();
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let named = |path: &str, name: &str| format!("{path}?{name}=metadata.name=='pod-07'");
    for (name, told) in [
        ("Keelson.io/filter", "Keelson.io/filter"),
        ("KEELSON.IO%2FFILTER", "KEELSON.IO/FILTER"),
        ("keelson.io/Filter", "keelson.io/Filter"),
        ("keelson.io/", "keelson.io/"),
        ("keelson.io", "keelson.io"),
        ("keelson.io./filter", "keelson.io./filter"),
        ("%20keelson.io/filter", " keelson.io/filter"),
        ("keelson.io%252Ffilter", "keelson.io%2Ffilter"),
        ("limit=1&amp;keelson.io/filter", "amp;keelson.io/filter"),
    ] {
        let (many, one) = (named(PODS, name), named(&one, name));
        for call in [
            raw.get(&*many),
            raw.get(format!("{many}&watch=true")),
            raw.get(&*one),
            raw.get(one.replace('?', "/status?")),
            raw.post(
                &*many,
                &json!({"metadata": {"name": "new"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}),
            ),
            raw.put(&*one, &pod),
            raw.patch(&*one, "application/merge-patch+json", &patch),
            raw.delete(&*one),
            raw.delete(&*many),
        ] {
            let refused = call.await.expect(400).json();
            let expected = format!("unknown query parameter {told:?}; known parameters are");
            assert!(refused["message"].as_str().unwrap().starts_with(&expected), "{refused}");
        }
    }
    for value in ["metadata.name=='pod-07'", "a"] {
        let filter = format!("?keelson.io/filter={value}");
        for call in [raw.delete(format!("{PODS}{filter}")), raw.put(format!("{one}{filter}"), &pod)] {
            let refused = call.await.expect(400).json();
            assert_eq!(
                refused["message"],
                "keelson.io/filter: parameters that begin with keelson.io/ are for reads of objects alone"
            );
        }
    }
    let left = raw.get(PODS).await.expect(200).json();
    assert_eq!((names(&left), &left["items"][0]), (vec!["pod-00", "pod-01"], &with_no_kind(&pod)));
}

/// A condition that fails for one object is not tried on all others, which would waste time.
#[tokio::test]
async fn a_condition_that_costs_too_much_ends_with_the_first_object() {
    let server = TestServer::start().await;
    let raw = server.raw();
    for number in 0..1500 {
        raw.post(CONFIG_MAPS, &json!({"metadata": {"name": format!("map-{number}")}})).await.expect(201);
    }
    let eight = "[1,2,3,4,5,6,7,8]";
    let sum = "object.metadata.name.size()%2Ba%2Bb%2Bc%2Bd%2Be%2Bf%3E0";
    let all = ["a", "b", "c", "d", "e", "f"]
        .iter()
        .rev()
        .fold(sum.to_owned(), |inner, name| format!("{eight}.all({name},{inner})"));
    let refused = raw.get(format!("{CONFIG_MAPS}?timeout=5s&keelson.io/where={all}")).await.expect(400).json();
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.starts_with("keelson.io/where: the expression costs more than it may for default/map-"),
        "{message}"
    );
}

/// An object as a list item.
fn with_no_kind(object: &Value) -> Value {
    let mut item = object.clone();
    item.as_object_mut().unwrap().retain(|name, _| name != "kind" && name != "apiVersion");
    item
}

#[tokio::test]
async fn parameters_of_others_stay_without_effect() {
    let server = TestServer::start().await;
    let raw = pods(&server, 3).await;
    let ordinary = raw.get(PODS).await.expect(200);
    let other = raw.get(format!("{PODS}?sortBy=.spec.nodeName&page=2&count=true&groupBy=x&where=x")).await.expect(200);
    assert_eq!(other.body, ordinary.body);
    for name in ["keelson-total-count", "keelson-objects-scanned"] {
        assert!(!ordinary.headers.contains_key(name));
    }
}

#[tokio::test]
async fn queries_show_only_objects_that_the_user_may_list() {
    let server = TestServer::start().await;
    let raw = pods(&server, 3).await;
    raw.post("/api/v1/namespaces", &json!({"metadata": {"name": "other"}})).await.expect(201);
    let elsewhere = json!({"metadata": {"name": "hidden"}, "spec": {"containers": [{"name": "main", "image": "a"}]}});
    raw.post("/api/v1/namespaces/other/pods", &elsewhere).await.expect(201);
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]);
    raw.post(format!("{rbac}/roles"), &json!({"metadata": {"name": "lister"}, "rules": rules})).await.expect(201);
    let binding = json!({
        "metadata": {"name": "lister"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lister"},
        "subjects": [{"kind": "User", "name": "lisa", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    raw.post(format!("{rbac}/rolebindings"), &binding).await.expect(201);
    for query in
        ["keelson.io/count=true", "limit=1&keelson.io/sortBy=.spec.nodeName", "keelson.io/groupBy=.spec.nodeName"]
    {
        let all = raw.get(format!("/api/v1/pods?{query}")).await.expect(200);
        let refused = raw.get(format!("/api/v1/pods?{query}")).header("impersonate-user", "lisa").await.expect(403);
        assert!(!refused.headers.contains_key("keelson-total-count"), "{query}");
        let own = raw.get(format!("{PODS}?{query}")).header("impersonate-user", "lisa").await.expect(200);
        match query.contains("groupBy") {
            true => assert_ne!(own.json()["values"], all.json()["values"]),
            false => assert_eq!([own.header("keelson-total-count"), all.header("keelson-total-count")], ["3", "4"]),
        }
    }
}

#[tokio::test]
async fn a_walk_continues_after_a_restart() {
    let mut server = TestServer::builder().sqlite().start().await;
    let raw = pods(&server, 5).await;
    let sorted = format!("{PODS}?limit=2&keelson.io/sortBy=.metadata.labels.rank:number");
    let first = raw.get(&*sorted).await.expect(200).json();
    assert_eq!(names(&first), ["pod-04", "pod-03"]);
    raw.delete(format!("{PODS}/pod-02?gracePeriodSeconds=0")).await.expect(200);
    server.restart().await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    // The changes since the snapshot are read in the background after a start. Until then the snapshot is gone, and the
    // rest is the current state.
    let next = server.raw().get(format!("{sorted}&continue={token}")).await;
    match next.status {
        200 => assert_eq!(names(&next.json()), ["pod-02", "pod-01"]),
        _ => {
            let gone = next.expect(410).json();
            let token = gone["metadata"]["continue"].as_str().unwrap();
            let rest = server.raw().get(format!("{sorted}&continue={token}")).await.expect(200).json();
            assert_eq!(names(&rest), ["pod-01", "pod-00"]);
        }
    }
}

#[tokio::test]
async fn concurrent_equal_queries_build_one_index() {
    let server = TestServer::start().await;
    let raw = server.raw();
    for number in 0..40 {
        let map = json!({"metadata": {"name": format!("map-{number:02}")}, "data": {"n": number.to_string()}});
        raw.post(CONFIG_MAPS, &map).await.expect(201);
    }
    let sorted = format!("{CONFIG_MAPS}?limit=1&keelson.io/sortBy=-.data.n:number");
    let asked = (0..8).map(|_| {
        let (raw, sorted) = (server.raw(), sorted.clone());
        async move { raw.get(sorted).await.expect(200) }
    });
    let mut looked_at = 0;
    for answer in futures::future::join_all(asked).await {
        assert_eq!(names(&answer.json()), ["map-39"]);
        looked_at += answer.header("keelson-objects-scanned").parse::<usize>().unwrap();
    }
    // The root certificate of the namespace may appear in between, and is then scanned once more.
    assert!(looked_at < 2 * 41, "{looked_at}");
}
