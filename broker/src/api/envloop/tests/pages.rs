use std::collections::HashSet;
use std::sync::Arc;

use runwhere_agent::protocol::LogStream;
use runwhere_model::{JobId, TrialId};
use serde_json::Value;

use super::site::{Site, Talk};

/// Lines in all.
const LINES: usize = 100_000;
/// Lines that come at a time.
const BURST: usize = 250;

/// Writes numbered lines into two trials in turn, and ends both.
async fn write(site: Arc<Site>, trials: Vec<TrialId>) {
    let mut talks = [Talk::default(), Talk::default()];
    for begin in (0..LINES).step_by(BURST) {
        let index = begin / BURST % 2;
        let mut text = String::new();
        for number in begin..begin + BURST {
            text.push_str(&format!("line {number} {}\n", "x".repeat(number % 60)));
        }
        // Bursts end within lines, too.
        let (head, tail) = text.split_at(text.len() - begin / BURST % 7);
        let stream = if begin / BURST % 4 < 2 { LogStream::Stdout } else { LogStream::Stderr };
        for part in [head, tail].into_iter().filter(|part| !part.is_empty()) {
            talks[index].say(site.logs(), &trials[index], stream, part).await;
        }
        tokio::task::yield_now().await;
    }
    for trial in &trials {
        site.end(trial, 0).await;
    }
}

/// Follows a job's log to its end in pages of a size, and of another one after so many of them.
async fn follow(site: Arc<Site>, job: JobId, size: usize, pages: usize, then: usize) -> Vec<usize> {
    let (mut seen, mut ids, mut cursor, mut count) = (Vec::new(), HashSet::new(), String::new(), 0);
    loop {
        let limit = if count < pages { size } else { then };
        let path = format!("/v1/job/{job}/logs?source=runtime&limit={limit}{cursor}");
        let page = site.get(&path).await;
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= limit, "{} of {limit}", items.len());
        for item in items {
            assert!(ids.insert(item["id"].as_str().unwrap().to_owned()), "twice: {item}");
            let text = item["content"].as_str().unwrap();
            seen.push(text.split(' ').nth(1).unwrap().parse().unwrap());
        }
        count += 1;
        if page["eof"] == true {
            assert_eq!(page["has_more"], false);
            return seen;
        }
        let next = page["next_cursor"].as_str().unwrap();
        let changed = cursor != format!("&cursor={next}");
        assert!(changed || page["has_more"] == false, "a page that leads nowhere: {page}");
        cursor = format!("&cursor={next}");
        if items.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pages_of_every_size_have_each_line_once_while_they_are_written() {
    let site = Arc::new(Site::new().await);
    let (job, trials) = site.job(2).await;
    let writer = tokio::spawn(write(Arc::clone(&site), trials));
    // The smallest pages go on in larger ones, or they would take minutes.
    let readers = [(1, 500, 1000), (7, 300, 999), (64, 400, 1000)].map(|(size, pages, then)| {
        tokio::spawn(follow(Arc::clone(&site), job.clone(), size, pages, then))
    });
    writer.await.unwrap();
    for reader in readers {
        let mut seen = reader.await.unwrap();
        assert_eq!(seen.len(), LINES);
        // Each trial's own order, and nothing left out of either.
        for trial in 0..2 {
            let own: Vec<usize> =
                seen.iter().copied().filter(|line| line / BURST % 2 == trial).collect();
            for stream in 0..2 {
                let own: Vec<usize> =
                    own.iter().copied().filter(|line| line / BURST % 4 / 2 == stream).collect();
                assert!(own.is_sorted());
            }
        }
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..LINES));
    }
}

fn contents(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().unwrap().iter();
    items.map(|item| item["content"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_page_is_what_was_asked_for_and_its_cursor_outlives_the_server() {
    let mut site = Site::new().await;
    let (job, trials) = site.job(2).await;
    let (mut first, mut second) = (Talk::default(), Talk::default());
    let logs = site.logs().clone();
    first.say(&logs, &trials[0], LogStream::System, "told\n").await;
    first.say(&logs, &trials[0], LogStream::Stdout, "one\ntwo\nhal").await;
    second.say(&logs, &trials[1], LogStream::Stderr, "other\n").await;
    let path = format!("/v1/jobs/{job}/logs");
    let all = site.get(&path).await;
    // By time; equal times in the order of the trials. The unfinished line waits.
    assert_eq!(contents(&all), ["told", "other", "one", "two"]);
    assert_eq!((&all["eof"], &all["has_more"]), (&false.into(), &false.into()));
    assert_eq!(all["collection_status"], "collecting");
    let rows = |page: &Value, key: &str| {
        let items = page["items"].as_array().unwrap().iter();
        items.map(|item| item[key].as_str().unwrap_or("-").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(rows(&all, "source"), ["system", "runtime", "runtime", "runtime"]);
    assert_eq!(rows(&all, "stream"), ["-", "stderr", "stdout", "stdout"]);
    assert_eq!(rows(&all, "phase"), ["trial-1", "trial-2", "trial-1", "trial-1"]);
    let system = site.get(&format!("{path}?source=system")).await;
    assert_eq!(contents(&system), ["told"]);
    assert_eq!(system["sources"].as_array().unwrap().len(), 1);
    let last = site.get(&format!("{path}?tail=2&source=runtime&limit=1")).await;
    assert_eq!(contents(&last), ["one"]);
    assert_eq!(last["has_more"], true);

    // The server starts over; both cursors go on where they stood.
    drop(logs);
    site.bench.restart();
    let next = |page: &Value| format!("cursor={}", page["next_cursor"].as_str().unwrap());
    let more = site.get(&format!("{path}?{}&source=runtime", next(&last))).await;
    assert_eq!(contents(&more), ["two"]);
    let logs = site.logs().clone();
    first.say(&logs, &trials[0], LogStream::Stdout, "f\nlast").await;
    let more = site.get(&format!("{path}?{}", next(&all))).await;
    assert_eq!(contents(&more), ["half"]);
    site.end(&trials[0], 0).await;
    let more = site.get(&format!("{path}?{}", next(&more))).await;
    // The end of a sealed log is a line; the other trial may still say something.
    assert_eq!((contents(&more), &more["eof"]), (vec!["last".to_owned()], &false.into()));
    site.end(&trials[1], 7).await;
    let end = site.get(&format!("{path}?{}", next(&more))).await;
    assert_eq!((contents(&end), &end["eof"]), (Vec::new(), &true.into()));
    // What a trial wrote beyond its bound is told.
    assert_eq!((&end["truncated"], &end["dropped_bytes"]), (&true.into(), &7.into()));
    assert_eq!(end["collection_status"], "complete");
    // At the end a cursor stays good.
    let again = site.get(&format!("{path}?{}", next(&end))).await;
    assert_eq!((contents(&again), &again["eof"]), (Vec::new(), &true.into()));
}

#[tokio::test]
async fn wrong_questions_have_their_codes() {
    let site = Site::new().await;
    let (job, _) = site.job(1).await;
    let (other, _) = site.job(1).await;
    let path = format!("/v1/job/{job}/logs");
    let foreign = site.get(&format!("/v1/job/{other}/logs")).await;
    let foreign = format!("cursor={}", foreign["next_cursor"].as_str().unwrap());
    let own = site.get(&path).await;
    let own = format!("cursor={}", own["next_cursor"].as_str().unwrap());
    for (query, code) in [
        ("limit=0", "INVALID_LOG_QUERY"),
        ("limit=1001", "INVALID_LOG_QUERY"),
        ("tail=0", "INVALID_LOG_QUERY"),
        ("tail=x", "INVALID_LOG_QUERY"),
        (&format!("tail=1&{own}"), "INVALID_LOG_QUERY"),
        ("source=stdout", "INVALID_LOG_SOURCE"),
        ("cursor=!!!", "LOG_CURSOR_INVALID"),
        (&foreign, "LOG_CURSOR_INVALID"),
        (&format!("source=system&{own}"), "LOG_CURSOR_INVALID"),
    ] {
        let (status, body) = site.call("GET", &format!("{path}?{query}"), Vec::new()).await;
        assert_eq!((status, body["code"].as_str()), (400, Some(code)), "{query}: {body}");
    }
}
