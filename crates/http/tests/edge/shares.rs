//! Shares of users: a user that takes all it can get leaves capacity for others, for administrators and for health
//! checks.
//!
//! In each test one user takes much of one resource over real connections, while other clients must get answers.

use std::time::Duration;

use futures::future::join_all;
use http::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use keelson_http::filters::FlowLimits;
use keelson_http::listener::Limits;

use crate::client::{Client, Credentials, Protocol, Server, Setup, next_frame, soon};
use crate::service;

const LARGE: &str = "/api/v1/namespaces/large/configmaps";
const SMALL: &str = "/api/v1/namespaces/a/configmaps/x";
const MAPS: &str = "/api/v1/namespaces/a/configmaps";
const WATCH: &str = "/api/v1/namespaces/a/configmaps?watch=1";
const ANN: Credentials = Credentials::Token("ann");
const BOB: Credentials = Credentials::Token("bob");

async fn with_connections(connections: usize) -> Server {
    let limits = Limits { connections, ..Limits::default() };
    Server::start_with(Setup { limits, ..Setup::default() }).await
}

/// A connection with a watch on it.
async fn watching(server: &Server, credentials: Credentials) -> (Client, Response<Incoming>) {
    let mut client = server.connect(Protocol::Http2, credentials).await;
    let watch = client.open(WATCH).await;
    (client, watch)
}

async fn number(server: &Server, series: &str) -> f64 {
    server.metric(series).await.parse().unwrap()
}

#[tokio::test]
async fn a_connection_limit_of_one_user_affects_no_others() {
    let server = with_connections(64).await;
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(watching(&server, ANN).await);
    }
    assert!(held.iter().all(|(_, watch)| watch.status() == 200));
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let mut ninth = server.connect(protocol, ANN).await;
        let refused = ninth.get(SMALL).await;
        assert_eq!((refused.status, &refused.headers["retry-after"]), (429, &"5".parse().unwrap()), "{}", refused.text);
        assert!(refused.text.contains("too many connections: the user has its share"), "{}", refused.text);
        assert_eq!(ninth.get("/livez").await.status, 200);
    }
    for (credentials, path) in [(BOB, SMALL), (Credentials::Admin, SMALL), (Credentials::None, "/livez")] {
        let mut other = server.connect(Protocol::Http2, credentials).await;
        assert_eq!(other.get(path).await.status, 200, "{credentials:?}");
    }
    // A connection without a request is evicted for a new one of its user.
    let (mut idle, watch) = held.remove(3);
    drop(watch);
    let mut new = server.connect(Protocol::Http2, ANN).await;
    soon("a place for another connection", async { while new.get(SMALL).await.status != 200 {} }).await;
    soon("the end of the idle one", async { while idle.try_get(SMALL).await.is_ok() {} }).await;
}

#[tokio::test]
async fn users_with_many_connections_block_neither_health_checks_nor_others() {
    const USERS: [&str; 10] = ["u0", "u1", "u2", "u3", "u4", "u5", "u6", "u7", "u8", "u9"];
    let server = with_connections(64).await;
    let mut early = server.connect(Protocol::Http2, Credentials::Admin).await;
    assert_eq!(early.get(SMALL).await.status, 200);
    let mut held = Vec::new();
    for user in USERS {
        for _ in 0..8 {
            held.push(watching(&server, Credentials::Token(user)).await);
        }
    }
    for (credentials, path) in [(Credentials::None, "/livez"), (Credentials::Admin, SMALL), (BOB, SMALL)] {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let mut client = server.connect(protocol, credentials).await;
            assert_eq!(client.get(path).await.status, 200, "{credentials:?}");
        }
    }
    assert_eq!(early.get(SMALL).await.status, 200, "connections of administrators give way to none");
    let known = number(&server, r#"keelson_connections{state="known"}"#).await;
    assert!(known <= 64.0, "{known} connections");
}

/// Anyone can create a certificate. One of an untrusted authority does not authenticate its client.
#[tokio::test]
async fn certificates_of_other_authorities_take_no_more_connections_than_none() {
    let server = with_connections(16).await;
    let mut strangers = Vec::new();
    for _ in 0..30 {
        strangers.push(Client::try_connect(&server, Protocol::Http1, Credentials::Stranger).await);
    }
    let mut admin = server.connect(Protocol::Http1, Credentials::Admin).await;
    assert_eq!(admin.get(SMALL).await.status, 200);
    let open = number(&server, r#"keelson_connections{state="stranger"}"#).await;
    assert!(open <= 4.0, "{open} connections of strangers");
}

/// A server with few seats for users, which are lent after `unread / 60`.
async fn narrow(seats: usize, limits: Limits) -> Server {
    Server::start_with(Setup { users: Some((seats, 4)), limits, ..Setup::default() }).await
}

#[tokio::test]
async fn a_response_that_waits_for_its_client_lends_and_regains_its_seats() {
    let server = narrow(1, Limits { unread: Duration::from_secs(60), ..Limits::default() }).await;
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let mut ann = server.connect(protocol, ANN).await;
        let mut list = ann.open(LARGE).await.into_body();
        next_frame(&mut list).await.unwrap().unwrap();
        let mut bob = server.connect(Protocol::Http2, BOB).await;
        assert_eq!(bob.get(SMALL).await.status, 200, "it waits for the seat, and gets it");
        assert!(number(&server, "keelson_seats_lent_total").await > 0.0);
        let rest = soon("the rest of the list", list.collect()).await.unwrap().to_bytes().len();
        assert!(rest > (service::LARGE_FRAMES - 2) * service::FRAME_BYTES, "{protocol:?} {rest}");
    }
}

/// Two users who never read their lists once blocked all others without a time limit.
#[tokio::test]
async fn unread_lists_of_some_users_block_no_others() {
    let server = narrow(4, Limits { unread: Duration::from_secs(30), ..Limits::default() }).await;
    let (ann, carl) =
        (server.connect(Protocol::Shut, ANN).await, server.connect(Protocol::Shut, Credentials::Token("carl")).await);
    let open = |client: &Client| {
        let mut client = client.beside();
        async move { client.open(LARGE).await }
    };
    let lists: Vec<_> = (0..4).flat_map(|_| [open(&ann), open(&carl)]).collect();
    let unread = soon("the heads of all lists", join_all(lists)).await;
    let mut bob = server.connect(Protocol::Http2, BOB).await;
    for _ in 0..10 {
        assert_eq!(bob.get(SMALL).await.status, 200);
    }
    let taken = r#"apiserver_flowcontrol_current_executing_seats{priority_level="global-default",flow_schema="global-default"}"#;
    soon("no seat of a list that waits", async { while number(&server, taken).await > 0.0 {} }).await;
    drop(unread);
}

#[tokio::test]
async fn an_answer_that_is_taken_too_slowly_is_cut() {
    let slow = Limits { unread: Duration::from_secs(4), least_bytes_per_second: 1 << 30, ..Limits::default() };
    let server = narrow(10, slow).await;
    let mut ann = server.connect(Protocol::Http2, ANN).await;
    let mut list = ann.open(LARGE).await.into_body();
    soon("the end of the list", async {
        while next_frame(&mut list).await.unwrap().is_ok() {
            // Each piece is read long before the timeout of unread responses.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
    .await;
    assert_eq!(number(&server, "keelson_responses_slow_total").await, 1.0);
    assert_eq!(number(&server, "keelson_responses_aborted_total").await, 0.0);
}

#[tokio::test]
async fn a_watch_limit_of_one_user_affects_no_others() {
    let flow = FlowLimits { watches: 16, ..FlowLimits::default() };
    let server = Server::start_with(Setup { flow, ..Setup::default() }).await;
    let ann = server.connect(Protocol::Http2, ANN).await;
    let mut held = vec![ann.beside().open(WATCH).await, ann.beside().open(WATCH).await];
    let refused = ann.beside().get(WATCH).await;
    assert_eq!(refused.status, 429, "{}", refused.text);
    let text = "too many watches: the user has 2 of the 2 that one user may have";
    assert!(refused.text.contains(text) && refused.text.contains("TooManyRequests"), "{}", refused.text);
    assert_eq!(refused.headers["retry-after"], "5");
    assert_eq!(ann.beside().get(SMALL).await.status, 200, "other requests go on");
    for credentials in [BOB, Credentials::Admin] {
        let (_client, watch) = watching(&server, credentials).await;
        assert_eq!(watch.status(), 200, "{credentials:?}");
    }
    held.pop();
    soon("a watch in the place of another", async { while ann.beside().open(WATCH).await.status() != 200 {} }).await;
    assert!(number(&server, r#"keelson_shares_refused_total{resource="watches"}"#).await >= 1.0);
}

/// A watch with a query evaluates objects at each change.
#[tokio::test]
async fn watches_with_queries_count_as_several() {
    let flow = FlowLimits { watches: 400, ..FlowLimits::default() };
    let server = Server::start_with(Setup { flow, ..Setup::default() }).await;
    let ann = server.connect(Protocol::Http2, ANN).await;
    let mut held = Vec::new();
    for expected in [200, 200, 200, 429] {
        let watch = ann.beside().open(&format!("{WATCH}&keelson.io/filter=data.a=='b'")).await;
        assert_eq!(watch.status(), expected);
        held.push(watch);
    }
    assert_eq!(ann.beside().open(WATCH).await.status(), 200, "two plain ones are left");
}

/// A watch keeps its selectors. Their parsed requirements need a hundred times as many bytes as their text.
#[tokio::test]
async fn watches_with_long_selectors_count_as_several() {
    let flow = FlowLimits { watches: 400, ..FlowLimits::default() };
    let server = Server::start_with(Setup { flow, ..Setup::default() }).await;
    let ann = server.connect(Protocol::Http2, ANN).await;
    let selectors = format!("&labelSelector=a{}", ",!b".repeat(2_000));
    let mut held = Vec::new();
    for expected in [200, 200, 429] {
        let watch = ann.beside().open(&format!("{WATCH}{selectors}")).await;
        assert_eq!(watch.status(), expected);
        held.push(watch);
    }
    assert_eq!(ann.beside().open(WATCH).await.status(), 200, "plain ones are left");
}

/// A client that sends its bodies slowly, or never completely, must hold no seat that others need.
#[tokio::test]
async fn bodies_that_do_not_arrive_hold_no_seats() {
    let server = narrow(1, Limits::default()).await;
    let ann = server.connect(Protocol::Http2, ANN).await;
    let halves: Vec<_> = (0..20).map(|_| ann.beside().begin(MAPS)).collect();
    soon("the slow bodies", async {
        while number(&server, r#"keelson_shares_taken{resource="slow request bodies"}"#).await < 20.0 {}
    })
    .await;
    for credentials in [ANN, BOB] {
        let mut client = server.connect(Protocol::Http2, credentials).await;
        assert_eq!(client.send("POST", MAPS, &[], "{}").await.status, 201, "{credentials:?}");
    }
    // Each user also has only a share of slow bodies.
    let mut more = Vec::new();
    for _ in 0..3 {
        let other = server.connect(Protocol::Http2, ANN).await;
        more.extend((0..20).map(|_| other.beside().begin(MAPS)));
    }
    soon("a refusal", async {
        while number(&server, r#"keelson_shares_refused_total{resource="slow request bodies"}"#).await < 1.0 {}
    })
    .await;
    halves.iter().chain(&more).for_each(tokio::task::JoinHandle::abort);
}
