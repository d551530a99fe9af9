//! Pages: their ends, their sizes, their repetition.

use std::sync::Arc;

use crate::http::FolderCache;
use crate::testing::clouds::{Asked, Leaping, Reply, START, Server, cloud};

#[tokio::test]
async fn azure_never_follows_a_link_to_another_host() {
    let (_, server, _) = cloud("azure").read(cloud("azure").good()).await;
    let asked = server.asked();
    assert_eq!(asked.len(), 2);
    assert!(asked[1].query.contains("$skip=1000"), "{}", asked[1].query);
    // Filters are in the form that the API takes (no. 68).
    assert!(asked.iter().all(|asked| asked.method == "GET"));
    let filter = &asked[0].query;
    assert!(filter.contains("contains%28armSkuName") && !filter.contains("not%28"), "{filter}");
}

#[tokio::test]
async fn a_page_that_names_itself_as_the_next_one_ends_the_reading_with_a_gap() {
    let azure = cloud("azure");
    let script = Arc::new(move |_, asked: &Asked| {
        let mut asked = asked.clone();
        asked.query = String::new();
        azure.reply(&asked)
    });
    let sheet = azure.read(script).await.0.unwrap();
    assert!(!sheet.complete && sheet.gaps[0].reason.contains("earlier page"), "{:?}", sheet.gaps);
}

#[tokio::test]
async fn an_unchanged_page_is_not_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let cache = FolderCache::new(folder.path());
    let server = Server::start(Arc::new(|_, asked: &Asked| match asked.header("if-none-match") {
        Some("\"v1\"") => Reply::status(304, ""),
        _ => Reply::json("{\"a\": 1}").with("etag", "\"v1\""),
    }))
    .await;
    let client = crate::http::HttpClient::loopback().unwrap();
    let id = runwhere_model::ProviderId::new("files").unwrap();
    let http = crate::http::Http::new(id, &client, Leaping::at(START)).with_cache(Arc::new(cache));
    for _ in 0..3 {
        let body = http
            .session()
            .cached("file", "file", |_| crate::http::Request::get(&format!("{}/f", server.base)))
            .await
            .unwrap();
        assert_eq!(&body[..], b"{\"a\": 1}");
    }
    let conditional: Vec<bool> =
        server.asked().iter().map(|asked| asked.header("if-none-match").is_some()).collect();
    assert_eq!(conditional, [false, true, true]);
}

#[tokio::test]
async fn an_answer_beyond_the_cap_or_without_an_end_is_given_up() {
    let server = Server::start(Arc::new(|_, asked: &Asked| {
        let reply = Reply::json(vec![b' '; 4096]);
        // The length is stated truly, or the answer is cut before it.
        if asked.path == "/cut" { reply.cut() } else { reply }
    }))
    .await;
    let client = crate::http::HttpClient::loopback().unwrap();
    let id = runwhere_model::ProviderId::new("files").unwrap();
    let policy = crate::http::Policy::default().max_body(1024);
    let http = crate::http::Http::new(id, &client, Leaping::at(START)).with_policy(policy);
    for (path, word) in [("whole", "longer than 1024 bytes"), ("cut", "longer than 1024 bytes")] {
        let url = format!("{}/{path}", server.base);
        let read = http.session().bytes("page", |_| crate::http::Request::get(&url)).await;
        let error = read.unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}
