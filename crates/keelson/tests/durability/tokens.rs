//! Tests of continue tokens across kill -9 between any two chunks.
//!
//! A token refers to a revision of the store, so it survives its process.

use serde_json::{Value, json};

use crate::{CONFIG_MAPS, items, list, start};

/// A chunked list with its expected result and its position.
struct Walk {
    selector: &'static str,
    whole: Value,
    found: Vec<Value>,
    token: Option<String>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn walks_continue_at_their_revision_across_kill_9_between_chunks() {
    let mut server = start().await;
    for number in 0..24 {
        let labels = json!({"third": (number % 3 == 0).to_string()});
        let body = json!({"metadata": {"name": format!("object-{number:02}"), "labels": labels}});
        server.raw().post(CONFIG_MAPS, &body).await.expect(201);
    }
    let mut walks = Vec::new();
    for selector in ["", "labelSelector=third%3Dtrue", "fieldSelector=metadata.namespace%3Ddefault"] {
        let whole = list(&server.raw(), CONFIG_MAPS, selector).await;
        walks.push(Walk { selector, whole, found: Vec::new(), token: None });
    }
    for chunk in 0..5 {
        for walk in &mut walks {
            let token = walk.token.take().map(|token| format!("&continue={token}")).unwrap_or_default();
            if chunk > 0 && token.is_empty() {
                continue;
            }
            let page = list(&server.raw(), CONFIG_MAPS, &format!("{}&limit=6{token}", walk.selector)).await;
            assert_eq!(page["metadata"]["resourceVersion"], walk.whole["metadata"]["resourceVersion"]);
            walk.found.extend(items(&page).iter().cloned());
            walk.token = page["metadata"]["continue"].as_str().map(str::to_owned);
        }
        // Objects written meanwhile are in none of the lists.
        let body = json!({"metadata": {"name": format!("object-{chunk:02}-late"), "labels": {"third": "true"}}});
        if chunk > 0 {
            let gone = format!("{CONFIG_MAPS}/object-{:02}", 24 - chunk * 3);
            server.raw().delete(gone).await.expect(200);
            server.raw().post(CONFIG_MAPS, &body).await.expect(201);
        }
        server.kill().await;
        server.restart().await;
    }
    for walk in walks {
        assert_eq!(walk.token, None, "the walk ends");
        assert_eq!(walk.found, items(&walk.whole), "{}", walk.selector);
    }
}
