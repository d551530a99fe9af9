//! EnvLoop: the largest and the most of everything, on real containers. Needs root.

use runwhere_tests::{Api, Containers, Processes, Server, Site, eventually_within, text};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(180);
const LARGE: u64 = 512 << 20;
const MEMORY_KIB: u64 = 150 << 10;
const LINES: usize = 100_000;

fn api(site: &Site) -> Api {
    Api::new(&site.server.url(), &site.key)
}

fn request(site: &Site, command: &str) -> Value {
    json!({ "type": "train", "spec": site.spec(1, command) })
}

fn submit(site: &Site, command: &str) -> String {
    let made = api(site).post("/v1/jobs", &request(site, command)).expect(201);
    text(&made, "job_id").to_owned()
}

/// Largest memory of a process so far.
fn peak_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}

fn agents(server: &Server) -> Vec<u32> {
    let mut found = Processes::of(server.data_dir()).0;
    found.retain(|id| {
        let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(b"agent")
    });
    found.into_iter().filter_map(|id| u32::try_from(id).ok()).collect()
}

#[test]
fn envloop_bounds_tags_and_artifacts_of_the_largest_size() {
    let site = Site::new("h100:1");
    let api = api(&site);
    let many = |count: usize| -> Value {
        (0..count)
            .map(|index| (format!("key-{index}"), json!("v")))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    // An emoji of seven code points, a letter with a combining mark, and what fills up to 256.
    let mixed = format!("👩\u{200d}👩\u{200d}👧\u{200d}👦e\u{301}{}", "😀".repeat(247));
    assert_eq!(mixed.chars().count(), 256);
    let with = |tags: Value| {
        let mut request = request(&site, "true");
        request["spec"]["tags"] = tags;
        api.post("/v1/jobs", &request)
    };
    for bad in [many(17), json!({ "k": format!("{mixed}x") }), json!({ "k": "x".repeat(257) })] {
        let refused = with(bad).expect(422);
        assert_eq!(refused["code"], "INVALID_TAG", "{refused}");
    }
    let mut tags = many(15);
    tags["mixed"] = json!(mixed);
    let tagged = with(tags.clone()).expect(201);
    assert_eq!(tagged["training"]["trials"][0]["tags"], tags);

    let id = submit(
        &site,
        "mkdir -p outputs && python -c 'import os\nblock = os.urandom(1 << 20)\n\
         with open(\"outputs/large.bin\", \"wb\") as file:\n    for _ in range(512): file.write(block)'",
    );
    let mut peaks: BTreeMap<u32, u64> = BTreeMap::new();
    let look = |peaks: &mut BTreeMap<u32, u64>| {
        for pid in agents(&site.server).into_iter().chain([site.server.pid()]) {
            // An agent may end between the two looks.
            if let Some(found) = peak_kib(pid) {
                let peak = peaks.entry(pid).or_default();
                *peak = found.max(*peak);
            }
        }
    };
    let job = eventually_within(LONG, "the job ends", || {
        look(&mut peaks);
        let job = api.get(&format!("/v1/jobs/{id}")).expect(200);
        let ended = matches!(job["status"].as_str(), Some("completed" | "failed" | "cancelled"));
        ended.then_some(job)
    });
    let log = api.get(&format!("/v1/jobs/{id}/logs?source=runtime&tail=20"));
    assert_eq!(job["status"], "completed", "{job}\n{}", log.body);
    let trial = job["training"]["trials"][0]["trial_id"].as_str().unwrap().to_owned();
    let page = api.get(&format!("/v1/trials/{trial}/artifacts")).expect(200);
    let item = &page["items"][0];
    assert_eq!((&item["name"], &item["size"]), (&json!("outputs/large.bin"), &json!(LARGE)));
    site.ours(&["trial", "artifact", "download", &trial, "files"]).expect_code(0);
    look(&mut peaks);
    let bytes = fs::read(site.home.path().join("files/outputs/large.bin")).unwrap();
    assert_eq!(item["sha256"], hex::encode(Sha256::digest(bytes)));
    // The server, the agent of the tagged job, and that of the large one.
    eprintln!("peaks in KiB: {peaks:?}");
    assert!(peaks.len() >= 2, "{peaks:?}");
    assert!(peaks.values().all(|peak| *peak < MEMORY_KIB), "{peaks:?}");
}

/// Follows a log in pages of a size, of another size after so many of them, and over breaks of the server.
fn follow(api: &Api, id: &str, size: usize, pages: usize, then: usize) -> Vec<usize> {
    let (mut seen, mut ids, mut cursor, mut count) = (Vec::new(), HashSet::new(), String::new(), 0);
    loop {
        let limit = if count < pages { size } else { then };
        let path = format!("/v1/jobs/{id}/logs?source=runtime&limit={limit}{cursor}");
        let page = eventually_within(LONG, "a page comes", || {
            api.try_get(&path).filter(|reply| reply.status == 200)
        })
        .body;
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= limit);
        for item in items {
            assert!(ids.insert(item["id"].as_str().unwrap().to_owned()), "twice: {item}");
            seen.push(item["content"].as_str().unwrap().parse().unwrap());
        }
        if page["eof"] == true {
            return seen;
        }
        cursor = format!("&cursor={}", page["next_cursor"].as_str().unwrap());
        count += 1;
        if items.is_empty() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn envloop_bounds_logs_are_paged_while_they_are_written_and_the_registry_speaks_tls() {
    let mut site = Site::on(Containers::start_with_tls(), "h100:1", "");
    let id = submit(
        &site,
        "exec python -uc 'import time\nfor number in range(100000):\n    print(number)\n    \
         if number % 2000 == 0: time.sleep(0.1)'",
    );
    let api = api(&site);
    // The smallest pages go on in larger ones, or they would take minutes.
    let sizes = [(1, 300, 1000), (7, 300, 999), (64, 400, 1000)];
    std::thread::scope(|scope| {
        let readers = sizes.map(|(size, pages, then)| {
            let (api, id) = (Api::new(&site.server.url(), &site.key), &id);
            scope.spawn(move || follow(&api, id, size, pages, then))
        });
        eventually_within(LONG, "half of it is there", || {
            let page = api.try_get(&format!("/v1/jobs/{id}/logs?source=runtime&tail=1"))?;
            let last = page.body["items"][0]["content"].as_str()?.parse::<usize>().ok()?;
            (last > LINES / 5).then_some(())
        });
        site.server.restart();
        for reader in readers {
            let seen = reader.join().unwrap();
            assert!(seen.into_iter().eq(0..LINES));
        }
    });
    let end = api.get(&format!("/v1/jobs/{id}/logs?source=runtime&tail=3")).expect(200);
    let last: Vec<&str> = end["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|item| item["content"].as_str())
        .collect();
    assert_eq!(last, ["99997", "99998", "99999"]);
    assert_eq!((&end["truncated"], &end["dropped_bytes"]), (&json!(false), &json!(0)));
}
